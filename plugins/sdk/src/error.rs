//! What went wrong, in the words of the records' owner.

use std::fmt::{self, Display};

/// Why a record or row cannot go on.
///
/// Whatever can be displayed becomes one, so `?` works on any error, and so does
/// `return Err("no payload".into())`.
pub struct Error {
    message: String,
    fault: bool,
}

/// A result whose error is an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), fault: false }
    }

    /// A misuse of this crate: the plugin is wrong, whatever the record.
    pub(crate) fn fault(message: impl Into<String>) -> Self {
        Self { message: message.into(), fault: true }
    }

    pub(crate) fn is_fault(&self) -> bool {
        self.fault
    }

    /// The text, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn into_message(self) -> String {
        self.message
    }
}

// `Error` must not be `Display` itself, or this would overlap with `From<T> for T`.
impl<T: Display> From<T> for Error {
    fn from(error: T) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

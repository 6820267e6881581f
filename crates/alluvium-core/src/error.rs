//! What an error asks for.

use std::fmt;

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// One record is at fault: it goes to the dead letters.
    Record,
    /// A plugin is at fault: its pipeline pauses.
    Plugin,
    /// The outside is at fault for now: try again, with growing waits.
    External,
    /// The owner has to change something: stop with a hint.
    User,
    /// alluvium is at fault: stop and report.
    Bug,
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Record => "record",
            Self::Plugin => "plugin",
            Self::External => "external",
            Self::User => "user",
            Self::Bug => "bug",
        })
    }
}

/// An error that knows its class, and what its reader can do now.
pub trait Classified: std::error::Error + Send + Sync + 'static {
    fn class(&self) -> ErrorClass;

    /// What to do now, in one line.
    fn hint(&self) -> Option<String> {
        None
    }
}

/// Any classified error, from behind a seam.
pub struct Fault(Box<dyn Classified>);

impl Fault {
    pub fn new(error: impl Classified) -> Self {
        Self(Box::new(error))
    }

    pub fn class(&self) -> ErrorClass {
        self.0.class()
    }

    pub fn hint(&self) -> Option<String> {
        self.0.hint()
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

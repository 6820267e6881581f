//! Faults of a pipeline file.

use crate::snippet::Snippet;
use alluvium_core::{Classified, ErrorClass};
use std::fmt;

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Not TOML.
    Syntax,
    /// A key or a name that stands twice.
    Duplicate,
    /// A key that the file's format does not have.
    Unknown,
    /// A key that has to be there.
    Missing,
    /// A value of the wrong TOML type.
    Type,
    /// A value of the right type that is not allowed.
    Value,
    /// Two values that do not go together.
    Conflict,
    /// A setting that would break a promise of alluvium.
    Refused,
    /// Something that is planned but not there yet.
    Unsupported,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "syntax",
            Self::Duplicate => "duplicate",
            Self::Unknown => "unknown",
            Self::Missing => "missing",
            Self::Type => "type",
            Self::Value => "value",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
        })
    }
}

/// One fault. Every text in it is fit for a terminal: control characters are escaped, secrets masked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    pub kind: ErrorKind,
    /// From 1.
    pub line: usize,
    /// From 1, in characters; a tab is one, a byte order mark none.
    pub column: usize,
    /// What was found.
    pub message: String,
    /// What is allowed instead.
    pub allowed: Option<String>,
    /// What to do now.
    pub hint: Option<String>,
    pub(crate) snippet: Snippet,
}

impl fmt::Display for Error {
    /// The message alone, without position.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// All faults of a pipeline file, in the file's order; at least one. Displayed, each has its place,
/// the line with a marker under it, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    file_name: String,
    errors: Vec<Error>,
    unlisted: usize,
}

/// More faults than this are only counted: no reader wants them, and no file shall keep us busy.
pub(crate) const MOST: usize = 100;

impl Errors {
    pub(crate) fn new(file_name: String, errors: Vec<Error>, unlisted: usize) -> Self {
        Self { file_name, errors, unlisted }
    }

    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// How many faults are listed: 100 at most.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.errors.len()
    }

    /// How many more faults there are.
    pub fn unlisted(&self) -> usize {
        self.unlisted
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.errors.iter()
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a Error;
    type IntoIter = std::slice::Iter<'a, Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for error in &self.errors {
            self.fmt_one(error, f)?;
            f.write_str("\n")?;
        }
        if self.unlisted > 0 {
            writeln!(f, "and {} more\n", self.unlisted)?;
        }
        let all = self.errors.len() + self.unlisted;
        write!(f, "{all} error{} in {}", if all == 1 { "" } else { "s" }, self.file_name)
    }
}

impl Errors {
    fn fmt_one(&self, error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = error.line.to_string();
        let gutter = " ".repeat(line.len());
        writeln!(f, "error: {}", error.message)?;
        writeln!(f, "{gutter}--> {}:{line}:{}", self.file_name, error.column)?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{}", format!("{line} | {}", error.snippet.line).trim_end())?;
        write!(f, "{gutter} | {}{}", " ".repeat(error.snippet.start), "^".repeat(error.snippet.length))?;
        match &error.allowed {
            Some(allowed) => writeln!(f, " allowed: {allowed}")?,
            None => writeln!(f)?,
        }
        match &error.hint {
            Some(hint) => writeln!(f, "{gutter} hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Errors {}

impl Classified for Errors {
    /// The file's owner has to change it; the hints are part of the display.
    fn class(&self) -> ErrorClass {
        ErrorClass::User
    }
}

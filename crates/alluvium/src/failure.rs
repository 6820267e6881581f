//! Why a command failed, and with which exit code.

use alluvium_core::{Classified, ErrorClass};
use std::fmt;

/// A command's failure: what failed, why, and what to do now.
#[derive(Debug)]
pub struct Failure {
    /// What failed, then each cause.
    chain: Vec<String>,
    hint: Option<String>,
    exit_code: u8,
}

/// The work failed.
pub const FAILED: u8 = 1;
/// The input (file, flags) is wrong.
pub const WRONG_INPUT: u8 = 2;

impl Failure {
    /// A failure of the work, in one line.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { chain: vec![message.to_string()], hint: None, exit_code: FAILED }
    }

    /// A fault in a file or a flag.
    pub fn input(message: impl fmt::Display) -> Self {
        Self { exit_code: WRONG_INPUT, ..Self::new(message) }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says in front what was being done.
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.chain.insert(0, doing.to_string());
        self
    }

    /// An error that knows its class: the owner's own faults exit with 2.
    pub fn classified(error: &dyn Classified) -> Self {
        let exit_code = if error.class() == ErrorClass::User { WRONG_INPUT } else { FAILED };
        Self { chain: chain(error), hint: error.hint(), exit_code }
    }

    /// Another error with its causes.
    pub fn caused(doing: impl fmt::Display, error: &(dyn std::error::Error + 'static)) -> Self {
        Self { chain: chain(error), hint: None, exit_code: FAILED }.context(doing)
    }

    /// The same with the exit code of a wrong input.
    pub fn into_input(self) -> Self {
        Self { exit_code: WRONG_INPUT, ..self }
    }

    /// The same with the exit code of work that failed.
    pub fn into_failed(self) -> Self {
        Self { exit_code: FAILED, ..self }
    }

    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

fn chain(error: &(impl std::error::Error + ?Sized)) -> Vec<String> {
    let mut chain = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(source) = cause {
        chain.push(source.to_string());
        cause = source.source();
    }
    chain.dedup();
    chain
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chain = self.chain.iter();
        if let Some(first) = chain.next() {
            // Several faults of one file are told as they are, each as an error of its own.
            let prefix = if first.starts_with("error") { "" } else { "error: " };
            write!(f, "{prefix}{first}")?;
        }
        for cause in chain {
            write!(f, "\n  caused by: {cause}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

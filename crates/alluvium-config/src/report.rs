//! Where faults are gathered while the file is read on.

use crate::error::MOST;
use crate::snippet::{Lines, escaped};
use crate::{Error, ErrorKind, Errors};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;

/// A fault at bytes of the file.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: ErrorKind,
    span: Range<usize>,
    message: String,
    allowed: Option<String>,
    hint: Option<String>,
}

impl Problem {
    pub fn new(kind: ErrorKind, span: Range<usize>, message: impl Into<String>) -> Self {
        Self { kind, span, message: message.into(), allowed: None, hint: None }
    }

    /// What is allowed instead.
    pub fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// What to do now.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Marks another part than the whole value.
    pub fn at(mut self, span: Range<usize>) -> Self {
        self.span = span;
        self
    }
}

/// The faults of one file.
#[derive(Debug)]
pub(crate) struct Report<'t> {
    lines: Lines<'t>,
    problems: RefCell<Vec<Problem>>,
    secrets: RefCell<Vec<Range<usize>>>,
}

impl<'t> Report<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { lines: Lines::new(text), problems: RefCell::default(), secrets: RefCell::default() }
    }

    pub fn add(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Masks these bytes of the file in every message.
    pub fn hide(&self, secret: Range<usize>) {
        self.secrets.borrow_mut().push(secret);
    }

    pub fn lines(&self) -> &Lines<'t> {
        &self.lines
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// `value` when there were no faults.
    pub fn finish<T>(self, file_name: &str, value: Option<T>) -> Result<T, Errors> {
        let mut problems = self.problems.into_inner();
        match value {
            Some(value) if problems.is_empty() => return Ok(value),
            _ => problems.sort_by_key(|problem| problem.span.start),
        }
        let lines = &self.lines;
        let is_syntax = |problem: &&Problem| problem.kind == ErrorKind::Syntax;
        let broken: HashSet<usize> =
            problems.iter().filter(is_syntax).map(|problem| lines.line(problem.span.start).start).collect();
        // What else such a line lacks, or what is missing because of it, is known once it can be read.
        problems.retain(|problem| match problem.kind {
            ErrorKind::Syntax => true,
            ErrorKind::Missing | ErrorKind::Conflict => broken.is_empty(),
            _ => !broken.contains(&lines.line(problem.span.start).start),
        });
        let unlisted = problems.len().saturating_sub(MOST);
        problems.truncate(MOST);
        let secrets = self.secrets.into_inner();
        let errors = problems.into_iter().map(|problem| {
            let (line, column) = self.lines.position(problem.span.start);
            Error {
                kind: problem.kind,
                line,
                column,
                message: escaped(&problem.message),
                allowed: problem.allowed.as_deref().map(escaped),
                hint: problem.hint.as_deref().map(escaped),
                snippet: self.lines.snippet(&problem.span, &secrets),
            }
        });
        Err(Errors::new(escaped(file_name), errors.collect(), unlisted))
    }
}

//! Half-open ranges of offsets.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A half-open range `[from, to)` of offsets of one partition.
///
/// `from` is the position before, not the first record's offset: gaps left by compaction or by
/// transaction markers lie inside a span, so that the spans of consecutive chunks always join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    from: i64,
    to: i64,
}

/// Two spans that do not join, or a range that runs backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    #[error("a span cannot run from offset {from} back to {to}")]
    Backwards { from: i64, to: i64 },
    #[error("a span starts at offset {from}, below 0")]
    Negative { from: i64 },
    #[error("span {second} does not follow span {first}")]
    Disjoint { first: Span, second: Span },
}

impl Span {
    /// The span `[from, to)`; `to` may equal `from`.
    pub fn new(from: i64, to: i64) -> Result<Self, SpanError> {
        if from < 0 {
            return Err(SpanError::Negative { from });
        }
        if to < from {
            return Err(SpanError::Backwards { from, to });
        }
        Ok(Self { from, to })
    }

    /// The span that covers nothing at position `at` (negative positions become 0).
    pub fn empty(at: i64) -> Self {
        let at = at.max(0);
        Self { from: at, to: at }
    }

    /// The first offset covered.
    pub fn from(&self) -> i64 {
        self.from
    }

    /// The first offset not covered: the next one to read.
    pub fn to(&self) -> i64 {
        self.to
    }

    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    pub fn contains(&self, offset: i64) -> bool {
        self.from <= offset && offset < self.to
    }

    /// This span followed by `next`, which must start where this one ends.
    pub fn join(&self, next: Span) -> Result<Span, SpanError> {
        if self.to != next.from {
            return Err(SpanError::Disjoint { first: *self, second: next });
        }
        Ok(Span { from: self.from, to: next.to })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.from, self.to)
    }
}

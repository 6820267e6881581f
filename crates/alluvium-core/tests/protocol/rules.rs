//! The decisions of the protocol, as the product takes them; a test replaces one by a wrong one.

use alluvium_core::commit::{self, Claim, Fit, Step};
use alluvium_core::letters::{self, Marks, Place};
use alluvium_core::position::{Cursor, StartPolicy, Watermarks};
use alluvium_core::seam::Outcome;
use alluvium_core::{Arrival, Chunk, Partition};
use std::convert::Infallible;
use std::fmt::Debug;

/// What a process does after an error of a commit.
pub enum AfterError {
    /// Looks at the logs again.
    LooksAgain,
    /// Writes the entry again without judging.
    Repeats,
}

pub trait Rules: Debug + Clone + Send + Sync + 'static {
    /// Whether dead letters are written before the rows, with their own position.
    const LETTERS_FIRST: bool = false;
    /// Whether processes remember which positions they have seen.
    const REMEMBERS: bool = false;
    /// Whether a lost entry is written again behind the winner's.
    const REBASES: bool = false;

    fn next_step(marks: Marks, claims: &[Claim], fit: Fit<()>) -> Step<()> {
        let Ok(step) = commit::next_step(marks, claims, || Ok::<_, Infallible>(fit));
        step
    }

    fn next_mark(marks: Marks, version: i64) -> i64 {
        marks.next(version)
    }

    fn missing(
        letters: &[Place],
        stored: &dyn Fn(Partition) -> Option<i64>,
        present: &dyn Fn(Place) -> bool,
    ) -> Vec<usize> {
        let oldest = letters::in_doubt(letters.iter().copied(), stored);
        let read = |place: Place| oldest.is_some_and(|oldest| place.1 >= oldest) && present(place);
        letters::missing(letters.iter().copied(), read)
    }

    fn arrive(chunk: Chunk, next: i64) -> Arrival {
        chunk.arrive(next)
    }

    fn begin(policy: StartPolicy, others: bool, watermarks: Watermarks) -> Option<Cursor> {
        Cursor::begin(policy, others, watermarks)
    }

    /// Whether no position may stand for the start of a span.
    fn may_be_absent(was_absent: bool, _seen: bool) -> bool {
        was_absent
    }

    fn holds(outcome: &Outcome) -> bool {
        outcome.holds()
    }

    fn after_error() -> AfterError {
        AfterError::LooksAgain
    }
}

/// The product's.
#[derive(Clone, Debug)]
pub struct Product;

impl Rules for Product {}

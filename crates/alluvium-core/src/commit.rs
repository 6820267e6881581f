//! The steps of a commit, and what an unknown outcome was.
//!
//! A commit is a loop: look at the newest snapshots, ask [`next_step`], do that one step, look again.
//! Every step appends at most one log entry, to the very snapshot that was judged: a lost race means
//! looking again, and so does an error, because only the log knows what became of an entry.
//!
//! A partition's stored position is the version of its transaction in the table's log. It is compared
//! with the span that a flush covers. The rows' entry decides all of a flush at once: rows, positions,
//! and which records are dead letters. The letters follow it into their own table ([`crate::letters`]);
//! columns that the rows need precede it.

use crate::letters::Marks;
use crate::seam::Outcome;
use crate::{Partition, Span};

/// A partition's span in a flush, with the position stored in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub partition: Partition,
    pub span: Span,
    /// The transaction's version in the snapshot that the commit is made against.
    pub stored: Option<i64>,
    /// Whether no stored position stands for `span.from`: only when there was none either when
    /// reading the partition began ([`crate::position::Cursor`]).
    pub may_be_absent: bool,
}

/// The judgement on a whole flush, before its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every partition is where the flush starts: commit.
    Proceed,
    /// Every partition is where the flush ends: an earlier try landed.
    AlreadyCommitted,
    /// Somebody else moved a partition: drop the flush and read on from what was found.
    Fenced { found: Vec<(Partition, Option<i64>)> },
}

/// Judges a flush against the positions of one snapshot. The commit must be made against that same
/// snapshot: a later one could hide another writer's commit.
///
/// One atomic commit holds all partitions, so a flush is judged as a whole: a mix of positions
/// before and after can only come from another writer. A flush that moves nothing, to positions that
/// are there, is there.
pub fn judge(claims: &[Claim]) -> Verdict {
    if !claims.is_empty() && claims.iter().all(at_end) {
        return Verdict::AlreadyCommitted;
    }
    if claims.iter().all(at_start) {
        return Verdict::Proceed;
    }
    Verdict::Fenced { found: claims.iter().map(|claim| (claim.partition, claim.stored)).collect() }
}

fn at_start(claim: &Claim) -> bool {
    match claim.stored {
        Some(stored) => stored == claim.span.from(),
        None => claim.may_be_absent,
    }
}

fn at_end(claim: &Claim) -> bool {
    claim.stored == Some(claim.span.to())
}

/// How the rows of a flush go into the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit<G> {
    Fits,
    /// The table needs more columns first.
    Grows(G),
    /// A column no longer takes what the rows hold.
    Moved {
        column: String,
    },
}

/// What a commit does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<G> {
    /// Write the dead letters that the rows' log names and their table does not hold yet.
    Letters,
    /// Add columns, as a commit of its own.
    Growth(G),
    /// Append the entry of the rows.
    Rows,
    /// Nothing more is to be done.
    Done(Outcome),
}

/// The next step of a commit, on snapshots of which the rows' was read first. `fit` is asked only
/// when the rows are to be written.
///
/// Letters that an earlier commit owes come first, whoever made it: at most one entry of the log ever
/// owes letters, and rows are never written after an entry whose letters could be forgotten.
pub fn next_step<G, E>(marks: Marks, claims: &[Claim], fit: impl FnOnce() -> Result<Fit<G>, E>) -> Result<Step<G>, E> {
    if marks.owed().is_some() {
        return Ok(Step::Letters);
    }
    match judge(claims) {
        Verdict::AlreadyCommitted => return Ok(Step::Done(Outcome::AlreadyCommitted)),
        Verdict::Fenced { found } => return Ok(Step::Done(Outcome::Fenced { found })),
        Verdict::Proceed => {}
    }
    Ok(match fit()? {
        Fit::Fits => Step::Rows,
        Fit::Grows(columns) => Step::Growth(columns),
        Fit::Moved { column } => Step::Done(Outcome::SchemaMoved { column }),
    })
}

//! Whether a flush may be committed, and what an unknown outcome was.
//!
//! A partition's stored position is the version of its transaction in the table's log. Every rule
//! here compares it with the span that a flush covers.

use crate::{Partition, Span};

/// A partition's span in a flush, with the position stored in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub partition: Partition,
    pub span: Span,
    /// The transaction's version in the snapshot that the commit is made against.
    pub stored: Option<i64>,
    /// Whether no stored position stands for `span.from`: only when the start policy is
    /// `earliest`, whose choice needs no commit of its own.
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
/// before and after can only come from another writer.
pub fn judge(claims: &[Claim]) -> Verdict {
    let moving = || claims.iter().filter(|claim| !claim.span.is_empty());
    if claims.iter().all(at_start) {
        return Verdict::Proceed;
    }
    if moving().next().is_some() && claims.iter().all(at_end) {
        return Verdict::AlreadyCommitted;
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

//! Planted faults: each is one decision taken otherwise, and each is found.

use crate::model::{Protocol, Restore, SKIPPED, STUCK, TWICE};
use crate::rules::{AfterError, Rules};
use crate::{FICKLE, LETTER, ROW, show, world};
use alluvium_core::commit::{Claim, Fit, Step, next_step};
use alluvium_core::letters::{Marks, Place};
use alluvium_core::position::{Cursor, StartPolicy, Watermarks};
use alluvium_core::seam::Outcome;
use alluvium_core::{Arrival, Chunk, Partition};
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::convert::Infallible;

/// Finds a path that breaks the property, and prints a shortest one.
fn breaks<R: Rules>(_rules: R, property: &'static str, model: Protocol<R>) {
    let model = Protocol { named: true, ..model };
    let found = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let find = |depth: usize| {
        let checker = model.clone().checker().finish_when(found.clone()).target_max_depth(depth).spawn_bfs().join();
        checker.discovery(property)
    };
    let mut path = find(100).expect("the planted fault is not found");
    // The checker keeps the last path that it finds: shorter ones are looked for until there is none.
    let mut steps = path.clone().into_actions().len();
    while let Some(shorter) = find(steps + 1) {
        steps = shorter.clone().into_actions().len();
        path = shorter;
    }
    show(property, path);
}

/// As it was once: the letters before the rows, trimmed to what their table holds.
#[derive(Clone, Debug)]
struct LettersFirst;

impl Rules for LettersFirst {
    const LETTERS_FIRST: bool = true;
}

#[test]
fn letters_before_rows() {
    breaks(LettersFirst, TWICE, world(&[&[FICKLE]]));
}

/// Positions are written, but not compared with spans.
#[derive(Clone, Debug)]
struct ComparesNothing;

impl Rules for ComparesNothing {
    fn next_step(marks: Marks, claims: &[Claim], fit: Fit<()>) -> Step<()> {
        let at_start = |claim: &Claim| Claim { stored: Some(claim.span.from()), ..*claim };
        let claims: Vec<_> = claims.iter().map(at_start).collect();
        let Ok(step) = next_step(marks, &claims, || Ok::<_, Infallible>(fit));
        step
    }
}

#[test]
fn positions_that_are_not_compared() {
    breaks(ComparesNothing, TWICE, world(&[&[ROW]]));
}

/// A lost entry is written again behind the winner's, as commit loops usually do.
#[derive(Clone, Debug)]
struct Rebases;

impl Rules for Rebases {
    const REBASES: bool = true;
}

#[test]
fn an_entry_behind_a_snapshot_that_was_not_judged() {
    breaks(Rebases, TWICE, world(&[&[ROW]]));
}

/// An error means that nothing landed.
#[derive(Clone, Debug)]
struct ErrorMeansFailed;

impl Rules for ErrorMeansFailed {
    fn after_error() -> AfterError {
        AfterError::Repeats
    }
}

#[test]
fn an_error_taken_for_a_failure() {
    breaks(ErrorMeansFailed, TWICE, world(&[&[ROW]]));
}

/// No position always stands for a start.
#[derive(Clone, Debug)]
struct AlwaysAbsent;

impl Rules for AlwaysAbsent {
    fn may_be_absent(_was_absent: bool, _seen: bool) -> bool {
        true
    }
}

#[test]
fn no_position_taken_for_every_start() {
    breaks(AlwaysAbsent, SKIPPED, Protocol { restore: Restore::Rows, ..world(&[&[ROW, ROW]]) });
}

/// As it was once: where a process has ever seen a position, none never stands for a start again.
#[derive(Clone, Debug)]
struct NeverAbsentAgain;

impl Rules for NeverAbsentAgain {
    const REMEMBERS: bool = true;

    fn may_be_absent(was_absent: bool, seen: bool) -> bool {
        was_absent && !seen
    }
}

#[test]
fn no_position_refused_for_ever() {
    breaks(NeverAbsentAgain, STUCK, Protocol { restore: Restore::Rows, ..world(&[&[ROW]]) });
}

/// Letters below their stored position are taken for written.
#[derive(Clone, Debug)]
struct TrimsByPosition;

impl Rules for TrimsByPosition {
    fn missing(letters: &[Place], stored: &dyn Fn(Partition) -> Option<i64>, _: &dyn Fn(Place) -> bool) -> Vec<usize> {
        let is_past = |(partition, offset): &Place| stored(*partition).is_none_or(|stored| *offset >= stored);
        (0..letters.len()).filter(|index| is_past(&letters[*index])).collect()
    }
}

#[test]
fn letters_trimmed_by_position_alone() {
    breaks(TrimsByPosition, SKIPPED, Protocol { restore: Restore::Rows, ..world(&[&[FICKLE, LETTER]]) });
}

/// The next flush is committed while letters of the last are owed.
#[derive(Clone, Debug)]
struct ForgetsLetters;

impl Rules for ForgetsLetters {
    fn next_step(_: Marks, claims: &[Claim], fit: Fit<()>) -> Step<()> {
        let Ok(step) = next_step(Marks::default(), claims, || Ok::<_, Infallible>(fit));
        step
    }
}

#[test]
fn letters_that_are_not_written_first() {
    breaks(ForgetsLetters, SKIPPED, world(&[&[LETTER, LETTER]]));
}

/// Marks count the commits that name letters, so that a restored table gives one twice.
#[derive(Clone, Debug)]
struct CountsMarks;

impl Rules for CountsMarks {
    fn next_mark(marks: Marks, _: i64) -> i64 {
        marks.next(0)
    }
}

#[test]
fn marks_that_are_given_twice() {
    breaks(CountsMarks, SKIPPED, Protocol { restore: Restore::Rows, ..world(&[&[LETTER, LETTER]]) });
}

/// Whatever the source brings is taken.
#[derive(Clone, Debug)]
struct TakesGaps;

impl Rules for TakesGaps {
    fn arrive(chunk: Chunk, _: i64) -> Arrival {
        Arrival::Next(chunk)
    }
}

#[test]
fn chunks_behind_a_gap() {
    breaks(TakesGaps, SKIPPED, world(&[&[ROW, ROW]]));
}

/// The newest position is read from without being committed.
#[derive(Clone, Debug)]
struct ChoosesAnew;

impl Rules for ChoosesAnew {
    fn begin(_: StartPolicy, _: bool, watermarks: Watermarks) -> Option<Cursor> {
        Some(Cursor { next: watermarks.high, was_absent: true })
    }
}

#[test]
fn a_start_that_is_not_committed() {
    breaks(ChoosesAnew, SKIPPED, Protocol { policy: StartPolicy::Latest, ..world(&[&[ROW, ROW, ROW]]) });
}

/// Work goes on after a fence.
#[derive(Clone, Debug)]
struct IgnoresFences;

impl Rules for IgnoresFences {
    fn holds(_: &Outcome) -> bool {
        true
    }
}

#[test]
fn work_that_goes_on_behind_a_fence() {
    breaks(IgnoresFences, STUCK, world(&[&[ROW, ROW]]));
}

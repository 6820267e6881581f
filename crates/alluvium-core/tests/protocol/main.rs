//! The protocol, checked exhaustively: every order of every step of a few processes, with every fault,
//! decided by the functions that the product itself uses.
//!
//! A process reads a log and writes to it as separate steps, with anything in between: so that it may
//! sleep, judge a snapshot that is long out of date, or wake up and commit when its partition is
//! another's. Any process may hold any partition at any time; a group does no worse.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod model;
mod planted;
mod process;
mod rules;
mod state;

use alluvium_core::position::StartPolicy;
use model::{Fate, Protocol, Restore};
use rules::{Product, Rules};
use stateright::{Checker, Expectation, Model, Path};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::Instant;

const ROW: &[Fate] = &[Fate::Row];
const LETTER: &[Fate] = &[Fate::Letter];
/// A plugin that decides anew each time.
const FICKLE: &[Fate] = &[Fate::Row, Fate::Letter];
const ANY: &[Fate] = &[Fate::Row, Fate::Letter, Fate::Filtered];

/// Two processes and these records, by partition.
fn world<R: Rules>(records: &[&[&'static [Fate]]]) -> Protocol<R> {
    Protocol {
        workers: 2,
        records: records.iter().map(|records| records.to_vec()).collect(),
        policy: StartPolicy::Earliest,
        wide: None,
        others: 0,
        restore: Restore::Nothing,
        flying: 0,
        named: false,
        rules: PhantomData,
    }
}

/// Looks at every state, and at every property in each.
fn holds(name: &str, model: Protocol<Product>) {
    let started = Instant::now();
    let checker = model.checker().spawn_bfs().join();
    println!(
        "{name}: {} distinct states, {} steps between them, at most {} from the start, {:.1?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        started.elapsed()
    );
    for (property, path) in checker.discoveries() {
        if checker.model().property(property).expectation == Expectation::Always {
            show(property, path);
        }
    }
    checker.assert_properties();
}

/// Prints a path, step by step.
fn show<S: Debug, A: Debug>(property: &str, path: Path<S, A>) {
    let steps = path.into_vec();
    println!("against {property:?}, in {} steps:", steps.len() - 1);
    for (state, action) in &steps {
        match action {
            Some(action) => println!("    {action:?}"),
            None => println!("  {state:?}"),
        }
    }
}

#[test]
fn entries_that_fail_land_or_land_late() {
    holds("one partition", Protocol { flying: 2, ..world(&[&[FICKLE, ANY]]) });
}

#[test]
fn a_plugin_that_changes_its_mind() {
    holds("three records", world(&[&[FICKLE, ANY, LETTER]]));
}

#[test]
fn two_partitions_in_one_commit() {
    holds("two partitions", world(&[&[FICKLE], &[ROW]]));
}

#[test]
fn three_processes() {
    holds("three processes", Protocol { workers: 3, ..world(&[&[LETTER, ROW]]) });
}

#[test]
fn other_engines_commit_in_between() {
    holds("other engines", Protocol { others: 2, ..world(&[&[FICKLE, ROW]]) });
}

#[test]
fn columns_come_and_go() {
    holds("columns", Protocol { others: 1, wide: Some((0, 1)), ..world(&[&[FICKLE, ROW]]) });
}

#[test]
fn rows_are_restored_with_their_positions() {
    holds("restored", Protocol { restore: Restore::Rows, ..world(&[&[LETTER, LETTER]]) });
}

#[test]
fn both_tables_are_put_back() {
    holds("put back", Protocol { restore: Restore::Both, ..world(&[&[FICKLE, ROW]]) });
}

#[test]
fn a_start_that_the_policy_chose() {
    holds("latest", Protocol { policy: StartPolicy::Latest, ..world(&[&[ROW, FICKLE, ROW]]) });
}

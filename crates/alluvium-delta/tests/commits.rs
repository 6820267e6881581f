//! Commits without faults: creation, growth, fences, dead letters, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::seam::{Outcome, Table};
use alluvium_core::{CommitKind, Partition, audit};
use alluvium_delta::{DeltaSink, TableRole};
use common::*;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

#[tokio::test]
async fn one_entry_creates_the_table_with_rows_and_positions() {
    let sink = open(&memory()).await;
    assert!(sink.load().await.unwrap().schema.is_none());
    let mut first = flush(&sink, &[(0, 0, 3), (1, 10, 12)]);
    assert_eq!(sink.commit(&mut first).await.unwrap(), Outcome::Committed { version: 0 });
    let state = sink.load().await.unwrap();
    assert_eq!(state.positions, [(Partition(0), 3), (Partition(1), 12)]);
    assert_eq!(state.schema.unwrap(), schema(&[("name", "string")]));
    assert_eq!(offsets(&sink).await, once(&[(0, 0, 3), (1, 10, 12)]));

    let mut second = flush(&sink, &[(0, 3, 5)]);
    assert_eq!(sink.commit(&mut second).await.unwrap(), Outcome::Committed { version: 1 });
    assert_eq!(positions(&sink).await, [(0, 5), (1, 12)]);
    assert_eq!(offsets(&sink).await, once(&[(0, 0, 5), (1, 10, 12)]));

    let history = sink.reader().history(TableRole::Rows).await.unwrap();
    let entries: Vec<_> = history.into_iter().map(|commit| commit.entry).collect();
    assert_eq!(entries[1].transactions, [("acme/orders/1/orders/0".to_owned(), 5)]);
    let stored = sink.load().await.unwrap().positions;
    let report = audit::audit(&pipeline(), "orders", &entries, &stored);
    assert!(report.holds() && report.findings.is_empty(), "{report:?}");
    assert_eq!(report.counts().rows, 7);
}

#[tokio::test]
async fn the_same_flush_again_is_already_committed() {
    let sink = open(&memory()).await;
    let mut flush = flush(&sink, &[(0, 0, 3)]);
    assert!(matches!(sink.commit(&mut flush).await.unwrap(), Outcome::Committed { .. }));
    assert_eq!(sink.commit(&mut flush).await.unwrap(), Outcome::AlreadyCommitted);
    assert_eq!(offsets(&sink).await, once(&[(0, 0, 3)]));
}

#[tokio::test]
async fn of_two_owners_of_a_partition_one_is_fenced() {
    let store = memory();
    let (one, two) = (open(&store).await, open(&store).await);
    one.commit(&mut flush(&one, &[(0, 0, 3), (1, 0, 1)])).await.unwrap();
    two.load().await.unwrap();
    two.commit(&mut flush(&two, &[(0, 3, 5)])).await.unwrap();
    let outcome = one.commit(&mut flush(&one, &[(0, 3, 6), (1, 1, 2)])).await.unwrap();
    let found = vec![(Partition(0), Some(5)), (Partition(1), Some(1))];
    assert_eq!(outcome, Outcome::Fenced { found });
    assert_eq!(offsets(&one).await, once(&[(0, 0, 5), (1, 0, 1)]));
}

#[tokio::test]
async fn an_absent_position_stands_for_a_start_only_when_it_may() {
    let sink = open(&memory()).await;
    let mut late = flush(&sink, &[(0, 7, 9)]);
    late.absent.clear();
    assert_eq!(sink.commit(&mut late).await.unwrap(), Outcome::Fenced { found: vec![(Partition(0), None)] });
    let mut start = flush(&sink, &[]);
    start.info = info(CommitKind::Start, &[(0, 7, 7)]);
    start.absent.insert(Partition(0));
    assert!(matches!(sink.commit(&mut start).await.unwrap(), Outcome::Committed { version: 0 }));
    assert!(matches!(sink.commit(&mut late).await.unwrap(), Outcome::Committed { version: 1 }));
    assert_eq!(positions(&sink).await, [(0, 9)]);
}

#[tokio::test]
async fn local_directories_are_created_and_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let sink = DeltaSink::open(config(&place("a b/rows"), &place("letters"))).await.unwrap();
    sink.commit(&mut flush(&sink, &[(0, 0, 3)])).await.unwrap();
    sink.commit(&mut with_letters(&sink, (0, 3, 6), &[4])).await.unwrap();
    let again = DeltaSink::open(config(&place("a b/rows"), &place("letters"))).await.unwrap();
    assert_eq!(positions(&again).await, [(0, 6)]);
    let mut rows = once(&[(0, 0, 6)]);
    rows.remove(&(0, 4));
    assert_eq!(offsets(&again).await, rows);
    assert_eq!(letters(&again).await, once(&[(0, 4, 5)]));
}

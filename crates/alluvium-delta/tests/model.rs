//! Two owners of the same partitions, any interleaving, any faults, crashes in between: positions
//! never go back, and each offset ends in the rows once or in the dead letters once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::seam::{Flush, Outcome};
use alluvium_core::{Classified, ErrorClass, audit};
use alluvium_delta::{DataFile, DeltaSink, TableRole};
use common::faulty::{Fault, FaultyStore, On};
use common::*;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Step {
    /// Makes and commits a flush of the next records of a partition; every `reject`-th is a dead letter.
    Flush {
        sink: usize,
        partition: i32,
        records: i64,
        reject: i64,
    },
    /// Tries a flush again whose outcome was an error.
    Retry {
        sink: usize,
    },
    /// The process dies and another takes its place.
    Crash {
        sink: usize,
    },
    /// The next matching puts meet a fault.
    Fault {
        part: &'static str,
        fault: Fault,
        after: usize,
    },
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    let sink = 0..2usize;
    let fault = prop_oneof![
        Just(Fault::LandsThenFails),
        Just(Fault::Fails),
        Just(Fault::LandsThenConflicts),
        Just(Fault::LandsThenHangs),
        Just(Fault::Hangs),
        Just(Fault::FailsThenLands),
    ];
    let part = prop_oneof![Just("rows/_delta_log"), Just("letters/_delta_log"), Just("parquet"), Just("json")];
    prop_oneof![
        8 => (sink.clone(), 0..2i32, 1..5i64, 1..4i64)
            .prop_map(|(sink, partition, records, reject)| Step::Flush { sink, partition, records, reject }),
        4 => sink.clone().prop_map(|sink| Step::Retry { sink }),
        1 => sink.prop_map(|sink| Step::Crash { sink }),
        5 => (part, fault, 0..3usize).prop_map(|(part, fault, after)| Step::Fault { part, fault, after }),
        1 => Just(Step::Checkpoint),
    ]
}

/// A process that believes it owns all partitions.
struct Owner {
    sink: DeltaSink,
    believed: BTreeMap<i32, i64>,
    pending: Option<Flush<DataFile>>,
}

impl Owner {
    async fn start(store: &Arc<dyn ObjectStore>) -> Self {
        let sink = open(store).await;
        let believed = positions(&sink).await.into_iter().collect();
        Self { sink, believed, pending: None }
    }

    async fn commit(&mut self, mut flush: Flush<DataFile>) {
        match self.sink.commit(&mut flush).await {
            Ok(Outcome::Committed { .. } | Outcome::AlreadyCommitted) => {
                for progress in &flush.info.partitions {
                    self.believed.insert(progress.partition.0, progress.span.to());
                }
            }
            Ok(Outcome::Fenced { found }) => {
                for (partition, position) in found {
                    self.believed.insert(partition.0, position.unwrap_or(0));
                }
            }
            Ok(Outcome::SchemaMoved { column }) => panic!("{column} moved"),
            Err(error) => {
                assert_eq!(error.class(), ErrorClass::External, "{error:?}");
                self.pending = Some(flush);
            }
        }
    }
}

use alluvium_core::seam::Table;

async fn run(steps: Vec<Step>) {
    let faulty = FaultyStore::new(Arc::new(InMemory::new()));
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let watcher = open(&store).await;
    let mut owners = [Owner::start(&store).await, Owner::start(&store).await];
    let mut before: BTreeMap<i32, i64> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Flush { sink, partition, records, reject } => {
                let owner = &mut owners[sink];
                // A flush is tried until its outcome is known before the next one is made.
                let flush = match owner.pending.take() {
                    Some(pending) => pending,
                    None => {
                        let from = owner.believed.get(&partition).copied().unwrap_or(0);
                        let rejected: Vec<i64> =
                            (from..from + records).filter(|offset| offset % (reject + 1) == 0).collect();
                        with_letters(&owner.sink, (partition, from, from + records), &rejected)
                    }
                };
                owner.commit(flush).await;
            }
            Step::Retry { sink } => {
                if let Some(flush) = owners[sink].pending.take() {
                    owners[sink].commit(flush).await;
                }
            }
            Step::Crash { sink } => {
                faulty.clear();
                owners[sink] = Owner::start(&store).await;
            }
            Step::Fault { part, fault, mut after } => {
                let mut done = false;
                faulty.set_rule(move |on, path| {
                    if done || on != On::Put || !path.as_ref().contains(part) {
                        return None;
                    }
                    done = after == 0;
                    after = after.saturating_sub(1);
                    done.then_some(fault)
                });
            }
            Step::Checkpoint => {
                faulty.clear();
                if watcher.load().await.unwrap().schema.is_some() {
                    watcher.maintain(TableRole::Rows).await.unwrap();
                }
            }
        }
        let now: BTreeMap<i32, i64> = positions(&watcher).await.into_iter().collect();
        for (partition, position) in &before {
            assert!(now[partition] >= *position, "partition {partition} went back to {}", now[partition]);
        }
        before = now;
    }
    faulty.clear();
    // What is on its way lands or finds its place taken.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    check(&watcher).await;
}

async fn check(watcher: &DeltaSink) {
    let state = watcher.load().await.unwrap();
    if state.schema.is_none() {
        return;
    }
    let (rows, letters) = (offsets(watcher).await, letters(watcher).await);
    let ends: BTreeMap<i32, i64> = state.positions.iter().map(|(partition, to)| (partition.0, *to)).collect();
    for (partition, to) in &ends {
        for offset in 0..*to {
            let place = (*partition, offset);
            let (row, letter) = (rows.get(&place).copied().unwrap_or(0), letters.get(&place).copied().unwrap_or(0));
            assert!(row <= 1 && letter <= 1, "{place:?}: {row} rows, {letter} dead letters");
            assert!(row + letter >= 1, "{place:?} is lost");
        }
    }
    assert!(rows.keys().all(|(partition, offset)| *offset < ends[partition]), "rows past the position");
    let history = watcher.reader().history(TableRole::Rows).await.unwrap();
    let entries: Vec<_> = history.into_iter().map(|commit| commit.entry).collect();
    let report = audit::audit(&pipeline(), "orders", &entries, &state.positions);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let counts = report.counts();
    assert_eq!(counts.rows as usize, rows.len());
    assert!(counts.rejected as usize <= letters.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_offset_ends_in_one_place(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(steps));
    }
}

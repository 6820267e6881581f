//! Replays of dead letters against faults of the store: whatever happens, each letter is taken once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::seam::{Flush, Outcome, RowWriter, Table};
use alluvium_core::{CommitInfo, CommitKind, Counts, PartitionProgress};
use alluvium_delta::{Chosen, DataFile, DeltaSink, Error, LetterFilter};
use common::faulty::{Fault, FaultyStore};
use common::*;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory};
use std::sync::Arc;
use std::time::Duration;

/// A table of the offsets 0 to 3 whose letters are those of 1 and 2.
async fn table() -> (Arc<FaultyStore>, DeltaSink) {
    let store = FaultyStore::new(Arc::new(InMemory::new()));
    let sink = another(&store).await;
    assert!(is_committed(&sink.commit(&mut with_letters(&sink, (0, 0, 4), &[1, 2])).await.unwrap()));
    (store, sink)
}

async fn another(store: &Arc<FaultyStore>) -> DeltaSink {
    let store: Arc<dyn ObjectStore> = store.clone();
    open(&store).await
}

async fn choose(sink: &DeltaSink) -> Chosen {
    sink.choose(&LetterFilter::default()).await.unwrap()
}

/// The chosen letters' rows, but for those that are rejected again.
async fn rows_of(sink: &DeltaSink, chosen: &Chosen, again: &[i64]) -> (Flush<DataFile>, Vec<DataFile>) {
    let mut flush = flush(sink, &[(0, 0, 4)]);
    let kept: Vec<i64> = sorted(chosen).into_iter().filter(|offset| !again.contains(offset)).collect();
    let mut writer = sink.writer(flush.schema.clone()).unwrap();
    kept.iter().for_each(|offset| writer.write(&rows(0, *offset, offset + 1)).unwrap());
    flush.files = writer.finish().unwrap();
    let (kept, rejected) = (kept.len() as u64, again.len() as u64);
    let counts = Counts { read: kept + rejected, kept, rows: kept, rejected, filtered: 0 };
    let partitions = vec![PartitionProgress { counts, ..flush.info.partitions[0].clone() }];
    flush.info = CommitInfo { partitions, replay: Some(chosen.number), ..info(CommitKind::Replay, &[]) };
    let letters: Vec<_> = again.iter().map(|offset| letter(0, *offset)).collect();
    (flush, sink.upload_again(chosen, &letters).await.unwrap())
}

async fn replay(sink: &DeltaSink, chosen: &Chosen, again: &[i64]) -> Result<Outcome, Error> {
    let (mut flush, files) = rows_of(sink, chosen, again).await;
    sink.commit_replay(&mut flush, chosen, files).await
}

fn sorted(chosen: &Chosen) -> Vec<i64> {
    let mut offsets: Vec<i64> = chosen.places().map(|(_, offset)| offset).collect();
    offsets.sort_unstable();
    offsets
}

/// Rows once, no position moved, and what both logs say of it.
async fn check(sink: &DeltaSink, rows: &[(i32, i64, i64)], open: &[i64], context: &str) {
    use alluvium_core::audit::{Scan, audit, audit_letters};
    use alluvium_delta::TableRole;
    assert_eq!(offsets(sink).await, once(rows), "{context}");
    assert_eq!(sorted(&choose(sink).await), open, "{context}");
    assert_eq!(positions(sink).await, [(0, 4)], "{context}");
    let entries = async |role| -> Vec<_> {
        sink.reader().history(role).await.unwrap().into_iter().map(|commit| commit.entry).collect()
    };
    let stored = sink.load().await.unwrap().positions;
    let log = audit(&pipeline(), "orders", &entries(TableRole::Rows).await, &stored);
    assert!(log.findings.is_empty(), "{context}: {:?}", log.findings);
    let letters = audit_letters(&pipeline(), "orders", &entries(TableRole::DeadLetters).await, &log);
    assert!(letters.holds() && letters.findings.is_empty(), "{context}: {letters:?}");
    let mut scan = Scan::new(&log, &letters);
    offsets(sink)
        .await
        .keys()
        .for_each(|(partition, offset)| scan.row(alluvium_core::Partition(*partition), *offset, 0));
    let standings = sink.reader().letter_standings(None, &LetterFilter::default()).await.unwrap();
    standings.into_iter().for_each(|(place, standing)| scan.letter(place, standing));
    let scan = scan.finish();
    assert!(scan.holds(), "{context}: {scan:?}");
}

/// The entry of the rows, and that of the marks and letters that it names.
#[tokio::test(start_paused = true)]
async fn a_replay_is_settled_after_every_fault() {
    for entry in ["rows/_delta_log/00000000000000000001", "letters/_delta_log/00000000000000000001"] {
        for fault in Fault::OF_AN_ENTRY {
            let context = format!("{entry}, {fault:?}");
            let (store, sink) = table().await;
            let chosen = choose(&sink).await;
            assert_eq!((chosen.number, sorted(&chosen)), (1, vec![1, 2]), "{context}");
            store.fail_puts(entry, fault, 1);
            let first = replay(&sink, &chosen, &[2]).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            store.clear();
            // A new process knows nothing of it.
            let sink = another(&store).await;
            let left = choose(&sink).await;
            match (&first, sorted(&left).as_slice()) {
                (Ok(outcome), [2]) => assert!(matches!(outcome, Outcome::Committed { .. }), "{context}: {outcome:?}"),
                (Err(_), [2]) => {}
                (Err(_), [1, 2]) => assert!(is_committed(&replay(&sink, &left, &[2]).await.unwrap()), "{context}"),
                (first, left) => panic!("{context}: {first:?}, and {left:?} are open"),
            }
            check(&sink, &[(0, 0, 2), (0, 3, 4)], &[2], &context).await;
            let last = choose(&sink).await;
            assert!(is_committed(&replay(&sink, &last, &[]).await.unwrap()), "{context}");
            check(&sink, &[(0, 0, 4)], &[], &context).await;
        }
    }
}

#[tokio::test]
async fn of_two_replays_of_the_same_letters_one_is_committed() {
    let (store, sink) = table().await;
    let other = another(&store).await;
    let (one, two) = (choose(&sink).await, choose(&other).await);
    let (first, second) = tokio::join!(replay(&sink, &one, &[]), replay(&other, &two, &[1]));
    let outcomes = [first.unwrap(), second.unwrap()];
    let committed = |outcome: &Outcome| matches!(outcome, Outcome::Committed { .. });
    assert_eq!(outcomes.iter().filter(|outcome| committed(outcome)).count(), 1, "{outcomes:?}");
    match committed(&outcomes[0]) {
        true => check(&sink, &[(0, 0, 4)], &[], "the first").await,
        false => check(&sink, &[(0, 0, 1), (0, 2, 4)], &[1], "the second").await,
    }
}

/// A process that slept through a whole replay, and what came after it.
#[tokio::test]
async fn a_late_replay_takes_nothing_that_was_taken() {
    let (store, sink) = table().await;
    let late = choose(&sink).await;
    let other = another(&store).await;
    let first = choose(&other).await;
    assert!(is_committed(&replay(&other, &first, &[1]).await.unwrap()));
    let again = choose(&other).await;
    assert_eq!((again.number, sorted(&again)), (2, vec![1]));
    assert_eq!(replay(&sink, &late, &[]).await.unwrap(), Outcome::AlreadyCommitted);
    assert!(is_committed(&replay(&other, &again, &[]).await.unwrap()));
    assert!(matches!(replay(&sink, &late, &[]).await.unwrap(), Outcome::Fenced { .. }));
    check(&sink, &[(0, 0, 4)], &[], "late").await;
}

/// The pipeline commits to both tables meanwhile.
#[tokio::test]
async fn a_flush_between_the_choice_and_the_commit_passes_by() {
    let (store, sink) = table().await;
    let chosen = choose(&sink).await;
    let other = another(&store).await;
    assert!(is_committed(&other.commit(&mut with_letters(&other, (0, 4, 7), &[5])).await.unwrap()));
    assert!(is_committed(&replay(&sink, &chosen, &[]).await.unwrap()));
    assert_eq!(offsets(&sink).await, once(&[(0, 0, 5), (0, 6, 7)]));
    assert_eq!(positions(&sink).await, [(0, 7)]);
    assert_eq!(sorted(&choose(&sink).await), [5]);
}

/// Engines that restore transactions forget replays; the marks stay, and the records are read again.
#[tokio::test]
async fn letters_behind_which_the_table_was_set_back_are_left_to_the_next_run() {
    let (store, sink) = table().await;
    let chosen = choose(&sink).await;
    assert!(is_committed(&replay(&sink, &chosen, &[2]).await.unwrap()));
    let path = Path::from("rows/_delta_log/00000000000000000002.json");
    let entry = r#"{"commitInfo":{"operation":"RESTORE"}}
{"txn":{"appId":"acme/orders/1/orders/0","version":1}}
{"txn":{"appId":"acme/orders/1/orders/replay","version":0}}
"#;
    store.put(&path, entry.into()).await.unwrap();
    let after = choose(&sink).await;
    assert_eq!((after.number, sorted(&after), after.ahead), (2, vec![], 1));
    // The record at 1, whose letter was taken, is rejected again by the flush that reads it again.
    assert!(is_committed(&sink.commit(&mut with_letters(&sink, (0, 1, 4), &[1, 2])).await.unwrap()));
    assert_eq!(sorted(&choose(&sink).await), [1, 2]);
}

/// The table as a version without replays made it.
#[tokio::test]
async fn a_table_of_letters_without_numbers_is_read_as_it_is_and_grows_for_a_replay() {
    let (store, sink) = table().await;
    let path = Path::from("letters/_delta_log/00000000000000000000.json");
    let entry = store.get(&path).await.unwrap().bytes().await.unwrap();
    let entry = String::from_utf8(entry.to_vec()).unwrap();
    let column = r#",{\"metadata\":{},\"name\":\"replay\",\"nullable\":true,\"type\":\"long\"}"#;
    assert!(entry.contains(column), "{entry}");
    store.put(&path, entry.replace(column, "").into()).await.unwrap();
    drop(sink);
    let sink = another(&store).await;
    let chosen = choose(&sink).await;
    let mut scan = sink.chosen_letters(&chosen).await.unwrap();
    let found = scan.next().await.unwrap().unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].value.as_deref(), Some(format!("value {}", found[0].offset).as_bytes()));
    assert!(is_committed(&replay(&sink, &chosen, &[2]).await.unwrap()));
    check(&sink, &[(0, 0, 2), (0, 3, 4)], &[2], "grown").await;
}

#[tokio::test]
async fn without_letters_there_is_nothing_to_choose() {
    let store = FaultyStore::new(Arc::new(InMemory::new()));
    let sink = another(&store).await;
    let chosen = choose(&sink).await;
    assert!(chosen.is_empty() && chosen.ahead == 0);
}

//! Checkpoints and cleanup: what is behind them is neither lost nor written twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::seam::{Outcome, Table};
use alluvium_delta::TableRole;
use common::faulty::{Fault, FaultyStore, On};
use common::*;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;

async fn log_files(store: &Arc<dyn ObjectStore>, table: &str) -> Vec<String> {
    let prefix = Path::from(format!("{table}/_delta_log"));
    let files: Vec<_> = store.list(Some(&prefix)).try_collect().await.unwrap();
    files.into_iter().map(|meta| meta.location.filename().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_come_out_of_checkpoints_when_the_log_before_is_gone() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sink = open(&store).await;
    sink.commit(&mut with_letters(&sink, (3, 0, 4), &[2])).await.unwrap();
    for from in 0..120 {
        sink.commit(&mut with_letters(&sink, (0, from, from + 1), &[from])).await.unwrap();
    }
    sink.finish_maintenance().await;
    for table in ["rows", "letters"] {
        let checkpoints: Vec<_> =
            log_files(&store, table).await.into_iter().filter(|name| name.contains("checkpoint")).collect();
        assert!(checkpoints.iter().any(|name| name.ends_with(".checkpoint.parquet")), "{checkpoints:?}");
        // All entries that the checkpoint holds are removed, as a cleanup after 30 days would.
        let newest = checkpoints.iter().filter_map(|name| name.get(..20)?.parse::<u64>().ok()).max().unwrap();
        for version in 0..newest {
            store.delete(&Path::from(format!("{table}/_delta_log/{version:020}.json"))).await.unwrap();
        }
    }
    let again = open(&store).await;
    assert_eq!(positions(&again).await, [(0, 120), (3, 4)]);
    assert_eq!(offsets(&again).await, once(&[(3, 0, 2), (3, 3, 4)]));
    assert!(matches!(
        again.commit(&mut flush(&again, &[(3, 4, 5)])).await.unwrap(),
        Outcome::Committed { version: 121 }
    ));
    assert_eq!(letters(&again).await.len(), 121);
    // The sink that lived through it goes on as well.
    assert!(matches!(sink.commit(&mut flush(&sink, &[(3, 5, 6)])).await.unwrap(), Outcome::Committed { version: 122 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_slept_through_a_cleanup_writes_at_the_head() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sleeper = open(&store).await;
    sleeper.commit(&mut flush(&sleeper, &[(0, 0, 1)])).await.unwrap();
    let busy = open(&store).await;
    for from in 0..20 {
        busy.commit(&mut flush(&busy, &[(1, from, from + 1)])).await.unwrap();
    }
    busy.maintain(TableRole::Rows).await.unwrap();
    busy.commit(&mut flush(&busy, &[(1, 20, 21)])).await.unwrap();
    // From the sleeper's version on, all that the checkpoint holds is gone: its next version is free.
    for version in 0..20 {
        store.delete(&Path::from(format!("rows/_delta_log/{version:020}.json"))).await.unwrap();
    }
    let outcome = sleeper.commit(&mut flush(&sleeper, &[(0, 1, 2)])).await.unwrap();
    assert_eq!(outcome, Outcome::Committed { version: 22 });
    assert_eq!(offsets(&sleeper).await, once(&[(0, 0, 2), (1, 0, 21)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hole_in_a_log_of_short_retention_is_no_free_version() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let url = url::Url::parse(TABLE).unwrap();
    let log = deltalake::logstore::logstore_with(store.clone(), &url, Default::default()).unwrap();
    let wish = [("delta.logRetentionDuration", Some("interval 1 hour"))];
    let create = deltalake::operations::create::CreateBuilder::new().with_log_store(log).with_configuration(wish);
    create.with_column("name", deltalake::kernel::DataType::STRING, true, None).await.unwrap();
    let (sleeper, busy) = (open(&store).await, open(&store).await);
    sleeper.commit(&mut flush(&sleeper, &[(0, 0, 1)])).await.unwrap();
    let known = sleeper.reader().history(TableRole::Rows).await.unwrap().last().unwrap().entry.version;
    for from in 0..20 {
        busy.commit(&mut flush(&busy, &[(1, from, from + 1)])).await.unwrap();
    }
    busy.maintain(TableRole::Rows).await.unwrap();
    // A cleanup that was cut off removed the version after the sleeper's, but not its own.
    for version in known + 1..known + 5 {
        store.delete(&Path::from(format!("rows/_delta_log/{version:020}.json"))).await.unwrap();
    }
    let outcome = sleeper.commit(&mut flush(&sleeper, &[(0, 1, 2)])).await.unwrap();
    assert_eq!(outcome, Outcome::Committed { version: known + 21 });
    assert_eq!(offsets(&sleeper).await, once(&[(0, 0, 2), (1, 0, 20)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_fails_is_no_failure_of_a_commit() {
    let faulty = FaultyStore::new(Arc::new(InMemory::new()));
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let sink = open(&store).await;
    faulty.set_rule(|on, path| (on == On::Put && path.as_ref().contains("checkpoint")).then_some(Fault::Fails));
    for from in 0..210 {
        let outcome = sink.commit(&mut flush(&sink, &[(0, from, from + 1)])).await.unwrap();
        assert!(matches!(outcome, Outcome::Committed { .. }));
    }
    sink.finish_maintenance().await;
    let tries = faulty
        .requests
        .lock()
        .unwrap()
        .iter()
        .filter(|(on, path)| *on == On::Put && path.contains("checkpoint"))
        .count();
    assert!((1..=2).contains(&tries), "{tries} tries in 210 commits");
    assert_eq!(positions(&open(&store).await).await, [(0, 210)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_table_wishes_of_maintenance_is_done() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let url = url::Url::parse(TABLE).unwrap();
    let log = deltalake::logstore::logstore_with(store.clone(), &url, Default::default()).unwrap();
    let wishes = [
        ("delta.checkpointInterval", Some("5")),
        ("delta.logRetentionDuration", Some("interval 0 seconds")),
        ("delta.enableExpiredLogCleanup", Some("true")),
    ];
    let create = deltalake::operations::create::CreateBuilder::new().with_log_store(log).with_configuration(wishes);
    create.with_column("name", deltalake::kernel::DataType::STRING, true, None).await.unwrap();
    let sink = open(&store).await;
    for from in 0..12 {
        sink.commit(&mut flush(&sink, &[(0, from, from + 1)])).await.unwrap();
        sink.finish_maintenance().await;
    }
    let files = log_files(&store, "rows").await;
    assert!(files.iter().any(|name| name.ends_with("9.checkpoint.parquet")), "{files:?}");
    assert!(!files.contains(&format!("{:020}.json", 1)), "{files:?}");
    assert_eq!(positions(&open(&store).await).await, [(0, 12)]);
    let history = sink.reader().history(TableRole::Rows).await.unwrap();
    assert!(history.first().unwrap().entry.version > 0);
}

//! Other engines read our checkpoints, of however many row groups.

use super::{READERS, read};
use alluvium_core::seam::{Outcome, Table};
use alluvium_delta::{DeltaSink, TableRole};
use alluvium_tests::endurance::{config, flush};
use serde_json::{Value, json};
use std::fs;
use std::time::SystemTime;

const COMMITS: i64 = 20;
const ROWS: i64 = 5;
/// Files that another writer removed, so that the table's own lie in several row groups.
const REMOVED: usize = 2_500;

/// The entries before the checkpoint are gone, as after the table's retention.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_of_many_row_groups_is_read_alike_by_all_engines() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("rows");
    let log = table.join("_delta_log");
    let sink = DeltaSink::open(config(dir.path().to_str().unwrap(), Vec::new())).await.unwrap();
    let (mut offset, mut newest) = (0, 0);
    for part in 0..3 {
        for _ in 0..COMMITS {
            let mut flush = flush(&sink, offset, offset + ROWS);
            let Outcome::Committed { version } = sink.commit(&mut flush).await.unwrap() else { panic!("a commit") };
            (offset, newest) = (offset + ROWS, version);
        }
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
        let removed = |file: usize| {
            let path = format!("gone-{part}-{file}.parquet");
            let remove = json!({ "path": path, "deletionTimestamp": now, "dataChange": true, "extendedFileMetadata": true,
                "partitionValues": {}, "size": 1000 });
            json!({ "remove": remove }).to_string()
        };
        let lines: Vec<String> = (0..REMOVED).map(removed).collect();
        newest += 1;
        fs::write(log.join(format!("{newest:020}.json")), lines.join("\n")).unwrap();
    }
    sink.maintain(TableRole::Rows).await.unwrap();
    let hint: Value = serde_json::from_slice(&fs::read(log.join("_last_checkpoint")).unwrap()).unwrap();
    assert_eq!((&hint["version"], &hint["numOfAddFiles"]), (&newest.into(), &(3 * COMMITS).into()));
    assert!(hint["size"].as_u64().unwrap() > 3 * REMOVED as u64, "{hint}");
    for version in 0..newest {
        fs::remove_file(log.join(format!("{version:020}.json"))).unwrap();
    }
    let wanted: Vec<Value> = (0..offset).map(|id| json!({ "id": id, "name": format!("name {id}") })).collect();
    for reader in READERS {
        let found = read(reader, &table, &[]);
        assert_eq!(found["rows"].as_array().unwrap(), &wanted, "{reader}");
    }
}

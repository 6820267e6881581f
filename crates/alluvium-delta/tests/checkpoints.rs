//! Checkpoints hold what the kernel's own would, whatever the table was made of before.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::seam::Table;
use alluvium_delta::{DeltaSink, TableRole};
use arrow_array::RecordBatch;
use buoyant_kernel as kernel;
use common::faulty::{Fault, FaultyStore, On};
use common::*;
use deltalake::arrow::json::LineDelimitedWriter;
use futures::TryStreamExt;
use kernel::Snapshot;
use kernel::checkpoint::{CheckpointSpec, V2CheckpointConfig};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaData;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

type Store = Arc<dyn ObjectStore>;

/// Actions of a file in the table.
fn add(path: &str) -> Value {
    let stats = json!({ "numRecords": 1, "minValues": { "name": path }, "maxValues": { "name": path }, "nullCount": { "name": 0 } });
    json!({ "add": { "path": path, "partitionValues": {}, "size": 1000, "modificationTime": 1_700_000_000_000_i64, "dataChange": true,
        "stats": stats.to_string(), "tags": { "a tag": "a value" } } })
}

/// That a file is gone: since long, or so shortly that a checkpoint has to remember it.
fn remove(path: &str, since_long: bool) -> Value {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    let deleted = if since_long { 1_000 } else { now };
    json!({ "remove": { "path": path, "deletionTimestamp": deleted, "dataChange": true, "extendedFileMetadata": true,
        "partitionValues": {}, "size": 1000 } })
}

fn txn(id: &str, version: i64) -> Value {
    json!({ "txn": { "appId": id, "version": version } })
}

/// The first entry of a table of one column.
fn created(features: &[&str], configuration: Value) -> Vec<Value> {
    let protocol = match features {
        [] => json!({ "minReaderVersion": 1, "minWriterVersion": 2 }),
        _ => {
            json!({ "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features })
        }
    };
    let schema =
        json!({ "type": "struct", "fields": [{ "name": "name", "type": "string", "nullable": true, "metadata": {} }] });
    let metadata = json!({ "id": "0c5c3ab2-5f4b-4f5c-a1b5-3d1b2c3d4e5f", "name": "a name", "format": { "provider": "parquet", "options": {} },
        "schemaString": schema.to_string(), "partitionColumns": [], "configuration": configuration, "createdTime": 1_700_000_000_000_i64 });
    vec![json!({ "protocol": protocol }), json!({ "metaData": metadata })]
}

/// Files whose names make a checkpoint of more than one part.
fn many() -> Vec<Value> {
    let file = |_| {
        let path: String = (0..10).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
        json!({ "add": { "path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": true } })
    };
    (0..60_000).map(file).collect()
}

async fn write(store: &Store, version: u64, actions: &[Value]) {
    let text: Vec<String> = actions.iter().map(Value::to_string).collect();
    store.put(&entry(version), text.join("\n").into()).await.unwrap();
}

fn entry(version: u64) -> Path {
    Path::from(format!("rows/_delta_log/{version:020}.json"))
}

fn checkpoint(version: u64) -> Path {
    Path::from(format!("rows/_delta_log/{version:020}.checkpoint.parquet"))
}

async fn copy(store: &Store) -> Store {
    let copied: Store = Arc::new(InMemory::new());
    let files: Vec<_> = store.list(None).try_collect().await.unwrap();
    for file in files {
        let bytes = store.get(&file.location).await.unwrap().bytes().await.unwrap();
        copied.put(&file.location, bytes.into()).await.unwrap();
    }
    copied
}

fn engine(store: &Store) -> Arc<dyn kernel::Engine> {
    let url = url::Url::parse(TABLE).unwrap();
    deltalake::logstore::logstore_with(store.clone(), &url, Default::default()).unwrap().engine(None)
}

/// The kernel's own checkpoint of the newest version.
fn write_with_kernel(store: &Store, spec: Option<CheckpointSpec>) {
    let engine = engine(store);
    let snapshot = Snapshot::builder_for("memory:///rows/").build(engine.as_ref()).unwrap();
    snapshot.checkpoint(engine.as_ref(), spec.as_ref()).unwrap();
}

/// The files of the newest version, with their sizes and statistics.
fn files(store: &Store) -> BTreeMap<String, String> {
    let engine = engine(store);
    let snapshot = Snapshot::builder_for("memory:///rows/").build(engine.as_ref()).unwrap();
    let mut files = BTreeMap::new();
    for data in snapshot.scan_builder().build().unwrap().scan_metadata(engine.as_ref()).unwrap() {
        files = data
            .unwrap()
            .visit_scan_files(files, |files, file| {
                let told = format!("{} {:?}", file.size, file.stats.map(|stats| stats.num_records));
                assert_eq!(files.insert(file.path, told), None);
            })
            .unwrap();
    }
    files
}

async fn read(store: &Store, path: &Path) -> (Arc<ParquetMetaData>, Vec<RecordBatch>) {
    let bytes = store.get(path).await.unwrap().bytes().await.unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    (reader.metadata().clone(), reader.build().unwrap().map(Result::unwrap).collect())
}

/// All actions of a checkpoint, in their order.
fn actions(batches: &[RecordBatch]) -> Vec<String> {
    let mut lines = LineDelimitedWriter::new(Vec::new());
    batches.iter().for_each(|batch| lines.write(batch).unwrap());
    lines.finish().unwrap();
    String::from_utf8(lines.into_inner()).unwrap().lines().map(str::to_owned).collect()
}

async fn hint(store: &Store) -> Value {
    let bytes = store.get(&Path::from("rows/_delta_log/_last_checkpoint")).await.unwrap().bytes().await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// Writes a checkpoint of `version`, which is the newest, and holds it against the kernel's own; then
/// the table must be the same without what came before. Returns the checkpoint's parts.
async fn hold_against_the_kernels(store: &Store, version: u64) -> Arc<ParquetMetaData> {
    let copied = copy(store).await;
    write_with_kernel(&copied, None);
    let sink = open(store).await;
    let before = positions(&sink).await;
    sink.maintain(TableRole::Rows).await.unwrap();

    let (written, ours) = read(store, &checkpoint(version)).await;
    let (_, kernels) = read(&copied, &checkpoint(version)).await;
    assert_eq!(ours[0].schema(), kernels[0].schema());
    assert_eq!(actions(&ours), actions(&kernels));
    let (mut ours, kernels) = (hint(store).await, hint(&copied).await);
    assert_eq!(ours["sizeInBytes"], store.head(&checkpoint(version)).await.unwrap().size);
    ours["sizeInBytes"] = kernels["sizeInBytes"].clone();
    assert_eq!(ours, kernels);
    for column in written.row_groups().iter().flat_map(|group| group.columns()) {
        assert_eq!(column.compression(), Compression::SNAPPY);
    }

    let wanted = files(&copied);
    for version in 0..version {
        store.delete(&entry(version)).await.ok();
    }
    assert_eq!(files(store), wanted);
    assert_eq!(positions(&open(store).await).await, before);
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_row_groups_hold_what_the_kernels_one_does() {
    let store: Store = Arc::new(InMemory::new());
    write(&store, 0, &created(&[], json!({ "a": "property" }))).await;
    for version in 1..=5 {
        let mut actions: Vec<Value> = (0..2_000).map(|file| add(&format!("{version}-{file}.parquet"))).collect();
        if version > 1 {
            let gone = |file: i32| remove(&format!("{}-{file}.parquet", version - 1), file % 2 == 0);
            actions.extend((0..300).map(gone));
        }
        actions.push(txn("acme/orders/1/orders/0", version * 10));
        actions.push(txn(&format!("acme/orders/1/orders/{version}"), 7));
        actions.push(txn("somebody else", version));
        write(&store, version as u64, &actions).await;
    }
    let written = hold_against_the_kernels(&store, 5).await;
    assert_eq!(written.num_row_groups(), 5, "10,000 added, 1,200 of them removed, 600 of those lately");
    assert!(written.row_groups().iter().all(|group| group.num_rows() <= 2_048));
    let found = positions(&open(&store).await).await;
    assert_eq!(found, [(0, 50), (1, 7), (2, 7), (3, 7), (4, 7), (5, 7)]);

    // The next one is made of this one.
    write(&store, 6, &[remove("5-1999.parquet", false), add("6.parquet"), txn("acme/orders/1/orders/1", 8)]).await;
    let written = hold_against_the_kernels(&store, 6).await;
    assert_eq!(written.num_row_groups(), 5);
    assert_eq!(positions(&open(&store).await).await[1], (1, 8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_in_several_files_is_followed_by_one_in_one() {
    let store: Store = Arc::new(InMemory::new());
    write(&store, 0, &created(&[], json!({}))).await;
    let mut first: Vec<Value> = (0..3_000).map(|file| add(&format!("{file}.parquet"))).collect();
    first.extend([remove("long ago", true), remove("lately", false), txn("acme/orders/1/orders/0", 3), txn("b", 1)]);
    write(&store, 1, &first).await;
    write_with_kernel(&store, None);
    // Its actions in two files, as older writers have it.
    let (_, batches) = read(&store, &checkpoint(1)).await;
    for (number, part) in batches.chunks(2).enumerate() {
        let mut file = ArrowWriter::try_new(Vec::new(), part[0].schema(), None).unwrap();
        part.iter().for_each(|batch| file.write(batch).unwrap());
        let name = format!(
            "rows/_delta_log/{:020}.checkpoint.{:010}.{:010}.parquet",
            1,
            number + 1,
            batches.len().div_ceil(2)
        );
        store.put(&Path::from(name), file.into_inner().unwrap().into()).await.unwrap();
    }
    store.delete(&checkpoint(1)).await.unwrap();
    let (rows, parts) = (batches.iter().map(RecordBatch::num_rows).sum::<usize>(), batches.len().div_ceil(2));
    let hint = json!({ "version": 1, "size": rows, "parts": parts });
    store.put(&Path::from("rows/_delta_log/_last_checkpoint"), hint.to_string().into()).await.unwrap();
    store.delete(&entry(0)).await.unwrap();
    write(&store, 2, &[remove("17.parquet", false), add("new.parquet"), txn("acme/orders/1/orders/0", 4)]).await;
    assert_eq!(files(&store).len(), 3_000);
    hold_against_the_kernels(&store, 2).await;
    assert_eq!(positions(&open(&store).await).await, [(0, 4)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_v2_checkpoints_gets_one() {
    let store: Store = Arc::new(InMemory::new());
    let wishes = json!({ "delta.checkpointPolicy": "v2", "delta.checkpoint.writeStatsAsStruct": "true" });
    write(&store, 0, &created(&["v2Checkpoint"], wishes)).await;
    let mut first: Vec<Value> = (0..5_000).map(|file| add(&format!("{file}.parquet"))).collect();
    first.extend([remove("lately", false), txn("acme/orders/1/orders/0", 3), txn("acme/orders/1/orders/4", 4)]);
    write(&store, 1, &first).await;
    let with_sidecars = V2CheckpointConfig::WithSidecar { file_actions_per_sidecar_hint: Some(1_000) };
    write_with_kernel(&store, Some(CheckpointSpec::V2(with_sidecars)));
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    let sidecars = listed.iter().filter(|meta| meta.location.as_ref().contains("/_sidecars/")).count();
    assert!(sidecars > 2, "{sidecars}");
    write(&store, 2, &[remove("17.parquet", false), add("new.parquet"), txn("acme/orders/1/orders/4", 5)]).await;
    let written = hold_against_the_kernels(&store, 2).await;
    assert_eq!(written.num_row_groups(), 3);
    assert_eq!(files(&store).len(), 5_000);
    assert_eq!(positions(&open(&store).await).await, [(0, 3), (4, 5)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_checkpoint_goes_in_parts_and_leaves_none_when_it_fails() {
    let faulty = FaultyStore::new(Arc::new(InMemory::new()));
    let store: Store = faulty.clone();
    write(&store, 0, &created(&[], json!({}))).await;
    let mut actions = many();
    actions.push(txn("acme/orders/1/orders/0", 3));
    write(&store, 1, &actions).await;
    let sink = open(&store).await;
    let of_checkpoints = |requests: &[(On, String)], wanted: On| {
        requests.iter().filter(|(on, path)| *on == wanted && path.ends_with(".checkpoint.parquet")).count()
    };

    let mut parts = 0;
    faulty.set_rule(move |on, _| {
        parts += i32::from(on == On::Part);
        (parts == 2).then_some(Fault::Fails)
    });
    let error = sink.maintain(TableRole::Rows).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write a checkpoint of table {TABLE}"));
    faulty.clear();
    assert!(store.head(&checkpoint(1)).await.is_err());
    {
        let requests = faulty.requests.lock().unwrap();
        let counts = [On::Put, On::Part, On::Abort].map(|on| of_checkpoints(&requests, on));
        assert_eq!(counts, [1, 2, 1]);
    }

    faulty.requests.lock().unwrap().clear();
    hold_against_the_kernels(&store, 1).await;
    let counts = {
        let requests = faulty.requests.lock().unwrap();
        [On::Put, On::Part, On::Abort].map(|on| of_checkpoints(&requests, on))
    };
    let size = store.head(&checkpoint(1)).await.unwrap().size;
    assert_eq!(counts, [1, size.div_ceil(8 << 20) as usize, 0]);
    assert!(counts[1] > 2, "{size} bytes");

    // What has a checkpoint needs no second one.
    faulty.requests.lock().unwrap().clear();
    sink.maintain(TableRole::Rows).await.unwrap();
    assert_eq!(of_checkpoints(&faulty.requests.lock().unwrap(), On::Put), 0);
}

/// Files need no runtime: there a checkpoint is written in another way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_local_disk_a_large_checkpoint_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let files: Store = Arc::new(object_store::local::LocalFileSystem::new_with_prefix(dir.path()).unwrap());
    write(&files, 0, &created(&[], json!({}))).await;
    let mut actions = many();
    actions.push(txn("acme/orders/1/orders/0", 3));
    write(&files, 1, &actions).await;
    let sink = DeltaSink::open(config(&place("rows"), &place("letters"))).await.unwrap();
    sink.maintain(TableRole::Rows).await.unwrap();
    let (written, batches) = read(&files, &checkpoint(1)).await;
    assert!(files.head(&checkpoint(1)).await.unwrap().size > 2 * (8 << 20));
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 60_003);
    assert_eq!(written.num_row_groups(), 30);
    assert_eq!(hint(&files).await["size"], 60_003);
    files.delete(&entry(0)).await.unwrap();
    files.delete(&entry(1)).await.unwrap();
    let again = DeltaSink::open(config(&place("rows"), &place("letters"))).await.unwrap();
    assert_eq!(positions(&again).await, [(0, 3)]);
    assert!(is_committed(&again.commit(&mut flush(&again, &[(0, 3, 4)])).await.unwrap()));
}

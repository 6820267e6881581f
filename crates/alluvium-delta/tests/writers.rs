//! Several writers at one table: other sinks, and other engines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::Partition;
use alluvium_core::seam::{Outcome, Table};
use alluvium_core::{Classified, ErrorClass, Hook};
use alluvium_delta::{DeltaSink, Error, Refusal, TableRole};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use common::*;
use deltalake::kernel::transaction::{CommitBuilder, CommitProperties};
use deltalake::kernel::{Action, Add, DataType, MetadataExt, PrimitiveType, Remove, StructField, StructType};
use deltalake::protocol::{DeltaOperation, SaveMode};
use deltalake::{DeltaTable, DeltaTableBuilder};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::collections::HashMap;
use std::sync::Arc;

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

/// The table as another engine sees it.
async fn other_engine(store: &Arc<dyn ObjectStore>) -> DeltaTable {
    let url = url::Url::parse(TABLE).unwrap();
    let builder = DeltaTableBuilder::from_url(url.clone()).unwrap().with_storage_backend(store.clone(), url);
    builder.load().await.unwrap()
}

async fn engine_commit(table: &DeltaTable, actions: Vec<Action>) {
    let operation = DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None };
    let commit = CommitBuilder::from(CommitProperties::default()).with_actions(actions);
    commit.build(Some(table.snapshot().unwrap()), table.log_store(), operation).await.unwrap();
}

fn numbers(name: &str, partition: i32, from: i64, to: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    RecordBatch::try_new(schema(&[(name, "bigint")]), vec![kafka_column(partition, from, to), numbers]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_sinks_on_partitions_of_their_own_all_land_once() {
    const COMMITS: i64 = 50;
    let store = memory();
    let mut tasks = Vec::new();
    for partition in 0..4 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let sink = open(&store).await;
            for from in (0..COMMITS * 2).step_by(2) {
                let mut flush = flush(&sink, &[(partition, from, from + 2)]);
                assert!(matches!(sink.commit(&mut flush).await.unwrap(), Outcome::Committed { .. }));
            }
            sink.finish_maintenance().await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let sink = open(&store).await;
    let spans: Vec<_> = (0..4).map(|partition| (partition, 0, COMMITS * 2)).collect();
    assert_eq!(offsets(&sink).await, once(&spans));
    let ends: Vec<_> = (0..4).map(|partition| (partition, COMMITS * 2)).collect();
    assert_eq!(positions(&sink).await, ends);
    assert_eq!(sink.reader().history(TableRole::Rows).await.unwrap().len() as i64, 4 * COMMITS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_owners_of_one_partition_each_span_lands_once() {
    let store = memory();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let sink = open(&store).await;
            let mut landed = 0;
            for _ in 0..30 {
                let from = positions(&sink).await.first().map_or(0, |(_, position)| *position);
                tokio::task::yield_now().await;
                let mut flush = with_letters(&sink, (0, from, from + 3), &[from + 1]);
                match sink.commit(&mut flush).await.unwrap() {
                    Outcome::Committed { .. } => landed += 1,
                    Outcome::Fenced { .. } | Outcome::AlreadyCommitted => {}
                    Outcome::SchemaMoved { column } => panic!("{column} moved"),
                }
            }
            landed
        }));
    }
    let mut landed = 0;
    for task in tasks {
        landed += task.await.unwrap();
    }
    let sink = open(&store).await;
    let end = positions(&sink).await[0].1;
    assert_eq!(end, landed * 3);
    let rejected = |offset: &i64| offset % 3 == 1;
    let rows = once(&[(0, 0, end)]).into_iter().filter(|((_, offset), _)| !rejected(offset)).collect();
    assert_eq!(offsets(&sink).await, rows);
    let dead = once(&[(0, 0, end)]).into_iter().filter(|((_, offset), _)| rejected(offset)).collect();
    assert_eq!(letters(&sink).await, dead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sinks_that_create_and_grow_at_once_end_with_all_columns() {
    for round in 0..10 {
        let store = memory();
        let mut tasks = Vec::new();
        for partition in 0..4 {
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                let sink = open(&store).await;
                let name = format!("number_{partition}");
                let mut flush = flush_of(&sink, &[(partition, 0, 5)], &[numbers(&name, partition, 0, 5)]);
                sink.commit(&mut flush).await.unwrap()
            }));
        }
        for task in tasks {
            let outcome = task.await.unwrap();
            assert!(matches!(outcome, Outcome::Committed { .. }), "round {round}: {outcome:?}");
        }
        let sink = open(&store).await;
        let schema = sink.load().await.unwrap().schema.unwrap();
        let mut names: Vec<_> = schema.fields().iter().map(|field| field.name().clone()).collect();
        names.sort();
        assert_eq!(names, ["_kafka", "number_0", "number_1", "number_2", "number_3"], "round {round}");
        assert_eq!(offsets(&sink).await, once(&[(0, 0, 5), (1, 0, 5), (2, 0, 5), (3, 0, 5)]));
        let batch = sink.reader().first_rows(TableRole::Rows, Some(&["number_2".to_owned()]), 100).await.unwrap();
        assert_eq!((batch.num_rows(), batch.column(0).null_count()), (20, 15));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn growth_that_meets_another_type_has_moved() {
    let store = memory();
    let (one, two) = (open(&store).await, open(&store).await);
    one.commit(&mut flush(&one, &[(0, 0, 2)])).await.unwrap();
    // Both plan a new column of the same name; the second finds the first one's type.
    let mut theirs = flush_of(&two, &[(1, 0, 2)], &[numbers("extra", 1, 0, 2)]);
    let texts: ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["a", "b"]));
    let columns = vec![kafka_column(0, 2, 4), texts];
    let batch = RecordBatch::try_new(schema(&[("extra", "string")]), columns).unwrap();
    let mut ours = flush_of(&one, &[(0, 2, 4)], &[batch]);
    ours.dead_letters = vec![letter(0, 3)];
    two.commit(&mut theirs).await.unwrap();
    assert_eq!(one.commit(&mut ours).await.unwrap(), Outcome::SchemaMoved { column: "extra".to_owned() });
    assert!(letters(&one).await.is_empty(), "dead letters wait until the rows fit");
    assert_eq!(positions(&one).await, [(0, 2), (1, 2)]);
    let case = flush_of(&one, &[(0, 2, 4)], &[numbers("Extra", 0, 2, 4)]);
    let outcome = one.commit(&mut { case }).await.unwrap();
    assert_eq!(outcome, Outcome::SchemaMoved { column: "Extra".to_owned() });
}

/// Whoever drops a column is not overruled by rows that were planned before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_its_owner_dropped_is_not_put_back() {
    let store = memory();
    let sink = open(&store).await;
    let with = |from: i64| numbers("extra", 0, from, from + 2);
    assert!(is_committed(&sink.commit(&mut flush_of(&sink, &[(0, 0, 2)], &[with(0)])).await.unwrap()));
    for from in [2, 4] {
        let table = other_engine(&store).await;
        let snapshot = table.snapshot().unwrap();
        let schema = snapshot.schema();
        let kept = schema.fields().filter(|field| field.name() != "extra").cloned();
        let schema = StructType::try_new(kept).unwrap();
        let metadata = snapshot.metadata().clone().with_schema(&schema).unwrap();
        engine_commit(&table, vec![Action::Metadata(metadata)]).await;
        let mut late = flush_of(&sink, &[(0, from, from + 2)], &[with(from)]);
        assert_eq!(sink.commit(&mut late).await.unwrap(), Outcome::SchemaMoved { column: "extra".to_owned() });
        // Again, until it is planned anew.
        assert_eq!(sink.commit(&mut late).await.unwrap(), Outcome::SchemaMoved { column: "extra".to_owned() });
        assert!(sink.load().await.unwrap().schema.unwrap().field_with_name("extra").is_err());
        // Who still wants the column then has it.
        assert!(is_committed(&sink.commit(&mut late).await.unwrap()));
        assert!(sink.known_schema().unwrap().field_with_name("extra").is_ok());
    }
    assert_eq!(offsets(&sink).await, once(&[(0, 0, 6)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_rewrites_and_settings_of_another_engine_pass_by() {
    let store = memory();
    let sink = open(&store).await;
    sink.commit(&mut flush(&sink, &[(0, 0, 3)])).await.unwrap();

    // An append without transactions.
    let foreign = flush(&sink, &[(9, 100, 102)]);
    let file = &foreign.files[0];
    // The file is put where our own commits would put it, then added by the other engine.
    let table = other_engine(&store).await;
    put(&sink, &foreign).await;
    engine_commit(&table, vec![Action::Add(add(file, true))]).await;
    assert!(is_committed(&sink.commit(&mut flush(&sink, &[(0, 3, 5)])).await.unwrap()));

    // A rewrite that changes no data, as OPTIMIZE makes it.
    let table = other_engine(&store).await;
    let rewritten = flush(&sink, &[(9, 100, 102)]);
    put(&sink, &rewritten).await;
    let removed = remove(file, false);
    engine_commit(&table, vec![Action::Remove(removed), Action::Add(add(&rewritten.files[0], false))]).await;
    assert!(is_committed(&sink.commit(&mut flush(&sink, &[(0, 5, 6)])).await.unwrap()));

    // A removal of rows, and settings, between our judgement and our commit's retry.
    let table = other_engine(&store).await;
    engine_commit(&table, vec![Action::Remove(remove(&rewritten.files[0], true))]).await;
    let table = other_engine(&store).await;
    let settings = HashMap::from([("delta.checkpointInterval".to_owned(), "7".to_owned())]);
    table.set_tbl_properties().with_properties(settings).await.unwrap();
    assert!(is_committed(&sink.commit(&mut flush(&sink, &[(0, 6, 7)])).await.unwrap()));

    // New columns.
    let table = other_engine(&store).await;
    let field = StructField::nullable("note", DataType::Primitive(PrimitiveType::String));
    table.add_columns().with_fields([field]).await.unwrap();
    assert!(is_committed(&sink.commit(&mut flush(&sink, &[(0, 7, 8)])).await.unwrap()));
    assert!(sink.load().await.unwrap().schema.unwrap().field_with_name("note").is_ok());

    assert_eq!(offsets(&sink).await, once(&[(0, 0, 8)]));
    let kinds: Vec<_> = sink
        .reader()
        .history(TableRole::Rows)
        .await
        .unwrap()
        .iter()
        .map(|commit| commit.entry.info.is_some())
        .collect();
    assert_eq!(kinds, [true, false, true, false, true, false, false, true, false, true]);
    assert_eq!(other_engine(&store).await.snapshot().unwrap().log_data().num_files(), 5);
}

async fn put(sink: &DeltaSink, flush: &alluvium_core::seam::Flush<alluvium_delta::DataFile>) {
    // A flush that is fenced has uploaded its files all the same.
    let mut flush = alluvium_core::seam::Flush {
        info: info(alluvium_core::CommitKind::Rows, &[(0, 1000, 1001)]),
        schema: flush.schema.clone(),
        files: flush.files.clone(),
        dead_letters: Vec::new(),
        absent: Default::default(),
    };
    let found = sink.commit(&mut flush).await.unwrap();
    assert!(matches!(found, Outcome::Fenced { .. }), "{found:?}");
}

fn add(file: &alluvium_delta::DataFile, data_change: bool) -> Add {
    Add {
        path: file.url(),
        size: file.size() as i64,
        data_change,
        stats: Some(file.stats().to_owned()),
        ..Add::default()
    }
}

fn remove(file: &alluvium_delta::DataFile, data_change: bool) -> Remove {
    Remove {
        path: file.url(),
        data_change,
        deletion_timestamp: Some(1_700_000_000_000),
        size: Some(file.size() as i64),
        partition_values: Some(HashMap::new()),
        extended_file_metadata: Some(true),
        ..Remove::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_engine_made_of_the_table_is_refused_by_name() {
    let store = memory();
    let sink = open(&store).await;
    sink.commit(&mut flush(&sink, &[(0, 0, 3)])).await.unwrap();
    let table = other_engine(&store).await;
    let retention = HashMap::from([("delta.setTransactionRetentionDuration".to_owned(), "interval 1 day".to_owned())]);
    table.set_tbl_properties().with_properties(retention).with_raise_if_not_exists(false).await.unwrap();

    let refused = |error: Error| {
        assert!(matches!(&error, Error::Refused { refusal: Refusal::TransactionRetention, .. }), "{error:?}");
        assert_eq!(error.class(), ErrorClass::User);
        assert!(error.hint().unwrap().contains("UNSET"));
    };
    refused(sink.commit(&mut flush(&sink, &[(0, 3, 5)])).await.unwrap_err());
    refused(sink.load().await.unwrap_err());
    refused(DeltaSink::open_with_store(store.clone(), memory_config()).await.unwrap_err());
    // The dead letters' table is held to the same.
    let mut swapped = memory_config();
    std::mem::swap(&mut swapped.table, &mut swapped.dead_letters);
    refused(DeltaSink::open_with_store(store, swapped).await.unwrap_err());
}

#[tokio::test]
async fn another_partitioning_is_the_owners_to_settle() {
    let store = memory();
    let sink = open(&store).await;
    sink.commit(&mut flush(&sink, &[(0, 0, 3)])).await.unwrap();
    let mut config = memory_config();
    config.partition_by = vec!["name".to_owned()];
    let error = DeltaSink::open_with_store(store, config).await.unwrap_err();
    assert!(matches!(error, Error::PartitionColumns { .. }), "{error:?}");
    assert_eq!(error.to_string(), "table memory:///rows is partitioned by [], but the pipeline says [name]");
}

#[tokio::test]
async fn a_column_that_must_not_be_null_is_watched() {
    let store = memory();
    let sink = open(&store).await;
    let url = url::Url::parse(TABLE).unwrap();
    let log = deltalake::logstore::logstore_with(store.clone(), &url, Default::default()).unwrap();
    let create = deltalake::operations::create::CreateBuilder::new().with_log_store(log);
    let create = create.with_column("number", DataType::Primitive(PrimitiveType::Long), false, None);
    create.await.unwrap();

    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let batch = RecordBatch::try_new(schema(&[("number", "bigint")]), vec![kafka_column(0, 0, 2), nulls]).unwrap();
    let error = sink.commit(&mut flush_of(&sink, &[(0, 0, 2)], &[batch])).await.unwrap_err();
    assert!(matches!(&error, Error::NotNull { column, .. } if column == "number"), "{error:?}");
    let error = sink.commit(&mut flush(&sink, &[(0, 0, 2)])).await.unwrap_err();
    assert!(matches!(&error, Error::NotNull { column, .. } if column == "number"), "{error:?}");
    let full = numbers("number", 0, 0, 2);
    assert!(is_committed(&sink.commit(&mut flush_of(&sink, &[(0, 0, 2)], &[full])).await.unwrap()));
}

async fn delete_all(store: &Arc<dyn ObjectStore>) {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    let all: Vec<_> = store.list(None).try_collect().await.unwrap();
    for meta in all {
        store.delete(&meta.location).await.unwrap();
    }
}

#[tokio::test]
async fn a_table_in_place_of_another_is_not_taken_for_it() {
    let store = memory();
    let sink = open(&store).await;
    for from in 0..3 {
        sink.commit(&mut flush(&sink, &[(0, from, from + 1)])).await.unwrap();
    }
    sink.load().await.unwrap();
    delete_all(&store).await;
    // No position may stand for the start of a pipeline, never for one that had a position.
    let mut next = flush(&sink, &[(0, 3, 4)]);
    next.absent.clear();
    let outcome = sink.commit(&mut next).await.unwrap();
    assert_eq!(outcome, Outcome::Fenced { found: vec![(Partition(0), None)] });
    // After looking again it stands for a start again: nobody is fenced for ever.
    assert!(sink.load().await.unwrap().positions.is_empty());
    assert!(is_committed(&sink.commit(&mut flush(&sink, &[(0, 0, 1)])).await.unwrap()));
    delete_all(&store).await;

    let other = open(&store).await;
    for from in 0..5 {
        other.commit(&mut flush(&other, &[(0, from, from + 1)])).await.unwrap();
    }
    let outcome = sink.commit(&mut flush(&sink, &[(0, 3, 4)])).await.unwrap();
    assert_eq!(outcome, Outcome::Fenced { found: vec![(Partition(0), Some(5))] });
}

/// What another engine does to the table, in one commit.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Optimize,
    Delete,
    Vacuum,
    Restore,
    AddColumn,
    Setting,
}

impl Deed {
    async fn done(self, store: &Arc<dyn ObjectStore>) {
        let table = other_engine(store).await;
        let first = table.get_file_uris().unwrap().min().unwrap();
        let path = first.rsplit_once('/').unwrap().1.to_owned();
        let remove = |data_change| Remove {
            path: path.clone(),
            data_change,
            deletion_timestamp: Some(1_700_000_000_000),
            partition_values: Some(HashMap::new()),
            extended_file_metadata: Some(true),
            ..Remove::default()
        };
        match self {
            Self::Optimize => {
                use object_store::{ObjectStoreExt, path::Path};
                let (from, to) = (Path::from(format!("rows/{path}")), Path::from("rows/compacted.parquet"));
                store.copy(&from, &to).await.unwrap();
                let size = store.head(&to).await.unwrap().size as i64;
                let add = Add { path: "compacted.parquet".to_owned(), size, data_change: false, ..Add::default() };
                engine_commit(&table, vec![Action::Remove(remove(false)), Action::Add(add)]).await;
            }
            Self::Delete => engine_commit(&table, vec![Action::Remove(remove(true))]).await,
            Self::Vacuum => drop(table.vacuum().await.unwrap()),
            Self::Restore => drop(table.restore().with_version_to_restore(1).await.unwrap()),
            Self::AddColumn => {
                let field = StructField::nullable("note", DataType::Primitive(PrimitiveType::String));
                drop(table.add_columns().with_fields([field]).await.unwrap());
            }
            Self::Setting => {
                let settings = HashMap::from([("delta.checkpointInterval".to_owned(), "7".to_owned())]);
                drop(table.set_tbl_properties().with_properties(settings).await.unwrap());
            }
        }
    }
}

/// Whatever comes between our judgement and our entry: the entry loses its version, what came is read
/// and judged, and the same files are committed after it. Positions stay, whatever became of rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_comes_between_judgement_and_entry_is_judged_first() {
    use std::sync::atomic::{AtomicBool, Ordering};
    for deed in [Deed::Optimize, Deed::Delete, Deed::Vacuum, Deed::Restore, Deed::AddColumn, Deed::Setting] {
        let store = memory();
        let sink = open(&store).await;
        for from in 0..3 {
            sink.commit(&mut flush(&sink, &[(0, from, from + 1)])).await.unwrap();
        }
        let (other, done) = (store.clone(), AtomicBool::new(false));
        let sink = Arc::new(sink.with_hook(Hook::new(move |point| {
            if point.to_string() == "commit:before" && !done.swap(true, Ordering::SeqCst) {
                let handle = tokio::runtime::Handle::current();
                tokio::task::block_in_place(|| handle.block_on(deed.done(&other)));
            }
        })));
        let committing = sink.clone();
        let commit = tokio::spawn(async move { committing.commit(&mut flush(&committing, &[(0, 3, 4)])).await });
        let outcome = commit.await.unwrap().unwrap();
        // A vacuum that finds nothing to remove leaves no entry.
        let next = if matches!(deed, Deed::Vacuum) { 3 } else { 4 };
        assert_eq!(outcome, Outcome::Committed { version: next }, "{deed:?}");
        assert_eq!(positions(&sink).await, [(0, 4)], "{deed:?}");
        let found = offsets(&sink).await;
        let gone = match deed {
            // The third commit, of which nothing is left in the version that was restored.
            Deed::Restore => vec![(0, 2)],
            Deed::Delete => once(&[(0, 0, 3)]).into_keys().filter(|place| !found.contains_key(place)).collect(),
            _ => Vec::new(),
        };
        let mut wanted = once(&[(0, 0, 4)]);
        wanted.retain(|place, _| !gone.contains(place));
        assert_eq!(
            (found, gone.len()),
            (wanted, usize::from(matches!(deed, Deed::Restore | Deed::Delete))),
            "{deed:?}"
        );
        // Who started with the table as it is now goes on the same way.
        let again = open(&store).await;
        assert!(is_committed(&again.commit(&mut flush(&again, &[(0, 4, 5)])).await.unwrap()), "{deed:?}");
        let entries: Vec<_> =
            again.reader().history(TableRole::Rows).await.unwrap().into_iter().map(|commit| commit.entry).collect();
        let stored = again.load().await.unwrap().positions;
        let report = alluvium_core::audit::audit(&pipeline(), "orders", &entries, &stored);
        assert!(report.holds(), "{deed:?}: {report:?}");
    }
}

/// The newest entries of the log are taken away by hand, as a backup put back does: rows and positions
/// go back together, and whoever was ahead of them finds out.
#[tokio::test]
async fn a_log_that_was_put_back_takes_positions_back_with_the_rows() {
    use object_store::{ObjectStoreExt, path::Path};
    let store = memory();
    let sink = open(&store).await;
    for from in 0..4 {
        sink.commit(&mut flush(&sink, &[(0, from, from + 1)])).await.unwrap();
    }
    for version in 2..4 {
        store.delete(&Path::from(format!("rows/_delta_log/{version:020}.json"))).await.unwrap();
    }
    let outcome = sink.commit(&mut flush(&sink, &[(0, 4, 5)])).await.unwrap();
    assert_eq!(outcome, Outcome::Fenced { found: vec![(Partition(0), Some(2))] });
    assert!(is_committed(&sink.commit(&mut flush(&sink, &[(0, 2, 5)])).await.unwrap()));
    assert_eq!(offsets(&sink).await, once(&[(0, 0, 5)]));
}

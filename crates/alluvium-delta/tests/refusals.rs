//! Tables that must not be written are refused by name when they are opened; logs that other
//! engines wrote in their own way are understood.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::seam::{Outcome, Table};
use alluvium_core::{Classified, CommitKind, ErrorClass, Partition};
use alluvium_delta::{DeltaSink, Error, Refusal};
use common::*;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};
use std::sync::Arc;

fn field(name: &str, metadata: Value) -> Value {
    json!({ "name": name, "type": "long", "nullable": true, "metadata": metadata })
}

fn metadata(fields: &[Value], configuration: Value) -> Value {
    let schema = json!({ "type": "struct", "fields": fields }).to_string();
    json!({ "metaData": {
        "id": "6c5bd2d6-1a1c-4d9c-8a57-7a0f1f1a5e11",
        "format": { "provider": "parquet", "options": {} },
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": 1_700_000_000_000i64,
    }})
}

fn protocol(reader: i32, writer: i32, reader_features: &[&str], writer_features: &[&str]) -> Value {
    let mut protocol = json!({ "minReaderVersion": reader, "minWriterVersion": writer });
    if reader == 3 {
        protocol["readerFeatures"] = json!(reader_features);
    }
    if writer == 7 {
        protocol["writerFeatures"] = json!(writer_features);
    }
    json!({ "protocol": protocol })
}

async fn log(store: &Arc<dyn ObjectStore>, version: u64, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = Path::from(format!("rows/_delta_log/{version:020}.json"));
    store.put(&path, text.into()).await.unwrap();
}

async fn opened(protocol: Value, metadata: Value) -> Result<DeltaSink, Error> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    log(&store, 0, &[protocol, metadata]).await;
    DeltaSink::open_with_store(store, memory_config()).await
}

#[tokio::test]
async fn each_reason_has_its_name_and_its_hint() {
    let plain = || metadata(&[field("a", json!({}))], json!({}));
    let with = |key: &str, value: &str| metadata(&[field("a", json!({}))], json!({ key: value }));
    let ruled = |rule: &str| metadata(&[field("a", json!({ rule: "a > 0" }))], json!({}));
    let cases = [
        (protocol(1, 2, &[], &[]), with("delta.setTransactionRetentionDuration", "interval 7 days"), "expire"),
        (protocol(1, 3, &[], &[]), with("delta.constraints.positive", "a > 0"), "CHECK constraint positive"),
        (protocol(1, 2, &[], &[]), ruled("delta.invariants"), "column a has an invariant"),
        (protocol(1, 4, &[], &[]), ruled("delta.generationExpression"), "column a is generated"),
        (protocol(1, 6, &[], &[]), ruled("delta.identity.start"), "column a numbers its rows"),
        (protocol(1, 7, &[], &["rowTracking", "domainMetadata"]), plain(), "the feature rowTracking"),
        (protocol(1, 7, &[], &["icebergCompatV1"]), plain(), "the feature icebergCompatV1"),
        (protocol(3, 7, &["typeWidening"], &["typeWidening"]), plain(), "the feature typeWidening"),
        (protocol(3, 7, &["variantType"], &["variantType"]), plain(), "the feature variantType"),
        (
            protocol(1, 7, &[], &["inCommitTimestamp"]),
            with("delta.enableInCommitTimestamps", "true"),
            "in-commit timestamps",
        ),
    ];
    for (protocol, metadata, words) in cases {
        let error = opened(protocol.clone(), metadata).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{protocol}: {error:?}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.to_string().contains(TABLE), "{error}");
        assert_eq!(error.class(), ErrorClass::User);
        assert!(error.hint().is_some());
    }
}

#[tokio::test]
async fn what_cannot_even_be_read_is_the_users_too() {
    let plain = || metadata(&[field("a", json!({}))], json!({}));
    for protocol in [protocol(3, 7, &["made-up"], &["made-up"]), protocol(4, 7, &[], &[]), protocol(1, 8, &[], &[])] {
        let error = opened(protocol.clone(), plain()).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::User, "{protocol}: {error:?}");
        assert!(error.hint().is_some(), "{error:?}");
    }
    let mapped = json!({ "delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1" });
    let mapped = metadata(&[field("a", mapped)], json!({ "delta.columnMapping.mode": "name" }));
    let error = opened(protocol(2, 5, &[], &[]), mapped).await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { refusal: Refusal::ColumnMapping(mode), .. } if mode == "name"),
        "{error:?}"
    );
}

#[tokio::test]
async fn listed_features_that_nothing_uses_do_not_stand_in_the_way() {
    let features =
        ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "deletionVectors"];
    let metadata = metadata(&[field("a", json!({ "comment": "kept" }))], json!({ "delta.appendOnly": "true" }));
    let sink = opened(protocol(3, 7, &["deletionVectors"], &features), metadata).await.unwrap();
    let outcome = sink.commit(&mut flush(&sink, &[(0, 0, 3)])).await.unwrap();
    // Columns, then rows.
    assert_eq!(outcome, Outcome::Committed { version: 2 });
    assert_eq!(offsets(&sink).await, once(&[(0, 0, 3)]));
    let schema = sink.load().await.unwrap().schema.unwrap();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["a", "_kafka", "name"]);
}

#[tokio::test]
async fn entries_of_other_writers_are_read_however_they_spell_what_is_empty() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sink = open(&store).await;
    sink.commit(&mut flush(&sink, &[(0, 0, 3)])).await.unwrap();
    let schema = sink.load().await.unwrap().schema.unwrap();
    let mut nulls = metadata(&[], Value::Null);
    let old: Value = {
        let entry =
            store.get(&Path::from("rows/_delta_log/00000000000000000000.json")).await.unwrap().bytes().await.unwrap();
        let lines: Vec<Value> =
            serde_json::Deserializer::from_slice(&entry).into_iter().collect::<Result<_, _>>().unwrap();
        lines.into_iter().find_map(|line| line.get("metaData").cloned()).unwrap()
    };
    nulls["metaData"]["schemaString"] = old["schemaString"].clone();
    nulls["metaData"]["partitionColumns"] = Value::Null;
    nulls["metaData"]["format"]["options"] = Value::Null;
    nulls["metaData"]["name"] = Value::Null;
    let lines = [
        json!({ "commitInfo": { "timestamp": "now", "operation": 7, "txnId": null, "alluvium": "not ours" } }),
        nulls,
        json!({ "domainMetadata": { "domain": "d", "configuration": "", "removed": false } }),
        json!({ "txn": { "appId": "somebody else", "version": 9, "lastUpdated": 1 } }),
        json!({ "unheard-of": { "deep": [1, 2, { "three": null }] } }),
    ];
    log(&store, 1, &lines).await;
    let outcome = sink.commit(&mut flush(&sink, &[(0, 3, 5)])).await.unwrap();
    assert_eq!(outcome, Outcome::Committed { version: 2 });
    assert_eq!(sink.load().await.unwrap().schema.unwrap(), schema);
    let history = sink.reader().history(alluvium_delta::TableRole::Rows).await.unwrap();
    assert!(history[1].entry.info.is_none() && history[1].entry.operation.is_none() && history[1].timestamp.is_none());
    assert_eq!(history[1].entry.transactions, [("somebody else".to_owned(), 9)]);
}

#[tokio::test]
async fn an_entry_that_is_not_json_stops_with_its_version() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sink = open(&store).await;
    sink.commit(&mut flush(&sink, &[(0, 0, 3)])).await.unwrap();
    let path = Path::from(format!("rows/_delta_log/{:020}.json", 1));
    store.put(&path, "{\"add\": ".into()).await.unwrap();
    let error = sink.commit(&mut flush(&sink, &[(0, 3, 5)])).await.unwrap_err();
    assert!(matches!(error, Error::ParseLog { version: 1, .. }), "{error:?}");
}

#[tokio::test]
async fn a_flush_that_could_not_be_told_from_its_repetition_is_not_committed() {
    let sink = open(&(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>)).await;
    let mut still = flush(&sink, &[(0, 0, 3)]);
    still.info = info(CommitKind::Rows, &[(0, 3, 3)]);
    assert!(matches!(sink.commit(&mut still).await, Err(Error::NothingMoves)));
    let mut twice = flush(&sink, &[(0, 0, 3)]);
    twice.info = info(CommitKind::Rows, &[(0, 0, 3), (0, 0, 3)]);
    assert!(matches!(sink.commit(&mut twice).await, Err(Error::DuplicatePartition { .. })));
    assert!(sink.load().await.unwrap().schema.is_none());
}

#[tokio::test]
async fn a_table_can_start_without_columns() {
    let sink = open(&(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>)).await;
    let mut start = flush(&sink, &[]);
    start.info = info(CommitKind::Start, &[(0, 9, 9)]);
    start.absent.insert(Partition(0));
    start.schema = Arc::new(arrow_schema::Schema::empty());
    assert_eq!(sink.commit(&mut start).await.unwrap(), Outcome::Committed { version: 0 });
    assert_eq!(positions(&sink).await, [(0, 9)]);
    assert_eq!(sink.commit(&mut flush(&sink, &[(0, 9, 11)])).await.unwrap(), Outcome::Committed { version: 2 });
    assert_eq!(offsets(&sink).await, once(&[(0, 9, 11)]));
}

#[tokio::test]
async fn table_and_dead_letters_have_places_of_their_own() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let config = config(TABLE, &format!("{TABLE}/"));
    assert!(matches!(DeltaSink::open_with_store(store, config).await, Err(Error::SameLocation { .. })));
}

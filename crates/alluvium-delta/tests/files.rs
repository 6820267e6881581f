//! What data files say of themselves: statistics and partitions, and that what they say is true.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::seam::{RowWriter, Table};
use alluvium_core::{CommitKind, DataType};
use alluvium_delta::{DataFile, DeltaSink, Error, TableRole};
use arrow_array::types::Float64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array,
    Int64Array, ListArray, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{Field, Schema};
use common::*;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

async fn file(columns: Vec<(&str, ArrayRef)>) -> DataFile {
    let sink = open(&memory()).await;
    let batch = batch(columns);
    let mut writer = sink.writer(batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let mut files = writer.finish().unwrap();
    assert_eq!(files.len(), 1);
    files.remove(0)
}

async fn stats(array: ArrayRef) -> (Value, Value, Value) {
    let file = file(vec![("c", array)]).await;
    let stats: Value = serde_json::from_str(file.stats()).unwrap();
    let part = |name: &str| stats[name].get("c").cloned().unwrap_or(Value::Null);
    (part("minValues"), part("maxValues"), part("nullCount"))
}

/// The text of a bound, digit by digit.
async fn bound_text(array: ArrayRef) -> String {
    let file = file(vec![("c", array)]).await;
    let text = file.stats().to_owned();
    text[text.find("\"minValues").unwrap()..].to_owned()
}

fn decimals(values: Vec<Option<i128>>, precision: u8, scale: i8) -> ArrayRef {
    Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
}

#[tokio::test]
async fn decimals_are_bounded_digit_by_digit() {
    let ten_to_20 = 10i128.pow(20);
    let text = bound_text(decimals(vec![Some(ten_to_20), Some(-ten_to_20 - 1)], 38, 0)).await;
    assert!(
        text.contains(r#""minValues":{"c":-100000000000000000001},"maxValues":{"c":100000000000000000000}"#),
        "{text}"
    );
    let largest = 10i128.pow(38) - 1;
    let text = bound_text(decimals(vec![Some(largest), Some(1 - largest)], 38, 10)).await;
    assert!(text.contains(r#"{"c":-9999999999999999999999999999.9999999998}"#), "{text}");
    assert!(text.contains(r#"{"c":9999999999999999999999999999.9999999999}"#), "{text}");
    for (precision, scale, low, high) in [(9, 2, "-0.05", "0.10"), (18, 6, "-0.000005", "0.000010"), (5, 0, "-5", "10")]
    {
        let text = bound_text(decimals(vec![Some(10), None, Some(-5)], precision, scale)).await;
        let expected = format!(r#""minValues":{{"c":{low}}},"maxValues":{{"c":{high}}},"nullCount":{{"c":1}}"#);
        assert!(text.contains(&expected), "{text}");
    }
}

#[tokio::test]
async fn floating_point_is_bounded_only_where_every_reader_agrees() {
    let doubles = |values: &[f64]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
    assert_eq!(stats(doubles(&[1.5, -2.5])).await, (json!(-2.5), json!(1.5), json!(0)));
    // NaN is the greatest value to some, and none at all to others.
    assert_eq!(stats(doubles(&[1.0, f64::NAN])).await, (json!(1.0), Value::Null, json!(0)));
    assert_eq!(stats(doubles(&[f64::NAN])).await, (Value::Null, Value::Null, json!(0)));
    // JSON has no infinity.
    assert_eq!(stats(doubles(&[f64::INFINITY, 1.0])).await, (json!(1.0), Value::Null, json!(0)));
    assert_eq!(stats(doubles(&[f64::NEG_INFINITY, 1.0])).await, (Value::Null, json!(1.0), json!(0)));
    // Zero is below and above itself in some orders.
    let text = bound_text(doubles(&[0.0])).await;
    assert!(text.contains(r#""minValues":{"c":-0.0},"maxValues":{"c":0.0}"#), "{text}");
    let singles: ArrayRef = Arc::new(Float32Array::from(vec![Some(0.1f32), None]));
    // A single's exact value, which reads the same as single and as double.
    assert_eq!(stats(singles).await, (json!(f64::from(0.1f32)), json!(f64::from(0.1f32)), json!(1)));
}

#[tokio::test]
async fn times_are_rounded_away_from_their_values() {
    let micros = |values: &[i64]| TimestampMicrosecondArray::from(values.to_vec());
    let at: ArrayRef = Arc::new(micros(&[1_298_677, 1_298_678]).with_timezone("UTC"));
    let expected = (json!("1970-01-01T00:00:01.298Z"), json!("1970-01-01T00:00:01.299Z"), json!(0));
    assert_eq!(stats(at).await, expected);
    let whole: ArrayRef = Arc::new(micros(&[-1_000]).with_timezone("UTC"));
    let before = json!("1969-12-31T23:59:59.999Z");
    assert_eq!(stats(whole).await, (before.clone(), before, json!(0)));
    let wall: ArrayRef = Arc::new(micros(&[-1]));
    assert_eq!(stats(wall).await, (json!("1969-12-31T23:59:59.999"), json!("1970-01-01T00:00:00.000"), json!(0)));
    // Of the last millisecond that readers know nothing is rounded up.
    let last: ArrayRef = Arc::new(micros(&[253_402_300_799_999_999]));
    let (low, high) = (json!("9999-12-31T23:59:59.999"), json!("9999-12-31T23:59:59.999999"));
    assert_eq!(stats(last).await, (low, high, json!(0)));
    let beyond: ArrayRef = Arc::new(micros(&[i64::MIN, 0, i64::MAX]).with_timezone("UTC"));
    assert_eq!(stats(beyond).await, (Value::Null, Value::Null, json!(0)));
    let days: ArrayRef = Arc::new(Date32Array::from(vec![-719_163, 0]));
    assert_eq!(stats(days).await, (Value::Null, json!("1970-01-01"), json!(0)));
}

#[tokio::test]
async fn text_is_bounded_shortly_booleans_too_and_binary_not_at_all() {
    let long = "x".repeat(1_000_000);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some(long.as_str()), Some("a"), None]));
    let (low, high, nulls) = stats(texts).await;
    assert_eq!((low, nulls), (json!("a"), json!(1)));
    let high = high.as_str().unwrap().to_owned();
    assert!(high.len() <= 64 && high > long, "{high}");
    // No text of 64 bytes is above this one.
    let highest: ArrayRef = Arc::new(StringArray::from(vec!["\u{10FFFF}".repeat(100)]));
    let (low, high, _) = stats(highest).await;
    assert!(low.as_str().unwrap().len() <= 64 && high.is_null(), "{high}");
    let quoted: ArrayRef = Arc::new(StringArray::from(vec!["a\"\\\n\u{1}", "ü"]));
    assert_eq!(stats(quoted).await, (json!("a\"\\\n\u{1}"), json!("ü"), json!(0)));
    let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&[0u8; 1_000_000]]));
    assert_eq!(stats(bytes).await, (Value::Null, Value::Null, json!(0)));
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]));
    assert_eq!(stats(flags).await, (json!(false), json!(true), json!(1)));
}

#[tokio::test]
async fn nested_values_have_statistics_in_structs_and_none_in_lists() {
    let inner: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(7)]));
    let double: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.5), Some(f64::NAN), Some(9.0)]));
    let fields =
        vec![Field::new("a", inner.data_type().clone(), true), Field::new("d", double.data_type().clone(), true)];
    let nulls = vec![true, true, false].into();
    let nested: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![inner, double], Some(nulls)));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(vec![
        Some(vec![None, Some(1.0)]),
        None,
        Some(vec![]),
    ]));
    let after: ArrayRef = Arc::new(Int64Array::from(vec![4, 5, 6]));
    let file = file(vec![("l", lists), ("s", nested), ("z", after)]).await;
    let stats: Value = serde_json::from_str(file.stats()).unwrap();
    let expected = json!({
        "numRecords": 3,
        "minValues": { "s": { "a": 1, "d": 0.5 }, "z": 4 },
        "maxValues": { "s": { "a": 1 }, "z": 6 },
        "nullCount": { "s": { "a": 2, "d": 1 }, "z": 0 },
    });
    assert_eq!(stats, expected);
}

#[tokio::test]
async fn a_column_of_nulls_has_only_their_count() {
    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![None, None]));
    assert_eq!(stats(nulls).await, (Value::Null, Value::Null, json!(2)));
    let nulls: ArrayRef = Arc::new(Float64Array::from(vec![None, None]));
    assert_eq!(stats(nulls).await, (Value::Null, Value::Null, json!(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_says_which_columns_have_statistics() {
    let names: Vec<String> = (0..40).map(|index| format!("c{index:02}")).collect();
    let columns =
        || names.iter().map(|name| (name.as_str(), Arc::new(Int64Array::from(vec![1])) as ArrayRef)).collect();
    let counted = |file: &DataFile| {
        let stats: Value = serde_json::from_str(file.stats()).unwrap();
        stats["nullCount"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(counted(&file(columns()).await), names[..32]);

    for (key, value, expected) in [
        ("delta.dataSkippingNumIndexedCols", "2", &names[..2]),
        ("delta.dataSkippingNumIndexedCols", "-1", &names[..]),
        ("delta.dataSkippingStatsColumns", "c05, `c06`", &names[5..7]),
    ] {
        let store = memory();
        let url = url::Url::parse(TABLE).unwrap();
        let log = deltalake::logstore::logstore_with(store.clone(), &url, Default::default()).unwrap();
        let long = deltalake::kernel::DataType::LONG;
        let create = deltalake::operations::create::CreateBuilder::new().with_log_store(log);
        let create = create.with_column("c00", long, true, None).with_configuration([(key, Some(value))]);
        create.await.unwrap();
        let sink = open(&store).await;
        let batch = batch(columns());
        let mut writer = sink.writer(batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        assert_eq!(counted(&writer.finish().unwrap()[0]), expected, "{key} = {value}");
    }
}

#[tokio::test]
async fn files_are_closed_at_their_size_and_never_empty() {
    let mut config = memory_config();
    config.file_size = 20_000;
    let sink = DeltaSink::open_with_store(memory(), config).await.unwrap();
    let mut writer = sink.writer(schema(&[("name", "string")])).unwrap();
    assert_eq!(writer.memory(), 0);
    writer.write(&rows(0, 0, 0)).unwrap();
    let mut most = 0;
    for from in (0..100_000).step_by(1000) {
        writer.write(&rows(0, from, from + 1000)).unwrap();
        most = most.max(writer.memory());
    }
    let files = writer.finish().unwrap();
    assert!(files.len() > 1 && files.iter().all(|file| file.rows() > 0), "{}", files.len());
    assert_eq!(files.iter().map(DataFile::rows).sum::<u64>(), 100_000);
    assert!(files.iter().all(|file| file.size() < 100_000));
    let total: u64 = files.iter().map(DataFile::size).sum();
    assert!(most as u64 > total / 2, "memory of {most} for {total} bytes");
    let empty = sink.writer(schema(&[("name", "string")])).unwrap();
    assert!(empty.finish().unwrap().is_empty());
}

#[tokio::test]
async fn rows_of_another_schema_are_not_written() {
    let sink = open(&memory()).await;
    let mut writer = sink.writer(schema(&[("name", "bigint")])).unwrap();
    assert!(matches!(writer.write(&rows(0, 0, 1)), Err(Error::BatchSchema { .. })));
    let unsigned = Arc::new(Schema::new(vec![Field::new("c", arrow_schema::DataType::UInt64, true)]));
    assert!(matches!(sink.writer(unsigned), Err(Error::ColumnType { .. })));
}

fn partition_config(columns: &[&str]) -> alluvium_delta::DeltaConfig {
    let mut config = memory_config();
    config.partition_by = columns.iter().map(|name| (*name).to_owned()).collect();
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusual_partition_values_come_back_as_they_were() {
    let values = [
        None,
        Some("plain"),
        Some("a/b"),
        Some("a b"),
        Some("100%"),
        Some("%2F"),
        Some("a=b"),
        Some("~#?"),
        Some("🦀"),
        Some("ü"),
        Some(".."),
    ];
    let store = memory();
    let sink = DeltaSink::open_with_store(store.clone(), partition_config(&["name"])).await.unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
    let columns = vec![kafka_column(0, 0, values.len() as i64), texts];
    let batch = RecordBatch::try_new(schema(&[("name", "string")]), columns).unwrap();
    let mut flush = flush_of(&sink, &[(0, 0, values.len() as i64)], &[batch]);
    assert_eq!(flush.files.len(), values.len());
    assert!(flush.files.iter().any(|file| file.path().starts_with("name=a%2Fb/part-")));
    assert!(flush.files.iter().any(|file| file.url().starts_with("name=a%252Fb/part-")));
    assert!(is_committed(&sink.commit(&mut flush).await.unwrap()));
    for checkpointed in [false, true] {
        if checkpointed {
            sink.maintain(TableRole::Rows).await.unwrap();
        }
        let sink = DeltaSink::open_with_store(store.clone(), partition_config(&["name"])).await.unwrap();
        let read = sink.reader().first_rows(TableRole::Rows, None, 100).await.unwrap();
        let offsets = read.column(0).as_any().downcast_ref::<StructArray>().unwrap().column(1).clone();
        let offsets = offsets.as_any().downcast_ref::<Int64Array>().unwrap();
        let names = read.column_by_name("name").unwrap().as_any().downcast_ref::<StringArray>().unwrap();
        let found: BTreeMap<i64, Option<&str>> = (0..read.num_rows())
            .map(|row| (offsets.value(row), names.is_valid(row).then(|| names.value(row))))
            .collect();
        assert_eq!(found.into_values().collect::<Vec<_>>(), values);
    }
}

#[tokio::test]
async fn the_empty_text_goes_to_the_partition_of_null_as_spark_has_it() {
    let sink = DeltaSink::open_with_store(memory(), partition_config(&["name"])).await.unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some(""), None, Some("")]));
    let batch = RecordBatch::try_new(schema(&[("name", "string")]), vec![kafka_column(0, 0, 3), texts]).unwrap();
    let flush = flush_of(&sink, &[(0, 0, 3)], &[batch]);
    assert_eq!(flush.files.len(), 1);
    assert_eq!(flush.files[0].partition_values()["name"], None);
    assert_eq!(flush.files[0].rows(), 3);
}

#[tokio::test]
async fn a_time_that_no_partition_can_be_named_after_is_an_error_and_not_null() {
    let sink = DeltaSink::open_with_store(memory(), partition_config(&["name"])).await.unwrap();
    let far: [ArrayRef; 2] =
        [Arc::new(Date32Array::from(vec![i32::MAX])), Arc::new(TimestampMicrosecondArray::from(vec![i64::MIN]))];
    for name in far {
        let batch = batch(vec![("id", Arc::new(Int64Array::from(vec![1]))), ("name", name)]);
        let mut writer = sink.writer(batch.schema()).unwrap();
        assert!(matches!(writer.write(&batch), Err(Error::PartitionValue { .. })));
    }
}

#[tokio::test]
async fn partition_columns_are_spelled_for_the_log() {
    let columns = ["flag", "number", "money", "day", "at", "wall"];
    let sink = DeltaSink::open_with_store(memory(), partition_config(&columns)).await.unwrap();
    let micros = || TimestampMicrosecondArray::from(vec![1_500_001]);
    let batch = batch(vec![
        ("id", Arc::new(Int64Array::from(vec![1]))),
        ("flag", Arc::new(BooleanArray::from(vec![true]))),
        ("number", Arc::new(Int64Array::from(vec![-7]))),
        ("money", decimals(vec![Some(-5)], 9, 2)),
        ("day", Arc::new(Date32Array::from(vec![31]))),
        ("at", Arc::new(micros().with_timezone("UTC"))),
        ("wall", Arc::new(micros())),
    ]);
    let mut writer = sink.writer(batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let files = writer.finish().unwrap();
    let values: Vec<_> = columns.iter().map(|name| files[0].partition_values()[*name].clone().unwrap()).collect();
    let times = ["1970-01-01T00:00:01.500001Z", "1970-01-01 00:00:01.500001"];
    assert_eq!(values, ["true", "-7", "-0.05", "1970-02-01", times[0], times[1]]);

    let sink = DeltaSink::open_with_store(memory(), partition_config(&["double"])).await.unwrap();
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", arrow_schema::DataType::Int64, true),
        Field::new("double", arrow_schema::DataType::Float64, true),
    ]));
    assert!(matches!(sink.writer(schema), Err(Error::PartitionColumnType { .. })));
    let schema = Arc::new(Schema::new(vec![Field::new("double", arrow_schema::DataType::Int64, true)]));
    assert!(matches!(sink.writer(schema), Err(Error::NothingButPartitions)));
    let error = sink.commit(&mut flush(&sink, &[(0, 0, 1)])).await.unwrap_err();
    assert!(matches!(error, Error::PartitionColumnMissing { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wall_clock_times_bring_their_feature_at_creation_and_at_growth() {
    let store = memory();
    let sink = open(&store).await;
    sink.commit(&mut flush(&sink, &[(0, 0, 1)])).await.unwrap();
    let wall = |from: i64| {
        let walls: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![from]));
        let columns = vec![kafka_column(0, from, from + 1), walls];
        RecordBatch::try_new(schema(&[("wall", "timestamp_ntz")]), columns).unwrap()
    };
    let mut grown = flush_of(&sink, &[(0, 1, 2)], &[wall(1)]);
    assert!(is_committed(&sink.commit(&mut grown).await.unwrap()));
    let protocol = protocol(&store, TABLE).await;
    assert_eq!((protocol.0, protocol.1), (3, 7));
    assert_eq!(protocol.2, ["appendOnly", "invariants", "timestampNtz"]);

    let map = DataType::parse("map<string,timestamp_ntz>").unwrap().to_arrow();
    let schema = Arc::new(Schema::new(vec![Field::new("m", map, true)]));
    let mut config = memory_config();
    config.table = "memory:///fresh".to_owned();
    let sink = DeltaSink::open_with_store(store.clone(), config).await.unwrap();
    let mut start = flush_of(&sink, &[], &[]);
    (start.info, start.schema) = (info(CommitKind::Start, &[(0, 5, 5)]), schema);
    start.absent.insert(alluvium_core::Partition(0));
    assert!(is_committed(&sink.commit(&mut start).await.unwrap()));
    assert_eq!(self::protocol(&store, "memory:///fresh").await, (3, 7, vec!["timestampNtz".to_owned()]));
    assert_eq!(sink.load().await.unwrap().schema.unwrap().fields().len(), 1);
}

/// The table's protocol as another engine reads it: reader, writer, writer features.
async fn protocol(store: &Arc<dyn ObjectStore>, table: &str) -> (i32, i32, Vec<String>) {
    let url = url::Url::parse(table).unwrap();
    let builder = deltalake::DeltaTableBuilder::from_url(url.clone()).unwrap().with_storage_backend(store.clone(), url);
    let table = builder.load().await.unwrap();
    let protocol = table.snapshot().unwrap().protocol().clone();
    let features = protocol.writer_features().unwrap_or_default().iter();
    let mut features: Vec<String> = features.map(|feature| feature.as_ref().to_owned()).collect();
    features.sort();
    (protocol.min_reader_version(), protocol.min_writer_version(), features)
}

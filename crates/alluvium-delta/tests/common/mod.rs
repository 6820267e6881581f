//! What the tests of the sink have in common: sinks, flushes, and a store that fails on demand.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod faulty;

use alluvium_core::seam::{Flush, Outcome, RowWriter, Table};
use alluvium_core::{
    CommitInfo, CommitKind, Counts, DataType, DeadLetter, Partition, PartitionProgress, PipelineId, Reason, Span, Stage,
};
use alluvium_delta::{DataFile, DeltaConfig, DeltaSink, Error, TableRole};
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{Field, Fields, Schema, SchemaRef};
use object_store::ObjectStore;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const TABLE: &str = "memory:///rows";
pub const LETTERS: &str = "memory:///letters";

pub fn pipeline() -> PipelineId {
    PipelineId::new("acme", "orders", 1).unwrap()
}

pub fn config(table: &str, letters: &str) -> DeltaConfig {
    DeltaConfig {
        table: table.to_owned(),
        dead_letters: letters.to_owned(),
        pipeline: pipeline(),
        topic: "orders".to_owned(),
        partition_by: Vec::new(),
        storage: Vec::new(),
        file_size: 64 * 1024 * 1024,
    }
}

pub fn memory_config() -> DeltaConfig {
    config(TABLE, LETTERS)
}

pub async fn open(store: &Arc<dyn ObjectStore>) -> DeltaSink {
    DeltaSink::open_with_store(store.clone(), memory_config()).await.unwrap()
}

/// A schema of the metadata column and more columns.
pub fn schema(columns: &[(&str, &str)]) -> SchemaRef {
    let mut fields = vec![Field::new("_kafka", kafka_type(), true)];
    for (name, ddl) in columns {
        fields.push(Field::new(*name, DataType::parse(ddl).unwrap().to_arrow(), true));
    }
    Arc::new(Schema::new(fields))
}

fn kafka_type() -> arrow_schema::DataType {
    DataType::parse("struct<partition:int,offset:bigint>").unwrap().to_arrow()
}

/// The metadata column of the records `[from, to)` of a partition.
pub fn kafka_column(partition: i32, from: i64, to: i64) -> ArrayRef {
    let arrow_schema::DataType::Struct(fields) = kafka_type() else { panic!("a struct") };
    let partitions: ArrayRef = Arc::new(Int32Array::from_iter_values((from..to).map(|_| partition)));
    let offsets: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    Arc::new(StructArray::new(Fields::clone(&fields), vec![partitions, offsets], None))
}

/// One row per offset: the metadata column and a text.
pub fn rows(partition: i32, from: i64, to: i64) -> RecordBatch {
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((from..to).map(|offset| format!("name {offset}"))));
    RecordBatch::try_new(schema(&[("name", "string")]), vec![kafka_column(partition, from, to), names]).unwrap()
}

pub fn info(kind: CommitKind, spans: &[(i32, i64, i64)]) -> CommitInfo {
    let partitions = spans.iter().map(|(partition, from, to)| {
        let read = (to - from) as u64;
        PartitionProgress {
            partition: Partition(*partition),
            span: Span::new(*from, *to).unwrap(),
            counts: Counts { read, kept: read, rows: read, ..Counts::default() },
        }
    });
    CommitInfo {
        format: 1,
        kind,
        pipeline: pipeline().to_string(),
        generation: 1,
        topic: "orders".to_owned(),
        topic_id: None,
        partitions: partitions.collect(),
        plugins: Vec::new(),
        plan: None,
        replay: None,
    }
}

/// A flush of one row per offset of each span `(partition, from, to)`.
pub fn flush(sink: &DeltaSink, spans: &[(i32, i64, i64)]) -> Flush<DataFile> {
    let batches: Vec<_> = spans.iter().map(|(partition, from, to)| rows(*partition, *from, *to)).collect();
    flush_of(sink, spans, &batches)
}

pub fn flush_of(sink: &DeltaSink, spans: &[(i32, i64, i64)], batches: &[RecordBatch]) -> Flush<DataFile> {
    let schema = batches.first().map_or_else(|| schema(&[("name", "string")]), RecordBatch::schema);
    let mut writer = sink.writer(schema.clone()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    let files = writer.finish().unwrap();
    let absent = spans.iter().map(|(partition, _, _)| Partition(*partition)).collect();
    Flush { info: info(CommitKind::Rows, spans), schema, files, dead_letters: Vec::new(), absent }
}

pub fn letter(partition: i32, offset: i64) -> DeadLetter {
    DeadLetter {
        partition: Partition(partition),
        offset,
        timestamp: 1_700_000_000_000 + offset,
        key: Some(b"key".to_vec()),
        value: Some(format!("value {offset}").into_bytes()),
        headers: None,
        stage: Stage::Mapping,
        reason: Reason { code: "malformed", message: "not JSON".to_owned() },
        plugin: None,
    }
}

/// Turns the last `count` rows of a single-span flush into dead letters.
pub fn with_letters(sink: &DeltaSink, span: (i32, i64, i64), letters: &[i64]) -> Flush<DataFile> {
    let (partition, from, to) = span;
    let mut flush = flush(sink, &[span]);
    let kept: Vec<_> = (from..to).filter(|offset| !letters.contains(offset)).collect();
    let batches: Vec<_> = kept.iter().map(|offset| rows(partition, *offset, offset + 1)).collect();
    let mut writer = sink.writer(flush.schema.clone()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    flush.files = writer.finish().unwrap();
    flush.dead_letters = letters.iter().map(|offset| letter(partition, *offset)).collect();
    let counts = &mut flush.info.partitions[0].counts;
    (counts.kept, counts.rows, counts.rejected) = (kept.len() as u64, kept.len() as u64, letters.len() as u64);
    flush
}

/// Commits, trying the same flush again as long as the error says so.
pub async fn commit_until_settled(sink: &DeltaSink, flush: &mut Flush<DataFile>) -> Outcome {
    let mut last = None;
    for _ in 0..20 {
        match sink.commit(flush).await {
            Ok(outcome) => return outcome,
            Err(error) => {
                use alluvium_core::{Classified, ErrorClass};
                assert_eq!(error.class(), ErrorClass::External, "{error:?}");
                last = Some(error);
            }
        }
    }
    panic!("not settled after 20 tries: {last:?}")
}

pub fn is_committed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Committed { .. } | Outcome::AlreadyCommitted)
}

/// How often each offset of each partition is in the rows' table.
pub async fn offsets(sink: &DeltaSink) -> BTreeMap<(i32, i64), usize> {
    let mut scan = sink.reader().scan_rows("_kafka", None).await.unwrap();
    let mut found = BTreeMap::new();
    while let Some(batch) = scan.next().await {
        for row in batch.unwrap() {
            *found.entry((row.partition.0, row.offset)).or_default() += 1;
        }
    }
    found
}

/// How often each offset of each partition is in the dead letters' table.
pub async fn letters(sink: &DeltaSink) -> BTreeMap<(i32, i64), usize> {
    let columns = ["partition".to_owned(), "offset".to_owned()];
    let batch = match sink.reader().first_rows(TableRole::DeadLetters, Some(&columns), usize::MAX).await {
        Ok(batch) => batch,
        Err(error @ Error::NoColumn { .. }) => panic!("{error}"),
        Err(error) => panic!("{error:?}"),
    };
    let mut found = BTreeMap::new();
    if batch.num_columns() == 0 {
        return found;
    }
    let partitions = batch.column(0).as_any().downcast_ref::<Int32Array>().unwrap();
    let offsets = batch.column(1).as_any().downcast_ref::<Int64Array>().unwrap();
    for row in 0..batch.num_rows() {
        *found.entry((partitions.value(row), offsets.value(row))).or_default() += 1;
    }
    found
}

pub fn once(spans: &[(i32, i64, i64)]) -> BTreeMap<(i32, i64), usize> {
    let offsets = spans.iter().flat_map(|(partition, from, to)| (*from..*to).map(|offset| ((*partition, offset), 1)));
    offsets.collect()
}

pub async fn positions(sink: &DeltaSink) -> Vec<(i32, i64)> {
    let state = sink.load().await.unwrap();
    state.positions.into_iter().map(|(partition, position)| (partition.0, position)).collect()
}

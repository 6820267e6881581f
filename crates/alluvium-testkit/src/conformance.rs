//! What every [`Table`] must do, whatever is behind it: one suite for the real sink and the simulated one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "checks of a test suite")]

use alluvium_core::seam::{Flush, Outcome, RowWriter, Table};
use alluvium_core::{
    CommitInfo, CommitKind, Counts, DataType, DeadLetter, Partition, PartitionProgress, PipelineId, Reason, Span, Stage,
};
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, StructArray, new_null_array};
use arrow_schema::{Field, Schema, SchemaRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pipeline and topic that a table under test belongs to.
pub const TOPIC: &str = "orders";

pub fn pipeline() -> PipelineId {
    PipelineId::new("acme", "orders", 1).unwrap()
}

/// How often each offset of each partition is there.
pub type Places = BTreeMap<(i32, i64), usize>;

/// A table that does not exist yet, and what lies in it.
pub trait Subject {
    type Table: Table;

    /// One more process's handle.
    fn open(&self) -> impl Future<Output = Self::Table>;

    fn rows(&self) -> impl Future<Output = Places>;

    fn letters(&self) -> impl Future<Output = Places>;
}

/// Runs every check, each on a subject of its own.
pub async fn table_conformance<S: Subject>(make: impl Fn() -> S) {
    an_absent_table_is_made_by_the_first_flush(make()).await;
    a_flush_is_committed_once(make()).await;
    a_flush_that_starts_elsewhere_is_fenced(make()).await;
    an_absent_position_needs_leave(make()).await;
    a_flush_is_judged_as_a_whole(make()).await;
    a_stale_handle_finds_out(make()).await;
    writers_of_different_partitions_both_commit(make()).await;
    dead_letters_are_there_once(make()).await;
    positions_alone_can_be_committed(make()).await;
    a_table_grows_with_its_rows(make()).await;
    a_column_of_another_type_has_moved(make()).await;
}

type FlushOf<S> = Flush<<<S as Subject>::Table as Table>::File>;

fn schema(columns: &[(&str, &str)]) -> SchemaRef {
    let kafka = ("_kafka", "struct<partition:int,offset:bigint>");
    let field = |(name, ddl): &(&str, &str)| Field::new(*name, DataType::parse(ddl).unwrap().to_arrow(), true);
    Arc::new(Schema::new([&[kafka], columns].concat().iter().map(field).collect::<Vec<_>>()))
}

fn batch(schema: &SchemaRef, partition: i32, from: i64, to: i64) -> RecordBatch {
    let arrow_schema::DataType::Struct(fields) = schema.field(0).data_type() else { panic!("the metadata column") };
    let partitions: ArrayRef = Arc::new(Int32Array::from_iter_values((from..to).map(|_| partition)));
    let offsets: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    let mut columns: Vec<ArrayRef> = vec![Arc::new(StructArray::new(fields.clone(), vec![partitions, offsets], None))];
    for field in schema.fields().iter().skip(1) {
        columns.push(match field.data_type() {
            arrow_schema::DataType::Utf8 => {
                Arc::new(StringArray::from_iter_values((from..to).map(|offset| format!("name {offset}"))))
            }
            other => new_null_array(other, (to - from) as usize),
        });
    }
    RecordBatch::try_new(schema.clone(), columns).unwrap()
}

/// A flush of one row per offset of each span `(partition, from, to)`, less those of the dead letters.
fn flush_of<T: Table>(table: &T, schema: &SchemaRef, spans: &[(i32, i64, i64)], letters: &[i64]) -> Flush<T::File> {
    let mut writer = table.writer(schema.clone()).unwrap();
    let mut partitions = Vec::new();
    let mut dead_letters = Vec::new();
    for (partition, from, to) in spans {
        let rejected = letters.iter().filter(|offset| (*from..*to).contains(offset)).count() as u64;
        for offset in *from..*to {
            if letters.contains(&offset) {
                dead_letters.push(letter(*partition, offset));
            } else {
                writer.write(&batch(schema, *partition, offset, offset + 1)).unwrap();
            }
        }
        let (read, kept) = ((to - from) as u64, (to - from) as u64 - rejected);
        let counts = Counts { read, kept, rows: kept, rejected, filtered: 0 };
        let span = Span::new(*from, *to).unwrap();
        partitions.push(PartitionProgress { partition: Partition(*partition), span, counts });
    }
    let any = partitions.iter().any(|progress| progress.counts.rows > 0);
    let files = writer.finish().unwrap();
    let info = info(CommitKind::Rows, partitions);
    let files = if any { files } else { Vec::new() };
    let absent = spans.iter().map(|(partition, _, _)| Partition(*partition)).collect();
    Flush { info, schema: schema.clone(), files, dead_letters, absent }
}

fn flush<T: Table>(table: &T, spans: &[(i32, i64, i64)]) -> Flush<T::File> {
    flush_of(table, &schema(&[("name", "string")]), spans, &[])
}

fn info(kind: CommitKind, partitions: Vec<PartitionProgress>) -> CommitInfo {
    let pipeline = pipeline().to_string();
    let (generation, topic) = (1, TOPIC.to_owned());
    CommitInfo {
        format: 1,
        kind,
        pipeline,
        generation,
        topic,
        topic_id: None,
        partitions,
        plugins: Vec::new(),
        plan: None,
        replay: None,
    }
}

fn letter(partition: i32, offset: i64) -> DeadLetter {
    DeadLetter {
        partition: Partition(partition),
        offset,
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(b"{".to_vec()),
        headers: None,
        stage: Stage::Mapping,
        reason: Reason { code: "malformed", message: "not JSON".to_owned() },
        plugin: None,
    }
}

fn once(spans: &[(i32, i64, i64)]) -> Places {
    spans.iter().flat_map(|(partition, from, to)| (*from..*to).map(|offset| ((*partition, offset), 1))).collect()
}

async fn positions<T: Table>(table: &T) -> Vec<(i32, i64)> {
    let mut positions: Vec<_> = table.load().await.unwrap().positions.iter().map(|(p, at)| (p.0, *at)).collect();
    positions.sort_unstable();
    positions
}

async fn lands<T: Table>(table: &T, mut flush: Flush<T::File>) -> u64 {
    match table.commit(&mut flush).await.unwrap() {
        Outcome::Committed { version } => version,
        other => panic!("{other:?}"),
    }
}

async fn fenced<T: Table>(table: &T, mut flush: Flush<T::File>) -> Vec<(i32, Option<i64>)> {
    match table.commit(&mut flush).await.unwrap() {
        Outcome::Fenced { found } => found.iter().map(|(partition, at)| (partition.0, *at)).collect(),
        other => panic!("{other:?}"),
    }
}

async fn an_absent_table_is_made_by_the_first_flush<S: Subject>(subject: S) {
    let table = subject.open().await;
    let state = table.load().await.unwrap();
    assert!(state.schema.is_none() && state.positions.is_empty());
    let version = lands(&table, flush(&table, &[(0, 0, 3)])).await;
    assert!(lands(&table, flush(&table, &[(0, 3, 5)])).await > version);
    let state = table.load().await.unwrap();
    assert!(state.schema.unwrap().field_with_name("name").is_ok());
    assert_eq!(positions(&table).await, [(0, 5)]);
    assert_eq!(subject.rows().await, once(&[(0, 0, 5)]));
}

async fn a_flush_is_committed_once<S: Subject>(subject: S) {
    let table = subject.open().await;
    let mut twice: FlushOf<S> = flush(&table, &[(0, 0, 3), (1, 5, 6)]);
    assert!(matches!(table.commit(&mut twice).await.unwrap(), Outcome::Committed { .. }));
    assert_eq!(table.commit(&mut twice).await.unwrap(), Outcome::AlreadyCommitted);
    let other = subject.open().await;
    let mut same = flush(&other, &[(0, 0, 3), (1, 5, 6)]);
    assert_eq!(other.commit(&mut same).await.unwrap(), Outcome::AlreadyCommitted);
    assert_eq!(subject.rows().await, once(&[(0, 0, 3), (1, 5, 6)]));
}

async fn a_flush_that_starts_elsewhere_is_fenced<S: Subject>(subject: S) {
    let table = subject.open().await;
    lands(&table, flush(&table, &[(0, 0, 10)])).await;
    for span in [(0, 0, 9), (0, 0, 11), (0, 9, 12), (0, 11, 12), (0, 3, 10 - 1)] {
        assert_eq!(fenced(&table, flush(&table, &[span])).await, [(0, Some(10))], "{span:?}");
    }
    assert_eq!(positions(&table).await, [(0, 10)]);
    assert_eq!(subject.rows().await, once(&[(0, 0, 10)]));
}

async fn an_absent_position_needs_leave<S: Subject>(subject: S) {
    let table = subject.open().await;
    for others in [&[][..], &[Partition(1)]] {
        let forbidden = Flush { absent: others.iter().copied().collect(), ..flush(&table, &[(0, 4, 6)]) };
        assert_eq!(fenced(&table, forbidden).await, [(0, None)]);
    }
    lands(&table, flush(&table, &[(0, 4, 6)])).await;
    assert_eq!(subject.rows().await, once(&[(0, 4, 6)]));
}

async fn a_flush_is_judged_as_a_whole<S: Subject>(subject: S) {
    let table = subject.open().await;
    lands(&table, flush(&table, &[(0, 0, 2), (1, 0, 2)])).await;
    lands(&table, flush(&table, &[(1, 2, 4)])).await;
    let found = fenced(&table, flush(&table, &[(0, 2, 3), (1, 2, 4)])).await;
    assert_eq!(found, [(0, Some(2)), (1, Some(4))]);
    assert_eq!(subject.rows().await, once(&[(0, 0, 2), (1, 0, 4)]));
}

async fn a_stale_handle_finds_out<S: Subject>(subject: S) {
    let (first, second) = (subject.open().await, subject.open().await);
    second.load().await.unwrap();
    lands(&first, flush(&first, &[(0, 0, 5)])).await;
    assert_eq!(fenced(&second, flush(&second, &[(0, 0, 3)])).await, [(0, Some(5))]);
    lands(&second, flush(&second, &[(0, 5, 8)])).await;
    assert_eq!(fenced(&first, flush(&first, &[(0, 5, 9)])).await, [(0, Some(8))]);
    assert_eq!(subject.rows().await, once(&[(0, 0, 8)]));
}

async fn writers_of_different_partitions_both_commit<S: Subject>(subject: S) {
    let (first, second) = (subject.open().await, subject.open().await);
    for at in 0..4 {
        let both = (flush(&first, &[(0, at, at + 1)]), flush(&second, &[(1, at, at + 1)]));
        tokio::join!(lands(&first, both.0), lands(&second, both.1));
    }
    assert_eq!(positions(&first).await, [(0, 4), (1, 4)]);
    assert_eq!(subject.rows().await, once(&[(0, 0, 4), (1, 0, 4)]));
}

async fn dead_letters_are_there_once<S: Subject>(subject: S) {
    let table = subject.open().await;
    let columns = schema(&[("name", "string")]);
    let mut twice: FlushOf<S> = flush_of(&table, &columns, &[(0, 0, 4)], &[1, 3]);
    assert!(matches!(table.commit(&mut twice).await.unwrap(), Outcome::Committed { .. }));
    assert_eq!(table.commit(&mut twice).await.unwrap(), Outcome::AlreadyCommitted);
    // All of them, none of them, and on another handle.
    lands(&table, flush_of(&table, &columns, &[(0, 4, 6)], &[4, 5])).await;
    let other = subject.open().await;
    lands(&other, flush_of(&other, &columns, &[(0, 6, 8)], &[7])).await;
    fenced(&table, flush_of(&table, &columns, &[(0, 6, 9)], &[8])).await;
    let found: Vec<_> = subject.letters().await.into_iter().collect();
    assert_eq!(found, [((0, 1), 1), ((0, 3), 1), ((0, 4), 1), ((0, 5), 1), ((0, 7), 1)]);
    let rows: Vec<_> = subject.rows().await.into_iter().collect();
    assert_eq!(rows, [((0, 0), 1), ((0, 2), 1), ((0, 6), 1)]);
}

async fn positions_alone_can_be_committed<S: Subject>(subject: S) {
    let table = subject.open().await;
    let partitions = [(0, 7), (1, 0)].map(|(partition, at)| PartitionProgress {
        partition: Partition(partition),
        span: Span::empty(at),
        counts: Counts::default(),
    });
    let info = info(CommitKind::Start, partitions.to_vec());
    let columns = schema(&[]);
    let absent = [0, 1].map(Partition).into();
    let start = Flush { info, schema: columns, files: Vec::new(), dead_letters: Vec::new(), absent };
    lands(&table, start).await;
    assert_eq!(positions(&table).await, [(0, 7), (1, 0)]);
    assert_eq!(fenced(&table, flush(&table, &[(0, 6, 8)])).await, [(0, Some(7))]);
    lands(&table, flush(&table, &[(0, 7, 8), (1, 0, 1)])).await;
    assert_eq!(subject.rows().await, once(&[(0, 7, 8), (1, 0, 1)]));
}

async fn a_table_grows_with_its_rows<S: Subject>(subject: S) {
    let table = subject.open().await;
    assert_eq!(table.known_schema(), None);
    lands(&table, flush_of(&table, &schema(&[("name", "string"), ("deep", "struct<a:int>")]), &[(0, 0, 1)], &[])).await;
    let wider = schema(&[("name", "string"), ("deep", "struct<a:int,b:string>"), ("more", "bigint")]);
    lands(&table, flush_of(&table, &wider, &[(0, 1, 2)], &[])).await;
    // An older writer's rows go in as they are.
    let other = subject.open().await;
    lands(&other, flush(&other, &[(0, 2, 3)])).await;
    let found = other.load().await.unwrap().schema.unwrap();
    // Whoever commits has seen what others added, and knows it without asking again.
    assert_eq!((table.known_schema(), other.known_schema()), (Some(found.clone()), Some(found.clone())));
    let type_of =
        |name: &str| DataType::from_arrow(found.field_with_name(name).unwrap().data_type()).unwrap().to_string();
    assert_eq!(["name", "deep", "more"].map(type_of), ["string", "struct<a:int,b:string>", "bigint"]);
    assert_eq!(subject.rows().await, once(&[(0, 0, 3)]));
}

async fn a_column_of_another_type_has_moved<S: Subject>(subject: S) {
    let table = subject.open().await;
    lands(&table, flush_of(&table, &schema(&[("a", "string"), ("deep", "struct<b:int>")]), &[(0, 0, 1)], &[])).await;
    for (columns, moved) in [
        (schema(&[("a", "bigint")]), "a"),
        (schema(&[("A", "string")]), "A"),
        (schema(&[("deep", "struct<b:string>")]), "deep.b"),
    ] {
        let mut flush: FlushOf<S> = flush_of(&table, &columns, &[(0, 1, 2)], &[]);
        let outcome = table.commit(&mut flush).await.unwrap();
        assert!(
            matches!(&outcome, Outcome::SchemaMoved { column } if column.eq_ignore_ascii_case(moved)),
            "{outcome:?}"
        );
    }
    assert_eq!(positions(&table).await, [(0, 1)]);
    assert_eq!(subject.rows().await, once(&[(0, 0, 1)]));
}

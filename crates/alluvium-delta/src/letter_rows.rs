//! The rows of the dead letters' table: letters, and marks of replays.

use crate::config::DeltaConfig;
use alluvium_core::chunk::{Header, NO_TIMESTAMP, decode_headers, encode_headers};
use alluvium_core::data_type::Field;
use alluvium_core::{DataType, DeadLetter, Partition, Place, ReplayNumber};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType as ArrowType, Schema, SchemaRef};
use std::sync::Arc;

/// Bytes of letters put into one batch.
const BATCH_BYTES: usize = 32 * 1024 * 1024;
/// Marks put into one batch.
const BATCH_MARKS: usize = 64 * 1024;
/// The stage and the reason in the row of a mark: a replay took the letter of this place.
const MARK: [&str; 2] = ["replay", "replayed"];

/// A letter as its table holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub partition: Partition,
    pub offset: i64,
    /// Milliseconds since the epoch, or [`NO_TIMESTAMP`].
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// As [`encode_headers`] makes them.
    pub headers: Option<Vec<u8>>,
    pub stage: String,
    pub reason: String,
    pub message: String,
    /// Digest of the plugin that rejected it or failed on it.
    pub plugin: Option<String>,
    /// The replay that rejected the record again; `None` for a first rejection.
    pub replay: Option<ReplayNumber>,
}

/// The columns of the dead letters' table.
pub(crate) fn fields() -> Vec<Field> {
    let field = |name: &str, data_type| Field { name: name.to_owned(), data_type };
    let header = DataType::Struct(vec![field("key", DataType::String), field("value", DataType::Binary)]);
    vec![
        field("topic", DataType::String),
        field("partition", DataType::Int),
        field("offset", DataType::BigInt),
        field("timestamp", DataType::Timestamp),
        field("key", DataType::Binary),
        field("value", DataType::Binary),
        field("headers", DataType::Array(Box::new(header))),
        field("stage", DataType::String),
        field("reason", DataType::String),
        field("message", DataType::String),
        field("plugin", DataType::String),
        // Several pipelines may share the table.
        field("pipeline", DataType::String),
        field("generation", DataType::Int),
        // Of a mark, its replay; of a letter, the replay that rejected the record again.
        field("replay", DataType::BigInt),
    ]
}

pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(fields().iter().map(Field::to_arrow).collect::<Vec<_>>()))
}

pub(crate) fn generation(config: &DeltaConfig) -> i32 {
    i32::try_from(config.pipeline.generation()).unwrap_or(i32::MAX)
}

/// Letters as rows, each with its number; 0 is written as null.
pub(crate) fn letter_batches(
    config: &DeltaConfig,
    letters: &[(&DeadLetter, i64)],
) -> Result<Vec<RecordBatch>, ArrowError> {
    let (mut batches, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (index, (letter, _)) in letters.iter().enumerate() {
        bytes += letter.memory();
        if bytes >= BATCH_BYTES || index + 1 == letters.len() {
            batches.push(letter_batch(config, letters.get(from..=index).unwrap_or_default())?);
            (from, bytes) = (index + 1, 0);
        }
    }
    Ok(batches)
}

fn letter_batch(config: &DeltaConfig, letters: &[(&DeadLetter, i64)]) -> Result<RecordBatch, ArrowError> {
    let text = |part: fn(&DeadLetter) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(letters.iter().map(|(letter, _)| part(letter))))
    };
    let binary = |part: fn(&DeadLetter) -> Option<&[u8]>| -> ArrayRef {
        Arc::new(BinaryArray::from_iter(letters.iter().map(|(letter, _)| part(letter))))
    };
    let timestamps = letters.iter().map(|(letter, _)| {
        let known = (letter.timestamp != NO_TIMESTAMP).then_some(letter.timestamp);
        known.and_then(|ms| ms.checked_mul(1000))
    });
    let own = Constants::new(config, letters.len());
    let columns: Vec<ArrayRef> = vec![
        own.topic,
        Arc::new(Int32Array::from_iter_values(letters.iter().map(|(letter, _)| letter.partition.0))),
        Arc::new(Int64Array::from_iter_values(letters.iter().map(|(letter, _)| letter.offset))),
        Arc::new(timestamps.collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        binary(|letter| letter.key.as_deref()),
        binary(|letter| letter.value.as_deref()),
        headers(letters)?,
        text(|letter| letter.stage.to_string()),
        text(|letter| letter.reason.code.to_owned()),
        text(|letter| letter.reason.message.clone()),
        Arc::new(StringArray::from_iter(letters.iter().map(|(letter, _)| letter.plugin.as_deref()))),
        own.pipeline,
        own.generation,
        Arc::new(letters.iter().map(|(_, number)| (*number > 0).then_some(*number)).collect::<Int64Array>()),
    ];
    RecordBatch::try_new(schema(), columns)
}

/// Marks as rows: the place and the replay; nothing of the record itself.
pub(crate) fn mark_batches(
    config: &DeltaConfig,
    number: ReplayNumber,
    places: &[Place],
) -> Result<Vec<RecordBatch>, ArrowError> {
    let batch = |places: &[Place]| {
        let schema = schema();
        let rows = places.len();
        let own = Constants::new(config, rows);
        let columns = schema.fields().iter().map(|field| -> ArrayRef {
            match field.name().as_str() {
                "topic" => own.topic.clone(),
                "partition" => Arc::new(Int32Array::from_iter_values(places.iter().map(|(partition, _)| partition.0))),
                "offset" => Arc::new(Int64Array::from_iter_values(places.iter().map(|(_, offset)| *offset))),
                "stage" => constant(MARK[0], rows),
                "reason" => constant(MARK[1], rows),
                "pipeline" => own.pipeline.clone(),
                "generation" => own.generation.clone(),
                "replay" => Arc::new(Int64Array::from_value(number, rows)),
                _ => new_null_array(field.data_type(), rows),
            }
        });
        RecordBatch::try_new(schema.clone(), columns.collect())
    };
    places.chunks(BATCH_MARKS).map(batch).collect()
}

fn constant(text: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)))
}

/// The columns that tell one pipeline's letters from another's.
struct Constants {
    topic: ArrayRef,
    pipeline: ArrayRef,
    generation: ArrayRef,
}

impl Constants {
    fn new(config: &DeltaConfig, rows: usize) -> Self {
        Self {
            topic: constant(&config.topic, rows),
            pipeline: constant(&config.pipeline.to_string(), rows),
            generation: Arc::new(Int32Array::from_value(generation(config), rows)),
        }
    }
}

fn headers(letters: &[(&DeadLetter, i64)]) -> Result<ArrayRef, ArrowError> {
    let (mut keys, mut values, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    for (letter, _) in letters {
        let headers = letter.headers.as_deref().map(decode_headers).unwrap_or_default();
        lengths.push(headers.len());
        for header in headers {
            keys.push(header.key);
            values.push(header.value);
        }
    }
    let schema = schema();
    let field = schema.field_with_name("headers")?;
    let ArrowType::List(element) = field.data_type() else {
        return Err(ArrowError::SchemaError("headers are a list".to_owned()));
    };
    let ArrowType::Struct(inner) = element.data_type() else {
        return Err(ArrowError::SchemaError("a header is a struct".to_owned()));
    };
    let columns: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from_iter_values(keys)), Arc::new(BinaryArray::from_iter(values))];
    let structs = StructArray::try_new(inner.clone(), columns, None)?;
    let nulls = NullBuffer::from_iter(letters.iter().map(|(letter, _)| letter.headers.is_some()));
    let list =
        ListArray::try_new(element.clone(), OffsetBuffer::from_lengths(lengths), Arc::new(structs), Some(nulls))?;
    Ok(Arc::new(list))
}

/// What tells where a row of the table belongs: enough to know which letters are open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowHead<'a> {
    pub place: Place,
    pub is_mark: bool,
    pub number: i64,
    pub reason: &'a str,
    pub plugin: Option<&'a str>,
}

/// The names of the columns that [`Rows`] reads, whole letters or only their heads. A table that was
/// made by an older version lacks `replay`.
pub(crate) fn columns(whole: bool) -> Vec<&'static str> {
    let heads = ["topic", "partition", "offset", "stage", "reason", "plugin", "pipeline", "generation", "replay"];
    let bodies = ["timestamp", "key", "value", "headers", "message"];
    if whole { [heads.as_slice(), &bodies].concat() } else { heads.to_vec() }
}

/// A batch of the dead letters' table.
pub(crate) struct Rows<'a> {
    batch: &'a RecordBatch,
    partitions: &'a Int32Array,
    offsets: &'a Int64Array,
    stages: &'a StringArray,
    reasons: &'a StringArray,
    plugins: &'a StringArray,
    pipelines: &'a StringArray,
    topics: &'a StringArray,
    generations: &'a Int32Array,
    replays: Option<&'a Int64Array>,
}

impl<'a> Rows<'a> {
    /// `None` when a column is missing or of another type.
    pub(crate) fn new(batch: &'a RecordBatch) -> Option<Self> {
        let text = |name| batch.column_by_name(name)?.as_string_opt::<i32>();
        let int = |name| batch.column_by_name(name)?.as_primitive_opt::<Int32Type>();
        let bigint = |name| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
        Some(Self {
            batch,
            partitions: int("partition")?,
            offsets: bigint("offset")?,
            stages: text("stage")?,
            reasons: text("reason")?,
            plugins: text("plugin")?,
            pipelines: text("pipeline")?,
            topics: text("topic")?,
            generations: int("generation")?,
            replays: bigint("replay"),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// The head of a row of this pipeline; `None` for other pipelines' rows.
    pub(crate) fn own(&self, row: usize, config: &DeltaConfig, pipeline: &str) -> Option<RowHead<'a>> {
        let text = |column: &'a StringArray| column.is_valid(row).then(|| column.value(row));
        let is_own = text(self.pipelines) == Some(pipeline)
            && text(self.topics) == Some(&config.topic)
            && self.generations.is_valid(row)
            && self.generations.value(row) == generation(config);
        let there = self.partitions.is_valid(row) && self.offsets.is_valid(row);
        let reason = text(self.reasons).unwrap_or_default();
        let number = self.replays.filter(|replays| replays.is_valid(row)).map_or(0, |replays| replays.value(row));
        (is_own && there).then(|| RowHead {
            place: (Partition(self.partitions.value(row)), self.offsets.value(row)),
            is_mark: text(self.stages) == Some(MARK[0]),
            number,
            reason,
            plugin: text(self.plugins),
        })
    }

    /// The letter in a row whose head was read; `None` when a column is missing.
    pub(crate) fn letter(&self, row: usize, head: &RowHead<'_>) -> Option<Letter> {
        let bytes = |name| {
            let column = self.batch.column_by_name(name)?.as_binary_opt::<i32>()?;
            Some(column.is_valid(row).then(|| column.value(row).to_vec()))
        };
        let text =
            |column: &StringArray| if column.is_valid(row) { column.value(row).to_owned() } else { String::new() };
        let timestamps = self.batch.column_by_name("timestamp")?.as_primitive_opt::<TimestampMicrosecondType>()?;
        let messages = self.batch.column_by_name("message")?.as_string_opt::<i32>()?;
        Some(Letter {
            partition: head.place.0,
            offset: head.place.1,
            timestamp: if timestamps.is_valid(row) { timestamps.value(row).div_euclid(1000) } else { NO_TIMESTAMP },
            key: bytes("key")?,
            value: bytes("value")?,
            headers: self.headers(row)?,
            stage: text(self.stages),
            reason: head.reason.to_owned(),
            message: text(messages),
            plugin: head.plugin.map(str::to_owned),
            replay: (head.number > 0).then_some(head.number),
        })
    }

    fn headers(&self, row: usize) -> Option<Option<Vec<u8>>> {
        let lists = self.batch.column_by_name("headers")?.as_list_opt::<i32>()?;
        if lists.is_null(row) {
            return Some(None);
        }
        let entries = lists.value(row);
        let entries = entries.as_struct_opt()?;
        let keys = entries.column_by_name("key")?.as_string_opt::<i32>()?;
        let values = entries.column_by_name("value")?.as_binary_opt::<i32>()?;
        let mut packed = Vec::new();
        let header = |entry: usize| Header {
            key: if keys.is_valid(entry) { keys.value(entry) } else { "" },
            value: values.is_valid(entry).then(|| values.value(entry)),
        };
        encode_headers((0..entries.len()).map(header), &mut packed);
        Some(Some(packed))
    }
}

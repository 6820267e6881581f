//! Writes tables of every type and of partitions with unusual values, for other engines to read.
//!
//! `cargo run -p alluvium-delta --example write_types -- DIRECTORY` makes `DIRECTORY/types`,
//! `DIRECTORY/partitions`, `DIRECTORY/grown` and their dead letters. Row `i` of `types` is a function of `i`, so that
//! a reader can check every value; see the functions below.

#![allow(clippy::print_stdout)]

use alluvium_core::seam::{Flush, RowWriter, Table};
use alluvium_core::{
    CommitInfo, CommitKind, Counts, DataType, DeadLetter, Partition, PartitionProgress, PipelineId, Reason, Span, Stage,
};
use alluvium_delta::{DeltaConfig, DeltaSink};
use arrow_array::builder::{
    Int32Builder, Int64Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder, StructBuilder,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{ArrowError, DataType as ArrowType, Field, Fields, Schema};
use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

/// Enough for every dictionary to make way for the fallback encoding.
const ROWS: i64 = 60_000;
const FILES: i64 = 3;

/// Values that a path, a URL or a reader's idea of NULL could get wrong.
const UNUSUAL: [Option<&str>; 12] = [
    None,
    Some(""),
    Some("plain"),
    Some("a/b"),
    Some("a b"),
    Some("100%"),
    Some("%2F"),
    Some("a=b&c"),
    Some("~#?"),
    Some("größe"),
    Some("🦀"),
    Some("__HIVE_DEFAULT_PARTITION__x"),
];

const TYPES: [(&str, &str); 20] = [
    ("id", "bigint"),
    ("flag", "boolean"),
    ("tiny", "tinyint"),
    ("small", "smallint"),
    ("number", "int"),
    ("single", "float"),
    ("double", "double"),
    ("money", "decimal(9,2)"),
    ("amount", "decimal(18,6)"),
    ("huge", "decimal(38,10)"),
    ("text", "string"),
    ("same", "string"),
    ("bytes", "binary"),
    ("day", "date"),
    ("at", "timestamp"),
    ("wall", "timestamp_ntz"),
    ("inner", "struct<a:int,b:struct<c:string>>"),
    ("list", "array<bigint>"),
    ("items", "array<struct<sku:string,qty:int>>"),
    ("map", "map<string,bigint>"),
];

fn type_schema() -> Result<Arc<Schema>, Box<dyn Error>> {
    let field = |(name, ddl): &(&str, &str)| Ok(Field::new(*name, DataType::parse(ddl)?.to_arrow(), true));
    let fields = TYPES.iter().map(field).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

/// Every seventh row is null in every column but `id`.
fn there<T>(i: i64, value: T) -> Option<T> {
    (i % 7 != 3).then_some(value)
}

fn type_rows(from: i64, to: i64) -> Result<RecordBatch, Box<dyn Error>> {
    let schema = type_schema()?;
    let rows = || from..to;
    let fields_of = |name: &str| match schema.field_with_name(name).map(Field::data_type) {
        Ok(ArrowType::Struct(fields)) => Fields::clone(fields),
        _ => Fields::empty(),
    };
    let decimal = |scale: i128, precision: u8, digits: i8| -> Result<ArrayRef, ArrowError> {
        let values = rows().map(|i| there(i, (i128::from(i) - 30_000) * scale));
        Ok(Arc::new(values.collect::<Decimal128Array>().with_precision_and_scale(precision, digits)?))
    };
    let inner = {
        let fields = fields_of("inner");
        let c: ArrayRef = Arc::new(rows().map(|i| there(i, format!("c{}", i % 1000))).collect::<StringArray>());
        let b_fields = match fields.find("b").map(|(_, field)| field.data_type()) {
            Some(ArrowType::Struct(fields)) => Fields::clone(fields),
            _ => Fields::empty(),
        };
        let b: ArrayRef = Arc::new(StructArray::try_new(b_fields, vec![c], None)?);
        let a: ArrayRef = Arc::new(rows().map(|i| there(i, i as i32)).collect::<Int32Array>());
        let nulls = rows().map(|i| i % 7 != 3).collect();
        StructArray::try_new(fields, vec![a, b], Some(nulls))?
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows())),
        Arc::new(rows().map(|i| there(i, i % 2 == 0)).collect::<BooleanArray>()),
        Arc::new(rows().map(|i| there(i, (i % 256 - 128) as i8)).collect::<Int8Array>()),
        Arc::new(rows().map(|i| there(i, (i % 65_536 - 32_768) as i16)).collect::<Int16Array>()),
        Arc::new(rows().map(|i| there(i, (i * 35_000 - 1_000_000_000) as i32)).collect::<Int32Array>()),
        Arc::new(rows().map(|i| there(i, i as f32 / 4.0)).collect::<Float32Array>()),
        Arc::new(rows().map(|i| there(i, double(i))).collect::<Float64Array>()),
        decimal(101, 9, 2)?,
        decimal(1_000_003, 18, 6)?,
        decimal(10_000_000_000_000_000_000_000_000_007, 38, 10)?,
        Arc::new(
            rows().map(|i| there(i, format!("text {i:05} {}", "ü".repeat((i % 50) as usize)))).collect::<StringArray>(),
        ),
        Arc::new(rows().map(|i| there(i, format!("same {}", i % 5))).collect::<StringArray>()),
        Arc::new(rows().map(|i| there(i, i.to_be_bytes())).collect::<BinaryArray>()),
        Arc::new(rows().map(|i| there(i, (i - 30_000) as i32)).collect::<Date32Array>()),
        Arc::new(rows().map(|i| there(i, micros(i))).collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        Arc::new(rows().map(|i| there(i, micros(i))).collect::<TimestampMicrosecondArray>()),
        Arc::new(inner),
        lists(&schema, from, to)?,
        items(&schema, from, to)?,
        maps(&schema, from, to)?,
    ];
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// Thirds, and now and then what is not a number or not finite.
fn double(i: i64) -> f64 {
    match i % 10_000 {
        17 => f64::NAN,
        23 => f64::INFINITY,
        29 => f64::NEG_INFINITY,
        31 => -0.0,
        _ => i as f64 / 3.0,
    }
}

/// About every third day from 1888 on, to the microsecond.
fn micros(i: i64) -> i64 {
    (i - 10_000) * 259_200_000_001
}

/// `i % 4` elements, each `i`, the second null.
fn lists(schema: &Schema, from: i64, to: i64) -> Result<ArrayRef, ArrowError> {
    let ArrowType::List(element) = schema.field_with_name("list")?.data_type() else {
        return Err(ArrowError::SchemaError("a list".to_owned()));
    };
    let mut builder = ListBuilder::new(Int64Builder::new()).with_field(element.clone());
    for i in from..to {
        (0..i % 4).for_each(|k| builder.values().append_option((k != 1).then_some(i)));
        builder.append(i % 7 != 3);
    }
    Ok(Arc::new(builder.finish()))
}

/// `i % 3` items with the sku `s` and the quantity `i`.
fn items(schema: &Schema, from: i64, to: i64) -> Result<ArrayRef, ArrowError> {
    let ArrowType::List(element) = schema.field_with_name("items")?.data_type() else {
        return Err(ArrowError::SchemaError("a list".to_owned()));
    };
    let ArrowType::Struct(fields) = element.data_type() else {
        return Err(ArrowError::SchemaError("a struct".to_owned()));
    };
    let inner = StructBuilder::new(fields.clone(), vec![Box::new(StringBuilder::new()), Box::new(Int32Builder::new())]);
    let mut builder = ListBuilder::new(inner).with_field(element.clone());
    for i in from..to {
        for k in 0..i % 3 {
            let item = builder.values();
            if let Some(sku) = item.field_builder::<StringBuilder>(0) {
                sku.append_value(format!("sku {}", i * 10 + k));
            }
            if let Some(quantity) = item.field_builder::<Int32Builder>(1) {
                quantity.append_option((k == 0).then_some(i as i32));
            }
            item.append(true);
        }
        builder.append(i % 7 != 3);
    }
    Ok(Arc::new(builder.finish()))
}

/// `i % 3` entries `k0: i`, `k1: null`.
fn maps(schema: &Schema, from: i64, to: i64) -> Result<ArrayRef, ArrowError> {
    let ArrowType::Map(entries, _) = schema.field_with_name("map")?.data_type() else {
        return Err(ArrowError::SchemaError("a map".to_owned()));
    };
    let ArrowType::Struct(fields) = entries.data_type() else {
        return Err(ArrowError::SchemaError("a struct".to_owned()));
    };
    let [key, value] = fields.as_ref() else { return Err(ArrowError::SchemaError("key and value".to_owned())) };
    let names = MapFieldNames { entry: entries.name().clone(), key: key.name().clone(), value: value.name().clone() };
    let mut builder = MapBuilder::new(Some(names), StringBuilder::new(), Int64Builder::new())
        .with_keys_field(key.clone())
        .with_values_field(value.clone());
    for i in from..to {
        for k in 0..i % 3 {
            builder.keys().append_value(format!("k{k}"));
            builder.values().append_option((k == 0).then_some(i));
        }
        builder.append(i % 7 != 3)?;
    }
    Ok(Arc::new(builder.finish()))
}

const PARTITIONS: [(&str, &str); 7] = [
    ("id", "bigint"),
    ("name", "string"),
    ("day", "date"),
    ("at", "timestamp"),
    ("wall", "timestamp_ntz"),
    ("money", "decimal(9,2)"),
    ("flag", "boolean"),
];

fn partition_rows() -> Result<RecordBatch, Box<dyn Error>> {
    let field = |(name, ddl): &(&str, &str)| Ok(Field::new(*name, DataType::parse(ddl)?.to_arrow(), true));
    let fields = PARTITIONS.iter().map(field).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let rows = || 0..UNUSUAL.len() as i64;
    let filled = |i: i64| i != 0;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows())),
        Arc::new(StringArray::from_iter(UNUSUAL)),
        Arc::new(rows().map(|i| filled(i).then_some((i - 5) as i32)).collect::<Date32Array>()),
        Arc::new(
            rows().map(|i| filled(i).then_some(micros(i))).collect::<TimestampMicrosecondArray>().with_timezone("UTC"),
        ),
        Arc::new(rows().map(|i| filled(i).then_some(micros(i))).collect::<TimestampMicrosecondArray>()),
        Arc::new(
            rows()
                .map(|i| filled(i).then_some(i128::from(i) * 101 - 500))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(9, 2)?,
        ),
        Arc::new(rows().map(|i| filled(i).then_some(i % 2 == 0)).collect::<BooleanArray>()),
    ];
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// Two rows before the columns and nested fields grew, and two after; the second file has its
/// columns in another order.
fn grown_rows(after: bool) -> Result<RecordBatch, Box<dyn Error>> {
    let (columns, ids): (&[(&str, &str)], [i64; 2]) = if after {
        (
            &[
                ("new", "string"),
                ("s", "struct<b:string,a:int>"),
                ("l", "array<struct<y:int,x:int>>"),
                ("id", "bigint"),
            ],
            [2, 3],
        )
    } else {
        (&[("id", "bigint"), ("s", "struct<a:int>"), ("l", "array<struct<x:int>>")], [0, 1])
    };
    let field = |(name, ddl): &(&str, &str)| Ok(Field::new(*name, DataType::parse(ddl)?.to_arrow(), true));
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Result<Vec<_>, Box<dyn Error>>>()?));
    let number = |name: &str| -> ArrayRef {
        let factor = if name == "y" { 100 } else { 1 };
        Arc::new(Int32Array::from_iter_values(ids.map(|id| id as i32 * factor)))
    };
    let texts =
        |name: &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(ids.map(|id| format!("{name}{id}")))) };
    let values = |fields: &Fields| -> Result<ArrayRef, ArrowError> {
        let columns = fields.iter().map(|field| match field.data_type() {
            ArrowType::Utf8 => texts(field.name()),
            _ => number(field.name()),
        });
        Ok(Arc::new(StructArray::try_new(fields.clone(), columns.collect(), None)?))
    };
    let column = |field: &Arc<Field>| -> Result<ArrayRef, ArrowError> {
        Ok(match field.data_type() {
            ArrowType::Struct(fields) => values(fields)?,
            ArrowType::List(element) => match element.data_type() {
                ArrowType::Struct(fields) => Arc::new(arrow_array::ListArray::try_new(
                    element.clone(),
                    arrow_buffer::OffsetBuffer::from_lengths([1, 1]),
                    values(fields)?,
                    None,
                )?),
                _ => return Err(ArrowError::SchemaError("a list of structs".to_owned())),
            },
            ArrowType::Int64 => Arc::new(Int64Array::from(ids.to_vec())),
            _ => texts(field.name()),
        })
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

fn config(directory: &str, table: &str, partition_by: &[&str]) -> Result<DeltaConfig, Box<dyn Error>> {
    Ok(DeltaConfig {
        table: format!("{directory}/{table}"),
        dead_letters: format!("{directory}/{table}_dead_letters"),
        pipeline: PipelineId::new("acme", table, 1)?,
        topic: "records".to_owned(),
        partition_by: partition_by.iter().map(|name| (*name).to_owned()).collect(),
        storage: Vec::new(),
        file_size: 128 * 1024 * 1024,
    })
}

async fn write(sink: &DeltaSink, batch: &RecordBatch, from: i64) -> Result<(), Box<dyn Error>> {
    let rows = batch.num_rows() as u64;
    let to = from + batch.num_rows() as i64;
    let mut writer = sink.writer(batch.schema())?;
    writer.write(batch)?;
    let pipeline = &sink.config().pipeline;
    let counts = Counts { read: rows, kept: rows, rows, ..Counts::default() };
    let info = CommitInfo {
        format: 1,
        kind: CommitKind::Rows,
        pipeline: pipeline.to_string(),
        generation: pipeline.generation(),
        topic: sink.config().topic.clone(),
        topic_id: None,
        partitions: vec![PartitionProgress { partition: Partition(0), span: Span::new(from, to)?, counts }],
        plugins: Vec::new(),
        plan: None,
        replay: None,
    };
    let files = writer.finish()?;
    let letter = DeadLetter {
        partition: Partition(0),
        offset: from,
        timestamp: 1_700_000_000_123,
        key: Some(b"key".to_vec()),
        value: None,
        headers: Some({
            let mut packed = Vec::new();
            let headers = [("trace", Some(b"1".as_slice())), ("empty", None)];
            let headers = headers.map(|(key, value)| alluvium_core::chunk::Header { key, value });
            alluvium_core::chunk::encode_headers(headers, &mut packed);
            packed
        }),
        stage: Stage::Mapping,
        reason: Reason { code: "malformed", message: "not JSON".to_owned() },
        plugin: None,
    };
    let schema = batch.schema();
    let mut flush = Flush { info, schema, files, dead_letters: vec![letter], absent: BTreeSet::from([Partition(0)]) };
    println!("{} rows: {:?}", rows, sink.commit(&mut flush).await?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("name a directory")?;
    let sink = DeltaSink::open(config(&directory, "types", &[])?).await?;
    for file in 0..FILES {
        let (from, to) = (file * ROWS / FILES, (file + 1) * ROWS / FILES);
        write(&sink, &type_rows(from, to)?, from).await?;
    }
    let partition_by = ["name", "day", "at", "wall", "money", "flag"];
    let sink = DeltaSink::open(config(&directory, "partitions", &partition_by)?).await?;
    write(&sink, &partition_rows()?, 0).await?;
    sink.maintain(alluvium_delta::TableRole::Rows).await?;
    let sink = DeltaSink::open(config(&directory, "grown", &[])?).await?;
    write(&sink, &grown_rows(false)?, 0).await?;
    write(&sink, &grown_rows(true)?, 2).await?;
    Ok(())
}

//! Columns that say where a row came from.

use alluvium_config::Metadata;
use alluvium_core::chunk::{NO_TIMESTAMP, decode_headers};
use alluvium_core::{Chunk, DataType, data_type::Field};
use arrow_array::builder::{BinaryBuilder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{ArrayRef, Int32Array, Int64Array, StructArray, TimestampMicrosecondArray};
use arrow_schema::{ArrowError, DataType as ArrowType, Field as ArrowField};
use std::sync::Arc;

/// The end of the year 9999 in milliseconds: readers do not take what is later.
const LAST_TIMESTAMP: i64 = 253_402_300_799_999;

/// The metadata columns of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataColumns {
    names: Metadata,
    /// Whether one record can make several rows, so that `row` tells them apart.
    rows: bool,
}

impl MetadataColumns {
    pub fn new(names: Metadata, rows: bool) -> Self {
        Self { names, rows }
    }

    /// Name of the column that holds partition and offset, if there is one.
    pub fn kafka(&self) -> Option<&str> {
        self.names.kafka.as_deref()
    }

    /// The names that no other column may have.
    pub fn names(&self) -> Vec<String> {
        let names = [&self.names.kafka, &self.names.key, &self.names.headers];
        names.into_iter().flatten().cloned().collect()
    }

    pub fn fields(&self) -> Vec<ArrowField> {
        let kafka = self.names.kafka.as_ref().map(|name| ArrowField::new(name, self.kafka_type().to_arrow(), true));
        let key = self.names.key.as_ref().map(|name| ArrowField::new(name, ArrowType::Binary, true));
        let headers = self.names.headers.as_ref().map(|name| ArrowField::new(name, headers_type().to_arrow(), true));
        [kafka, key, headers].into_iter().flatten().collect()
    }

    fn kafka_type(&self) -> DataType {
        let field = |name: &str, data_type| Field { name: name.to_owned(), data_type };
        let mut fields = vec![
            field("partition", DataType::Int),
            field("offset", DataType::BigInt),
            field("timestamp", DataType::Timestamp),
        ];
        if self.rows {
            fields.push(field("row", DataType::Int));
        }
        DataType::Struct(fields)
    }

    /// The columns for rows of `chunk`; `records` gives for each row the index of its record.
    pub fn columns(&self, chunk: &Chunk, records: &[u32]) -> Result<Vec<ArrayRef>, ArrowError> {
        let mut columns = Vec::new();
        if self.names.kafka.is_some() {
            columns.push(self.kafka_column(chunk, records)?);
        }
        if self.names.key.is_some() {
            let keys = chunk.records().keys();
            let mut builder = BinaryBuilder::with_capacity(records.len(), 0);
            records.iter().for_each(|record| builder.append_option(keys.get(*record as usize)));
            columns.push(Arc::new(builder.finish()) as ArrayRef);
        }
        if self.names.headers.is_some() {
            columns.push(headers_column(chunk, records));
        }
        Ok(columns)
    }

    fn kafka_column(&self, chunk: &Chunk, records: &[u32]) -> Result<ArrayRef, ArrowError> {
        let ArrowType::Struct(fields) = self.kafka_type().to_arrow() else {
            return Err(ArrowError::SchemaError("the metadata column is not a struct".to_owned()));
        };
        let (offsets, timestamps) = (chunk.records().offsets(), chunk.records().timestamps());
        let offset = |record: &u32| offsets.get(*record as usize).copied();
        let timestamp = |record: &u32| {
            let known = |ms: &i64| *ms != NO_TIMESTAMP && *ms <= LAST_TIMESTAMP;
            timestamps.get(*record as usize).copied().filter(known)?.checked_mul(1000)
        };
        let timestamps: TimestampMicrosecondArray = records.iter().map(timestamp).collect();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from_value(chunk.partition().0, records.len())),
            Arc::new(records.iter().map(offset).collect::<Int64Array>()),
            Arc::new(timestamps.with_timezone("UTC")),
        ];
        if self.rows {
            columns.push(Arc::new(row_numbers(records)));
        }
        Ok(Arc::new(StructArray::try_new(fields, columns, None)?))
    }
}

/// The number of each row among those of its record, from 0. Rows of one record lie together.
fn row_numbers(records: &[u32]) -> Int32Array {
    let mut before = None;
    let mut row = 0;
    let number = |record: &u32| {
        row = if before == Some(*record) { row + 1 } else { 0 };
        before = Some(*record);
        row
    };
    records.iter().map(number).collect::<Vec<i32>>().into()
}

/// `array<struct<key:string,value:binary>>`
pub fn headers_type() -> DataType {
    DataType::Array(Box::new(DataType::Struct(vec![
        Field { name: "key".to_owned(), data_type: DataType::String },
        Field { name: "value".to_owned(), data_type: DataType::Binary },
    ])))
}

fn headers_column(chunk: &Chunk, records: &[u32]) -> ArrayRef {
    let fields = [("key", ArrowType::Utf8), ("value", ArrowType::Binary)];
    let fields: Vec<_> = fields.map(|(name, data_type)| ArrowField::new(name, data_type, true)).into();
    let builders = || -> Vec<Box<dyn arrow_array::builder::ArrayBuilder>> {
        vec![Box::new(StringBuilder::new()), Box::new(BinaryBuilder::new())]
    };
    let element = ArrowField::new_list_field(ArrowType::Struct(fields.clone().into()), true).with_name("element");
    let mut list = ListBuilder::new(StructBuilder::new(fields, builders())).with_field(element);
    for record in records {
        let Some(packed) = chunk.records().headers().get(*record as usize) else {
            list.append_null();
            continue;
        };
        for header in decode_headers(packed) {
            let entry = list.values();
            if let Some(keys) = entry.field_builder::<StringBuilder>(0) {
                keys.append_value(header.key);
            }
            if let Some(values) = entry.field_builder::<BinaryBuilder>(1) {
                values.append_option(header.value);
            }
            entry.append(true);
        }
        list.append(true);
    }
    Arc::new(list.finish())
}

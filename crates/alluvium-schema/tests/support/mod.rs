//! What the tests share: packing records, and telling what is in a batch.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod compare;
pub mod fuzzed;
pub mod random;
pub mod reference;
pub mod seeds;
pub mod sparse;

use alluvium_core::Packed;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use serde_json::{Map, Value, json};

pub fn pack<'r>(records: impl IntoIterator<Item = &'r [u8]>) -> Packed {
    let mut packed = Packed::default();
    for record in records {
        packed.push(Some(record)).unwrap();
    }
    packed
}

pub fn pack_texts<S: AsRef<str>>(records: &[S]) -> Packed {
    pack(records.iter().map(|record| record.as_ref().as_bytes()))
}

/// The row's values by column name, with every value but booleans and strings as a text that
/// tells it exactly.
pub fn row(batch: &RecordBatch, row: usize) -> Map<String, Value> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    columns.map(|(field, column)| (field.name().clone(), value(column, row))).collect()
}

/// A value as the case files write it.
pub fn value(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => json!(array.as_boolean().value(row).to_string()),
        DataType::Int8 => json!(array.as_primitive::<Int8Type>().value(row).to_string()),
        DataType::Int16 => json!(array.as_primitive::<Int16Type>().value(row).to_string()),
        DataType::Int32 => json!(array.as_primitive::<Int32Type>().value(row).to_string()),
        DataType::Int64 => json!(array.as_primitive::<Int64Type>().value(row).to_string()),
        DataType::Float32 => json!(format!("{:?}", array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => json!(format!("{:?}", array.as_primitive::<Float64Type>().value(row))),
        DataType::Decimal128(_, scale) => {
            json!(decimal(array.as_primitive::<Decimal128Type>().value(row), *scale as usize))
        }
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::Binary => {
            let bytes = array.as_binary::<i32>().value(row);
            json!(format!("hex:{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
        }
        DataType::Date32 => json!(date(i64::from(array.as_primitive::<Date32Type>().value(row)))),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            let zone = if zone.is_some() { "Z" } else { "" };
            json!(timestamp(micros, zone))
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|item| value(&items, item)).collect()
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let pair = |entry| json!([value(entries.column(0), entry), value(entries.column(1), entry)]);
            (0..entries.len()).map(pair).collect()
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            fields.iter().zip(columns).map(|(field, column)| (field.name().clone(), value(column, row))).collect()
        }
        other => panic!("no such column: {other}"),
    }
}

pub fn timestamp(micros: i64, zone: &str) -> String {
    let (day, micros) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}.{micros:06}{zone}", date(day))
}

pub fn decimal(value: i128, scale: usize) -> String {
    let digits = format!("{:0width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{fraction}")
}

/// The date that lies this many days after the epoch, found by counting.
pub fn date(mut days: i64) -> String {
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < 0 {
            year -= 1;
            days += if is_leap(year) { 366 } else { 365 };
        } else if days >= length {
            days -= length;
            year += 1;
        } else {
            break;
        }
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

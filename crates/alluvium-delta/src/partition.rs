//! Dividing rows by the table's partition columns.
//!
//! Delta keeps a partition's value as text, where the empty string and NULL are the same. As Spark
//! does, rows with an empty string in a partition column go to NULL's partition; a warning says so.
//! A date or time that the text form cannot hold is an error, as nothing may be nulled in silence.

use crate::error::Error;
use alluvium_core::DataType;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType as ArrowType, Schema};
use arrow_select::take::take_record_batch;
use std::collections::HashMap;

/// The values of a partition, in the order of the partition columns; `None` is NULL.
pub(crate) type Key = Vec<Option<String>>;

/// What a path has in place of NULL.
const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";
/// The longest part of a directory's name that is made of a value; file systems take 255 bytes.
const MAX_SEGMENT: usize = 120;

/// Divides batches of one schema by partition columns.
#[derive(Debug)]
pub(crate) struct Divider {
    /// Where each partition column is in a batch; `None` where rows do not have it.
    columns: Vec<Option<usize>>,
    rows: RowConverter,
    /// Whether the warning of empty strings was given.
    warned: bool,
}

impl Divider {
    /// For rows of `schema`; their partition columns may be missing, which makes them NULL.
    pub(crate) fn new(schema: &Schema, partition_by: &[String]) -> Result<Self, Error> {
        let columns: Vec<_> = partition_by.iter().map(|name| schema.index_of(name).ok()).collect();
        let mut sort = Vec::new();
        for index in columns.iter().flatten() {
            let field = schema.field(*index);
            if !is_partition_type(field.data_type()) {
                let (column, found) = (field.name().clone(), field.data_type().to_string());
                return Err(Error::PartitionColumnType { column, found });
            }
            sort.push(SortField::new(field.data_type().clone()));
        }
        let rows = RowConverter::new(sort).map_err(|source| Error::Divide { source })?;
        Ok(Self { columns, rows, warned: false })
    }

    /// The rows of `batch`, partition by partition, still with all columns.
    pub(crate) fn divide(&mut self, batch: &RecordBatch) -> Result<Vec<(Key, RecordBatch)>, Error> {
        let columns: Vec<ArrayRef> = self.columns.iter().flatten().map(|index| batch.column(*index).clone()).collect();
        if columns.is_empty() {
            return Ok(vec![(vec![None; self.columns.len()], batch.clone())]);
        }
        let rows = self.rows.convert_columns(&columns).map_err(|source| Error::Divide { source })?;
        let mut groups: HashMap<&[u8], usize> = HashMap::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        for (row, index) in rows.iter().zip(0u32..) {
            let group = *groups.entry(row.data()).or_insert(members.len());
            match members.get_mut(group) {
                Some(members) => members.push(index),
                None => members.push(vec![index]),
            }
        }
        let whole = members.len() == 1;
        let mut divided = Vec::with_capacity(members.len());
        for members in members {
            let key = self.key(batch, members.first().copied().unwrap_or_default() as usize)?;
            let part = if whole { Ok(batch.clone()) } else { take_record_batch(batch, &UInt32Array::from(members)) };
            divided.push((key, part.map_err(|source| Error::Divide { source })?));
        }
        Ok(divided)
    }

    fn key(&mut self, batch: &RecordBatch, row: usize) -> Result<Key, Error> {
        let mut key = Vec::with_capacity(self.columns.len());
        for index in &self.columns {
            let Some(index) = *index else {
                key.push(None);
                continue;
            };
            let array = batch.column(index);
            if array.is_null(row) {
                key.push(None);
                continue;
            }
            let column = || batch.schema_ref().field(index).name().clone();
            let text = text(array, row).ok_or_else(|| Error::PartitionValue { column: column() })?;
            if text.is_empty() && !self.warned {
                tracing::warn!(column = column(), "an empty string in a partition column becomes NULL");
                self.warned = true;
            }
            key.push(Some(text).filter(|text| !text.is_empty()));
        }
        Ok(key)
    }
}

/// Whether a column of this type can divide a table. Floating point is left out: its text form
/// differs between engines.
pub(crate) fn is_partition_type(data_type: &ArrowType) -> bool {
    let known = DataType::from_arrow(data_type);
    known.is_some_and(|known| {
        !known.is_nested() && !matches!(known, DataType::Float | DataType::Double | DataType::Binary)
    })
}

/// A value as Delta's log spells it; `None` when it has no such spelling.
fn text(array: &ArrayRef, row: usize) -> Option<String> {
    Some(match array.data_type() {
        ArrowType::Boolean => array.as_boolean().value(row).to_string(),
        ArrowType::Int8 => array.as_primitive::<Int8Type>().value(row).to_string(),
        ArrowType::Int16 => array.as_primitive::<Int16Type>().value(row).to_string(),
        ArrowType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        ArrowType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        ArrowType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        ArrowType::LargeUtf8 => array.as_string::<i64>().value(row).to_owned(),
        ArrowType::Utf8View => array.as_string_view().value(row).to_owned(),
        ArrowType::Date32 => date(array.as_primitive::<Date32Type>().value(row))?,
        ArrowType::Decimal128(_, scale) => decimal(array.as_primitive::<Decimal128Type>().value(row), *scale),
        ArrowType::Timestamp(_, zone) => {
            timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row), zone.is_some())?
        }
        _ => return None,
    })
}

/// `1970-01-31`; `None` outside the years 1 to 9999.
pub(crate) fn date(days: i32) -> Option<String> {
    let date = chrono::DateTime::from_timestamp(i64::from(days) * 86_400, 0)?.date_naive();
    in_years(date).then(|| date.format("%Y-%m-%d").to_string())
}

/// An instant in UTC's ISO form, or a wall clock reading without a zone; all six digits of the
/// fraction. `None` outside the years 1 to 9999.
fn timestamp(micros: i64, zoned: bool) -> Option<String> {
    let time = chrono::DateTime::from_timestamp_micros(micros)?;
    let form = if zoned { "%Y-%m-%dT%H:%M:%S%.6fZ" } else { "%Y-%m-%d %H:%M:%S%.6f" };
    in_years(time.date_naive()).then(|| time.format(form).to_string())
}

pub(crate) fn in_years(date: chrono::NaiveDate) -> bool {
    use chrono::Datelike as _;
    (1..=9999).contains(&date.year())
}

/// A decimal's exact text, without an exponent.
pub(crate) fn decimal(value: i128, scale: i8) -> String {
    let scale = usize::try_from(scale).unwrap_or_default();
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// The directory of a partition's files, as Hive spells it. Most readers take values from the log,
/// but some (Polars 2.1) take them from the path, and need every byte of it.
pub(crate) fn directory(partition_by: &[String], key: &Key) -> String {
    let mut directory = String::new();
    for (name, value) in partition_by.iter().zip(key) {
        directory.push_str(&escaped(name));
        directory.push('=');
        directory.push_str(&value.as_deref().map_or_else(|| HIVE_NULL.to_owned(), escaped));
        directory.push('/');
    }
    directory
}

/// A path in the form that the log needs: a relative URL. The path holds nothing but plain
/// characters and the escapes of [`directory`], whose own mark is all that is left to escape.
pub(crate) fn as_url(path: &str) -> String {
    path.replace('%', "%25")
}

/// Text with all but plain characters as `%XX`. What is longer than a file system takes is cut:
/// the log has the whole value.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if escaped.len() >= MAX_SEGMENT {
            break;
        }
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::{Int64Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn decimals_are_spelled_exactly() {
        for (value, scale, text) in [
            (0, 2, "0.00"),
            (5, 2, "0.05"),
            (-5, 2, "-0.05"),
            (12_345, 2, "123.45"),
            (7, 0, "7"),
            (i128::MIN, 38, "-1.70141183460469231731687303715884105728"),
        ] {
            assert_eq!(decimal(value, scale), text);
        }
    }

    #[test]
    fn times_are_spelled_for_every_reader() {
        assert_eq!(date(0).unwrap(), "1970-01-01");
        assert_eq!(date(-1).unwrap(), "1969-12-31");
        assert_eq!(date(i32::MAX), None);
        assert_eq!(timestamp(-1, true).unwrap(), "1969-12-31T23:59:59.999999Z");
        assert_eq!(timestamp(1_500_000, false).unwrap(), "1970-01-01 00:00:01.500000");
        assert_eq!(timestamp(i64::MAX, true), None);
    }

    #[test]
    fn rows_are_divided_by_all_partition_columns_and_empty_text_is_null() {
        let city: ArrayRef = Arc::new(StringArray::from(vec![Some("a/b"), None, Some(""), Some("a/b"), Some("ü %")]));
        let day: ArrayRef = Arc::new(Int64Array::from(vec![1, 1, 1, 2, 1]));
        let batch = RecordBatch::try_from_iter_with_nullable([("city", city, true), ("day", day, true)]).unwrap();
        let mut divider = Divider::new(&batch.schema(), &["city".to_owned(), "day".to_owned()]).unwrap();
        let divided = divider.divide(&batch).unwrap();
        let keys: Vec<_> = divided.iter().map(|(key, part)| (key[0].as_deref(), part.num_rows())).collect();
        assert_eq!(keys, [(Some("a/b"), 1), (None, 1), (None, 1), (Some("a/b"), 1), (Some("ü %"), 1)]);
        let path = directory(&["city".to_owned(), "day".to_owned()], &divided[4].0);
        assert_eq!(path, "city=%C3%BC%20%25/day=1/");
        assert_eq!(as_url(&path), "city=%25C3%25BC%2520%2525/day=1/");
    }

    #[test]
    fn a_directory_is_never_longer_than_file_systems_take() {
        let key = vec![Some("🦀".repeat(1000))];
        assert!(directory(&["ü".repeat(1000)], &key).len() < 255);
    }

    #[test]
    fn types_without_one_text_form_cannot_divide() {
        assert!(!is_partition_type(&ArrowType::Float64));
        assert!(!is_partition_type(&ArrowType::Binary));
        assert!(is_partition_type(&ArrowType::Utf8View));
    }
}

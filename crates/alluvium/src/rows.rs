//! Rows as JSON, for people and for tests.

use alluvium_core::DataType;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use serde_json::{Map, Value, json};

/// A row as a JSON object. Numbers that JSON readers would round (decimals) are strings; binary values
/// are hex digits behind `hex:`.
pub fn row(batch: &RecordBatch, row: usize) -> Value {
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(batch.columns());
    Value::Object(fields.map(|(field, column)| (field.name().clone(), value(column, row))).collect())
}

fn value(array: &ArrayRef, index: usize) -> Value {
    if array.is_null(index) {
        return Value::Null;
    }
    match DataType::from_arrow(array.data_type()) {
        Some(DataType::Boolean) => json!(array.as_boolean().value(index)),
        Some(DataType::TinyInt) => json!(array.as_primitive::<Int8Type>().value(index)),
        Some(DataType::SmallInt) => json!(array.as_primitive::<Int16Type>().value(index)),
        Some(DataType::Int) => json!(array.as_primitive::<Int32Type>().value(index)),
        Some(DataType::BigInt) => json!(array.as_primitive::<Int64Type>().value(index)),
        Some(DataType::Float) => json!(array.as_primitive::<Float32Type>().value(index)),
        Some(DataType::Double) => json!(array.as_primitive::<Float64Type>().value(index)),
        Some(DataType::Decimal(..)) => json!(array.as_primitive::<Decimal128Type>().value_as_string(index)),
        Some(DataType::Date) => {
            let date = array.as_primitive::<Date32Type>().value_as_date(index);
            date.map_or(Value::Null, |date| json!(date.to_string()))
        }
        Some(zone @ (DataType::Timestamp | DataType::TimestampNtz)) => {
            let time = array.as_primitive::<TimestampMicrosecondType>().value_as_datetime(index);
            let suffix = if zone == DataType::Timestamp { "Z" } else { "" };
            time.map_or(Value::Null, |time| json!(format!("{}{suffix}", time.format("%Y-%m-%dT%H:%M:%S%.6f"))))
        }
        Some(DataType::Array(_)) if array.as_list_opt::<i32>().is_some() => {
            let elements = array.as_list::<i32>().value(index);
            Value::Array((0..elements.len()).map(|element| value(&elements, element)).collect())
        }
        Some(DataType::Map(..)) => {
            let entries = array.as_map().value(index);
            let (keys, values) = (entries.column(0), entries.column(1));
            let key = |entry| match value(keys, entry) {
                Value::String(key) => key,
                other => other.to_string(),
            };
            Value::Object((0..entries.len()).map(|entry| (key(entry), value(values, entry))).collect::<Map<_, _>>())
        }
        Some(DataType::Struct(fields)) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            Value::Object(columns.map(|(field, column)| (field.name.clone(), value(column, index))).collect())
        }
        Some(DataType::Binary) if array.as_binary_opt::<i32>().is_some() => {
            let bytes = array.as_binary::<i32>().value(index);
            json!(format!("hex:{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
        }
        Some(DataType::String) if array.as_string_opt::<i32>().is_some() => {
            json!(array.as_string::<i32>().value(index))
        }
        // Layouts that only readers of other engines' files make.
        _ => {
            let options = FormatOptions::default();
            ArrayFormatter::try_new(array, &options).map_or(Value::Null, |text| json!(text.value(index).to_string()))
        }
    }
}

/// Where `found` is not what `wanted` says, as `path: wanted …, found …`. Fields that an object of
/// `wanted` does not name are not compared.
pub fn differences(wanted: &Value, found: &Value, path: &str, out: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(fields), Value::Object(there)) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match there.get(name) {
                    Some(value) => differences(field, value, &path, out),
                    None => out.push(format!("{path}: wanted {field}, there is no such column")),
                }
            }
        }
        (Value::Array(items), Value::Array(there)) if items.len() == there.len() => {
            for (index, (item, value)) in items.iter().zip(there).enumerate() {
                differences(item, value, &format!("{path}[{index}]"), out);
            }
        }
        (wanted, found) if is_equal(wanted, found) => {}
        (wanted, found) => out.push(format!("{path}: wanted {wanted}, found {found}")),
    }
}

/// Numbers are compared by value, also with decimals, which are strings here.
fn is_equal(wanted: &Value, found: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    match (wanted, found) {
        (Value::Number(wanted), Value::Number(found)) if wanted.is_i64() && found.is_i64() => wanted == found,
        (Value::Number(_), Value::Number(_) | Value::String(_)) => number(wanted) == number(found),
        _ => wanted == found,
    }
}

//! Column plugins over rows of JSON.

use crate::bindings::column::Columns;
use crate::column::{Batch, Buffer, Column, Declared, Value as Place};
use crate::export::ColumnPlugin;
use crate::{Error, Result, Type, path};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// What a column plugin made of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RowsOutcome {
    /// The rows kept, with the columns that the plugin wrote.
    pub rows: Vec<Value>,
    /// For each of them the number of the row that it comes from.
    pub inputs: Vec<usize>,
    /// Rows rejected: their numbers, and why.
    pub rejects: Vec<(usize, String)>,
}

/// Runs a column plugin over rows, which are JSON objects.
///
/// A column that a row does not have is null. Dates and timestamps are texts, as in `2026-03-01`
/// and `2026-03-01T12:30:00Z`; a decimal is a number or a text; binary is an array of bytes; a map
/// with string keys is an object, any other an array of pairs.
pub fn run_rows<C: DeserializeOwned>(plugin: &ColumnPlugin<C>, config: Value, rows: &[Value]) -> Result<RowsOutcome> {
    let configured = plugin.configure(&config.to_string())?;
    let access = configured.access();
    let mut nodes = Vec::new();
    for declared in access.read() {
        column(declared, rows)?.into_nodes(&mut nodes)?;
    }
    let count = u32::try_from(rows.len())?;
    let edit = plugin.transform(&configured, &Columns { rows: count, nodes })?;

    let inputs: Vec<usize> = match edit.rows {
        Some(kept) => kept.into_iter().map(|row| row as usize).collect(),
        None => (0..rows.len()).collect(),
    };
    let written = Columns { rows: u32::try_from(inputs.len())?, nodes: edit.nodes };
    let batch = Batch::new(access.written(), &written)?;
    let mut kept: Vec<Value> = inputs.iter().map(|row| rows.get(*row).cloned().unwrap_or_default()).collect();
    for declared in access.written() {
        let values = batch.column(&declared.path)?;
        for (at, row) in kept.iter_mut().enumerate() {
            put(row, &path::split(&declared.path)?, get(&values, at)?);
        }
    }
    let rejects = edit.rejects.into_iter().map(|reject| (reject.input as usize, reject.reason)).collect();
    Ok(RowsOutcome { rows: kept, inputs, rejects })
}

fn column(declared: &Declared, rows: &[Value]) -> Result<Buffer> {
    let parts = path::split(&declared.path)?;
    let mut buffer = Buffer::new(&declared.name, &declared.data_type, rows.len());
    for (number, row) in rows.iter().enumerate() {
        let value = parts.iter().try_fold(row, |value, part| value.get(part)).unwrap_or(&Value::Null);
        let place = Place::new(&mut buffer, &declared.data_type, &declared.path);
        set(place, value).map_err(|error| format!("row {number}: {}", error.message()))?;
    }
    Ok(buffer)
}

/// Puts a JSON value into its place, which must be of its type.
fn set(place: Place<'_>, value: &Value) -> Result<()> {
    if value.is_null() {
        return place.null();
    }
    let data_type = place.data_type().clone();
    let wrong = || Error::new(format!("{value} is no {data_type}"));
    let integer = || value.as_i64().ok_or_else(wrong);
    let text = || value.as_str().ok_or_else(wrong);
    let list = || value.as_array().ok_or_else(wrong);
    match &data_type {
        Type::Boolean => place.boolean(value.as_bool().ok_or_else(wrong)?),
        Type::TinyInt => place.tinyint(integer()?.try_into()?),
        Type::SmallInt => place.smallint(integer()?.try_into()?),
        Type::Int => place.int(integer()?.try_into()?),
        Type::BigInt => place.bigint(integer()?),
        Type::Float => place.float(value.as_f64().ok_or_else(wrong)? as f32),
        Type::Double => place.double(value.as_f64().ok_or_else(wrong)?),
        Type::Decimal(..) => {
            let number = value.as_number().map(ToString::to_string);
            place.decimal(number.map_or_else(|| text().map(str::to_owned), Ok)?.parse()?)
        }
        Type::String => place.string(text()?),
        Type::Binary => {
            let byte = |byte: &Value| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()).ok_or_else(wrong);
            place.binary(&list()?.iter().map(byte).collect::<Result<Vec<u8>>>()?)
        }
        Type::Date => place.date(text()?.parse()?),
        Type::Timestamp | Type::TimestampNtz => place.timestamp(text()?.parse()?),
        Type::Array(_) => {
            let elements = list()?;
            place.list(|items| elements.iter().try_for_each(|element| set(items.item(), element)))
        }
        Type::Map(..) => {
            let pairs: Vec<(Value, Value)> = match value {
                Value::Object(object) => object.iter().map(|(key, value)| (json!(key), value.clone())).collect(),
                _ => serde_json::from_value(value.clone())?,
            };
            let mut pairs = pairs.iter();
            place.map(|entries| {
                pairs.try_for_each(|(key, value)| entries.entry(|place| set(place, key), |place| set(place, value)))
            })
        }
        Type::Struct(fields) => {
            let object = value.as_object().ok_or_else(wrong)?;
            place.fields(|places| {
                for (name, _) in fields {
                    set(places.field(name)?, object.get(name).unwrap_or(&Value::Null))?;
                }
                Ok(())
            })
        }
    }
}

/// A value as JSON.
fn get(column: &Column<'_>, row: usize) -> Result<Value> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match column.data_type() {
        Type::Boolean => json!(column.boolean()?.get(row)),
        Type::TinyInt => json!(column.tinyint()?.get(row)),
        Type::SmallInt => json!(column.smallint()?.get(row)),
        Type::Int => json!(column.int()?.get(row)),
        Type::BigInt => json!(column.bigint()?.get(row)),
        Type::Float => json!(column.float()?.get(row)),
        Type::Double => json!(column.double()?.get(row)),
        Type::Decimal(..) => json!(column.decimal()?.get(row).map(|decimal| decimal.to_string())),
        Type::String => json!(column.string()?.get(row)),
        Type::Binary => json!(column.binary()?.get(row)),
        Type::Date => json!(column.date()?.get(row).map(|date| date.to_string())),
        Type::Timestamp | Type::TimestampNtz => json!(column.timestamp()?.get(row).map(|time| time.to_string())),
        Type::Array(_) => {
            let list = column.list()?;
            let elements = list.get(row).unwrap_or_default();
            Value::Array(elements.map(|at| get(list.elements(), at)).collect::<Result<_>>()?)
        }
        Type::Map(key, _) => {
            let map = column.map()?;
            let mut pairs = Vec::new();
            for at in map.get(row).unwrap_or_default() {
                pairs.push((get(map.keys(), at)?, get(map.values(), at)?));
            }
            match **key {
                Type::String => {
                    let text = |key: Value| key.as_str().unwrap_or_default().to_owned();
                    pairs.into_iter().map(|(key, value)| (text(key), value)).collect()
                }
                _ => json!(pairs),
            }
        }
        Type::Struct(fields) => {
            let mut object = Map::new();
            for (name, _) in fields {
                object.insert(name.clone(), get(&column.field(name)?, row)?);
            }
            Value::Object(object)
        }
    })
}

/// Sets a value within a row, making the objects on its way.
fn put(row: &mut Value, parts: &[String], value: Value) {
    let Some((first, rest)) = parts.split_first() else {
        *row = value;
        return;
    };
    if !row.is_object() {
        *row = json!({});
    }
    if let Value::Object(object) = row {
        put(object.entry(first.as_str()).or_insert(Value::Null), rest, value);
    }
}

//! Records whose fate is known, and rows compared with the records that they came from.

use super::world::World;
use alluvium_core::Counts;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_cast::display::array_value_to_string;
use arrow_schema::DataType;
use serde_json::{Map, Value, json};

/// What must become of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Row,
    Filtered,
    DeadLetter,
}

/// How a pipeline treats its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// Whether the columns are declared (and reject what does not fit) or inferred (and rescue it).
    pub declared: bool,
    /// Whether tombstones are dead letters, or dropped.
    pub keeps_tombstones: bool,
}

/// A record's value.
pub fn value(world: &World, id: i64) -> Option<Vec<u8>> {
    let text = match world.below(20) {
        0 => return None,
        1 => format!(r#"{{"id":{id},"name":"#),
        2 => "[1,2]".to_owned(),
        3 => format!(r#"{{"id":"no {id}","name":"other type"}}"#),
        4 => format!(r#"{{"id":{id},"name":"mixed","mixed":"text"}}"#),
        5 => format!(r#"{{"id":{id},"mixed":{id}.5}}"#),
        6..=8 => format!(r#"{{"id":{id},"extra{}":{id}}}"#, world.below(4)),
        9 => format!(r#"{{"id":{id},"nested":{{"inner{}":"{id}"}}}}"#, world.below(3)),
        _ => format!(r#"{{"id":{id},"name":"name {id}","fine":true}}"#),
    };
    Some(text.into_bytes())
}

pub fn fate(value: Option<&[u8]>, treatment: Treatment) -> Fate {
    let Some(value) = value else {
        return if treatment.keeps_tombstones { Fate::DeadLetter } else { Fate::Filtered };
    };
    match serde_json::from_slice::<Value>(value) {
        Ok(Value::Object(fields)) if treatment.declared && !fields["id"].is_i64() => Fate::DeadLetter,
        Ok(Value::Object(_)) => Fate::Row,
        _ => Fate::DeadLetter,
    }
}

/// The counts of records with these fates.
pub fn counts(fates: impl Iterator<Item = Fate>) -> Counts {
    let mut counts = Counts::default();
    for fate in fates {
        counts.read += 1;
        match fate {
            Fate::Row => (counts.kept, counts.rows) = (counts.kept + 1, counts.rows + 1),
            Fate::Filtered => counts.filtered += 1,
            Fate::DeadLetter => counts.rejected += 1,
        }
    }
    counts
}

/// A row with the place of its record.
#[derive(Clone, Debug)]
pub struct Row {
    pub partition: i32,
    pub offset: i64,
    pub columns: Map<String, Value>,
}

pub fn rows(batch: &RecordBatch) -> Vec<Row> {
    let schema = batch.schema();
    let row = |index| {
        let columns = schema.fields().iter().zip(batch.columns());
        let mut columns: Map<String, Value> =
            columns.map(|(field, column)| (field.name().clone(), cell(column.as_ref(), index))).collect();
        let place = columns.remove("_kafka").unwrap_or_default();
        let number = |name: &str| place.get(name).and_then(Value::as_i64).unwrap_or(-1);
        Row { partition: number("partition") as i32, offset: number("offset"), columns }
    };
    (0..batch.num_rows()).map(row).collect()
}

fn cell(column: &dyn Array, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    match column.data_type() {
        DataType::Boolean => json!(column.as_boolean().value(row)),
        DataType::Int32 => json!(column.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => json!(column.as_primitive::<Int64Type>().value(row)),
        DataType::Float64 => json!(column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => json!(column.as_string::<i32>().value(row)),
        DataType::Struct(fields) => {
            let inner = fields.iter().zip(column.as_struct().columns());
            Value::Object(inner.map(|(field, column)| (field.name().clone(), cell(column.as_ref(), row))).collect())
        }
        _ => json!(array_value_to_string(column, row).unwrap_or_default()),
    }
}

/// What the row has otherwise than its record: each field is in its column, or in the rescued one.
pub fn difference(record: &[u8], row: &Row) -> Option<String> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(record) else {
        return Some("the record is no row".to_owned());
    };
    let rescued = match row.columns.get("_rescued") {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        _ => Map::new(),
    };
    let there = row.columns.iter().filter(|(name, _)| *name != "_rescued");
    let there: Map<String, Value> = there.map(|(name, value)| (name.clone(), value.clone())).collect();
    let wrong = (!is_held(&fields, &there, &rescued)).then(|| format!("{fields:?} became {:?}", row.columns));
    let known = |name: &&String| fields.keys().any(|field| field.eq_ignore_ascii_case(name));
    let invented = there.iter().find(|(name, value)| !value.is_null() && !known(name));
    wrong.or_else(|| invented.map(|(name, value)| format!("column {name} holds {value}, which is not in the record")))
}

fn is_held(fields: &Map<String, Value>, columns: &Map<String, Value>, rescued: &Map<String, Value>) -> bool {
    fields.iter().all(|(name, value)| match (value, columns.get(name), rescued.get(name)) {
        (Value::Object(fields), Some(Value::Object(columns)), kept) => {
            is_held(fields, columns, kept.and_then(Value::as_object).unwrap_or(&Map::new()))
        }
        (value, column, Some(kept)) => kept == value && column.is_none_or(Value::is_null),
        (value, Some(found), None) => is_same(value, found),
        _ => false,
    })
}

fn is_same(value: &Value, found: &Value) -> bool {
    let text = |found: &str| serde_json::from_str::<Value>(found).is_ok_and(|found| found == *value);
    match (value, found) {
        (Value::Number(value), Value::Number(found)) => value.as_f64() == found.as_f64(),
        // A column of several kinds holds JSON text.
        (value, Value::String(found)) => value.as_str() == Some(found) || text(found),
        (value, found) => value == found,
    }
}

//! `cases/evolution.ndjson`: what a pipeline makes of batches whose fields change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_core::{DataType, Packed, data_type};
use alluvium_schema::{Decoder, Evolve, Plan, PlanOptions, Shape};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::{pack_texts, row};

#[derive(Deserialize)]
struct Case {
    name: String,
    schema: Mapping,
    batches: Vec<Vec<String>>,
    expect: Expected,
}

#[derive(Deserialize)]
struct Mapping {
    mapping: String,
    evolve: Evolve,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Expected {
    schema: String,
    rows: Vec<Vec<Value>>,
    rescued: BTreeMap<usize, Value>,
    dead_letters: Vec<usize>,
}

/// How a pipeline that has no plan yet begins.
#[derive(Clone, Copy)]
enum Start {
    /// Observes the first batch.
    Observing,
    /// Decodes it with the empty plan, which does not know any field.
    Decoding,
}

/// How a pipeline goes on after each batch.
#[derive(Clone, Copy)]
enum Next {
    SamePlan,
    /// With the plan made anew from the table.
    FromTable,
}

/// What a pipeline does, with rows as they would be read from the table at the end.
fn run(case: &Case, start: Start, next: Next) -> Expected {
    assert_eq!(case.schema.mapping, "infer");
    let options = PlanOptions { evolve: case.schema.evolve, ..PlanOptions::default() };
    let mut plan = Arc::new(Plan::inferred(options.clone()));
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    let mut dead_letters = Vec::new();
    let mut first = 0;
    for batch in &case.batches {
        let values = pack_texts(batch);
        if let (Start::Observing, false) = (start, plan.is_settled()) {
            let mut shape = Shape::default();
            batch.iter().for_each(|record| shape.observe(record.as_bytes()));
            plan = plan.grow(&shape).unwrap().map_or(plan, Arc::new);
        }
        plan = decode(plan, &values, &mut rows, &mut dead_letters, first);
        first += batch.len();
        if let Next::FromTable = next {
            let table = plan.schema();
            plan = Arc::new(Plan::inferred(options.clone()).with_table(&table).unwrap());
        }
    }
    let columns = plan.columns().iter().map(|column| (column.name.as_str(), &column.data_type));
    let columns = columns.collect::<Vec<_>>();
    let schema = columns.iter().map(|(name, data_type)| format!("{} {data_type}", data_type::quoted(name)));
    let schema = schema.collect::<Vec<_>>().join(", ");
    let rescued = rows.iter().enumerate().filter_map(|(at, row)| match &row["_rescued"] {
        Value::String(text) => Some((at, serde_json::from_str(text).unwrap())),
        _ => None,
    });
    let rescued = rescued.collect();
    let read = |row: &Map<String, Value>| {
        columns.iter().map(|(name, data_type)| read_back(row.get(*name), data_type)).collect()
    };
    let rows = rows.iter().map(read).collect();
    Expected { schema, rows, rescued, dead_letters }
}

fn decode(
    mut plan: Arc<Plan>,
    values: &Packed,
    rows: &mut Vec<Map<String, Value>>,
    dead_letters: &mut Vec<usize>,
    first: usize,
) -> Arc<Plan> {
    let mut decoded = Decoder::new(plan.clone()).decode(values).unwrap();
    if let Some(unknown) = decoded.unknown.take() {
        plan = Arc::new(plan.grow(&unknown).unwrap().expect("what is told as unknown can be added"));
        decoded = Decoder::new(plan.clone()).decode(values).unwrap();
        assert!(decoded.unknown.is_none(), "growing once is enough");
    }
    rows.extend((0..decoded.batch.num_rows()).map(|at| row(&decoded.batch, at)));
    dead_letters.extend(decoded.rejects.iter().map(|reject| first + reject.input as usize));
    plan
}

/// A value as a reader of the table's last schema gets it, and as the case file writes it.
fn read_back(value: Option<&Value>, data_type: &DataType) -> Value {
    match (value, data_type) {
        (None | Some(Value::Null), _) => Value::Null,
        (Some(value), DataType::Struct(fields)) => {
            let fields =
                fields.iter().map(|field| (field.name.clone(), read_back(value.get(&field.name), &field.data_type)));
            Value::Object(fields.collect())
        }
        (Some(Value::Array(items)), DataType::Array(element)) => {
            items.iter().map(|item| read_back(Some(item), element)).collect()
        }
        (Some(Value::String(text)), DataType::String) => json!(text),
        (Some(Value::String(text)), _) => serde_json::from_str(text).unwrap(),
        (Some(value), _) => panic!("{value} is no {data_type}"),
    }
}

#[test]
fn every_case_holds() {
    let lines = include_str!("cases/evolution.ndjson").lines();
    let cases = lines.map(|line| serde_json::from_str::<Case>(line).unwrap()).collect::<Vec<_>>();
    assert_eq!(cases.len(), 18);
    for case in &cases {
        for start in [Start::Observing, Start::Decoding] {
            for next in [Next::SamePlan, Next::FromTable] {
                assert_eq!(run(case, start, next), case.expect, "{}", case.name);
            }
        }
    }
}

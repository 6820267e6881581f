//! Records choose the names of their fields: many of them must not cost more than each by itself.
#![allow(clippy::unwrap_used)]

use alluvium_core::{DataType, Packed};
use alluvium_schema::{ColumnSpec, Evolve, Plan, PlanOptions, Rescued, Why, additions, select};
use arrow_schema::{Field, Schema};
use std::time::{Duration, Instant};

const FIELDS: usize = 10_000;

/// Far more than it takes, and far less than where the time grows with the square.
fn in_time(begun: Instant) {
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn rescued_fields_are_explained_beside_many_columns() {
    let specs = (0..600).map(|at| ColumnSpec::new(format!("column{at}"), DataType::BigInt)).collect();
    let options = PlanOptions { evolve: Evolve::Approve, max_columns: 100_000, ..PlanOptions::default() };
    let mut rescued = Rescued::new(&Plan::declared(specs, options).unwrap());
    let values: Vec<String> = (0..FIELDS).map(|at| format!("{{\"key{at}\":{{\"x\":1}}}}")).collect();
    let values: Packed = values.iter().map(|value| Some(value.as_bytes())).collect();
    let begun = Instant::now();
    rescued.observe(&values, |_| None).unwrap();
    let told = rescued.fields().filter(|(.., why)| matches!(why, Why::NotApproved(_))).count();
    assert_eq!(told, FIELDS);
    in_time(begun);
}

#[test]
fn names_that_no_column_can_have_are_explained() {
    let fields: Vec<String> = (0..FIELDS).map(|at| format!("`field{at}`:int")).collect();
    let column = ColumnSpec::new("s", DataType::parse(&format!("struct<{}>", fields.join(","))).unwrap());
    let options = PlanOptions { evolve: Evolve::Add, max_columns: 100_000, ..PlanOptions::default() };
    let mut rescued = Rescued::new(&Plan::declared(vec![column], options).unwrap());
    // A row holds each column: few rows of many fields.
    let members: Vec<String> = (0..FIELDS).map(|at| format!("\"FIELD{at}\":1")).collect();
    let values: Vec<String> = members.chunks(1_000).map(|row| format!("{{\"s\":{{{}}}}}", row.join(","))).collect();
    let values: Packed = values.iter().map(|value| Some(value.as_bytes())).collect();
    let begun = Instant::now();
    rescued.observe(&values, |_| None).unwrap();
    assert_eq!(rescued.fields().filter(|(.., why)| matches!(why, Why::Case(_))).count(), FIELDS);
    in_time(begun);
}

#[test]
fn what_a_wide_table_would_get_is_found_and_chosen() {
    let wide = |from: usize| -> Schema {
        let field = |at| Field::new(format!("Column{at}"), DataType::BigInt.to_arrow(), true);
        Schema::new((from..from + FIELDS).map(field).collect::<Vec<_>>())
    };
    let (table, wanted) = (wide(0), wide(FIELDS / 2));
    let begun = Instant::now();
    let all = additions(Some(&table), &wanted);
    let chosen: Vec<_> = all.iter().step_by(2).map(|addition| addition.path.clone()).collect();
    let selected = select(&table, &wanted, &chosen);
    assert_eq!((all.len(), selected.fields().len()), (FIELDS / 2, FIELDS * 3 / 4));
    in_time(begun);
}

//! What holds of every growth of a plan.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_core::{DataType, data_type::Field};
use alluvium_schema::{Decoder, Evolve, GrowError, Plan, PlanOptions, Shape};
use proptest::prelude::*;
use std::sync::Arc;
use support::fuzzed::extends;
use support::pack_texts;
use support::random::Choices;

fn as_struct(plan: &Plan) -> DataType {
    let field =
        |column: &alluvium_schema::Column| Field { name: column.name.clone(), data_type: column.data_type.clone() };
    DataType::Struct(plan.columns().iter().map(field).collect())
}

fn names_are_unique(data_type: &DataType) -> bool {
    match data_type {
        DataType::Array(element) => names_are_unique(element),
        DataType::Map(_, value) => names_are_unique(value),
        DataType::Struct(fields) => {
            let mut names = fields.iter().map(|field| field.name.to_lowercase()).collect::<Vec<_>>();
            names.sort_unstable();
            names.windows(2).all(|pair| pair[0] != pair[1])
                && fields.iter().all(|field| names_are_unique(&field.data_type))
        }
        _ => true,
    }
}

fn leaves(data_type: &DataType) -> usize {
    match data_type {
        DataType::Array(element) => leaves(element),
        DataType::Map(key, value) => leaves(key) + leaves(value),
        DataType::Struct(fields) => fields.iter().map(|field| leaves(&field.data_type)).sum(),
        _ => 1,
    }
}

fn records(bytes: &[Vec<u8>]) -> Vec<String> {
    bytes.iter().map(|bytes| Choices::new(bytes).any_record()).collect()
}

fn observed(records: &[String]) -> Shape {
    let mut shape = Shape::default();
    records.iter().for_each(|record| shape.observe(record.as_bytes()));
    shape
}

prop_compose! {
    fn batches()(bytes in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..4), 1..4)) -> Vec<Vec<String>> {
        bytes.iter().map(|bytes| records(bytes)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn growth_is_additive_and_idempotent(batches in batches(), max_columns in 0usize..12) {
        let reserved = vec!["B".to_owned()];
        let mut plan = Plan::inferred(PlanOptions { max_columns, reserved, ..PlanOptions::default() });
        for batch in &batches {
            let shape = observed(batch);
            let Some(grown) = plan.grow(&shape).unwrap() else { continue };
            let (old, new) = (as_struct(&plan), as_struct(&grown));
            prop_assert!(extends(&new, &old), "{} to {}", old, new);
            prop_assert!(old != new);
            prop_assert!(leaves(&new) <= max_columns);
            prop_assert!(names_are_unique(&new));
            for column in grown.columns() {
                prop_assert!(!["b", "_rescued"].contains(&column.name.to_lowercase().as_str()));
                prop_assert!(!column.name.contains(' ') && !column.name.is_empty());
            }
            prop_assert_eq!(grown.grow(&shape).unwrap(), None);
            plan = grown;
        }
    }

    /// The decoder tells as unknown just what observing finds.
    #[test]
    fn decoding_finds_what_observing_finds(batches in batches(), max_columns in 0usize..12) {
        let mut plan = Plan::inferred(PlanOptions { max_columns, ..PlanOptions::default() });
        for batch in &batches {
            let grown = plan.grow(&observed(batch)).unwrap();
            let decoded = Decoder::new(Arc::new(plan.clone())).decode(&pack_texts(batch)).unwrap();
            let seen = decoded.unknown.map(|unknown| plan.grow(&unknown).unwrap().unwrap());
            prop_assert_eq!(&seen, &grown);
            if let Some(grown) = seen {
                let again = Decoder::new(Arc::new(grown.clone())).decode(&pack_texts(batch)).unwrap();
                prop_assert!(again.unknown.is_none());
                plan = grown;
            }
        }
    }

    #[test]
    fn merging_shapes_is_observing_all(batches in batches()) {
        let all = observed(&batches.concat());
        let mut merged = Shape::default();
        for batch in &batches {
            merged.merge(observed(batch));
        }
        prop_assert_eq!(&merged, &all);
        let mut twice = all.clone();
        twice.merge(all.clone());
        prop_assert_eq!(twice, all);
    }

    #[test]
    fn settled_plans_that_do_not_add(batches in batches()) {
        for evolve in [Evolve::None, Evolve::Stop] {
            let plan = Plan::inferred(PlanOptions { evolve, ..PlanOptions::default() });
            let Some(plan) = plan.grow(&observed(&batches[0])).unwrap() else { continue };
            for batch in &batches {
                let shape = observed(batch);
                let decoded = Decoder::new(Arc::new(plan.clone())).decode(&pack_texts(batch)).unwrap();
                match plan.grow(&shape) {
                    Ok(grown) => {
                        prop_assert_eq!(grown, None);
                        prop_assert!(decoded.unknown.is_none());
                    }
                    Err(GrowError::Unknown { fields }) => {
                        prop_assert_eq!(evolve, Evolve::Stop);
                        prop_assert!(!fields.is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn plans_come_back_from_their_stored_form(bytes in prop::collection::vec(any::<u8>(), 0..80), batches in batches()) {
        let inferred = Plan::inferred(PlanOptions::default());
        let grown = inferred.grow(&observed(&batches[0])).unwrap().unwrap_or(inferred);
        for plan in [Choices::new(&bytes).plan(), grown] {
            let stored = serde_json::to_string(&plan).unwrap();
            let back: Plan = serde_json::from_str(&stored).unwrap();
            prop_assert_eq!(back.digest(), plan.digest());
            prop_assert_eq!(back, plan);
        }
    }

    /// A plan that is made anew from the table goes on as the one that made the table.
    #[test]
    fn tables_remember_their_plans(batches in batches()) {
        let inferred = Plan::inferred(PlanOptions::default());
        let mut plan = inferred.clone();
        for batch in &batches {
            plan = plan.grow(&observed(batch)).unwrap().unwrap_or(plan);
            if plan.is_settled() {
                let again = inferred.clone().with_table(&plan.schema()).unwrap();
                prop_assert_eq!(&again, &plan);
            }
        }
    }
}

/// The values of a map are of one type: what its keys have counts together, whether records are observed or decoded.
#[test]
fn new_fields_in_the_values_of_a_map_are_typed_by_all_its_keys() {
    for (records, expected) in [
        ([r#"{"m":{"a":{"n":1},"b":{"n":1.5}}}"#, "{}"], "map<string,struct<x:bigint,n:double>>"),
        ([r#"{"m":{"a":{"n":1}}}"#, r#"{"m":{"b":{"n":"x"}}}"#], "map<string,struct<x:bigint,n:string>>"),
        (
            [r#"{"m":{"a":{"n":{"p":1}},"b":{"n":{"q":[]}}}}"#, r#"{"m":{"c":{"n":{"q":[true]}}}}"#],
            "map<string,struct<x:bigint,n:struct<p:bigint,q:array<boolean>>>>",
        ),
    ] {
        let column = alluvium_schema::ColumnSpec::new("m", DataType::parse("map<string,struct<x:bigint>>").unwrap());
        let plan = Plan::declared(vec![column], PlanOptions::default()).unwrap();
        let shape = observed(&records.map(str::to_owned));
        let mut decoder = Decoder::new(Arc::new(plan.clone()));
        let unknown = decoder.decode(&pack_texts(&records)).unwrap().unknown.unwrap();
        for shape in [shape, unknown] {
            let grown = plan.grow(&shape).unwrap().unwrap();
            assert_eq!(grown.columns()[0].data_type.to_string(), expected, "{records:?}");
            assert_eq!(grown.grow(&shape), Ok(None), "{records:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_shape_holds_what_was_merged_into_it_and_nothing_else(bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 2..6)) {
        let records = records(&bytes);
        let (some, more) = records.split_at(records.len() / 2);
        let (some, more) = (observed(some), observed(more));
        let mut all = some.clone();
        all.merge(more.clone());
        prop_assert!(all.holds(&some) && all.holds(&more) && all.holds(&all));
        prop_assert_eq!(some.holds(&more), all == some);
    }
}

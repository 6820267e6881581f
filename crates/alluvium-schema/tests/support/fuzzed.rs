//! What is demanded of any bytes. The fuzz targets call it, and a test on the corpus kept from them.
//!
//! An input is a sequence of texts with a record separator between them (as in RFC 7464), so that
//! it can be read, and that any change to it is an input again. The first text is a plan in its
//! stored form; what is none makes the choices of [`Choices`]. Each other text is a record as it
//! stands, unless its first byte asks for one that is made for the plan from the bytes after it.

use super::compare::{check_batch, compare};
use super::pack;
use super::random::Choices;
use alluvium_core::DataType;
use alluvium_schema::{Column, Decoder, Evolve, OnConflict, Plan, PlanOptions, Shape, path};
use std::collections::HashSet;
use std::sync::Arc;

const SEPARATOR: u8 = 0x1e;
/// The first byte of a text whose bytes choose a record that is mostly of the plan.
const OF_PLAN: u8 = 1;
/// The same for a record of any kind.
const OF_ANY_KIND: u8 = 2;
/// The first byte of a text that is a path and a type with a colon between: what a plugin reads.
const REQUIRED: u8 = 3;

/// The input made of this plan and these records.
pub fn input(plan: &Plan, records: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut input = serde_json::to_vec(plan).unwrap();
    for record in records {
        input.push(SEPARATOR);
        input.extend_from_slice(record.as_ref());
    }
    input
}

/// The decoder agrees with the plain one, before and after the plan grew.
pub fn decode(input: &[u8]) {
    let mut texts = input.split(|byte| *byte == SEPARATOR);
    let first = texts.next().unwrap_or_default();
    let plan = stored_plan(first).unwrap_or_else(|| Choices::new(first).plan());
    if !has_plain_names(&plan) {
        return;
    }
    let records = texts.map(|text| record(text, &plan)).collect::<Vec<_>>();
    compare(&plan, &records);
    let shape = observed(&records);
    if let Ok(Some(grown)) = plan.grow(&shape) {
        compare(&grown, &records);
    }
}

/// A plan, stored or new, grows over any records and under any table, and comes back from its
/// stored form.
///
/// A text that is a stored plan itself stands for the table that this plan makes; one that begins with
/// the byte for it is what a plugin reads.
pub fn plan(input: &[u8]) {
    let mut texts = input.split(|byte| *byte == SEPARATOR);
    let first = texts.next().unwrap_or_default();
    let stored = stored_plan(first);
    let options = options(&mut Choices::new(first));
    let mut is_new = stored.is_none();
    let mut plan = stored.unwrap_or_else(|| Plan::inferred(options.clone()));
    comes_back(&plan);
    let mut records = Vec::new();
    for text in texts {
        if let Some(other) = stored_plan(text) {
            if let Ok(over) = plan.clone().with_table(&other.schema()) {
                comes_back(&over);
                // A second table may spell a column in another case, which no third one tells.
                is_new &= plan.columns().is_empty();
                plan = over;
            }
            continue;
        }
        if let Some((&REQUIRED, text)) = text.split_first() {
            let after = plugin_reads(plan.clone(), text);
            // Its types are the plugin's, not those of the records.
            is_new &= after.is_none();
            plan = after.unwrap_or(plan);
            continue;
        }
        records.push(record(text, &plan));
        let shape = observed(&records[records.len() - 1..]);
        let Ok(Some(grown)) = plan.grow(&shape) else { continue };
        check_growth(&plan, &grown, &shape);
        comes_back(&grown);
        plan = grown;
        if is_new && options.evolve == Evolve::Add {
            let again = Plan::inferred(options.clone()).with_table(&plan.schema());
            assert_eq!(again.map(|again| again.columns().to_vec()), Ok(plan.columns().to_vec()));
        }
    }
    let decoded = Decoder::new(Arc::new(plan.clone())).decode(&pack(records.iter().map(Vec::as_slice))).unwrap();
    check_batch(&plan, &decoded);
}

/// The plan under a plugin that reads a column, if there can be one.
fn plugin_reads(mut plan: Plan, text: &[u8]) -> Option<Plan> {
    let (path, data_type) = std::str::from_utf8(text).ok()?.split_once(':')?;
    let (path, data_type) = (path::parse(path).ok()?, DataType::parse(data_type).ok()?);
    let before = plan.clone();
    if plan.require(&path, &data_type, OnConflict::Reject).is_err() {
        assert_eq!(plan, before);
        return None;
    }
    assert_eq!(plan.data_type_of(&path), Some(data_type));
    comes_back(&plan);
    Some(plan)
}

fn stored_plan(text: &[u8]) -> Option<Plan> {
    serde_json::from_slice(text).ok()
}

fn record(text: &[u8], plan: &Plan) -> Vec<u8> {
    match text.split_first() {
        Some((&OF_PLAN, choices)) => Choices::new(choices).record(plan),
        Some((&OF_ANY_KIND, choices)) => Choices::new(choices).any_record().into_bytes(),
        _ => text.to_vec(),
    }
}

fn observed(records: &[Vec<u8>]) -> Shape {
    let mut shape = Shape::default();
    records.iter().for_each(|record| shape.observe(record));
    shape
}

fn options(choices: &mut Choices<'_>) -> PlanOptions {
    let evolve = [Evolve::Add, Evolve::None, Evolve::Stop, Evolve::Approve][choices.pick(4)];
    let max_columns = [1000, 0, 1, 2, 3, 5, 8, 13][choices.pick(8)];
    PlanOptions { evolve, max_columns, ..PlanOptions::default() }
}

/// Whether a row can be told by its columns' names, which a stored plan is not asked for.
fn has_plain_names(plan: &Plan) -> bool {
    let mut names = HashSet::from([plan.rescued()]);
    plan.columns().iter().all(|column| names.insert(&column.name))
}

fn comes_back(plan: &Plan) {
    let stored = serde_json::to_string(plan).unwrap();
    let back: Plan = serde_json::from_str(&stored).unwrap_or_else(|error| panic!("{error}: {stored}"));
    assert_eq!(back, *plan);
    assert_eq!(back.digest(), plan.digest());
    assert!(!plan.to_string().is_empty());
}

/// What was there stays, and the same records add nothing more.
fn check_growth(plan: &Plan, grown: &Plan, shape: &Shape) {
    assert!(grown.columns().len() >= plan.columns().len());
    for (old, new) in plan.columns().iter().zip(grown.columns()) {
        let kept = |column: &Column| (column.name.clone(), column.path.clone(), column.on_conflict);
        assert_eq!(kept(old), kept(new));
        assert!(extends(&new.data_type, &old.data_type), "{} to {}", old.data_type, new.data_type);
        assert!(old.coercions.iter().all(|(inner, coercion)| new.coercions.get(inner) == Some(coercion)));
    }
    assert_ne!(plan.columns(), grown.columns());
    assert_eq!(grown.clone().settle().grow(shape).unwrap_or_default(), None);
}

/// Whether readers of the old type can read the new one: fields come last in their structs.
pub fn extends(new: &DataType, old: &DataType) -> bool {
    match (new, old) {
        (DataType::Array(new), DataType::Array(old)) => extends(new, old),
        (DataType::Map(new_key, new), DataType::Map(key, old)) => new_key == key && extends(new, old),
        (DataType::Struct(new), DataType::Struct(old)) => {
            let pairs =
                new.iter().zip(old).all(|(new, old)| new.name == old.name && extends(&new.data_type, &old.data_type));
            new.len() >= old.len() && pairs
        }
        (new, old) => new == old,
    }
}

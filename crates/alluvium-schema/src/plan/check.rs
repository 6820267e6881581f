//! Finding all that is wrong with a plan.

use super::{Column, Origin, Plan, forbidden, leaves, same_name};
use crate::{Decoder, Evolve, OnConflict, PlanError, PlanOptions, path};
use alluvium_core::{DataType, Packed};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;

/// A plan as it was stored, not yet checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draft {
    origin: Origin,
    evolve: Evolve,
    max_columns: usize,
    rescued: String,
    reserved: Vec<String>,
    settled: bool,
    columns: Vec<Column>,
    #[serde(default)]
    undeclared: Vec<Column>,
    #[serde(default)]
    drops: Vec<Vec<String>>,
}

impl TryFrom<Draft> for Plan {
    type Error = PlanError;

    /// Refuses what would make decoding go wrong. Names are not checked: the columns of a table
    /// may have names that no new column could get.
    fn try_from(draft: Draft) -> Result<Self, PlanError> {
        let Draft { origin, evolve, max_columns, rescued, reserved, settled, columns, undeclared, drops } = draft;
        let plan = Self { origin, evolve, max_columns, rescued, reserved, settled, columns, undeclared, drops };
        let mut errors = Vec::new();
        for column in plan.columns.iter().chain(&plan.undeclared) {
            check_structure(column, &mut errors);
        }
        let inferred = plan.columns.iter().filter(|_| plan.origin == Origin::Inferred);
        for column in inferred.chain(&plan.undeclared) {
            check_own_path(column, &mut errors);
        }
        check_overlaps(&plan.columns, &mut errors);
        // A table may well have, inside a column, what is left out.
        plan.check_drops(false, &mut errors);
        errors.into_iter().next().map_or(Ok(plan), Err)
    }
}

impl Plan {
    /// All that is wrong with the columns.
    pub(super) fn problems(&self) -> Vec<PlanError> {
        let mut errors = Vec::new();
        let mut names: HashMap<String, &str> = HashMap::new();
        for column in &self.columns {
            check_name(&column.name, &column.name, &mut errors);
            if let Some(reserved) = self.metadata_column(&column.name) {
                let reserved = reserved.to_owned();
                errors.push(PlanError::NameReserved { column: column.name.clone(), reserved });
            }
            if let Some(other) = names.insert(column.name.to_lowercase(), &column.name) {
                errors.push(PlanError::NameTwice { column: column.name.clone(), other: other.to_owned() });
            }
            check_structure(column, &mut errors);
            check_field_names(&column.name, &column.data_type, &mut errors);
        }
        check_overlaps(&self.columns, &mut errors);
        self.check_drops(true, &mut errors);
        let columns = self.columns.iter().map(|column| leaves(&column.data_type)).sum();
        if columns > self.max_columns {
            errors.push(PlanError::TooMany { columns, max: self.max_columns });
        }
        errors
    }

    /// A field cannot be left out and read; nor, by its owner, `declared`.
    fn check_drops(&self, declared: bool, errors: &mut Vec<PlanError>) {
        for drop in &self.drops {
            if drop.is_empty() {
                errors.push(PlanError::DropEmpty);
                continue;
            }
            let read = self.columns.iter().find(|column| {
                let inside = drop.strip_prefix(column.path.as_slice());
                let is_declared = inside.is_some_and(|inside| declared && has_field(&column.data_type, inside));
                column.path.starts_with(drop) || is_declared
            });
            if let Some(column) = read {
                errors.push(PlanError::Dropped { path: path::join(drop), column: column.name.clone() });
            }
        }
        errors.extend(self.columns.iter().chain(&self.undeclared).filter_map(|column| self.drop_inside(column)));
    }

    /// A field that is left out must not come in again with what is around it: only a struct is read
    /// field by field.
    pub(super) fn drop_inside(&self, column: &Column) -> Option<PlanError> {
        self.drops.iter().find_map(|drop| {
            let inside = drop.strip_prefix(column.path.as_slice()).filter(|inside| !inside.is_empty())?;
            let mut found = &column.data_type;
            for name in inside {
                let DataType::Struct(fields) = found else {
                    let (path, column, data_type) = (path::join(drop), column.name.clone(), found.clone());
                    return Some(PlanError::DroppedInside { path, column, data_type });
                };
                found = &fields.iter().find(|field| field.name == *name)?.data_type;
            }
            None
        })
    }

    /// The metadata or rescued column that goes by this name.
    pub(super) fn metadata_column(&self, name: &str) -> Option<&str> {
        let names = self.reserved.iter().chain([&self.rescued]);
        names.map(String::as_str).find(|reserved| same_name(reserved, name))
    }
}

/// What growth relies on: nobody named another path. A table may spell the name in another case.
fn check_own_path(column: &Column, errors: &mut Vec<PlanError>) {
    let is_own = matches!(column.path.as_slice(), [name] if same_name(name, &column.name));
    if !is_own {
        errors.push(PlanError::PathForeign { column: column.name.clone(), path: path::join(&column.path) });
    }
}

/// What decoding relies on.
pub(super) fn check_structure(column: &Column, errors: &mut Vec<PlanError>) {
    if column.path.is_empty() {
        errors.push(PlanError::PathEmpty { column: column.name.clone() });
    }
    // Deep types first: what follows walks them.
    if column.data_type.is_too_deep() {
        errors.push(PlanError::TypeDepth { column: column.name.clone() });
        return;
    }
    if let Some(reason) = type_problem(&column.data_type) {
        let data_type = column.data_type.clone();
        errors.push(PlanError::Type { column: column.name.clone(), data_type, reason });
        return;
    }
    if let Some(derivation) = &column.derivation {
        if !derivation.applies_to(&column.data_type, column.coercion()) {
            let (column, data_type) = (column.name.clone(), column.data_type.clone());
            errors.push(PlanError::Derivation { column, derivation: derivation.name(), data_type });
            return;
        }
        if column.default.is_some() {
            errors.push(PlanError::DerivedDefault { column: column.name.clone() });
        }
    } else if let Some(default) = &column.default
        && let Some(reason) = default_problem(column, default)
    {
        errors.push(PlanError::Default { column: column.name.clone(), default: default.clone(), reason });
    }
    for (inner, coercion) in &column.coercions {
        let found = coerced_type(&column.data_type, inner);
        let derived = inner.is_empty() && column.derivation.is_some();
        if !derived && !found.is_some_and(|found| coercion.applies_to(found)) {
            let data_type = found.map_or_else(|| "of a field that is not there".to_owned(), DataType::to_string);
            let mut name = column.name.clone();
            if !inner.is_empty() {
                name = format!("{name}.{inner}");
            }
            errors.push(PlanError::Coercion { column: name, coercion: coercion.name(), data_type });
        }
    }
}

fn type_problem(data_type: &DataType) -> Option<&'static str> {
    match data_type {
        DataType::Decimal(precision, scale) => {
            let valid = (1..=38).contains(precision) && scale <= precision;
            (!valid).then_some("a decimal's precision is 1 to 38 and its scale 0 to the precision")
        }
        DataType::Array(element) => type_problem(element),
        DataType::Map(key, value) => type_problem(key).or_else(|| type_problem(value)),
        DataType::Struct(fields) if fields.is_empty() => Some("a struct needs at least one field"),
        DataType::Struct(fields) => fields.iter().find_map(|field| type_problem(&field.data_type)),
        _ => None,
    }
}

/// The type at a path inside a column, `element` and `value` leading into lists and maps.
pub(super) fn coerced_type<'t>(data_type: &'t DataType, inner: &str) -> Option<&'t DataType> {
    let parts = if inner.is_empty() { Vec::new() } else { path::parse(inner).ok()? };
    parts.iter().try_fold(data_type, |found, part| match found {
        DataType::Array(element) => (part == "element").then_some(element.as_ref()),
        DataType::Map(_, value) => (part == "value").then_some(value.as_ref()),
        DataType::Struct(fields) => fields.iter().find(|field| field.name == *part).map(|field| &field.data_type),
        _ => None,
    })
}

pub(super) fn check_name(column: &str, name: &str, errors: &mut Vec<PlanError>) {
    if name.is_empty() {
        errors.push(PlanError::NameEmpty);
    }
    if let Some(character) = forbidden(name) {
        errors.push(PlanError::NameCharacter { column: column.to_owned(), character });
    }
}

pub(super) fn check_field_names(column: &str, data_type: &DataType, errors: &mut Vec<PlanError>) {
    match data_type {
        DataType::Array(element) => check_field_names(column, element, errors),
        DataType::Map(key, value) => {
            if **key != DataType::String {
                errors.push(PlanError::MapKey { column: column.to_owned(), key: key.as_ref().clone() });
            }
            check_field_names(column, value, errors);
        }
        DataType::Struct(fields) => {
            let mut names: HashMap<String, &str> = HashMap::new();
            for field in fields {
                let column = format!("{column}.{}", field.name);
                check_name(&column, &field.name, errors);
                if let Some(other) = names.insert(field.name.to_lowercase(), &field.name) {
                    errors.push(PlanError::NameTwice { column: column.clone(), other: other.to_owned() });
                }
                check_field_names(&column, &field.data_type, errors);
            }
        }
        _ => {}
    }
}

/// Two columns may read parts of one object, but not the same value, nor a value and its part:
/// what is unknown, rescued or in conflict could not be told for each on its own. Of a simple value
/// each may derive something else.
fn check_overlaps(columns: &[Column], errors: &mut Vec<PlanError>) {
    let mut sorted = columns.iter().filter(|column| !column.path.is_empty()).collect::<Vec<_>>();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    // Those of one path, which all that follow might read parts of.
    let mut group: Vec<&Column> = Vec::new();
    for column in sorted {
        let other = match group.first() {
            Some(first) if column.path == first.path => group.iter().find(|other| !may_share(column, other)).copied(),
            Some(first) if column.path.starts_with(&first.path) => Some(*first),
            _ => {
                group.clear();
                None
            }
        };
        if let Some(other) = other {
            errors.push(PlanError::PathOverlap {
                column: column.name.clone(),
                path: path::join(&column.path),
                other: other.name.clone(),
                other_path: path::join(&other.path),
            });
        } else {
            group.push(column);
        }
    }
}

fn may_share(one: &Column, other: &Column) -> bool {
    !one.data_type.is_nested() && !other.data_type.is_nested() && one.derivation != other.derivation
}

/// Whether there is a field at this path inside a type.
fn has_field(data_type: &DataType, path: &[String]) -> bool {
    match (data_type, path) {
        (_, []) => true,
        (DataType::Struct(fields), [name, rest @ ..]) => {
            fields.iter().any(|field| field.name == *name && has_field(&field.data_type, rest))
        }
        _ => false,
    }
}

/// Why a column cannot take this value where a record has none: it must fit as a whole.
fn default_problem(column: &Column, default: &str) -> Option<String> {
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(default) {
        return Some(format!("it is not JSON: {error}"));
    }
    let name = "default".to_owned();
    let alone = Column {
        name: name.clone(),
        path: vec![name],
        on_conflict: OnConflict::Reject,
        default: None,
        ..column.clone()
    };
    let options = PlanOptions { evolve: Evolve::None, ..PlanOptions::default() };
    let plan = Plan { settled: true, columns: vec![alone], ..Plan::new(Origin::Declared, options) };
    let record = format!("{{\"default\":{default}}}");
    let records: Packed = [Some(record.as_bytes())].into_iter().collect();
    let decoded = match Decoder::new(Arc::new(plan)).decode(&records) {
        Ok(decoded) => decoded,
        Err(error) => return Some(error.to_string()),
    };
    if let Some(reject) = decoded.rejects.into_iter().next() {
        return Some(reject.reason.message);
    }
    let rescued = decoded.batch.columns().last();
    rescued.is_some_and(|column| column.null_count() == 0).then(|| "it has fields that the type has not".to_owned())
}

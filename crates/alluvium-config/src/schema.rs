//! `[schema]`

use crate::column::{self, Declared, path};
use crate::pipeline::{Mapping, Schema, Transform};
use crate::reader::{Item, Table};
use crate::report::Problem;
use crate::snippet::quoted;
use crate::suggest::did_you_mean;
use crate::{ErrorKind, tuning};
use alluvium_core::{DataType, Evolve};
use std::collections::HashMap;
use toml::de::DeValue;

/// A schema with the places of its columns.
pub(crate) struct Draft<'a> {
    pub schema: Schema,
    /// What is known of the declared columns, sound or not; `None` when they are inferred.
    pub declared: Option<Vec<Declared<'a>>>,
}

const MAX_COLUMNS: usize = 1000;

pub(crate) fn read(table: Option<Table<'_>>) -> Draft<'_> {
    let mut schema =
        Schema { mapping: Mapping::Infer, evolve: Evolve::Add, max_columns: MAX_COLUMNS, drops: Vec::new() };
    let Some(table) = table else { return Draft { schema, declared: None } };
    let item = table.optional("mapping");
    let mapping = item.as_ref().and_then(mapping);
    let evolve = [Evolve::Add, Evolve::None, Evolve::Stop, Evolve::Approve].map(|evolve| (evolve.name(), evolve));
    let evolve = table.optional("evolve").and_then(|item| item.choice(&evolve));
    if let Some(most) = table.optional("max_columns").and_then(|item| item.integer(1..=10_000)) {
        schema.max_columns = usize::try_from(most).unwrap_or(MAX_COLUMNS);
    }
    if let Some(drops) = table.optional("drop").and_then(|item| item.elements("[\"debug\"]")) {
        schema.drops = drops.iter().filter_map(path).collect();
    }
    let columns = table.optional("column");
    table.finish();
    let tables = columns.as_ref().map(|item| item.tables("[[schema.column]]"));
    let declared = tables.map(|tables| tables.into_iter().map(column::read).collect::<Vec<_>>());
    schema.evolve = evolve.unwrap_or(if declared.is_some() { Evolve::None } else { Evolve::Add });
    let (Some(columns), Some(declared)) = (columns, declared) else {
        if let Some(Source::Plugin(plugin)) = mapping {
            schema.mapping = Mapping::Plugin(plugin);
        }
        return Draft { schema, declared: None };
    };
    if let (Some(item), Some(mapping)) = (item, mapping) {
        let message = match mapping {
            Source::Infer => "columns are declared, and `mapping` asks to infer them",
            Source::Plugin(_) => "columns are declared, and `mapping` names a plugin that decides on them",
        };
        let problem = item.problem(ErrorKind::Conflict, message);
        item.report().add(problem.hint("remove `mapping`, or the [[schema.column]] tables"));
    }
    check_columns(&columns, &declared, schema.max_columns);
    schema.mapping = Mapping::Columns(declared.iter().filter_map(Declared::column).collect());
    Draft { schema, declared: Some(declared) }
}

/// What `mapping` can say.
enum Source {
    Infer,
    Plugin(Transform),
}

/// Where `mapping` says that columns come from; anything else is reported.
fn mapping(item: &Item<'_>) -> Option<Source> {
    const ALLOWED: &str = "`infer`, { plugin = \"./orders-map.wasm\" }, or no `mapping` but [[schema.column]] tables";
    match item.value() {
        DeValue::String(text) if text == "infer" => return Some(Source::Infer),
        DeValue::String(text) => {
            let problem =
                item.problem(ErrorKind::Value, format!("{} is {}", item.shown(), quoted(text))).allowed(ALLOWED);
            item.report().add(match did_you_mean(text, ["infer"]) {
                Some(hint) => problem.hint(hint),
                None if text.ends_with(".wasm") => problem.hint(format!("write {{ plugin = {text:?} }}")),
                None => problem,
            });
        }
        DeValue::Table(_) => return item.table("mapping").and_then(tuning::plugin).map(Source::Plugin),
        _ => item.report().add(item.wrong_type(ALLOWED)),
    }
    None
}

/// Rules between columns: names differ by more than case; each value of a record has one column, so
/// no path is another's, nor leads through another's. Columns that derive something may share one.
fn check_columns(item: &Item<'_>, declared: &[Declared<'_>], most: usize) {
    let report = item.report();
    if declared.is_empty() && matches!(item.value(), DeValue::Array(array) if array.is_empty()) {
        item.refuse("no column is declared", "at least one [[schema.column]] table");
    }
    let columns = declared.iter().map(|column| column.data_type.as_ref().map_or(1, leaves)).sum::<usize>();
    if columns > most {
        let message = format!("{columns} columns are declared, more than `max_columns`");
        let problem = item.problem(ErrorKind::Conflict, message).allowed(format!("at most {most}"));
        report.add(problem.hint("each field of a struct counts as a column"));
    }
    let mut names: HashMap<String, &Declared<'_>> = HashMap::new();
    let mut paths: HashMap<&[String], &Declared<'_>> = HashMap::new();
    // For each path, the column of a longer one.
    let mut above: HashMap<&[String], &Declared<'_>> = HashMap::new();
    for column in declared {
        if let Some((name, span)) = &column.name {
            if let Some(other) = names.get(&name.to_lowercase()) {
                let message = format!("the column {} is declared a second time", quoted(name));
                let problem = Problem::new(ErrorKind::Duplicate, span.clone(), message);
                report.add(problem.hint(format!("the first is in line {}; letter case does not count", other.at.0)));
                continue;
            }
            names.insert(name.to_lowercase(), column);
        }
        let Some((from, span)) = &column.from else { continue };
        let mut shorter = (1..from.len()).filter_map(|end| from.get(..end));
        let overlap = if let Some(other) = paths.get(from.as_slice()) {
            if column.may_share(other) {
                continue;
            }
            Some(("is taken by", other))
        } else if let Some(other) = above.get(from.as_slice()) {
            Some(("contains", other))
        } else {
            shorter.find_map(|path| paths.get(path)).map(|other| ("lies inside of", other))
        };
        let Some((relation, other)) = overlap else {
            above.extend((1..from.len()).filter_map(|end| from.get(..end)).map(|path| (path, column)));
            paths.insert(from, column);
            continue;
        };
        let whose = match &other.name {
            Some((name, _)) => format!("the column {}", quoted(name)),
            None => "another column".to_owned(),
        };
        let message = format!("the value {} {relation} {whose}", quoted(&from.join(".")));
        let problem = Problem::new(ErrorKind::Conflict, span.clone(), message);
        report
            .add(problem.hint(format!("each value of a record goes to one column; {whose} is in line {}", other.at.0)));
    }
}

/// How many columns of values a type makes.
fn leaves(data_type: &DataType) -> usize {
    match data_type {
        DataType::Array(element) => leaves(element),
        DataType::Map(key, value) => leaves(key) + leaves(value),
        DataType::Struct(fields) => fields.iter().map(|field| leaves(&field.data_type)).sum(),
        _ => 1,
    }
}

/// Whether two column names are the same to Delta.
pub(crate) fn same(left: &str, right: &str) -> bool {
    left.to_lowercase() == right.to_lowercase()
}

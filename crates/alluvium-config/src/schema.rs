//! `[schema]`

use crate::ErrorKind;
use crate::pipeline::{Column, Evolve, Mapping, OnConflict, Schema};
use crate::reader::{Item, Table};
use crate::report::Problem;
use crate::snippet::quoted;
use crate::suggest::did_you_mean;
use alluvium_core::DataType;
use alluvium_core::data_type::TypeError;
use std::collections::HashMap;
use std::ops::Range;
use toml::de::DeValue;

/// A schema with the places of its columns.
pub(crate) struct Draft<'a> {
    pub schema: Schema,
    /// What is known of the declared columns, sound or not; `None` when they are inferred.
    pub declared: Option<Vec<Declared<'a>>>,
}

/// A declared column as far as it could be read.
pub(crate) struct Declared<'a> {
    pub name: Option<(&'a str, Range<usize>)>,
    pub data_type: Option<DataType>,
    from: Option<(Vec<String>, Range<usize>)>,
    on_conflict: OnConflict,
    at: (usize, usize),
}

const MAX_COLUMNS: usize = 1000;

pub(crate) fn read(table: Option<Table<'_>>) -> Draft<'_> {
    let mut schema = Schema { mapping: Mapping::Infer, evolve: Evolve::Add, max_columns: MAX_COLUMNS };
    let Some(table) = table else { return Draft { schema, declared: None } };
    let mapping = table.optional("mapping");
    let infer = mapping.as_ref().is_some_and(infer);
    let evolve = [("add", Evolve::Add), ("none", Evolve::None), ("stop", Evolve::Stop)];
    let evolve = table.optional("evolve").and_then(|item| item.choice(&evolve));
    if let Some(most) = table.optional("max_columns").and_then(|item| item.integer(1..=10_000)) {
        schema.max_columns = usize::try_from(most).unwrap_or(MAX_COLUMNS);
    }
    let columns = table.optional("column");
    table.finish();
    let tables = columns.as_ref().map(|item| item.tables("[[schema.column]]"));
    let declared = tables.map(|tables| tables.into_iter().map(column).collect::<Vec<_>>());
    schema.evolve = evolve.unwrap_or(if declared.is_some() { Evolve::None } else { Evolve::Add });
    let (Some(item), Some(declared)) = (columns, declared) else { return Draft { schema, declared: None } };
    if let (Some(mapping), true) = (mapping, infer) {
        let message = "columns are declared, and `mapping` asks to infer them";
        let problem = mapping.problem(ErrorKind::Conflict, message);
        mapping.report().add(problem.hint("remove `mapping`, or the [[schema.column]] tables"));
    }
    check_columns(&item, &declared, schema.max_columns);
    schema.mapping = Mapping::Columns(declared.iter().filter_map(Declared::column).collect());
    Draft { schema, declared: Some(declared) }
}

/// Whether `mapping` asks for inference; anything else is reported.
fn infer(item: &Item<'_>) -> bool {
    const ALLOWED: &str = "`infer`, or no `mapping` but [[schema.column]] tables";
    match item.value() {
        DeValue::String(text) if text == "infer" => return true,
        DeValue::String(text) => {
            let problem =
                item.problem(ErrorKind::Value, format!("{} is {}", item.shown(), quoted(text))).allowed(ALLOWED);
            item.report().add(match did_you_mean(text, ["infer"]) {
                Some(hint) => problem.hint(hint),
                None => problem,
            });
        }
        DeValue::Table(table) if table.contains_key("plugin") => {
            let message = "schema-mapping plugins cannot be used yet";
            item.report().add(item.problem(ErrorKind::Unsupported, message).allowed(ALLOWED));
        }
        _ => item.report().add(item.wrong_type(ALLOWED)),
    }
    false
}

fn column(table: Table<'_>) -> Declared<'_> {
    let at = table.report().lines().position(table.span().start);
    let name = table.required("name", "name = \"price\"");
    let name = name.and_then(|item| Some((column_name(&item)?, item.span())));
    let data_type = table.required("type", "type = \"decimal(10,2)\"").and_then(|item| data_type(&item));
    let from = match table.optional("from") {
        Some(item) => path(&item).map(|parts| (parts, item.span())),
        None => name.clone().map(|(name, span)| (vec![name.to_owned()], span)),
    };
    let choices = [("reject", OnConflict::Reject), ("rescue", OnConflict::Rescue), ("stop", OnConflict::Stop)];
    let on_conflict = table.optional("on_conflict").and_then(|item| item.choice(&choices));
    table.finish();
    Declared { name, data_type, from, on_conflict: on_conflict.unwrap_or(OnConflict::Reject), at }
}

impl Declared<'_> {
    fn column(&self) -> Option<Column> {
        Some(Column {
            name: self.name.as_ref()?.0.to_owned(),
            data_type: self.data_type.clone()?,
            from: self.from.as_ref()?.0.clone(),
            on_conflict: self.on_conflict,
            at: self.at,
        })
    }
}

/// Reads a name that a table's column can have.
pub(crate) fn column_name<'a>(item: &Item<'a>) -> Option<&'a str> {
    let name = item.string("price")?;
    if let Some(fault) = name_fault(name) {
        item.refuse(format!("the column name {} {fault}", quoted(name)), NAMES);
        return None;
    }
    Some(name)
}

const NAMES: &str = "1 to 255 characters, none of them a space, a tab, a line end or one of , ; { } ( ) =";

/// What keeps Delta from holding a column or field of this name.
fn name_fault(name: &str) -> Option<String> {
    let unfit = |c: char| c.is_control() || matches!(c, ' ' | ',' | ';' | '{' | '}' | '(' | ')' | '=');
    match name.chars().find(|c| unfit(*c)) {
        _ if name.is_empty() => Some("is empty".to_owned()),
        Some(found) => Some(format!("holds {found:?}")),
        None if name.chars().count() > 255 => Some(format!("has {} characters", name.chars().count())),
        None => None,
    }
}

fn data_type(item: &Item<'_>) -> Option<DataType> {
    let text = item.string("decimal(10,2)")?;
    match DataType::parse(text) {
        Ok(data_type) => match type_fault(&data_type, 1) {
            None => Some(data_type),
            Some((message, allowed)) => {
                item.refuse(message, allowed);
                None
            }
        },
        Err(error) => {
            item.report().add(type_problem(item, text, &error));
            None
        }
    }
}

const TYPES: &[&str] = &[
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "array",
    "map",
    "struct",
];

/// Types of other systems, with ours.
const FOREIGN: &[(&str, &str)] = &[
    ("bool", "boolean"),
    ("int8", "tinyint"),
    ("int16", "smallint"),
    ("int32", "int"),
    ("int64", "bigint"),
    ("float32", "float"),
    ("float64", "double"),
    ("number", "double` or `decimal(10,2)"),
    ("text", "string"),
    ("varchar", "string"),
    ("char", "string"),
    ("utf8", "string"),
    ("uuid", "string"),
    ("json", "string"),
    ("bytes", "binary"),
    ("blob", "binary"),
    ("datetime", "timestamp"),
    ("timestamptz", "timestamp"),
    ("list", "array<string>"),
    ("object", "struct<name:string>"),
    ("record", "struct<name:string>"),
];

fn type_problem(item: &Item<'_>, text: &str, error: &TypeError) -> Problem {
    let problem = item.problem(ErrorKind::Value, format!("{} is not a type: {}", item.shown(), error.message));
    // The place inside of the string is known when it is written without escapes.
    let raw = item.report().lines().text().get(item.span()).unwrap_or_default();
    let plain = raw.get(1..raw.len().saturating_sub(1)) == Some(text);
    let rest = text.get(error.at..).unwrap_or_default();
    let word = rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
    let problem = if plain {
        let start = item.span().start + 1 + error.at;
        problem.at(start..start + word.len().max(1))
    } else {
        problem
    };
    if !error.message.starts_with("unknown type") {
        return problem.allowed("Spark's spelling, as in `decimal(10,2)` or `array<struct<sku:string,qty:int>>`");
    }
    let problem = problem.allowed(TYPES.join(", "));
    let lower = word.to_lowercase();
    let foreign =
        FOREIGN.iter().find(|(foreign, _)| *foreign == lower).map(|(_, ours)| format!("did you mean `{ours}`?"));
    match foreign.or_else(|| did_you_mean(word, TYPES.iter().copied())) {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

/// What keeps records from becoming values of a type, and what is allowed.
fn type_fault(data_type: &DataType, depth: usize) -> Option<(String, &'static str)> {
    match data_type {
        // A record is the first level.
        _ if depth >= MAX_PATH => Some(("the type is nested deeper than records are".to_owned(), "at most 127 levels")),
        DataType::Array(element) => type_fault(element, depth + 1),
        DataType::Map(key, _) if **key != DataType::String => {
            Some((format!("the keys of a map are of type {key}"), "keys of type string, as JSON has them"))
        }
        DataType::Map(_, value) => type_fault(value, depth + 1),
        DataType::Struct(fields) => fields.iter().find_map(|field| match name_fault(&field.name) {
            Some(fault) => Some((format!("the field name {} {fault}", quoted(&field.name)), NAMES)),
            None => type_fault(&field.data_type, depth + 1),
        }),
        _ => None,
    }
}

/// The parts of a path: dots separate, backticks quote, a doubled backtick in backticks is one.
fn path(item: &Item<'_>) -> Option<Vec<String>> {
    let text = item.string("amount.price")?;
    match parse_path(text) {
        Ok(parts) => Some(parts),
        Err(fault) => {
            let problem = item.problem(ErrorKind::Value, format!("{} is {}: {fault}", item.shown(), quoted(text)));
            let problem = problem.allowed("names joined by dots, as in \"amount.price\"");
            item.report().add(problem.hint("a name that holds a dot stands in backticks, as in \"`a.b`.c\""));
            None
        }
    }
}

/// Records nested deeper are malformed.
const MAX_PATH: usize = 128;

fn parse_path(text: &str) -> Result<Vec<String>, &'static str> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, after) = match rest.strip_prefix('`') {
            Some(quoted) => quoted_part(quoted)?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                let (part, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
                if part.contains('`') {
                    return Err("a backtick stands inside of a name");
                }
                (part.to_owned(), after)
            }
        };
        if part.is_empty() && !rest.starts_with('`') {
            return Err("a name is empty");
        }
        parts.push(part);
        if parts.len() > MAX_PATH {
            return Err("it has more than 128 names");
        }
        match after.strip_prefix('.') {
            Some(after) => rest = after,
            None if after.is_empty() => return Ok(parts),
            None => return Err("after a closing backtick a dot is missing"),
        }
    }
}

/// The name up to the closing backtick, and what follows it.
fn quoted_part(text: &str) -> Result<(String, &str), &'static str> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('`').ok_or("a backtick is not closed")?;
        name.push_str(part);
        match after.strip_prefix('`') {
            Some(after) => {
                name.push('`');
                rest = after;
            }
            None => return Ok((name, after)),
        }
    }
}

/// Rules between columns: names differ by more than case; each value of a record has one column, so
/// no path is another's, nor leads through another's.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_at_dots_outside_of_backticks() {
        let parts = |text: &str| parse_path(text).map(|parts| parts.join("|"));
        assert_eq!(parts("a").as_deref(), Ok("a"));
        assert_eq!(parts("amount.price").as_deref(), Ok("amount|price"));
        assert_eq!(parts("`a.b`.c").as_deref(), Ok("a.b|c"));
        assert_eq!(parts("a.`b``c`").as_deref(), Ok("a|b`c"));
        assert_eq!(parts("a.``").as_deref(), Ok("a|"));
        assert_eq!(parts("größe.東京").as_deref(), Ok("größe|東京"));
        assert!(parse_path(&["a"; 128].join(".")).is_ok());
        assert!(parse_path(&["a"; 129].join(".")).is_err());
        for text in ["", ".", "a.", ".a", "a..b", "`a", "```", "`a`b", "a`b", "`a``"] {
            assert!(parts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_listed_type_is_one() {
        for name in TYPES.iter().filter(|name| !matches!(**name, "array" | "map" | "struct")) {
            assert!(DataType::parse(name).is_ok(), "{name}");
        }
        for (foreign, _) in FOREIGN {
            assert!(DataType::parse(foreign).is_err(), "{foreign}");
        }
    }
}

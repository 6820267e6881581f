//! `[[schema.column]]`

use crate::ErrorKind;
use crate::pipeline::Column;
use crate::reader::{Item, Table};
use crate::report::Problem;
use crate::snippet::quoted;
use crate::suggest::did_you_mean;
use alluvium_core::data_type::TypeError;
use alluvium_core::{Coercion, DataType, Derivation, OnConflict};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::de::DeValue;

/// A declared column as far as it could be read.
pub(crate) struct Declared<'a> {
    pub name: Option<(&'a str, Range<usize>)>,
    pub data_type: Option<DataType>,
    pub from: Option<(Vec<String>, Range<usize>)>,
    pub derivation: Option<Derivation>,
    on_conflict: OnConflict,
    coercions: BTreeMap<String, Coercion>,
    default: Option<String>,
    comment: Option<String>,
    pub at: (usize, usize),
}

/// Reads a `[[schema.column]]` table.
pub(crate) fn read(table: Table<'_>) -> Declared<'_> {
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
    let coercions = table.optional("coercion").map(|item| coercions(&item)).unwrap_or_default();
    let derive = table.optional("derive");
    let derivation = derive.as_ref().and_then(|item| derivation(item, data_type.as_ref()));
    let default = table.optional("default");
    if let (Some(default), true) = (&default, derive.is_some()) {
        let problem = default.problem(ErrorKind::Conflict, "a column that takes a part of a value has a default");
        default.report().add(problem.hint("remove `default`, or `derive`"));
    }
    let default = default.and_then(|item| item.json()).map(|json| json.to_string());
    let comment = table.optional("comment").and_then(|item| item.string("in euros")).map(str::to_owned);
    table.finish();
    let on_conflict = on_conflict.unwrap_or_default();
    Declared { name, data_type, from, derivation, on_conflict, coercions, default, comment, at }
}

/// One coercion for the value itself, or a table of those of what lies inside the column.
fn coercions(item: &Item<'_>) -> BTreeMap<String, Coercion> {
    let choices = Coercion::ALL.map(|coercion| (coercion.name(), coercion));
    if !matches!(item.value(), DeValue::Table(_)) {
        return item.choice(&choices).map(|coercion| (String::new(), coercion)).into_iter().collect();
    }
    let inner = |entry: Item<'_>| Some((entry.key().to_owned(), entry.choice(&choices)?));
    item.entries().into_iter().filter_map(inner).collect()
}

/// `"date"`, or the part of a string before or after a separator.
fn derivation(item: &Item<'_>, data_type: Option<&DataType>) -> Option<Derivation> {
    const ALLOWED: &str = "\"date\", { before = \"-\" } or { after = \"-\" }";
    let derivation = match item.value() {
        DeValue::String(text) if text == "date" => Derivation::Date,
        DeValue::Table(_) => {
            let mut entries = item.entries().into_iter();
            let (Some(entry), None) = (entries.next(), entries.next()) else {
                item.refuse(format!("{} does not say one thing", item.shown()), ALLOWED);
                return None;
            };
            let separator = match entry.key() {
                "before" | "after" => entry.string("-")?,
                other => {
                    entry.refuse(format!("{} has no {}", item.shown(), quoted(other)), ALLOWED);
                    return None;
                }
            };
            if separator.is_empty() {
                entry.refuse("the separator is empty", "a text as in \"-\"");
                return None;
            }
            match entry.key() {
                "before" => Derivation::Before(separator.to_owned()),
                _ => Derivation::After(separator.to_owned()),
            }
        }
        DeValue::String(text) => {
            item.refuse(format!("{} is {}", item.shown(), quoted(text)), ALLOWED);
            return None;
        }
        _ => {
            item.report().add(item.wrong_type(ALLOWED));
            return None;
        }
    };
    if let Some(data_type) = data_type {
        let (fits, allowed) = match derivation {
            Derivation::Date => (*data_type == DataType::Date, "a column of type date"),
            _ => (!data_type.is_nested(), "a column that is neither an array nor a map nor a struct"),
        };
        if !fits {
            item.refuse(format!("{} is for a column of type {data_type}", item.shown()), allowed);
            return None;
        }
    }
    Some(derivation)
}

impl Declared<'_> {
    /// Whether both can be made from one value. Of three, each with each is left to the plan's own check.
    pub fn may_share(&self, other: &Self) -> bool {
        let simple = |column: &Self| column.data_type.as_ref().is_none_or(|data_type| !data_type.is_nested());
        simple(self) && simple(other) && self.derivation != other.derivation
    }

    pub fn column(&self) -> Option<Column> {
        Some(Column {
            name: self.name.as_ref()?.0.to_owned(),
            data_type: self.data_type.clone()?,
            from: self.from.as_ref()?.0.clone(),
            on_conflict: self.on_conflict,
            coercions: self.coercions.clone(),
            derivation: self.derivation.clone(),
            default: self.default.clone(),
            comment: self.comment.clone(),
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
        Ok(data_type) if data_type.is_too_deep() => {
            let message = "the type nests deeper than the schema of a Delta table may".to_owned();
            item.refuse(message, "41 structs in each other, or 123 lists");
            None
        }
        Ok(data_type) => match type_fault(&data_type) {
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
fn type_fault(data_type: &DataType) -> Option<(String, &'static str)> {
    match data_type {
        DataType::Array(element) => type_fault(element),
        DataType::Map(key, _) if **key != DataType::String => {
            Some((format!("the keys of a map are of type {key}"), "keys of type string, as JSON has them"))
        }
        DataType::Map(_, value) => type_fault(value),
        DataType::Struct(fields) => fields.iter().find_map(|field| match name_fault(&field.name) {
            Some(fault) => Some((format!("the field name {} {fault}", quoted(&field.name)), NAMES)),
            None => type_fault(&field.data_type),
        }),
        _ => None,
    }
}

/// The parts of a path: dots separate, backticks quote, a doubled backtick in backticks is one.
pub(crate) fn path(item: &Item<'_>) -> Option<Vec<String>> {
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
        if part == "[]" && !rest.starts_with('`') {
            return Err("a path leads through objects only, not into lists");
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

//! The columns that a plugin asks for, from its answer to checked paths and types.

use crate::contract::{RawColumnAccess, RawField};
use crate::error::{AccessProblem, is_wild, tame};
use alluvium_core::{DataType, data_type};
use std::collections::BTreeSet;

/// Columns that a plugin may read, and that it may write.
const MAX_COLUMNS: usize = 1000;
pub(crate) const MAX_PATH_BYTES: usize = 4096;
/// Parts of a path, and how deep path and type together may lie.
pub(crate) const MAX_PARTS: usize = data_type::MAX_DEPTH;
pub(crate) const MAX_TYPE_BYTES: usize = 64 << 10;

/// What a configured column plugin reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnAccess {
    /// The columns to hand to `transform`, in this order.
    pub reads: Vec<AccessField>,
    /// The columns that `transform` returns, in this order.
    pub writes: Vec<AccessField>,
    /// Whether one row can become several.
    pub multiplies: bool,
}

/// A column, or a field inside columns that are structs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessField {
    pub path: Vec<String>,
    pub data_type: DataType,
}

impl AccessField {
    /// The path as plugins and people spell it.
    pub fn name(&self) -> String {
        join_path(&self.path)
    }
}

/// A path's parts joined by dots; a part that holds a dot or a backtick stands in backticks.
pub fn join_path(path: &[String]) -> String {
    let quoted = |part: &String| {
        let plain = !part.is_empty() && !part.contains(['.', '`']);
        if plain { part.clone() } else { format!("`{}`", part.replace('`', "``")) }
    };
    path.iter().map(quoted).collect::<Vec<_>>().join(".")
}

/// The parts of a path as [`join_path`] spells it; the error says what is wrong.
pub fn split_path(text: &str) -> Result<Vec<String>, &'static str> {
    let parts = parts(text)?;
    if parts.iter().any(|part| part.name.is_empty()) {
        return Err("a part is empty");
    }
    Ok(parts.into_iter().map(|part| part.name).collect())
}

/// The parts of a path to a field of records, whose names can be empty. It leads through objects only.
pub(crate) fn split_record_path(text: &str) -> Result<Vec<String>, &'static str> {
    let parts = parts(text)?;
    if parts.iter().any(|part| part.name == "[]" && !part.quoted) {
        return Err("it leads into a list; a key of the name [] stands in backticks");
    }
    Ok(parts.into_iter().map(|part| part.name).collect())
}

struct Part {
    name: String,
    /// Whether it stands in backticks. Others are not empty.
    quoted: bool,
}

fn parts(text: &str) -> Result<Vec<Part>, &'static str> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, after) = match rest.strip_prefix('`') {
            Some(quoted) => quoted_part(quoted).map(|(name, after)| (Part { name, quoted: true }, after))?,
            None => plain_part(rest).map(|(name, after)| (Part { name, quoted: false }, after))?,
        };
        if part.name.is_empty() && !part.quoted {
            return Err("a part is empty");
        }
        parts.push(part);
        if parts.len() > MAX_PARTS {
            return Err("it has more than 128 parts");
        }
        if after.is_empty() {
            return Ok(parts);
        }
        rest = after.strip_prefix('.').ok_or("a dot must follow a part in backticks")?;
    }
}

fn plain_part(text: &str) -> Result<(String, &str), &'static str> {
    let end = text.find('.').unwrap_or(text.len());
    let (part, after) = text.split_at(end);
    if part.contains('`') {
        return Err("a backtick stands inside a part without backticks around it");
    }
    Ok((part.to_owned(), after))
}

/// `text` starts after the opening backtick; two backticks stand for one.
fn quoted_part(mut text: &str) -> Result<(String, &str), &'static str> {
    let mut part = String::new();
    loop {
        let (before, after) = text.split_once('`').ok_or("a backtick is not closed")?;
        part.push_str(before);
        match after.strip_prefix('`') {
            Some(after) => {
                part.push('`');
                text = after;
            }
            None => return Ok((part, after)),
        }
    }
}

/// Checks what a plugin answered to `configure`.
pub(crate) fn column_access(raw: &RawColumnAccess) -> Result<ColumnAccess, AccessProblem> {
    let reads = fields("reads", &raw.reads)?;
    let writes = fields("writes", &raw.writes)?;
    no_overlap(&writes)?;
    Ok(ColumnAccess { reads, writes, multiplies: raw.multiplies })
}

fn fields(verb: &'static str, raw: &[RawField]) -> Result<Vec<AccessField>, AccessProblem> {
    if raw.len() > MAX_COLUMNS {
        return Err(AccessProblem::TooMany { verb, count: raw.len(), limit: MAX_COLUMNS });
    }
    let mut seen = BTreeSet::new();
    let mut fields = Vec::with_capacity(raw.len());
    for raw in raw {
        let field = field(raw)?;
        if !seen.insert(folded(&field.path)) {
            return Err(AccessProblem::Twice { verb, path: field.name() });
        }
        fields.push(field);
    }
    Ok(fields)
}

fn field(raw: &RawField) -> Result<AccessField, AccessProblem> {
    if raw.path.len() > MAX_PATH_BYTES {
        return Err(AccessProblem::LongPath { length: raw.path.len(), limit: MAX_PATH_BYTES });
    }
    if raw.path.chars().any(is_wild) {
        let problem = "it holds a character that acts on what displays it";
        return Err(AccessProblem::Path { path: raw.path.clone(), problem });
    }
    let path = split_path(&raw.path).map_err(|problem| AccessProblem::Path { path: raw.path.clone(), problem })?;
    if raw.data_type.len() > MAX_TYPE_BYTES {
        let (length, limit) = (raw.data_type.len(), MAX_TYPE_BYTES);
        return Err(AccessProblem::LongType { path: raw.path.clone(), length, limit });
    }
    let data_type = DataType::parse(&raw.data_type)
        .map_err(|error| AccessProblem::Type { path: raw.path.clone(), problem: tame(&error.to_string()) })?;
    if path.len() + depth(&data_type) > MAX_PARTS {
        return Err(AccessProblem::Deep { path: raw.path.clone(), limit: MAX_PARTS });
    }
    Ok(AccessField { path, data_type })
}

/// How many types lie in each other.
pub(crate) fn depth(data_type: &DataType) -> usize {
    match data_type {
        DataType::Array(element) => 1 + depth(element),
        DataType::Map(key, value) => 1 + depth(key).max(depth(value)),
        DataType::Struct(fields) => 1 + fields.iter().map(|field| depth(&field.data_type)).max().unwrap_or(0),
        _ => 0,
    }
}

/// Two columns of which one lies in the other cannot both be written: which comes last would decide.
fn no_overlap(writes: &[AccessField]) -> Result<(), AccessProblem> {
    let mut sorted: Vec<_> = writes.iter().map(|field| (folded(&field.path), field)).collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    for pair in sorted.windows(2) {
        let [(outer, outer_field), (inner, inner_field)] = pair else { continue };
        if inner.starts_with(outer) {
            return Err(AccessProblem::Overlap { outer: outer_field.name(), inner: inner_field.name() });
        }
    }
    Ok(())
}

fn folded(path: &[String]) -> Vec<String> {
    path.iter().map(|part| part.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn access(reads: &[(&str, &str)], writes: &[(&str, &str)]) -> Result<ColumnAccess, AccessProblem> {
        let raw = |fields: &[(&str, &str)]| {
            let field = |(path, data_type): &(&str, &str)| RawField {
                path: (*path).to_owned(),
                data_type: (*data_type).to_owned(),
            };
            fields.iter().map(field).collect()
        };
        column_access(&RawColumnAccess { reads: raw(reads), writes: raw(writes), multiplies: false })
    }

    #[test]
    fn paths_and_types_are_read() {
        let access = access(&[("customer.`e.mail`", "string")], &[("a.``````", "decimal(10,2)")]).unwrap();
        assert_eq!(access.reads[0].path, ["customer", "e.mail"]);
        assert_eq!(access.reads[0].name(), "customer.`e.mail`");
        assert_eq!(access.writes[0].path, ["a", "``"]);
        assert_eq!(access.writes[0].data_type, DataType::Decimal(10, 2));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for path in ["a\nb", "\u{202e}", "", ".", "a.", ".a", "a..b", "`a", "`a`b", "a`b", "``"] {
            let refused = access(&[(path, "string")], &[]);
            assert!(matches!(refused, Err(AccessProblem::Path { .. })), "{path:?}: {refused:?}");
        }
        let deep = |levels: usize| format!("{}int{}", "array<".repeat(levels), ">".repeat(levels));
        assert!(access(&[("a.b", &deep(126))], &[]).is_ok());
        assert!(matches!(access(&[("a.b", &deep(127))], &[]), Err(AccessProblem::Deep { limit: 128, .. })));
        assert!(matches!(access(&[("a", "strnig")], &[]), Err(AccessProblem::Type { .. })));
        assert!(matches!(access(&[("a", &"x".repeat(65537))], &[]), Err(AccessProblem::LongType { .. })));
        assert!(matches!(access(&[(&"a.".repeat(2049), "int")], &[]), Err(AccessProblem::LongPath { .. })));
        assert!(matches!(access(&[("a", "int"), ("A", "int")], &[]), Err(AccessProblem::Twice { verb: "reads", .. })));
        let many: Vec<_> = (0..1001).map(|number| format!("c{number}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), "int")).collect();
        assert!(matches!(access(&[], &many), Err(AccessProblem::TooMany { verb: "writes", count: 1001, .. })));
    }

    #[test]
    fn a_column_and_a_part_of_it_are_not_both_written() {
        let overlap = access(&[], &[("a.b.c", "int"), ("a2", "int"), ("A.b", "struct<c:int>")]);
        assert_eq!(overlap, Err(AccessProblem::Overlap { outer: "A.b".to_owned(), inner: "a.b.c".to_owned() }));
        assert!(access(&[("a", "struct<b:int>"), ("a.b", "int")], &[("ab", "int"), ("a", "int")]).is_ok());
    }

    proptest! {
        #[test]
        fn paths_survive_their_spelling(path in prop::collection::vec("[a.`é ]{1,5}", 1..6)) {
            prop_assert_eq!(split_path(&join_path(&path)), Ok(path));
        }

        #[test]
        fn any_text_is_a_path_or_refused(text in "[a.`é]{0,20}") {
            if let Ok(path) = split_path(&text) {
                prop_assert_eq!(split_path(&join_path(&path)), Ok(path));
            }
        }
    }
}

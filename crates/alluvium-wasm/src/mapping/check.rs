//! A plan of a plugin, from texts to names, paths and types; all that is wrong with it at once.

use super::{MappedColumn, MappingAnswer};
use crate::access::{MAX_PARTS, MAX_PATH_BYTES, MAX_TYPE_BYTES, depth, join_path, split_path, split_record_path};
use crate::contract::mapping::{RawColumn, RawMapping};
use crate::error::{MappingFault, MappingPlace, MappingProblem, is_wild};
use alluvium_core::{Coercion, DataType, Derivation};
use serde_json::value::RawValue;
use std::collections::BTreeSet;

/// What no table has; a pipeline's own bound is lower.
const MAX_COLUMNS: usize = 10_000;
const MAX_DROPS: usize = 10_000;
/// Coercions inside one column.
const MAX_COERCIONS: usize = 1000;
const MAX_NAME_BYTES: usize = 4096;
const MAX_DEFAULT_BYTES: usize = 64 << 10;
const MAX_COMMENT_BYTES: usize = 4 << 10;
const MAX_SEPARATOR_BYTES: usize = 256;

/// What is wrong with a plan.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub problems: Vec<MappingProblem>,
    /// How many more there are.
    pub more: usize,
}

impl Found {
    /// Of ten thousand wrong columns nobody reads more than this.
    const LISTED: usize = 20;

    fn add(&mut self, place: &MappingPlace, fault: MappingFault) {
        if self.problems.len() < Self::LISTED {
            self.problems.push(MappingProblem { place: place.clone(), fault });
        } else {
            self.more += 1;
        }
    }

    /// The value, or what speaks against it is noted.
    fn note<T>(&mut self, place: &MappingPlace, checked: Result<T, MappingFault>) -> Option<T> {
        checked.map_err(|fault| self.add(place, fault)).ok()
    }
}

/// Checks what a plugin answered to `plan`, each part for itself.
pub(super) fn answer(raw: RawMapping) -> Result<MappingAnswer, Found> {
    let mut found = Found::default();
    let counts = [("names", "columns", raw.columns.len(), MAX_COLUMNS), ("drops", "paths", raw.drops.len(), MAX_DROPS)];
    for (verb, what, count, limit) in counts {
        if count > limit {
            found.add(&MappingPlace::Plan, MappingFault::TooMany { verb, what, count, limit });
        }
    }
    let columns: Vec<_> = (1..).zip(raw.columns).filter_map(|(number, raw)| column(number, raw, &mut found)).collect();
    let mut drops = Vec::with_capacity(raw.drops.len());
    for (number, path) in (1..).zip(&raw.drops) {
        let place = MappingPlace::Drop { number, path: brief(path) };
        drops.extend(found.note(&place, record_path(path)));
    }
    if found.problems.is_empty() { Ok(MappingAnswer { columns, drops }) } else { Err(found) }
}

fn column(number: usize, raw: RawColumn, found: &mut Found) -> Option<MappedColumn> {
    let place = MappingPlace::Column { number, name: brief(&raw.name) };
    let texts = [
        ("name", Some(&raw.name), MAX_NAME_BYTES),
        ("comment", raw.comment.as_ref(), MAX_COMMENT_BYTES),
        // What fields inside it are called.
        ("type", Some(&raw.data_type), MAX_TYPE_BYTES),
    ];
    let plain = texts.map(|(what, text, limit)| match text {
        Some(text) => found.note(&place, plain(what, text, limit)).is_some(),
        None => true,
    });
    let named = found.note(&place, if raw.name.is_empty() { Err(empty("name")) } else { Ok(()) });
    let path = found.note(&place, record_path(&raw.path));
    let data_type = if plain[2] { found.note(&place, data_type(&raw.data_type)) } else { None };
    if let (Some(path), Some(data_type)) = (&path, &data_type)
        && path.len() + depth(data_type) > MAX_PARTS
    {
        found.add(&place, MappingFault::Deep { limit: MAX_PARTS });
    }
    let inner_coercions = inner_coercions(&place, raw.inner_coercions, found);
    if let Some(Derivation::Before(separator) | Derivation::After(separator)) = &raw.derivation {
        found.note(&place, self::separator(separator));
    }
    if let Some(default) = &raw.default {
        found.note(&place, json(default));
    }
    named?;
    Some(MappedColumn {
        name: raw.name,
        data_type: data_type?,
        path: path?,
        coercion: raw.coercion,
        inner_coercions,
        derivation: raw.derivation,
        on_conflict: raw.on_conflict,
        default: raw.default,
        comment: raw.comment,
    })
}

fn inner_coercions(place: &MappingPlace, raw: Vec<(String, Coercion)>, found: &mut Found) -> Vec<(String, Coercion)> {
    if raw.len() > MAX_COERCIONS {
        let (count, limit) = (raw.len(), MAX_COERCIONS);
        found.add(place, MappingFault::TooMany { verb: "has", what: "coercions inside it", count, limit });
    }
    let mut seen = BTreeSet::new();
    let mut coercions = Vec::with_capacity(raw.len());
    for (path, coercion) in raw {
        let Some(parts) = found.note(place, inner_path(&path)) else { continue };
        let path = join_path(&parts);
        if !seen.insert(path.clone()) {
            found.add(place, MappingFault::CoercionTwice { path: brief(&path) });
        }
        coercions.push((path, coercion));
    }
    coercions
}

fn record_path(text: &str) -> Result<Vec<String>, MappingFault> {
    path("path", text, split_record_path)
}

fn inner_path(text: &str) -> Result<Vec<String>, MappingFault> {
    path("path of a coercion", text, split_path)
}

fn path(
    what: &'static str,
    text: &str,
    split: fn(&str) -> Result<Vec<String>, &'static str>,
) -> Result<Vec<String>, MappingFault> {
    plain(what, text, MAX_PATH_BYTES)?;
    split(text).map_err(|problem| MappingFault::Path { what, path: brief(text), problem })
}

fn data_type(text: &str) -> Result<DataType, MappingFault> {
    DataType::parse(text).map_err(|error| {
        let problem = format!("{} at position {}", brief(&error.message), error.at);
        MappingFault::Type { data_type: brief(text), problem }
    })
}

fn separator(text: &str) -> Result<(), MappingFault> {
    if text.is_empty() { Err(empty("separator")) } else { within("separator", text, MAX_SEPARATOR_BYTES) }
}

fn json(text: &str) -> Result<(), MappingFault> {
    within("default", text, MAX_DEFAULT_BYTES)?;
    // Not read into a value: that would refuse numbers beyond a double's range.
    let checked: Result<&RawValue, _> = serde_json::from_str(text);
    checked.map(drop).map_err(|error| MappingFault::Default { problem: error.to_string() })
}

/// A text that can be shown, of bounded length.
fn plain(what: &'static str, text: &str, limit: usize) -> Result<(), MappingFault> {
    within(what, text, limit)?;
    match text.chars().find(|character| is_wild(*character)) {
        Some(character) => Err(MappingFault::Character { what, character }),
        None => Ok(()),
    }
}

fn within(what: &'static str, text: &str, limit: usize) -> Result<(), MappingFault> {
    if text.len() > limit { Err(MappingFault::Long { what, length: text.len(), limit }) } else { Ok(()) }
}

fn empty(what: &'static str) -> MappingFault {
    MappingFault::Empty { what }
}

/// The start of a text of a plugin's; escaped where it is displayed.
fn brief(text: &str) -> String {
    const KEPT: usize = 80;
    match text.char_indices().nth(KEPT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn raw(name: &str, data_type: &str, path: &str) -> RawColumn {
        RawColumn {
            name: name.to_owned(),
            data_type: data_type.to_owned(),
            path: path.to_owned(),
            ..RawColumn::default()
        }
    }

    fn problems(columns: Vec<RawColumn>, drops: &[&str]) -> Vec<String> {
        let drops = drops.iter().map(|path| (*path).to_owned()).collect();
        let found = answer(RawMapping { columns, drops }).unwrap_err();
        found.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_paths_and_types_are_read() {
        let columns = vec![
            RawColumn {
                inner_coercions: vec![("element.`a`".to_owned(), Coercion::ParseString)],
                derivation: Some(Derivation::After("\t".to_owned())),
                default: Some(" [1e999, \"\\u00e4\"] ".to_owned()),
                comment: Some("the price".to_owned()),
                ..raw("pri.ce", "array<struct<a:decimal(10,2)>>", "amount.`pri.ce`")
            },
            raw("empty", "int", "``.`[]`"),
        ];
        let answer = answer(RawMapping { columns, drops: vec!["debug.x".to_owned()] }).unwrap();
        assert_eq!(answer.columns[0].path, ["amount", "pri.ce"]);
        assert_eq!(answer.columns[0].inner_coercions, [("element.a".to_owned(), Coercion::ParseString)]);
        assert_eq!(answer.columns[0].data_type.to_string(), "array<struct<a:decimal(10,2)>>");
        assert_eq!(answer.columns[1].path, ["", "[]"]);
        assert_eq!(answer.drops, [["debug", "x"]]);
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let bad = RawColumn {
            inner_coercions: vec![
                ("a".to_owned(), Coercion::None),
                ("`a`".to_owned(), Coercion::None),
                (".".to_owned(), Coercion::None),
            ],
            derivation: Some(Derivation::Before(String::new())),
            default: Some("{'a': 1}".to_owned()),
            comment: Some("a\u{202e}b".to_owned()),
            ..raw("price", "decml(10,2)", "amount..price")
        };
        let said = problems(vec![raw("ok", "int", "ok"), bad, raw("", "int", "a.[].b")], &["a", "`b"]);
        assert_eq!(
            said,
            [
                r#"column "price": its comment holds '\u{202e}', which acts on what displays it"#,
                r#"column "price": its path "amount..price" is not one: a part is empty"#,
                r#"column "price": its type "decml(10,2)" is not one: unknown type 'decml' at position 0"#,
                r#"column "price": it has a coercion for "a" twice"#,
                r#"column "price": its path of a coercion "." is not one: a part is empty"#,
                r#"column "price": its separator is empty"#,
                r#"column "price": its default is not JSON: key must be a string at line 1 column 2"#,
                "column 3, which has no name: its name is empty",
                "column 3, which has no name: its path \"a.[].b\" is not one: it leads into a list; a key of the name [] stands in backticks",
                r#"drop 2: its path "`b" is not one: a backtick is not closed"#,
            ]
        );
    }

    #[test]
    fn every_text_is_bounded() {
        let long = |bytes: usize| "x".repeat(bytes);
        let bad = RawColumn {
            derivation: Some(Derivation::After(long(257))),
            default: Some(format!("\"{}\"", long(65_535))),
            comment: Some(long(4097)),
            inner_coercions: vec![(long(4097), Coercion::None)],
            ..raw(&long(4097), &long(65_537), &long(4097))
        };
        let said = problems(vec![bad], &[&long(4097)]);
        assert_eq!(said.len(), 8, "{said:#?}");
        let name = format!("column \"{}…\"", long(80));
        assert!(said[..7].iter().all(|text| text.starts_with(&name) && text.contains("at most")), "{said:#?}");
        let good = RawColumn {
            derivation: Some(Derivation::After(long(256))),
            default: Some(format!("\"{}\"", long(65_534))),
            comment: Some(long(4096)),
            inner_coercions: vec![(long(4096), Coercion::None)],
            ..raw(&long(4096), "int", &long(4096))
        };
        assert!(answer(RawMapping { columns: vec![good], drops: Vec::new() }).is_ok());
        let deep = |levels: usize| format!("{}int{}", "array<".repeat(levels), ">".repeat(levels));
        assert!(answer(RawMapping { columns: vec![raw("a", &deep(126), "a.b")], drops: Vec::new() }).is_ok());
        let said = problems(vec![raw("a", &deep(127), "a.b")], &[]);
        assert_eq!(said, ["column \"a\": its path and its type nest deeper than 128 levels"]);
    }

    #[test]
    fn numbers_are_bounded_and_lists_of_problems_cut() {
        let columns: Vec<_> = (0..10_001).map(|number| raw(&format!("c{number}"), "int", "a")).collect();
        assert_eq!(problems(columns, &[]), ["it names 10001 columns; at most 10000 are allowed"]);
        assert_eq!(problems(Vec::new(), &["a"; 10_001]), ["it drops 10001 paths; at most 10000 are allowed"]);
        let inner_coercions = vec![("a".to_owned(), Coercion::None); 1001];
        let said = problems(vec![RawColumn { inner_coercions, ..raw("a", "int", "a") }], &[]);
        assert_eq!(said[0], "column \"a\": it has 1001 coercions inside it; at most 1000 are allowed");
        let columns = (0..25).map(|number| raw(&format!("c{number}"), "", "a")).collect();
        let found = answer(RawMapping { columns, drops: Vec::new() }).unwrap_err();
        assert_eq!((found.problems.len(), found.more), (20, 5));
    }

    proptest! {
        #[test]
        fn any_texts_are_a_plan_or_refused(texts in prop::collection::vec("[a.`\\[\\]{}<>:,1\"é\n\u{202e}]{0,12}", 8)) {
            let column = RawColumn {
                inner_coercions: vec![(texts[3].clone(), Coercion::None)],
                derivation: Some(Derivation::Before(texts[4].clone())),
                default: Some(texts[5].clone()),
                comment: Some(texts[6].clone()),
                ..raw(&texts[0], &texts[1], &texts[2])
            };
            let plain = raw(&texts[0], "int", &texts[2]);
            if let Err(found) = answer(RawMapping { columns: vec![column, plain], drops: vec![texts[7].clone()] }) {
                prop_assert!(!found.problems.is_empty());
                for problem in found.problems {
                    prop_assert!(!problem.to_string().chars().any(is_wild), "{:?}", problem.to_string());
                }
            }
        }
    }
}

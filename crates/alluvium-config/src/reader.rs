//! Reading the tree of TOML values: every table is asked for its keys, and what was not asked for is
//! unknown. Each fault is reported where it stands, and reading goes on.

use crate::report::{Problem, Report};
use crate::snippet::quoted;
use crate::suggest::{belongs, closest, did_you_mean, listed};
use crate::{ErrorKind, json};
use alluvium_core::ids::{NameError, check_name};
use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with the name that messages give it.
#[derive(Clone, Debug)]
pub(crate) struct Item<'a> {
    name: String,
    key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
    report: &'a Report<'a>,
}

/// A table whose keys are being read. [`Table::finish`] must be called at the end.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    title: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
    report: &'a Report<'a>,
    known: RefCell<Vec<&'static str>>,
    /// Keys that are not there: as messages name them, with what to add.
    missing: RefCell<Vec<(&'static str, String, String)>>,
}

impl<'a> Table<'a> {
    pub fn root(entries: &'a DeTable<'a>, report: &'a Report<'a>) -> Self {
        Self::new("the file".to_owned(), 0..0, entries, report)
    }

    fn new(title: String, span: Range<usize>, entries: &'a DeTable<'a>, report: &'a Report<'a>) -> Self {
        Self { title, span, entries, report, known: RefCell::default(), missing: RefCell::default() }
    }

    /// Where the table's header stands.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub fn report(&self) -> &'a Report<'a> {
        self.report
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn optional(&self, key: &'static str) -> Option<Item<'a>> {
        self.known.borrow_mut().push(key);
        let (key, value) = self.entries.get_key_value(key)?;
        let key = key.get_ref().as_ref();
        Some(Item { name: quoted(key), key, value, report: self.report })
    }

    /// A key that has to be there; `example` is what to add when it is not.
    pub fn required(&self, key: &'static str, example: &str) -> Option<Item<'a>> {
        let item = self.optional(key);
        if item.is_none() {
            self.missing.borrow_mut().push((key, format!("`{key}`"), format!("add `{example}`")));
        }
        item
    }

    /// A table named `title` in messages.
    pub fn section(&self, key: &'static str, title: &str) -> Option<Table<'a>> {
        self.optional(key)?.table(title)
    }

    pub fn required_section(&self, key: &'static str, title: &str) -> Option<Table<'a>> {
        let item = self.optional(key);
        if item.is_none() {
            self.missing.borrow_mut().push((key, format!("the table {title}"), format!("add {title}")));
        }
        item?.table(title)
    }

    /// Reports the keys that nobody asked for, and those that are missing.
    pub fn finish(self) {
        let known = self.known.into_inner();
        let mut meant = Vec::new();
        for (key, _) in self.entries {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let message = format!("unknown key {} in {}", quoted(name), self.title);
            let mut problem = Problem::new(ErrorKind::Unknown, key.span(), message);
            problem = problem.allowed(listed(known.iter().copied()));
            // Inside of a value, a key of that name is more likely a misspelt one.
            if let Some(place) = belongs(name).filter(|_| !self.title.starts_with('`')) {
                problem = problem.hint(place);
            } else if let Some(close) = closest(name, known.iter().copied()) {
                meant.push(close);
                problem = problem.hint(format!("did you mean `{close}`?"));
            }
            self.report.add(problem);
        }
        for (key, shown, hint) in self.missing.into_inner() {
            // A misspelt key has been told already.
            if !meant.contains(&key) {
                let message = format!("{shown} is missing in {}", self.title);
                self.report.add(Problem::new(ErrorKind::Missing, self.span.clone(), message).hint(hint));
            }
        }
    }
}

impl<'a> Item<'a> {
    /// A value that is not reached through [`Table::optional`], named `name` in messages.
    pub fn new(name: String, key: &'a str, value: &'a Spanned<DeValue<'a>>, report: &'a Report<'a>) -> Self {
        Self { name, key, value, report }
    }

    /// The key it stands under.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// What a table holds, whatever its keys; nothing when it is none.
    pub fn entries(&self) -> Vec<Item<'a>> {
        let DeValue::Table(table) = self.value() else { return Vec::new() };
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table.iter() {
            let key = key.get_ref().as_ref();
            let name = format!("{} of {}", quoted(key), self.name);
            entries.push(Item { name, key, value, report: self.report });
        }
        entries
    }

    /// How messages name it.
    pub fn shown(&self) -> &str {
        &self.name
    }

    pub fn value(&self) -> &'a DeValue<'a> {
        self.value.get_ref()
    }

    pub fn span(&self) -> Range<usize> {
        self.value.span()
    }

    pub fn report(&self) -> &'a Report<'a> {
        self.report
    }

    /// A fault at the value.
    pub fn problem(&self, kind: ErrorKind, message: impl Into<String>) -> Problem {
        Problem::new(kind, self.span(), message)
    }

    /// Reports a value that is not allowed.
    pub fn refuse(&self, message: impl Into<String>, allowed: impl Into<String>) {
        self.report.add(self.problem(ErrorKind::Value, message).allowed(allowed));
    }

    pub fn wrong_type(&self, allowed: impl Into<String>) -> Problem {
        let message = format!("{} is {}", self.name, kind_of(self.value()));
        self.problem(ErrorKind::Type, message).allowed(allowed)
    }

    /// A string; `example` is one that would be right.
    pub fn string(&self, example: &str) -> Option<&'a str> {
        if let DeValue::String(text) = self.value() {
            return Some(text);
        }
        let problem = self.wrong_type(format!("a string, as in {example:?}"));
        self.report.add(match self.value() {
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
                problem.hint("put it in quotes")
            }
            _ => problem,
        });
        None
    }

    /// A string that is not empty and holds no control character.
    pub fn word(&self, example: &str) -> Option<&'a str> {
        let text = self.string(example)?;
        if text.trim().is_empty() {
            self.refuse(format!("{} is empty", self.name), format!("a text as in {example:?}"));
            return None;
        }
        if let Some(found) = text.chars().find(|c| c.is_control()) {
            let message = format!("{} holds the control character {found:?}", self.name);
            self.refuse(message, "a text without control characters");
            return None;
        }
        Some(text)
    }

    /// The name of a tenant or pipeline.
    pub fn name(&self) -> Option<&'a str> {
        let text = self.string("orders")?;
        let message = match check_name(text) {
            Ok(()) => return Some(text),
            Err(NameError::Empty) => format!("{} is empty", self.name),
            Err(NameError::TooLong { len, .. }) => format!("{} has {len} characters", self.name),
            Err(NameError::Character { found, .. }) => format!("{} holds {found:?}", self.name),
        };
        self.refuse(message, "1 to 128 of the letters a to z and A to Z, digits, `-`, `_` and `.`");
        None
    }

    /// One of a few strings.
    pub fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let names = || choices.iter().map(|(name, _)| *name);
        let DeValue::String(text) = self.value() else {
            self.report.add(self.wrong_type(listed(names())));
            return None;
        };
        let chosen = choices.iter().find(|(name, _)| name == text);
        if chosen.is_none() {
            let message = format!("{} is {}", self.name, quoted(text));
            let problem = self.problem(ErrorKind::Value, message).allowed(listed(names()));
            self.report.add(match did_you_mean(text, names()) {
                Some(hint) => problem.hint(hint),
                None => problem,
            });
        }
        chosen.map(|(_, value)| *value)
    }

    /// An integer from 0.
    pub fn number(&self) -> Option<u64> {
        let DeValue::Integer(integer) = self.value() else {
            let problem = self.wrong_type("an integer");
            self.report.add(match self.value() {
                DeValue::String(text) if text.parse::<u64>().is_ok() => problem.hint("leave the quotes out"),
                _ => problem,
            });
            return None;
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix());
        if number.is_err() {
            self.refuse(format!("{} is {}", self.name, quoted(&integer.to_string())), "an integer from 0 to 2^64 - 1");
        }
        number.ok()
    }

    pub fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let number = self.number()?;
        if !range.contains(&number) {
            let allowed = format!("{} to {}", range.start(), range.end());
            self.refuse(format!("{} is {number}", self.name), allowed);
            return None;
        }
        Some(number)
    }

    /// A table named `title` in messages.
    pub fn table(&self, title: &str) -> Option<Table<'a>> {
        if let DeValue::Table(entries) = self.value() {
            return Some(Table::new(title.to_owned(), self.span(), entries, self.report));
        }
        let problem = self.wrong_type("a table");
        self.report.add(match self.value() {
            DeValue::Array(_) if title.starts_with('[') => problem.hint(format!("write {title}, in single brackets")),
            _ => problem,
        });
        None
    }

    /// The tables of an array of tables; `title` as in `[[test]]`.
    pub fn tables(&self, title: &str) -> Vec<Table<'a>> {
        let DeValue::Array(array) = self.value() else {
            let problem = self.wrong_type("an array of tables");
            self.report.add(match self.value() {
                DeValue::Table(_) => problem.hint(format!("write {title}, in double brackets")),
                _ => problem,
            });
            return Vec::new();
        };
        let elements = array.iter().map(|value| self.element(value));
        elements.filter_map(|element| element.table(title)).collect()
    }

    /// The elements of an array; `example` is one that would be right.
    pub fn elements(&self, example: &str) -> Option<Vec<Item<'a>>> {
        let DeValue::Array(array) = self.value() else {
            let problem = self.wrong_type(format!("an array, as in {example}"));
            self.report.add(match self.value() {
                DeValue::String(_) => problem.hint("put it in brackets"),
                _ => problem,
            });
            return None;
        };
        Some(array.iter().map(|value| self.element(value)).collect())
    }

    fn element(&self, value: &'a Spanned<DeValue<'a>>) -> Item<'a> {
        Item { name: format!("an element of {}", self.name), key: self.key, value, report: self.report }
    }

    /// The value as JSON.
    pub fn json(&self) -> Option<serde_json::Value> {
        json::of(self.key, self.value, self.report)
    }
}

/// A value's type, for the sentence "… is …".
pub(crate) fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(true) => "the boolean `true`",
        DeValue::Boolean(false) => "the boolean `false`",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

//! `[[test]]`

use crate::ErrorKind;
use crate::pipeline::{Expect, Input, Test};
use crate::reader::{Item, Table};
use crate::snippet::quoted;
use crate::suggest::{did_you_mean, listed};
use std::collections::HashMap;
use toml::de::DeValue;

/// The codes of reasons that a record with a value can be rejected for; see [`alluvium_core::Reason`].
const CODES: &[&str] =
    &["malformed", "conflict", "plugin-reject", "plugin-trap", "plugin-timeout", "plugin-memory", "plugin-output"];

pub(crate) fn read(item: Option<Item<'_>>) -> Vec<Test> {
    let Some(item) = item else { return Vec::new() };
    let mut tests: Vec<Test> = Vec::new();
    let mut names: HashMap<&str, usize> = HashMap::new();
    for table in item.tables("[[test]]") {
        let at = table.report().lines().position(table.span().start);
        let name = table.required("name", "name = \"what is tested\"");
        let name = name.and_then(|item| Some((item.word("email is masked")?, item)));
        if let Some((name, item)) = &name {
            match names.get(name) {
                Some(line) => {
                    let message = format!("another test has the name {}", quoted(name));
                    let problem = item.problem(ErrorKind::Duplicate, message);
                    item.report().add(problem.hint(format!("it is the one in line {line}")));
                }
                None => {
                    names.insert(name, at.0);
                }
            }
        }
        let input = input(&table);
        let expect = table.required("expect", "expect = { … }, \"filtered\" or \"rejected\"");
        let expect = expect.and_then(|item| expectation(&item));
        table.finish();
        if let (Some((name, _)), Some(input), Some(expect)) = (name, input, expect) {
            tests.push(Test { name: name.to_owned(), input, expect, at });
        }
    }
    tests
}

fn input(table: &Table<'_>) -> Option<Input> {
    let text = table.optional("input_text");
    let Some(text) = text else {
        return table.required("input", "input = { … } or input_text = '…'")?.json().map(Input::Value);
    };
    if let Some(value) = table.optional("input") {
        let problem = value.problem(ErrorKind::Conflict, "the test has both `input` and `input_text`");
        value.report().add(problem.allowed("one of them"));
        return None;
    }
    text.string("{\"id\": 1}").map(|text| Input::Text(text.to_owned()))
}

fn expectation(item: &Item<'_>) -> Option<Expect> {
    const ALLOWED: &str = "a row `{ … }`, rows `[{ … }, …]`, `filtered`, `rejected` or `rejected: CODE`";
    match item.value() {
        DeValue::Table(_) => item.json().map(|row| Expect::Rows(vec![row])),
        DeValue::Array(array) if array.is_empty() => {
            let problem = item.problem(ErrorKind::Value, format!("{} has no rows", item.shown())).allowed(ALLOWED);
            item.report().add(problem.hint("a record that becomes no row is \"filtered\""));
            None
        }
        DeValue::Array(_) => {
            let elements = item.elements("[{ id = 1 }]")?.into_iter().map(|element| match element.value() {
                DeValue::Table(_) => element.json(),
                _ => {
                    element.report().add(element.wrong_type("a row `{ … }`"));
                    None
                }
            });
            let rows = elements.collect::<Vec<_>>();
            rows.into_iter().collect::<Option<Vec<_>>>().map(Expect::Rows)
        }
        DeValue::String(text) => match text.split_once(':') {
            None if text == "filtered" => Some(Expect::Filtered),
            None if text == "rejected" => Some(Expect::Rejected(None)),
            Some(("rejected", code)) => rejection(item, code.trim()),
            _ => {
                let problem = item.problem(ErrorKind::Value, format!("{} is {}", item.shown(), quoted(text)));
                let problem = problem.allowed(ALLOWED);
                let word = text.split(':').next().unwrap_or_default();
                item.report().add(match did_you_mean(word, ["filtered", "rejected"]) {
                    Some(hint) => problem.hint(hint),
                    None => problem,
                });
                None
            }
        },
        _ => {
            item.report().add(item.wrong_type(ALLOWED));
            None
        }
    }
}

fn rejection(item: &Item<'_>, code: &str) -> Option<Expect> {
    if CODES.contains(&code) {
        return Some(Expect::Rejected(Some(code.to_owned())));
    }
    let problem = item.problem(ErrorKind::Value, format!("{} is not the code of a reason", quoted(code)));
    let problem = problem.allowed(listed(CODES.iter().copied()));
    item.report().add(match did_you_mean(code, CODES.iter().copied()) {
        Some(hint) => problem.hint(hint),
        None => problem,
    });
    None
}

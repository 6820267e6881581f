//! Text to a tree of TOML values with their places.

use crate::ErrorKind;
use crate::error::MOST;
use crate::report::{Problem, Report};
use crate::setting::is_secret;
use crate::snippet::quoted;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The tree; `None` when the text is not TOML, unless all that is wrong are single values. Keys that
/// stand twice are reported, and the tree holds the first of them.
pub(crate) fn read<'t>(text: &'t str, report: &Report<'t>) -> Option<DeTable<'t>> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    let tree = tree.into_inner();
    hide_secrets("", &tree, report);
    let (duplicates, faults): (Vec<_>, Vec<_>) = errors.into_iter().partition(|error| is_duplicate(error.message()));
    let mut last = None;
    for (index, error) in duplicates.into_iter().enumerate() {
        let span = error.span().unwrap_or_default();
        // A dotted key can be told off once for each step of the way.
        if last.replace(span.clone()) != Some(span.clone()) {
            // Looking for the first of the two reads the whole file.
            let first = if index < MOST { first_of(&tree, report, &span) } else { None };
            report.add(duplicate(error.message(), report, span, first));
        }
    }
    if faults.is_empty() {
        return Some(tree);
    }
    hide_likely_secrets(text, report);
    let mut faults = faults.iter().map(|error| (error.span().unwrap_or_default(), error.message())).collect::<Vec<_>>();
    faults.sort_by_key(|(span, _)| span.start);
    let mut last_line = None;
    let mut only_values = true;
    for (span, message) in faults {
        let line = report.lines().line(span.start);
        // What follows the first fault of a line mostly comes from it.
        if last_line.replace(line.start) == Some(line.start) {
            continue;
        }
        // An array or inline table that is not closed swallows the keys after it: all that follows is noise.
        let swallowed = message.starts_with("missing comma between")
            && text.get(line.start..span.start).is_some_and(|before| before.trim().is_empty());
        let before = text.get(line.start..span.start).unwrap_or_default().trim_start();
        only_values &= before.contains('=') && !before.starts_with('[') && !swallowed;
        let problem = grammar(message, report, span);
        if swallowed {
            report.add(problem.hint("is the array or inline table before this line closed, with `]` or `}`?"));
            break;
        }
        report.add(problem);
    }
    only_values.then_some(tree)
}

fn is_duplicate(message: &str) -> bool {
    message == "duplicate key" || message.starts_with("cannot extend value of type")
}

/// A fault of grammar, mostly in the words of the parser.
fn grammar(message: &str, report: &Report<'_>, span: Range<usize>) -> Problem {
    let (found, expected) = match message.split_once(", expected ") {
        Some((found, expected)) => (found, expected),
        None => (message, ""),
    };
    let text = report.lines().text();
    let line = text.get(report.lines().line(span.start)).unwrap_or_default();
    let marked = text.get(span.clone()).unwrap_or_default();
    let unclosed = matches!(expected, "`\"`" | "`'`" | "'`'" | "`\"\"\"`" | "`\'\'\'`");
    let (found, expected, hint) = match found {
        "string values must be quoted" if marked.trim().is_empty() => ("a value is missing", "", ""),
        "string values must be quoted" if marked.starts_with(|first: char| first.is_ascii_digit()) => {
            ("neither a number nor a text in quotes", "", "a text stands in double quotes")
        }
        "string values must be quoted" => ("a text is not in quotes", "", "put the value in double quotes"),
        "invalid basic string" | "invalid literal string" if unclosed => ("the string is not closed", expected, ""),
        "invalid multi-line basic string" | "invalid multi-line literal string" if unclosed => {
            ("the multi-line string is not closed", expected, "it starts in a line above")
        }
        "missing escaped value" | "invalid escape sequence" => {
            (found, expected, "in double quotes `\\` starts an escape; write `\\\\`, or use single quotes")
        }
        "invalid unquoted key" if !marked.starts_with(':') => (found, expected, "put the key in quotes"),
        "key with no value" | "invalid unquoted key" if line.contains(':') => {
            (found, expected, "TOML separates a key from its value with `=`")
        }
        "invalid key-value pair" if text.get(span.start..).is_some_and(|text| text.starts_with('{')) => {
            (found, expected, "a pipeline file is TOML, not JSON")
        }
        "unexpected key or value" => (found, expected, "each key with its value has a line of its own"),
        _ => (found, expected, ""),
    };
    let mut problem = Problem::new(ErrorKind::Syntax, span, format!("not valid TOML: {found}"));
    if !matches!(expected, "" | "nothing") {
        problem = problem.allowed(expected);
    }
    if hint.is_empty() { problem } else { problem.hint(hint) }
}

fn duplicate(message: &str, report: &Report<'_>, span: Range<usize>, first: Option<usize>) -> Problem {
    let key = quoted(report.lines().text().get(span.clone()).unwrap_or_default());
    let kind = message.strip_prefix("cannot extend value of type ").and_then(|rest| rest.split(' ').next());
    if let Some(kind) = kind {
        let message = format!("{key} holds a value of type {kind} already, so no key can stand under it");
        return Problem::new(ErrorKind::Duplicate, span, message).hint("keep one of the two");
    }
    let problem = Problem::new(ErrorKind::Duplicate, span, format!("the key {key} stands here a second time"));
    problem.hint(match first {
        Some(first) => format!("it is set in line {} already; keep one of the two", report.lines().position(first).0),
        None => "keep one of the two".to_owned(),
    })
}

/// Where a key that stands twice stands for the first time.
fn first_of(tree: &DeTable<'_>, report: &Report<'_>, span: &Range<usize>) -> Option<usize> {
    header_before(report.lines().text(), report, span).or_else(|| key_before(tree, report, span))
}

/// The same table header in an earlier line.
fn header_before(text: &str, report: &Report<'_>, span: &Range<usize>) -> Option<usize> {
    let header = |line: &str| {
        let line = line.trim();
        line.starts_with('[').then(|| line.split('#').next().unwrap_or_default().replace([' ', '\t'], ""))
    };
    let line = report.lines().line(span.start);
    let repeated = header(text.get(line.clone())?)?;
    let mut start = 0;
    for before in text.get(..line.start)?.split_inclusive('\n') {
        if header(before).as_ref() == Some(&repeated) {
            return Some(start);
        }
        start += before.len();
    }
    None
}

/// The same key in an earlier line of the same table.
fn key_before(tree: &DeTable<'_>, report: &Report<'_>, span: &Range<usize>) -> Option<usize> {
    let text = report.lines().text();
    // What stands before a key in its line: nothing, or the first parts of a dotted key.
    let prefix = |span: &Range<usize>| text.get(report.lines().line(span.start).start..span.start).map(str::trim_start);
    let mut keys = Vec::new();
    let mut headers = Vec::new();
    collect(tree, text, &mut keys, &mut headers);
    let table_of = |at: usize| headers.iter().filter(|header| **header <= at).max();
    let same = |key: &&Range<usize>| {
        key.end <= span.start
            && text.get((*key).clone()) == text.get(span.clone())
            && prefix(key) == prefix(span)
            && table_of(key.start) == table_of(span.start)
    };
    keys.iter().filter(same).map(|key| key.start).max()
}

/// The places of all keys, and of all table headers.
fn collect(table: &DeTable<'_>, text: &str, keys: &mut Vec<Range<usize>>, headers: &mut Vec<usize>) {
    for (key, value) in table {
        keys.push(key.span());
        collect_value(value, text, keys, headers);
    }
}

fn collect_value(value: &Spanned<DeValue<'_>>, text: &str, keys: &mut Vec<Range<usize>>, headers: &mut Vec<usize>) {
    match value.get_ref() {
        DeValue::Table(table) => {
            if text.get(value.span()).is_some_and(|text| text.starts_with('[')) {
                headers.push(value.span().start);
            }
            collect(table, text, keys, headers);
        }
        DeValue::Array(array) => array.iter().for_each(|element| collect_value(element, text, keys, headers)),
        _ => {}
    }
}

/// Masks the values of all keys that look secret.
fn hide_secrets(prefix: &str, table: &DeTable<'_>, report: &Report<'_>) {
    for (key, value) in table {
        let key = format!("{prefix}.{}", key.get_ref());
        hide_value(&key, value, report);
    }
}

fn hide_value(key: &str, value: &Spanned<DeValue<'_>>, report: &Report<'_>) {
    match value.get_ref() {
        DeValue::Table(table) => hide_secrets(key, table, report),
        DeValue::Array(array) => array.iter().for_each(|element| hide_value(key, element, report)),
        _ if is_secret(key) => report.hide(value.span()),
        _ => {}
    }
}

/// Masks by the look of the text alone, where the tree cannot be trusted: what follows a key that
/// looks secret in its line, and all of a private key.
fn hide_likely_secrets(text: &str, report: &Report<'_>) {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let mut rest = 0;
        while let Some(equals) = line.get(rest..).and_then(|text| text.find('=')) {
            let at = rest + equals;
            let before = line.get(rest..at).unwrap_or_default().trim_end_matches(['"', '\'', ' ', '\t']);
            let key = before.rsplit([' ', '\t', ',', '{', '"', '\'']).next().unwrap_or_default();
            let value = line.get(at + 1..).unwrap_or_default().trim_start();
            let reference = value.strip_prefix('{').map(str::trim_start);
            if is_secret(key) && !reference.is_some_and(|text| text.starts_with("env") || text.starts_with("file")) {
                report.hide(start + line.len() - value.len()..start + line.len());
                break;
            }
            rest = at + 1;
        }
        start += line.len();
    }
    let mut from = 0;
    while let Some(begin) = text.get(from..).and_then(|text| text.find("-----BEGIN")) {
        let begin = from + begin;
        let end = text.get(begin..).and_then(|text| text.find("-----END")).map_or(text.len(), |end| begin + end);
        report.hide(begin..end);
        from = end.max(begin + 1);
    }
}

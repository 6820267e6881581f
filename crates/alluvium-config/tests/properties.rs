//! Whatever the text, reading it ends: with a pipeline, or with errors that point into it.

#![allow(clippy::unwrap_used, clippy::panic)]

use alluvium_config::parse;
use proptest::prelude::*;
use std::time::{Duration, Instant};

const EVERYTHING: &str = include_str!("ui/valid/everything.toml");
const EXAMPLE: &str = include_str!("../../../examples/orders.toml");
const MISTAKES: &str = include_str!("ui/invalid/wrong_types.toml");
const SECRET: &str = "hunter2";

/// Pieces that mean something to the grammar or the reader.
const PIECES: &[&str] = &[
    "\n",
    "\r\n",
    "\r",
    "\t",
    " ",
    "\u{feff}",
    "\0",
    "\u{1b}",
    "ß",
    "東京",
    "\u{202e}",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "\\",
    "\\u0000",
    "#",
    "=",
    ".",
    ",",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "{}",
    "[]",
    "-",
    "_",
    "0x",
    "1e999",
    "nan",
    "-inf",
    "true",
    "2026-03-01T00:00:00Z",
    "07:30",
    "99999999999999999999",
    "\"10s\"",
    "\"128MiB\"",
    "version",
    "tenant = ",
    "[source]\n",
    "[[transform]]\n",
    "[[schema.column]]\n",
    "[sink]\n",
    "[[test]]\n",
    "name = ",
    "kafka",
    "env",
    "file",
    "`",
    "a.b.c = 1\n",
    "type = \"array<\"\n",
    "from = \"`\"\n",
    "expect = \"rejected:\"\n",
    "input = { a = [[[[",
    "start = { timestamp = ",
];

/// Reads the text, and checks all that holds for any text.
fn check(text: &str) -> Option<String> {
    let errors = parse(text, "any.toml").err()?;
    assert!(errors.len() >= 1);
    let lines = text.trim_start_matches('\u{feff}').split('\n').collect::<Vec<_>>();
    for error in &errors {
        let line = lines.get(error.line - 1).unwrap_or_else(|| panic!("line {} of {}", error.line, lines.len()));
        assert!((1..=line.chars().count() + 1).contains(&error.column), "{error:?}");
    }
    let shown = errors.to_string();
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    Some(shown)
}

/// A change at a place: so much is cut, this is put in.
fn change() -> impl Strategy<Value = (prop::sample::Index, usize, Option<&'static str>)> {
    (
        any::<prop::sample::Index>(),
        prop_oneof![4 => Just(0usize), 3 => 1..4usize, 1 => 4..200usize],
        prop::option::of(prop::sample::select(PIECES)),
    )
}

fn changed(text: &str, changes: &[(prop::sample::Index, usize, Option<&str>)]) -> String {
    let mut characters = text.chars().collect::<Vec<_>>();
    for (place, cut, piece) in changes {
        let at = place.index(characters.len() + 1);
        let end = (at + cut).min(characters.len());
        characters.splice(at..end, piece.unwrap_or_default().chars());
    }
    characters.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_told_off(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn any_pieces_are_read_or_told_off(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        check(&pieces.concat());
    }

    #[test]
    fn changed_files_are_read_or_told_off(
        file in prop::sample::select(&[EVERYTHING, EXAMPLE, MISTAKES][..]),
        changes in prop::collection::vec(change(), 1..8),
    ) {
        check(&changed(file, &changes));
    }

    /// A secret that is written out is not shown, however broken the rest of the file is.
    #[test]
    fn secrets_are_not_shown(
        setting in prop::sample::select(&["\"sasl.password\" = \"hunter2\"", "ssl.key.pem = 'hunter2'", "sasl.password = hunter2", "\"ssl.key.password\" = \"hunter2"][..]),
        before in prop::collection::vec(change(), 0..4),
        after in prop::collection::vec(change(), 0..4),
    ) {
        let (head, tail) = EVERYTHING.split_once("[source.kafka]\n").unwrap();
        let text = format!("{}\n[source.kafka]\n{setting}\n{}", changed(head, &before), changed(tail, &after));
        if let Some(shown) = check(&text) {
            prop_assert!(!shown.contains(SECRET), "{shown}");
        }
    }
}

/// Each misspelt key of a file is told in its line, and nothing else but what is missing without it.
#[test]
fn a_wrong_line_is_the_only_one_told() {
    let lines = EXAMPLE.lines().take_while(|line| *line != "[[test]]").collect::<Vec<_>>();
    let header = |line: usize| lines[..=line].iter().rposition(|line| line.starts_with('[')).unwrap_or(0);
    let mut tried = 0;
    for line in 0..lines.len() {
        if !lines[line].contains(" = ") || lines[line].starts_with('#') {
            continue;
        }
        let wrong = format!("zzzzzzzz_{}", lines[line]);
        let mut text = lines.clone();
        text[line] = &wrong;
        let errors = parse(&text.join("\n"), "example.toml").unwrap_err();
        let told = errors.iter().map(|error| error.line - 1).collect::<Vec<_>>();
        assert!(told.contains(&line), "{errors}");
        assert!(told.iter().all(|told| *told == line || *told == header(line)), "{errors}");
        tried += 1;
    }
    assert!(tried > 30);
}

/// Files made to take long: nested, repeated, misspelt, all on one line.
#[test]
fn hostile_files_take_no_time() {
    let megabyte = |piece: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for index in 0.. {
            let piece = piece(index);
            if text.len() + piece.len() > 1_000_000 {
                break;
            }
            text.push_str(&piece);
        }
        text
    };
    let files = [
        ("the same key", megabyte(&|_| "a=1\n".into())),
        ("the same table", megabyte(&|_| "[a]\n".into())),
        ("keys twice", megabyte(&|index| format!("a{}=1\n", index % 50_000))),
        ("unknown keys", megabyte(&|index| format!("brokrs{index}=1\n"))),
        ("settings", format!("[source]\nkafka={{{}}}", megabyte(&|index| format!("a{index}=1,")))),
        (
            "settings with dots",
            format!("[source.kafka]\n{}", megabyte(&|index| format!("fetch.wait.max.m{index}=1\n"))),
        ),
        ("options", format!("[sink.storage]\n{}", megabyte(&|index| format!("AWS_REGOIN{index}=1\n")))),
        ("columns", megabyte(&|index| format!("[[schema.column]]\nname='a{index}'\ntype='int'\n"))),
        ("the same column", megabyte(&|_| "[[schema.column]]\nname='a'\ntype='int'\n".into())),
        (
            "long paths",
            megabyte(&|index| format!("[[schema.column]]\nname='a{index}'\nfrom='{}{index}'\n", "b.".repeat(500))),
        ),
        ("tests", megabyte(&|_| "[[test]]\nname='a'\n".into())),
        ("brokers", format!("[source]\nbrokers=[{}]", megabyte(&|index| format!("'a{index}:1',")))),
        ("partition columns", format!("[sink]\npartition_by=[{}]", megabyte(&|index| format!("'a{index}',")))),
        ("one long line", format!("[sink]\nmetadata={{{}}}", megabyte(&|index| format!("a{index}=1,")))),
        ("one broken line", format!("a=[{}]", megabyte(&|_| "1 ".into()))),
        ("broken lines", megabyte(&|_| "= =\n".into())),
        ("secrets", megabyte(&|index| format!("a{index}.password=1\n"))),
        ("broken secrets", megabyte(&|index| format!("a{index}.password=x\n"))),
        ("deep arrays", format!("a={}", "[".repeat(1_000_000))),
        ("deep tables", format!("a={}", "{a=".repeat(300_000))),
        ("deep keys", "a.".repeat(500_000)),
        ("deep headers", format!("[{}a]", "a.".repeat(400_000))),
        ("a deep type", format!("[[schema.column]]\ntype='{}'", "array<".repeat(150_000))),
        ("a long key", format!("{}=1", "a".repeat(1_000_000))),
        ("no spaces", "a".repeat(1_000_000)),
        ("beyond the limit", "a".repeat(2_000_000)),
    ];
    for (name, text) in files {
        let start = Instant::now();
        assert!(check(&text).is_some(), "{name} is valid");
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(20), "{name}: {taken:?}");
        if std::env::var_os("ALLUVIUM_TIMES").is_some() {
            let mut err = std::io::stderr().lock();
            std::io::Write::write_fmt(&mut err, format_args!("{name}: {taken:?}\n")).unwrap();
        }
    }
}

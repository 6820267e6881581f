//! Every file in `ui/invalid` is told off as the `.err` beside it says; every file in `ui/valid` is
//! read. `ALLUVIUM_BLESS=1` writes the `.err` files anew.

#![allow(clippy::unwrap_used, clippy::panic)]

use alluvium_config::{Errors, parse};
use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui").join(folder);
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files = entries.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect::<Vec<_>>();
    files.sort();
    files
}

fn read(path: &Path) -> (String, String) {
    let text = String::from_utf8(fs::read(path).unwrap()).unwrap();
    (text, path.file_name().unwrap().to_str().unwrap().to_owned())
}

fn errors(path: &Path) -> Errors {
    let (text, name) = read(path);
    match parse(&text, &name) {
        Ok(_) => panic!("{name} is valid"),
        Err(errors) => errors,
    }
}

#[test]
fn invalid_files_are_told_off() {
    let bless = std::env::var_os("ALLUVIUM_BLESS").is_some();
    let mut different = Vec::new();
    for path in files("invalid") {
        let found = format!("{}\n", errors(&path));
        let golden = path.with_extension("err");
        if bless {
            fs::write(&golden, &found).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if found != expected {
            different.push(format!("{}:\n--- expected\n{expected}\n--- found\n{found}", golden.display()));
        }
    }
    assert!(different.is_empty(), "{}\nALLUVIUM_BLESS=1 writes them anew", different.join("\n"));
    assert!(files("invalid").len() >= 30);
}

#[test]
fn every_golden_has_its_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui/invalid");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.with_extension("toml").exists(), "{} has no file", path.display());
    }
}

/// What stands for a secret in the files.
const SECRETS: &[&str] = &["hunter", "hünter", "MIIEv", "c2VjcmV0", "pa$$w0rd", "12345\n"];

#[test]
fn secrets_are_never_shown() {
    for path in files("invalid") {
        let errors = errors(&path);
        let shown = format!("{errors}\n{errors:?}");
        for secret in SECRETS {
            assert!(!shown.contains(secret), "{} shows {secret}", path.display());
        }
    }
}

#[test]
fn errors_point_into_the_file() {
    for path in files("invalid") {
        let (text, name) = read(&path);
        let lines = text.trim_start_matches('\u{feff}').split('\n').collect::<Vec<_>>();
        for error in &errors(&path) {
            let line = lines.get(error.line - 1).unwrap_or_else(|| panic!("{name}: line {}", error.line));
            assert!(error.column <= line.chars().count() + 1, "{name}: {}:{}", error.line, error.column);
        }
    }
}

#[test]
fn valid_files_are_read() {
    for path in files("valid") {
        let (text, name) = read(&path);
        if let Err(errors) = parse(&text, &name) {
            panic!("{errors}");
        }
    }
}

#[test]
fn mistakes_are_told_all_at_once() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui/invalid/mistakes.toml");
    assert_eq!(errors(&path).len(), 15);
}

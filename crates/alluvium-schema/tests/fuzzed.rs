//! What fuzzing began with and what it has kept, on every change: see `fuzz/README.md`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_schema::Decoder;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{fuzzed, seeds};

/// Runs the inputs; of one that fails, tells the name.
fn replay(inputs: impl IntoIterator<Item = (String, Vec<u8>)>, target: fn(&[u8])) -> usize {
    let mut count = 0;
    for (name, input) in inputs {
        let outcome = std::panic::catch_unwind(|| target(&input));
        assert!(outcome.is_ok(), "input {name}");
        count += 1;
    }
    count
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let paths = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: PathBuf| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap());
    paths.map(named).collect()
}

fn numbered(inputs: Vec<Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    inputs.into_iter().enumerate().map(|(at, input)| (format!("seed-{at:03}"), input)).collect()
}

#[test]
fn the_corpus_holds() {
    assert!(replay(corpus("decode"), fuzzed::decode) > 0);
    assert!(replay(corpus("plan"), fuzzed::plan) > 0);
}

/// The seeds hold as well; `ALLUVIUM_FUZZ_SEEDS` names a folder to write them to.
#[test]
fn the_seeds_hold() {
    for (target, seeds, run) in [
        ("decode", numbered(seeds::decode()), fuzzed::decode as fn(&[u8])),
        ("plan", numbered(seeds::plan()), fuzzed::plan),
    ] {
        if let Some(dir) = std::env::var_os("ALLUVIUM_FUZZ_SEEDS") {
            let dir = Path::new(&dir).join(target);
            fs::create_dir_all(&dir).unwrap();
            seeds.iter().for_each(|(name, input)| fs::write(dir.join(name), input).unwrap());
        }
        replay(seeds, run);
    }
}

#[test]
fn seeds_reach_the_limit_of_sparse_records() {
    let seeds = seeds::decode();
    let texts = seeds.iter().filter_map(|input| std::str::from_utf8(input).ok());
    let wide = texts.filter(|input| input.contains("aa:int")).collect::<Vec<_>>();
    let rejected = wide.iter().map(|input| {
        let (plan, record) = input.split_once('\x1e').unwrap();
        let plan = serde_json::from_str(plan).unwrap();
        let decoded = Decoder::new(Arc::new(plan)).decode(&support::pack_texts(&[record])).unwrap();
        decoded.rejects.len()
    });
    assert_eq!(rejected.collect::<Vec<_>>(), [0, 1]);
}

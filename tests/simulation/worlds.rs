//! Thousands of worlds; faults planted to see them found; worlds that once showed a fault of ours.

use alluvium_testkit::sim::{Plant, Protocol, search, simulate};

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn tell(failures: &[(u64, Protocol)]) -> String {
    let line = |(seed, protocol): &(u64, Protocol)| {
        format!("seed {seed}: {}\n  cargo xtask simulate --seed {seed}", protocol.violations.join("; "))
    };
    failures.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn ten_thousand_worlds_keep_every_promise() {
    let failures = search(0..10_000, None, threads(), 5);
    assert!(failures.is_empty(), "\n{}", tell(&failures));
}

#[test]
fn one_seed_is_one_story() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let (first, second) = (simulate(seed, None, true), simulate(seed, None, true));
        if let Some(at) = (0..first.lines.len()).find(|at| first.lines.get(*at) != second.lines.get(*at)) {
            panic!("seed {seed}, event {at}: {:?} and {:?}", first.lines.get(at), second.lines.get(at));
        }
        assert_eq!(first, second, "seed {seed}");
        hashes.insert(first.hash);
    }
    assert_eq!(hashes.len(), 100);
}

/// Asserts that a planted fault shows in one of the first worlds, by a violation that names `what`.
fn is_found(plant: Plant, within: u64, what: &str) {
    let failures = search(0..within, Some(plant), threads(), usize::MAX);
    let named = failures.iter().filter(|(_, protocol)| protocol.violations.iter().any(|v| v.contains(what))).count();
    println!("{plant:?} shows in {} of {within} worlds, {named} of them by \"{what}\"", failures.len());
    assert!(named > 0, "{plant:?} was not found by \"{what}\"\n{}", tell(&failures[..failures.len().min(5)]));
}

#[test]
fn a_table_that_never_judges_is_found() {
    is_found(Plant::NeverJudges, 100, "twice");
}

#[test]
fn a_lost_race_that_is_not_judged_anew_is_found() {
    is_found(Plant::RetriesUnjudged, 300, "twice");
}

#[test]
fn dead_letters_that_nobody_else_writes_are_found() {
    is_found(Plant::ForgetsLetters, 300, "DeadLetter), but there are 0 rows and 0 dead letters");
}

#[test]
fn dead_letters_that_are_written_blindly_are_found() {
    is_found(Plant::RepeatsLetters, 300, "is a dead letter 2 times");
}

#[test]
fn a_source_that_skips_a_record_after_a_rebalance_is_found() {
    is_found(Plant::SkipsAfterRebalance, 100, "0 rows");
}

#[test]
fn a_source_that_hides_a_loss_is_found() {
    is_found(Plant::HidesLosses, 300, "Disjoint");
}

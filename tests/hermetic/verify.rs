//! verify finds what is wrong, names it, and does not take nothing for proof.

use alluvium_delta::TableRole;
use alluvium_kafka::Sandbox;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Log, Options, Process, Workbench};
use serde_json::json;
use std::path::{Path, PathBuf};

/// A pipeline that committed at its end, and was killed at the next one between rows and dead letters.
async fn written() -> (Sandbox, Workbench) {
    let topic = Workbench::topic_name("verify");
    let sandbox = Sandbox::start(&[(&topic, 3)]).unwrap();
    let options = Options { flush: "every = \"1h\"".to_owned(), ..Options::default() };
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &options);
    bench.produce(3, 0..300, 600).await;
    bench.run_to_end("first");
    bench.produce(3, 300..600, 600).await;
    bench.run("killed", &["--until-end"], &[("ALLUVIUM_KILL_AT", "dead-letters:before#1")]).wait(PATIENCE);
    (sandbox, bench)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let to = to.join(entry.file_name().unwrap());
        if entry.is_dir() { copy(&entry, &to) } else { std::fs::copy(&entry, &to).map(drop).unwrap() }
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        found.push(entry.clone());
        if entry.is_dir() {
            found.extend(files(&entry));
        }
    }
    found.sort();
    found
}

/// What is planted, and what verify must say of it: without and with `--scan`.
struct Plant {
    what: &'static str,
    plant: fn(rows: &Log, letters: &Log, dir: &Path),
    log: (i32, &'static str),
    scan: (i32, &'static str),
}

const HOLDS: &str = "every offset is accounted for exactly once";

const PLANTS: &[Plant] = &[
    Plant { what: "nothing", plant: |_, _, _| {}, log: (0, HOLDS), scan: (0, "missing 0, doubled 0") },
    Plant {
        what: "a gap",
        plant: |rows, _, _| edit(rows, "\"from\":300", "\"from\":301"),
        log: (1, "misses offsets [300, 301)"),
        scan: (1, "misses offsets [300, 301)"),
    },
    Plant {
        what: "an overlap",
        plant: |rows, _, _| edit(rows, "\"from\":300", "\"from\":298"),
        log: (1, "has offsets [298, 300) twice"),
        scan: (1, "has offsets [298, 300) twice"),
    },
    Plant {
        what: "counts that do not balance",
        plant: |rows, _, _| edit(rows, "\"read\":300", "\"read\":301"),
        log: (1, "301 records read, but"),
        scan: (1, "301 records read, but"),
    },
    Plant {
        what: "a position that somebody else set",
        plant: |rows, _, _| {
            let topic = transaction(rows);
            rows.append("WRITE", &[json!({ "txn": { "appId": topic, "version": 7 } })]);
        },
        log: (1, "another writer set the position of test/pipeline/1/"),
        scan: (1, "to 7"),
    },
    Plant {
        what: "a file that its commit does not add any more",
        plant: |rows, _, _| {
            let version = newest_own(rows);
            let lines = rows.text(version);
            let kept: Vec<_> = lines.lines().filter(|line| !line.starts_with("{\"add\"")).collect();
            rows.set(version, &format!("{}\n", kept.join("\n")));
        },
        log: (1, "rows are said, but its files hold 0"),
        scan: (1, "became rows, but 0 are in the table"),
    },
    Plant {
        what: "rows of another writer that are ours once more",
        plant: |rows, _, _| rows.append_copy(),
        log: (0, "note: version 3: another writer added"),
        scan: (1, "is in the table twice"),
    },
    Plant {
        what: "rows that another writer removed",
        plant: |rows, _, _| rows.remove_newest_file(),
        log: (0, "note: version 3: another writer removed or rewrote rows (DELETE, 1 files)"),
        scan: (0, "records are gone from commits of which other writers removed rows"),
    },
    Plant {
        what: "a data file that is gone",
        plant: |rows, _, dir| std::fs::remove_file(dir.join("pipeline").join(path(rows))).unwrap(),
        log: (0, HOLDS),
        scan: (1, "FAULT: table: data file part-"),
    },
    Plant {
        what: "a data file that was cut off",
        plant: |rows, _, dir| {
            let file = std::fs::OpenOptions::new().write(true).open(dir.join("pipeline").join(path(rows))).unwrap();
            file.set_len(100).unwrap();
        },
        log: (0, HOLDS),
        scan: (1, "has 100 bytes instead of"),
    },
    Plant {
        what: "dead letters that are doubled",
        plant: |_, letters, _| letters.append_copy(),
        log: (0, "note: dead letters: version 2: another writer added"),
        scan: (1, "is among the dead letters twice"),
    },
    Plant {
        what: "dead letters that another writer removed",
        plant: |_, letters, _| letters.remove_newest_file(),
        log: (0, "note: dead letters: version 2: another writer removed or rewrote rows"),
        scan: (0, "records are gone from commits"),
    },
    Plant {
        what: "dead letters that their commit does not count",
        plant: |_, letters, _| edit(letters, "\"rejected\":", "\"rejected\":1"),
        log: (1, "FAULT: dead letters: version 1:"),
        scan: (1, "FAULT: dead letters: version 1:"),
    },
    Plant {
        what: "no dead letters",
        plant: |_, _, dir| std::fs::remove_dir_all(dir.join("pipeline_dead_letters")).unwrap(),
        log: (1, "records were rejected, but there are 0 dead letters"),
        scan: (1, "were rejected, but 0 are among the dead letters"),
    },
    Plant {
        what: "an entry that was cut off",
        plant: |rows, _, _| {
            let text = rows.text(1);
            rows.set(1, &text[..text.len() / 2]);
        },
        log: (1, "version 1 of table"),
        scan: (1, "is not a log entry"),
    },
    Plant {
        what: "an entry that is gone",
        plant: |rows, _, _| rows.remove(1),
        log: (1, "version 1 of table"),
        scan: (1, "is missing from its log"),
    },
];

/// Edits the newest commit of the pipeline itself.
fn edit(log: &Log, from: &str, to: &str) {
    let version = newest_own(log);
    let text = log.text(version);
    assert!(text.contains(from), "{from} is not in {text}");
    log.set(version, &text.replacen(from, to, 1));
}

fn newest_own(log: &Log) -> u64 {
    (0..=log.newest()).rev().find(|version| log.text(*version).contains("\"txn\"")).unwrap()
}

fn transaction(log: &Log) -> String {
    let lines = log.lines(newest_own(log));
    lines.iter().find_map(|line| line["txn"]["appId"].as_str().map(str::to_owned)).unwrap()
}

fn path(log: &Log) -> String {
    log.newest_add()["path"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_planted_is_found_and_named() {
    let (_sandbox, bench) = written().await;
    let nothing = bench.alluvium("between", &["verify", "--scan", "pipeline.toml"], &[]);
    let (code, text) = told(nothing);
    assert!(code == 0 && text.contains("interrupted"), "{text}");
    bench.run_to_end("second");
    bench.assert_exactly_once().await;
    for Plant { what, plant, log, scan } in PLANTS {
        let dir = tempfile::tempdir().unwrap();
        copy(bench.dir(), dir.path());
        let logs = ["pipeline", "pipeline_dead_letters"].map(|table| Log::of(&dir.path().join(table)));
        plant(&logs[0], &logs[1], dir.path());
        for (arguments, (code, wanted)) in
            [(vec!["verify", "pipeline.toml"], log), (vec!["verify", "--scan", "pipeline.toml"], scan)]
        {
            let before = files(dir.path());
            let (found, text) = told(Process::start(dir.path(), "verify", &arguments, &[]));
            assert!(found == *code && text.contains(wanted), "{what}: {arguments:?} ended with {found}:\n{text}");
            let after: Vec<_> =
                files(dir.path()).into_iter().filter(|path| !path.to_string_lossy().contains("/verify.")).collect();
            let before: Vec<_> =
                before.into_iter().filter(|path| !path.to_string_lossy().contains("/verify.")).collect();
            assert_eq!(before, after, "{what}");
        }
    }
}

/// How a process ended, and all that it printed.
fn told(mut process: Process) -> (i32, String) {
    let status = process.wait(PATIENCE);
    (status.code().unwrap_or(-1), format!("{}{}", process.out(), process.err()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn findings_are_json_too_and_a_cleaned_up_log_says_from_where_it_proves() {
    let (_sandbox, bench) = written().await;
    bench.run_to_end("second");
    let log = Log::of(&bench.dir().join("pipeline"));
    bench.sink("pipeline").await.maintain(TableRole::Rows).await.unwrap();
    (0..2).for_each(|version| log.remove(version));
    let (code, text) = told(bench.alluvium("cleaned", &["verify", "--scan", "pipeline.toml"], &[]));
    assert!(code == 0 && text.contains("it is proven from version 2 on"), "{text}");
    let proof = bench.alluvium("json", &["verify", "--scan", "--json", "pipeline.toml"], &[]).done(PATIENCE);
    assert_eq!((&proof["log"]["first_version"], &proof["log"]["findings"]), (&2.into(), &json!([])), "{proof:#}");
    assert_eq!((&proof["scan"]["missing"], &proof["scan"]["doubled"]), (&0.into(), &0.into()), "{proof:#}");

    edit(&log, "\"read\":300", "\"read\":301");
    let mut wrong = bench.alluvium("wrong", &["verify", "--json", "pipeline.toml"], &[]);
    assert_eq!(wrong.wait(PATIENCE).code(), Some(1));
    let proof: serde_json::Value = serde_json::from_str(&wrong.out()).unwrap();
    assert_eq!(proof["log"]["findings"][0]["finding"], "unbalanced", "{proof:#}");
}

/// Commands that only read create nothing, not even where there is no table yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_read_create_nothing() {
    let topic = Workbench::topic_name("read");
    let sandbox = Sandbox::start(&[(&topic, 3)]).unwrap();
    let bench = Workbench::new(sandbox.brokers(), &topic, &Options::default());
    for (arguments, code, wanted) in [
        (vec!["verify", "pipeline.toml"], 2, "there is no table"),
        (vec!["position", "pipeline.toml"], 0, "not started"),
        (vec!["check", "--connect", "pipeline.toml"], 0, "with 3 partitions"),
    ] {
        let (found, text) = told(bench.alluvium("reads", &arguments, &[]));
        assert!(found == code && text.contains(wanted), "{arguments:?} ended with {found}:\n{text}");
        assert!(!bench.dir().join("pipeline").exists() && !bench.dir().join("pipeline_dead_letters").exists());
    }
}

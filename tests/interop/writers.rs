//! Other engines write the table while a pipeline does.

use alluvium_kafka::Sandbox;
use alluvium_tests::process::Signal;
use alluvium_tests::readers::{python, read};
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Log, Options, Workbench};
use std::time::{Duration, Instant};

/// Runs the operations of another engine while a pipeline reads and commits; then the logs hold, what
/// the other removed is told apart from what is missing, and each record that is left is there once.
async fn beside(engine: &'static str, operations: &'static [&'static str]) {
    let topic = Workbench::topic_name("writers");
    let options = Options::default();
    let sandbox = Sandbox::start(&[(&topic, 3)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &options);
    const COUNT: u64 = 8_000;
    let mut produced = 0;
    let mut run = bench.run("run", &[], &[]);
    for _ in 0..6 {
        bench.produce(3, produced..produced + 50, COUNT).await;
        produced += 50;
        bench.wait_for("pipeline", produced as i64 * 3).await;
    }
    let table = bench.dir().join("pipeline").display().to_string();
    let writing = {
        let table = table.clone();
        let arguments = move || {
            [&[engine, table.as_str()], operations].concat().iter().map(|text| text.to_string()).collect::<Vec<_>>()
        };
        let arguments = arguments();
        tokio::task::spawn_blocking(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            python("write.py", &arguments, &[])
        })
    };
    // A RESTORE in Spark gives way to every other commit: it needs a pause that it fits in.
    let mut pause = Duration::from_secs(1);
    while !writing.is_finished() {
        bench.produce(3, produced..produced + 50, COUNT).await;
        produced += 50;
        let begun = Instant::now();
        while !writing.is_finished() && begun.elapsed() < pause {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        pause = (pause * 6 / 5).min(Duration::from_secs(20));
    }
    writing.await.unwrap();
    bench.produce(3, produced..produced + 50, COUNT).await;
    produced += 50;
    bench.wait_for("pipeline", produced as i64 * 3).await;
    run.signal(Signal::SIGTERM);
    run.done(PATIENCE);
    assert_eq!(bench.committed("pipeline").await, produced as i64 * 3, "positions never go back");

    let mut verify = bench.alluvium("verify", &["verify", "--scan", "pipeline.toml"], &[]);
    verify.done(PATIENCE);
    let out = verify.out();
    for told in ["(DELETE,", "(RESTORE,", "records are gone from commits of which other writers removed rows"] {
        assert!(out.contains(told), "{told} is not in\n{out}");
    }
    assert!(out.contains("missing 0, doubled 0, outside of all commits 0, too many 0"), "{out}");

    // By another engine too, what is there is there once.
    let reader = if engine == "spark" { "deltalake" } else { "spark" };
    let found = read(reader, &table, &["id"], &[]);
    let ids: std::collections::BTreeSet<i64> =
        found["rows"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect();
    assert_eq!(found["count"], ids.len());
    let newest = produced as i64 - 1;
    assert!((newest - 20..=newest).any(|id| ids.contains(&id)), "what came last is there");
    // Both engines leave the transactions as they are when they restore an older version.
    let log = Log::of(&bench.dir().join("pipeline"));
    let restored = (0..=log.newest()).find(|version| log.text(*version).contains("\"RESTORE\"")).unwrap();
    assert!(!log.text(restored).contains("\"txn\""), "{}", log.text(restored));
}

const OPERATIONS: &[&str] = &[
    "optimize",
    "delete:id % 10 = 1",
    "vacuum",
    "add:note",
    "set:delta.checkpointInterval=7",
    "optimize",
    "restore:3",
    "add:remark",
    "delete:id % 10 = 2",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delta_rs_writes_beside_a_pipeline() {
    beside("deltalake", OPERATIONS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spark_writes_beside_a_pipeline() {
    beside("spark", OPERATIONS).await;
}

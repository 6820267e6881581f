//! The pipeline on a real S3 API, whole and behind a proxy that does what networks do on bad days.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_kafka::Sandbox;
use alluvium_tests::process::Signal;
use alluvium_tests::proxy::{Fault, Proxy, Request};
use alluvium_tests::readers::read;
use alluvium_tests::s3::{BUCKET, S3, storage};
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Fate, Options, Workbench};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

mod faults;

/// A pipeline whose tables are in the bucket; it reaches the server by this port.
async fn workbench(port: u16) -> (Sandbox, Workbench, Options) {
    let topic = Workbench::topic_name("s3");
    let mut storage = storage(port);
    // What never comes must not be waited for by tests.
    storage.push(("timeout".to_owned(), "3 seconds".to_owned()));
    let options = Options { tables: format!("s3://{BUCKET}/{topic}/"), storage, ..Options::default() };
    let sandbox = Sandbox::start(&[(&topic, options.partitions)]).unwrap();
    let bench = Workbench::new(sandbox.brokers(), &topic, &options);
    (sandbox, bench, options)
}

/// The same pipeline past the proxy.
fn directly(bench: &mut Workbench, options: &Options, server: &S3) {
    let options = Options { storage: storage(server.port()), ..options.clone() };
    bench.rewrite(&options);
}

/// Killed at each step of a commit and in the middle of work; another engine reads what is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_and_double_nothing_and_another_engine_reads_the_table() {
    let server = S3::start();
    let (_sandbox, mut bench, options) = workbench(server.port()).await;
    const COUNT: u64 = 1_200;
    bench.produce(3, 0..200, COUNT).await;
    for at in ["upload:after#1", "commit:before#1", "commit:after#1", "dead-letters:after#1"] {
        let mut killed = bench.run("killed", &[], &[("ALLUVIUM_KILL_AT", at)]);
        assert!(!killed.wait(PATIENCE).success(), "{at}");
    }
    for round in 1..=4 {
        let mut killed = bench.run("killed", &[], &[]);
        bench.produce(3, round * 200..(round + 1) * 200, COUNT).await;
        bench.wait_for("pipeline", (round as i64 * 200) * 3 + 1).await;
        killed.signal(Signal::SIGKILL);
        killed.wait(PATIENCE);
    }
    bench.produce(3, 1_000..COUNT, COUNT).await;
    bench.run_to_end("again");
    bench.assert_exactly_once().await;

    let rows = bench.fates.values().filter(|fate| **fate == Fate::Row).count();
    let letters = bench.fates.values().filter(|fate| **fate == Fate::DeadLetter).count();
    let table = |name: &str| format!("{}{name}", options.tables);
    let found = read("deltalake", &table("pipeline"), &["id", "channel"], &options.storage);
    assert_eq!(found["count"], rows);
    let ids: std::collections::BTreeSet<i64> =
        found["rows"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), rows, "each record once");
    let found = read("deltalake", &table("pipeline_dead_letters"), &["offset"], &options.storage);
    assert_eq!(found["count"], letters);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_ignores_conditions_is_refused_at_start() {
    let server = S3::start();
    let proxy = Proxy::start(server.port());
    let (_sandbox, mut bench, _) = workbench(proxy.port()).await;
    proxy.set_rule(|_| Some(Fault::IgnoresCondition));
    bench.produce(3, 0..10, 10).await;
    let mut run = bench.run("refused", &["--until-end"], &[]);
    assert_eq!(run.wait(PATIENCE).code(), Some(2), "{}", run.err());
    assert!(run.err().contains("ignores conditional puts: a second one overwrote the first"), "{}", run.err());
    assert!(run.err().contains("hint: use a store with conditional puts"), "{}", run.err());
    assert!(!proxy.seen().iter().any(|request| request.is("PUT", "_delta_log")), "nothing was committed");
}

/// verify, position and check need no more than to read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_may_only_read_are_enough_to_read() {
    let server = S3::start();
    let proxy = Proxy::start(server.port());
    let (_sandbox, mut bench, _) = workbench(proxy.port()).await;
    bench.produce(3, 0..200, 400).await;
    bench.run_to_end("first");
    proxy.set_rule(|request| (request.method != "GET" && request.method != "HEAD").then_some(Fault::Answers(403)));
    bench.assert_exactly_once().await;
    for arguments in [vec!["position", "pipeline.toml"], vec!["check", "--connect", "pipeline.toml"]] {
        let mut process = bench.alluvium("reads", &arguments, &[]);
        assert!(process.wait(PATIENCE).success(), "{arguments:?}: {}", process.err());
    }
    let mut run = bench.run("run", &["--until-end"], &[]);
    assert_eq!(run.wait(PATIENCE).code(), Some(2), "{}", run.err());
    assert!(run.err().contains("hint: check the credentials and what they permit"), "{}", run.err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_credentials_stop_a_pipeline_which_goes_on_when_they_are_back() {
    let server = S3::start();
    let proxy = Proxy::start(server.port());
    let (_sandbox, mut bench, options) = workbench(proxy.port()).await;
    bench.produce(3, 0..300, 900).await;
    let mut run = bench.run("run", &[], &[]);
    bench.wait_for("pipeline", 900).await;
    proxy.set_rule(|_| Some(Fault::Answers(403)));
    bench.produce(3, 300..600, 900).await;
    let begun = Instant::now();
    assert_eq!(run.wait(PATIENCE).code(), Some(2), "{}", run.err());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(run.err().contains("403") && run.err().contains("check the credentials"), "{}", run.err());
    proxy.clear();
    bench.produce(3, 600..900, 900).await;
    bench.run_to_end("again");
    directly(&mut bench, &options, &server);
    bench.assert_exactly_once().await;
}

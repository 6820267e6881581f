//! SIGTERM: once, twice, early, and with a SIGKILL behind it.

use alluvium_kafka::{NewRecord, Producer, Sandbox};
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::{PATIENCE, transform};
use alluvium_tests::{Options, Workbench};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

async fn workbench(options: &Options) -> (Sandbox, Workbench) {
    let topic = Workbench::topic_name("shutdown");
    let sandbox = Sandbox::start(&[(&topic, options.partitions)]).unwrap();
    let bench = Workbench::new(sandbox.brokers(), &topic, options);
    (sandbox, bench)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_commits_what_was_read_and_exits_0() {
    let options = Options { flush: "every = \"1h\"".to_owned(), ..Options::default() };
    let (_sandbox, mut bench) = workbench(&options).await;
    bench.produce(3, 0..2_000, 2_000).await;
    let mut process = bench.run("terminated", &[], &[]);
    // The start of the run and the reading of some records; nothing is committed meanwhile.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(bench.committed("pipeline").await, 0);
    process.signal(Signal::SIGTERM);
    let summary = process.done(PATIENCE);
    let read = summary[0]["read"].as_i64().unwrap();
    assert!(read > 0 && bench.committed("pipeline").await == read, "{}", process.err());
    bench.run_to_end("rest");
    bench.assert_exactly_once().await;
}

/// Killed while it handles SIGTERM, a little later each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_during_the_last_flush_loses_and_doubles_nothing() {
    let options = Options { flush: "every = \"1h\"".to_owned(), ..Options::default() };
    let (_sandbox, mut bench) = workbench(&options).await;
    let mut killed = 0;
    for number in 0..10 {
        bench.produce(3, number * 300..(number + 1) * 300, 3_000).await;
        let points = bench.dir().join("points.txt");
        drop(std::fs::remove_file(&points));
        let mut process = bench.run("killed", &[], &[("ALLUVIUM_POINTS", points.to_str().unwrap())]);
        let begun = Instant::now();
        while !std::fs::read_to_string(&points).unwrap_or_default().contains("poll:after") {
            assert!(begun.elapsed() < PATIENCE, "{}", process.err());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        process.signal(Signal::SIGTERM);
        tokio::time::sleep(Duration::from_millis(number * 8)).await;
        process.signal(Signal::SIGKILL);
        killed += u32::from(process.wait(PATIENCE).signal() == Some(9));
    }
    assert!(killed > 0, "it always ended before it was killed: this shows nothing");
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
}

/// While plugins are compiled, which takes longest of a start, signals are heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_right_after_the_start_is_an_orderly_end() {
    let (_sandbox, mut bench) = workbench(&Options::default()).await;
    bench.produce(3, 0..50, 100).await;
    let mut caught = 0;
    for number in 0..10 {
        let mut process = bench.run(&format!("run-{number}"), &[], &[]);
        tokio::time::sleep(Duration::from_millis(50 + 10 * number)).await;
        process.signal(Signal::SIGTERM);
        let status = process.wait(Duration::from_secs(20));
        // On a busy machine a process may not even have begun after this time.
        assert!(status.success() || status.signal() == Some(15), "{status}: {}", process.err());
        caught += u32::from(status.success());
    }
    assert!(caught >= 5, "{caught} of 10");
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
}

/// A process that reads everything, and is in a call of a plugin that never ends.
async fn stuck(flush: &str) -> (Sandbox, Workbench, alluvium_tests::Process) {
    let options = Options {
        partitions: 1,
        transforms: transform("hostile-record", r#"{ mode = "loop-marker" }"#),
        flush: flush.to_owned(),
        limits: "time = \"10m\"".to_owned(),
        ..Options::default()
    };
    let (sandbox, bench) = workbench(&options).await;
    let producer = Producer::connect(sandbox.brokers(), &[]).unwrap();
    let value = br#"{"id":1,"text":"boom"}"#;
    let record = NewRecord { topic: bench.topic(), partition: Some(0), value: Some(value), ..NewRecord::default() };
    producer.produce(record).await.unwrap();
    let points = bench.dir().join("points.txt");
    let process = bench.run("stuck", &[], &[("ALLUVIUM_POINTS", points.to_str().unwrap())]);
    let begun = Instant::now();
    while !std::fs::read_to_string(&points).unwrap_or_default().contains("plugin:before") {
        assert!(begun.elapsed() < PATIENCE, "{}", process.err());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (sandbox, bench, process)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_sigterm_ends_at_once_what_the_first_cannot() {
    let (_sandbox, bench, mut process) = stuck("every = \"100ms\"").await;
    process.signal(Signal::SIGTERM);
    assert!(process.ended_within(Duration::from_secs(2)).is_none(), "it did not try to commit what it had read");
    let asked = Instant::now();
    process.signal(Signal::SIGTERM);
    process.wait(Duration::from_secs(10));
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    assert_eq!(bench.committed("pipeline").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_grace_time_ends_what_cannot_be_committed_and_says_so() {
    let (_sandbox, bench, mut process) = stuck("every = \"100ms\"\ngrace = \"1s\"").await;
    let asked = Instant::now();
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait(Duration::from_secs(10)).code(), Some(1), "{}", process.err());
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(process.err().contains("within the grace time"), "{}", process.err());
    assert_eq!(bench.committed("pipeline").await, 0);
}

//! Killed before and after every edge; the table says afterwards that nothing happened.
//!
//! One topic, read by all cases, has rows, filtered, malformed and trapping records, tombstones, and
//! fields that appear late.

use alluvium_core::edge::{Edge, Point};
use alluvium_delta::TableRole;
use alluvium_kafka::Sandbox;
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::{PATIENCE, redact, transform};
use alluvium_tests::{Options, Workbench, fates};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Records of each partition: a few chunks, so that there are several flushes.
const COUNT: u64 = 8_000;
const PARTITIONS: i32 = 3;
/// A later time is at most this one: how often a process waits for records is up to chance.
const LATER: usize = 4;
/// Cases at the same time: most of one is waiting for a dead member's session to end.
const AT_ONCE: usize = 4;

/// The process ends at `point` when it is there for the `times`-th time.
#[derive(Clone, Debug)]
struct Case {
    point: Point,
    times: usize,
    /// Whether there is a table from the start, which grows and makes checkpoints.
    table: bool,
}

#[test]
fn killed_before_and_after_every_edge() {
    let topic = Workbench::topic_name("crash");
    let sandbox = Sandbox::start(&[(&topic, PARTITIONS)]).unwrap();
    let mut first = workbench(&sandbox, &topic, true);
    let runtime = runtime();
    runtime.block_on(first.produce_all(PARTITIONS, 0..COUNT, |partition, index| fates::hard(partition, index, COUNT)));

    // Undisturbed, all points are reached; how often tells which time is a later one.
    let reached = runtime.block_on(undisturbed(&first));
    let missed: Vec<_> = points().filter(|point| !reached.contains_key(&point.to_string())).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");

    let mut cases = Vec::new();
    for point in points() {
        let needs_table = matches!(point.edge, Edge::Schema | Edge::Checkpoint);
        cases.push(Case { point, times: 1, table: needs_table });
        let times = reached[&point.to_string()].div_ceil(2).min(LATER);
        if times > 1 {
            cases.push(Case { point, times, table: true });
        }
    }
    println!("{} points, {} cases", points().count(), cases.len());
    let cases = Mutex::new(cases);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = { cases.lock().unwrap().pop() } {
                    let mut bench = workbench(&sandbox, &topic, case.table);
                    bench.fates.clone_from(&first.fates);
                    killed(&bench, &case);
                }
            });
        }
    });
}

/// All points but those of replays, which have cases of their own.
fn points() -> impl Iterator<Item = Point> {
    Point::all().filter(|point| point.edge != Edge::Marks)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn workbench(sandbox: &Sandbox, topic: &str, table: bool) -> Workbench {
    let options = Options {
        transforms: transform("hostile-record", r#"{ mode = "trap-marker" }"#) + &redact(),
        flush: "rows = 500".to_owned(),
        ..Options::default()
    };
    let bench = Workbench::new(sandbox.brokers(), topic, &options);
    if table {
        make_table(&bench.dir().join("pipeline"));
    }
    bench
}

/// A table as another engine may have made it: one column, and a checkpoint after every commit.
fn make_table(dir: &Path) {
    let schema = r#"{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}"#;
    let metadata = serde_json::json!({ "metaData": {
        "id": "5ac25f5b-7b1c-4d6c-a7ca-6a86d4d6ba53",
        "format": { "provider": "parquet", "options": {} },
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": { "delta.checkpointInterval": "1" },
        "createdTime": 0,
    }});
    let protocol = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#;
    std::fs::create_dir_all(dir.join("_delta_log")).unwrap();
    std::fs::write(dir.join("_delta_log/00000000000000000000.json"), format!("{protocol}\n{metadata}\n")).unwrap();
}

/// How often each point is reached by a process that reads everything and then shares with another.
async fn undisturbed(bench: &Workbench) -> BTreeMap<String, usize> {
    let points = bench.dir().join("points.txt");
    let mut first = bench.run("first", &[], &[("ALLUVIUM_POINTS", points.to_str().unwrap())]);
    bench.wait_for("pipeline", i64::from(PARTITIONS)).await;
    let mut second = bench.run("second", &[], &[]);
    let begun = Instant::now();
    while !std::fs::read_to_string(&points).unwrap().contains("revoke:after") {
        assert!(begun.elapsed() < PATIENCE, "nothing was revoked: {}", first.err());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for process in [&mut first, &mut second] {
        process.signal(Signal::SIGTERM);
        process.done(PATIENCE);
    }
    bench.run_to_end("rest");
    bench.assert_exactly_once().await;
    let mut reached = BTreeMap::new();
    for point in std::fs::read_to_string(points).unwrap().lines() {
        *reached.entry(point.to_owned()).or_default() += 1;
    }
    reached
}

fn killed(bench: &Workbench, case: &Case) {
    let runtime = runtime();
    let at = format!("{}#{}", case.point, case.times);
    let environment = [("ALLUVIUM_KILL_AT", at.as_str())];
    let takes = if case.point.edge == Edge::Revoke { &[][..] } else { &["--until-end"] };
    let mut killed = bench.run("killed", takes, &environment);
    // Partitions are taken away when another process comes.
    let other = (case.point.edge == Edge::Revoke).then(|| {
        runtime.block_on(bench.wait_for("pipeline", 1));
        bench.run("other", &[], &[])
    });
    let status = killed.wait(PATIENCE);
    if let Some(mut other) = other {
        other.signal(Signal::SIGTERM);
        other.done(PATIENCE);
    }
    assert_eq!(status.signal(), Some(9), "{case:?} was not reached: {status}\n{}", killed.err());
    bench.run_to_end("again");
    runtime.block_on(async {
        bench.assert_exactly_once().await;
        assert_content(bench).await;
    });
}

/// The rows' own columns say what their records said.
async fn assert_content(bench: &Workbench) {
    let columns = ["id", "customer", "channel", "_kafka"].map(str::to_owned);
    let rows =
        bench.sink("pipeline").await.reader().first_rows(TableRole::Rows, Some(&columns), usize::MAX).await.unwrap();
    let field = |column: usize, name: &str| rows.column(column).as_struct().column_by_name(name).unwrap().clone();
    let ids = rows.column(0).as_primitive::<Int64Type>();
    let (email, channel) = (field(1, "email"), rows.column(2));
    let (partition, offset) = (field(3, "partition"), field(3, "offset"));
    for row in 0..rows.num_rows() {
        // One producer filled the topic in order: an offset is an index.
        let offset = offset.as_primitive::<Int64Type>().value(row);
        let id = i64::from(partition.as_primitive::<Int32Type>().value(row)) * 1_000_000 + offset;
        assert_eq!(ids.value(row), id);
        assert_eq!(email.as_string::<i32>().value(row), "***@example.com", "{id}");
        assert_eq!(channel.is_valid(row), offset >= i64::try_from(COUNT / 2).unwrap(), "{id}");
    }
}

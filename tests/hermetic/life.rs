//! Starts, stops, takeovers.

use alluvium_kafka::Sandbox;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Options, Workbench, frozen_in_a_commit};
use arrow_array::Array;
use arrow_array::cast::AsArray;

async fn workbench(options: &Options) -> (Sandbox, Workbench) {
    let topic = Workbench::topic_name("life");
    let sandbox = Sandbox::start(&[(&topic, options.partitions)]).unwrap();
    let bench = Workbench::new(sandbox.brokers(), &topic, options);
    (sandbox, bench)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_local_state_can_be_deleted_between_two_runs() {
    let options = Options::default();
    let (_sandbox, mut bench) = workbench(&options).await;
    bench.produce(3, 0..1_000, 2_000).await;
    let home = tempfile::tempdir().unwrap();
    let environment = [("HOME", home.path().to_str().unwrap()), ("TMPDIR", home.path().to_str().unwrap())];
    bench.run("first", &["--until-end"], &environment).done(PATIENCE);
    // Nothing was left behind but the tables, and a new home knows nothing.
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    drop(home);
    bench.produce(3, 1_000..2_000, 2_000).await;
    let summary = bench.run_to_end("second");
    assert_eq!(summary[0]["read"], 3_000, "{summary:#}");
    bench.assert_exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_until_the_end_of_a_quiet_topic_ends_and_reads_nothing_twice() {
    let options = Options::default();
    let (_sandbox, mut bench) = workbench(&options).await;
    let summary = bench.run_to_end("empty");
    assert_eq!(summary[0]["read"], 0);
    bench.produce(3, 0..10, 10).await;
    assert_eq!(bench.run_to_end("small")[0]["read"], 30);
    assert_eq!(bench.run_to_end("quiet")[0]["read"], 0);
    bench.assert_exactly_once().await;
}

/// Frozen in the middle of a commit, past its session timeout; the other has read its partitions when it
/// wakes, and what it was about to commit is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_is_fenced_when_it_wakes() {
    let (_sandbox, mut bench) = workbench(&Options::default()).await;
    frozen_in_a_commit(&mut bench, "pipeline.toml").await;
}

/// Two processes that both read everything, since they are in groups of their own: each believes
/// that it owns all partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_groups_on_one_table_fence_each_other_and_double_nothing() {
    let (_sandbox, mut bench) = workbench(&Options::default()).await;
    let text = std::fs::read_to_string(bench.dir().join("pipeline.toml")).unwrap();
    std::fs::write(bench.dir().join("other.toml"), text.replace("group = \"", "group = \"other.")).unwrap();
    frozen_in_a_commit(&mut bench, "other.toml").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_offsets_stop_the_pipeline_and_are_named() {
    let options = Options { partitions: 1, ..Options::default() };
    let topic = Workbench::topic_name("lost");
    let sandbox = Sandbox::start(&[(&topic, 1)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &options);
    bench.produce(1, 0..100, 100).await;
    bench.run_to_end("first");
    // A sandbox keeps about 5 MiB of a partition: the records from offset 100 on are pushed out.
    let producer = alluvium_kafka::Producer::connect(sandbox.brokers(), &[]).unwrap();
    // Not to be compressed: what counts is the size on the broker.
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    let big: Vec<u8> = noise.take(300_000).collect();
    for _ in 0..40 {
        let record =
            alluvium_kafka::NewRecord { topic: &topic, partition: Some(0), value: Some(&big), ..Default::default() };
        producer.produce(record).await.unwrap();
    }
    let mut process = bench.run("lost", &["--until-end"], &[]);
    let status = process.wait(PATIENCE);
    assert_eq!(status.code(), Some(2), "{}", process.err());
    assert!(process.err().contains("offsets 100 to "), "{}", process.err());
    assert!(process.err().contains("lost_data = \"skip\""), "{}", process.err());
    let skipping = Options { source: "lost_data = \"skip\"".to_owned(), ..options };
    bench.write("pipeline.toml", &topic, &skipping);
    bench.run_to_end("skipping");
    let proof = bench.alluvium("verify", &["verify", "--json", "pipeline.toml"], &[]).done(PATIENCE);
    assert!(proof["log"]["partitions"][0]["skipped"].as_i64().unwrap() > 0, "{proof:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_rows_of_one_record_are_numbered_and_rejected_together() {
    use alluvium_tests::workbench::transform;
    let options = Options { partitions: 1, transforms: transform("unwrap", "{}"), ..Options::default() };
    let (sandbox, bench) = workbench(&options).await;
    let producer = alluvium_kafka::Producer::connect(sandbox.brokers(), &[]).unwrap();
    for value in [
        r#"{"payload":[{"id":1},{"id":2},{"id":3}]}"#,
        r#"{"payload":{"id":4}}"#,
        r#"{"payload":[{"id":5},{"id":}]}"#,
        r#"{"other":1}"#,
        r#"{"payload":[]}"#,
        r#"{"payload":[{"id":6},7]}"#,
    ] {
        let record = alluvium_kafka::NewRecord {
            topic: bench.topic(),
            partition: Some(0),
            value: Some(value.as_bytes()),
            ..Default::default()
        };
        producer.produce(record).await.unwrap();
    }
    let summary = bench.run_to_end("run");
    let counts = ["read", "kept", "rows", "filtered", "rejected"].map(|name| summary[0][name].as_u64().unwrap());
    assert_eq!(counts, [6, 2, 4, 1, 3], "{summary:#}");
    let rows = bench.rows("pipeline").await;
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), [((0, 0), 3), ((0, 1), 1)]);
    let letters = bench.dead_letters("pipeline").await;
    assert_eq!(letters.into_keys().collect::<Vec<_>>(), [(0, 2), (0, 3), (0, 5)]);
    bench.alluvium("verify", &["verify", "--scan", "--json", "pipeline.toml"], &[]).done(PATIENCE);
}

/// A column that began as JSON text goes on as JSON text: the table itself remembers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_of_json_text_stays_one_after_a_restart() {
    let options = Options { partitions: 1, transforms: String::new(), ..Options::default() };
    let (sandbox, bench) = workbench(&options).await;
    let producer = alluvium_kafka::Producer::connect(sandbox.brokers(), &[]).unwrap();
    for values in [&[r#"{"id":1,"code":7}"#, r#"{"id":2,"code":"A7"}"#][..], &[r#"{"id":3,"code":{"a":[8]}}"#]] {
        for value in values {
            let record = alluvium_kafka::NewRecord {
                topic: bench.topic(),
                partition: Some(0),
                value: Some(value.as_bytes()),
                ..Default::default()
            };
            producer.produce(record).await.unwrap();
        }
        bench.run_to_end("run");
    }
    let columns = ["id", "code", "_rescued"].map(str::to_owned);
    let rows = bench.sink("pipeline").await;
    let rows = rows.reader().first_rows(alluvium_delta::TableRole::Rows, Some(&columns), 10).await.unwrap();
    let code = rows.column_by_name("code").unwrap().as_string::<i32>();
    let mut codes: Vec<_> = code.iter().flatten().collect();
    codes.sort_unstable();
    assert_eq!(codes, ["\"A7\"", "7", r#"{"a":[8]}"#]);
    assert_eq!(rows.column_by_name("_rescued").unwrap().null_count(), 3);
}

/// The table is made before the first record is read, when its partition column can come from a
/// plugin alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latest_with_inference_can_divide_the_table_by_a_plugins_column() {
    let options = Options {
        source: "start = \"latest\"\ntombstones = \"dead-letter\"".to_owned(),
        sink: "partition_by = [\"order_date\"]".to_owned(),
        ..Options::default()
    };
    let (_sandbox, mut bench) = workbench(&options).await;
    bench.produce(3, 0..50, 1_000).await;
    bench.run("first", &["--until-end"], &[]).done(PATIENCE);
    bench.produce(3, 50..450, 1_000).await;
    let summary = bench.run_to_end("second");
    assert_eq!(summary[0]["read"], 1_200, "{summary:#}");
    let proof = bench.alluvium("verify", &["verify", "--scan", "--json", "pipeline.toml"], &[]).done(PATIENCE);
    assert_eq!(proof["scan"]["rows"], summary[0]["rows"], "{proof:#}");
    assert!(bench.dir().join("pipeline/order_date=2026-03-01").is_dir());
}

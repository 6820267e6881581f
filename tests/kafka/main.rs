//! The same, end to end, on a real Apache Kafka broker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_kafka::{NewRecord, Producer};
use alluvium_testkit::kafka_server::KafkaServer;
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Options, Workbench};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// A session timeout as short as the sandbox's, so that a killed process's partitions are free soon.
const BROKER: &[(&str, &str)] = &[("group.min.session.timeout.ms", "500"), ("group.initial.rebalance.delay.ms", "0")];

async fn workbench(server: &KafkaServer, options: &Options) -> Workbench {
    let topic = Workbench::topic_name("real");
    server.create_topic(&topic, options.partitions, &[]).await.unwrap();
    Workbench::new(server.brokers(), &topic, options)
}

/// One broker for all: a start takes seconds, and it ends with this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_to_end_on_a_real_broker() {
    let server = tokio::task::spawn_blocking(|| KafkaServer::start_with(BROKER)).await.unwrap().unwrap();
    kills_at_every_step(&server).await;
    takeover_from_a_frozen_process(&server).await;
    local_state_deleted(&server).await;
    aborted_transactions_are_not_read(&server).await;
    retention_passed_the_position(&server).await;
    partitions_added_later_are_read_from_their_beginning(&server).await;
}

async fn kills_at_every_step(server: &KafkaServer) {
    let options = Options::default();
    let mut bench = workbench(server, &options).await;
    let points = [
        "plugin:before#1",
        "plugin:after#3",
        "upload:before#1",
        "upload:after#1",
        "dead-letters:before#1",
        "dead-letters:after#1",
        "commit:before#1",
        "commit:after#1",
        "offsets:before#1",
        "offsets:after#1",
    ];
    let count = 4_000;
    for (number, point) in (0u64..).zip(points) {
        bench.produce(3, number * 300..(number + 1) * 300, count).await;
        let mut killed = bench.run("killed", &[], &[("ALLUVIUM_KILL_AT", point)]);
        let status = killed.wait(PATIENCE);
        assert_eq!(status.signal(), Some(9), "{point} was not reached: {status}\n{}", killed.err());
    }
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
}

async fn takeover_from_a_frozen_process(server: &KafkaServer) {
    let options = Options { flush: "every = \"1s\"".to_owned(), ..Options::default() };
    let mut bench = workbench(server, &options).await;
    bench.produce(3, 0..1_000, 6_000).await;
    let mut first = bench.run("first", &[], &[]);
    bench.wait_for("pipeline", 3_000).await;
    bench.produce(3, 1_000..3_000, 6_000).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.signal(Signal::SIGSTOP);
    let mut second = bench.run("second", &[], &[]);
    bench.wait_for("pipeline", 9_000).await;
    first.signal(Signal::SIGCONT);
    bench.produce(3, 3_000..6_000, 6_000).await;
    bench.wait_for("pipeline", 18_000).await;
    first.signal(Signal::SIGTERM);
    second.signal(Signal::SIGTERM);
    first.done(PATIENCE);
    second.done(PATIENCE);
    bench.assert_exactly_once().await;
}

async fn local_state_deleted(server: &KafkaServer) {
    let options = Options::default();
    let mut bench = workbench(server, &options).await;
    for (number, half) in [0..1_000, 1_000..2_000].into_iter().enumerate() {
        bench.produce(3, half, 2_000).await;
        let home = tempfile::tempdir().unwrap();
        let environment = [("HOME", home.path().to_str().unwrap())];
        bench.run(&format!("run-{number}"), &["--until-end"], &environment).done(PATIENCE);
    }
    bench.assert_exactly_once().await;
}

/// Aborted records are skipped, and markers at the end do not keep `--until-end` from ending.
async fn aborted_transactions_are_not_read(server: &KafkaServer) {
    let options = Options { partitions: 1, ..Options::default() };
    let mut bench = workbench(server, &options).await;
    let id = bench.topic().to_owned();
    let producer = Producer::transactional(bench.brokers(), &id, &[]).await.unwrap();
    let aborted = br#"{"id":-1}"#;
    for round in 0..3u64 {
        producer.begin().await.unwrap();
        for _ in 0..50 {
            let record = NewRecord { topic: &id, partition: Some(0), value: Some(aborted), ..NewRecord::default() };
            producer.produce(record).await.unwrap();
        }
        producer.abort().await.unwrap();
        bench.produce(1, round * 100..(round + 1) * 100, 300).await;
        producer.begin().await.unwrap();
        let record = NewRecord { topic: &id, partition: Some(0), value: Some(aborted), ..NewRecord::default() };
        producer.produce(record).await.unwrap();
        producer.abort().await.unwrap();
    }
    bench.run_to_end("run");
    bench.assert_exactly_once().await;
    // The position is past the last marker.
    let topic = alluvium_kafka::KafkaTopic::connect(&config(&bench)).unwrap();
    let end = topic.watermarks(alluvium_core::Partition(0)).await.unwrap().high;
    assert_eq!(bench.positions("pipeline").await, [(alluvium_core::Partition(0), end)]);
}

fn config(bench: &Workbench) -> alluvium_kafka::KafkaConfig {
    alluvium_kafka::KafkaConfig {
        brokers: vec![bench.brokers().to_owned()],
        topic: bench.topic().to_owned(),
        group: "tests".to_owned(),
        settings: vec![],
        client_id: "tests".to_owned(),
    }
}

async fn retention_passed_the_position(server: &KafkaServer) {
    let options = Options { partitions: 1, ..Options::default() };
    let mut bench = workbench(server, &options).await;
    bench.produce(1, 0..100, 300).await;
    bench.run_to_end("first");
    bench.produce(1, 100..300, 300).await;
    alluvium_kafka::admin::delete_records(bench.brokers(), bench.topic(), 0, 150).await.unwrap();
    let mut process = bench.run("lost", &["--until-end"], &[]);
    assert_eq!(process.wait(PATIENCE).code(), Some(2), "{}", process.err());
    assert!(process.err().contains("offsets 100 to 149 are lost"), "{}", process.err());
    let skipping = Options { source: "lost_data = \"skip\"\ntombstones = \"dead-letter\"".to_owned(), ..options };
    bench.write("pipeline.toml", bench.topic(), &skipping);
    bench.run_to_end("skipping");
    bench.fates.retain(|(_, offset), _| !(100..150).contains(offset));
    bench.assert_exactly_once().await;
}

async fn partitions_added_later_are_read_from_their_beginning(server: &KafkaServer) {
    let source = "start = \"latest\"\ntombstones = \"dead-letter\"".to_owned();
    let options = Options { partitions: 1, source, ..Options::default() };
    let mut bench = workbench(server, &options).await;
    bench.produce(1, 0..50, 400).await;
    bench.fates.clear();
    bench.run_to_end("first");
    alluvium_kafka::admin::add_partitions(bench.brokers(), bench.topic(), 3).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.produce(3, 50..400, 400).await;
    bench.run_to_end("second");
    bench.assert_exactly_once().await;
}

//! What brokers do to records that were not read yet, and to those that were.

use crate::{server, workbench};
use alluvium_core::Partition;
use alluvium_kafka::{NewRecord, Producer, admin};
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Fate, Options, Workbench};
use std::time::Duration;

const SKIP: &str = "lost_data = \"skip\"\ntombstones = \"dead-letter\"";

fn skipped(bench: &Workbench) -> i64 {
    let proof = bench.alluvium("verify", &["verify", "--scan", "--json", "pipeline.toml"], &[]).done(PATIENCE);
    proof["log"]["partitions"][0]["skipped"].as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_passed_the_position() {
    let (server, _alone) = server().await;
    let options = Options { partitions: 1, ..Options::default() };
    let mut bench = workbench(server, &options).await;
    bench.produce(1, 0..100, 300).await;
    bench.run_to_end("first");
    bench.produce(1, 100..300, 300).await;
    admin::delete_records(bench.brokers(), bench.topic(), 0, 150).await.unwrap();
    let told = bench.run_refused("lost");
    assert!(told.contains("offsets 100 to 149 are lost"), "{told}");
    bench.write("pipeline.toml", bench.topic(), &Options { source: SKIP.to_owned(), ..options });
    bench.run_to_end("skipping");
    bench.fates.retain(|(_, offset), _| !(100..150).contains(offset));
    bench.assert_exactly_once().await;
    assert_eq!(skipped(&bench), 50);
}

/// The process was too slow: it wakes when what it would have read next is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_passes_a_running_process() {
    let (server, _alone) = server().await;
    // A session long enough to sleep in.
    let kafka = r#""session.timeout.ms" = "30000""#.to_owned();
    let options = Options { partitions: 1, kafka, ..Options::default() };
    for skips in [false, true] {
        let mut bench = workbench(server, &options).await;
        if skips {
            bench.write("pipeline.toml", bench.topic(), &Options { source: SKIP.to_owned(), ..options.clone() });
        }
        bench.produce(1, 0..100, 300).await;
        let mut process = bench.run("run", &[], &[]);
        bench.wait_for("pipeline", 100).await;
        process.signal(Signal::SIGSTOP);
        // The broker may hold a fetch that was asked before, and answers it to nobody.
        bench.produce(1, 100..101, 300).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.produce(1, 101..300, 300).await;
        admin::delete_records(bench.brokers(), bench.topic(), 0, 250).await.unwrap();
        process.signal(Signal::SIGCONT);
        if skips {
            bench.wait_for("pipeline", 300).await;
            process.signal(Signal::SIGTERM);
            process.done(PATIENCE);
            let gone = skipped(&bench);
            assert!(gone > 0, "nothing was lost");
            bench.fates.retain(|(_, offset), _| !(250 - gone..250).contains(offset));
            bench.assert_exactly_once().await;
        } else {
            assert_eq!(process.wait(PATIENCE).code(), Some(2), "{}", process.err());
            assert!(process.err().contains("to 249 are lost"), "{}", process.err());
        }
    }
}

/// A broker that has lost acknowledged records is behind the table, in the same topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_lost_records_is_behind_the_position() {
    let (server, _alone) = server().await;
    let options = Options { partitions: 1, ..Options::default() };
    let mut bench = workbench(server, &options).await;
    for from in [0, 50] {
        bench.produce(1, from..from + 50, 300).await;
    }
    bench.run_to_end("first");
    tokio::task::spawn_blocking(|| server.kill()).await.unwrap();
    // The first batch stays.
    let segment = server.data().join(format!("{}-0/00000000000000000000.log", bench.topic()));
    let bytes = std::fs::read(&segment).unwrap();
    let length = 12 + u32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
    std::fs::write(&segment, &bytes[..length]).unwrap();
    tokio::task::spawn_blocking(|| server.start_again().unwrap()).await.unwrap();
    for source in ["", SKIP] {
        bench.write("pipeline.toml", bench.topic(), &Options { source: source.to_owned(), ..options.clone() });
        let told = bench.run_refused("behind");
        assert!(told.contains("the table is at offset 100, but the broker's newest position is "), "{told}");
        assert!(told.contains("lost records"), "{told}");
        assert_eq!(bench.positions("pipeline").await, [(Partition(0), 100)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_added_later_are_read_from_their_beginning() {
    let (server, _alone) = server().await;
    let source = "start = \"latest\"\ntombstones = \"dead-letter\"".to_owned();
    let options = Options { partitions: 1, source, ..Options::default() };
    let mut bench = workbench(server, &options).await;
    bench.produce(1, 0..50, 400).await;
    bench.fates.clear();
    bench.run_to_end("first");
    admin::add_partitions(bench.brokers(), bench.topic(), 3).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.produce(3, 50..400, 400).await;
    bench.run_to_end("second");
    bench.assert_exactly_once().await;
}

/// The same while two processes run; the group's leader has to notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_added_while_running_are_read_from_their_beginning() {
    let (server, _alone) = server().await;
    let source = "start = \"latest\"\ntombstones = \"dead-letter\"".to_owned();
    let kafka = format!(r#"{}, "topic.metadata.refresh.interval.ms" = "1000""#, Options::default().kafka);
    let options = Options { partitions: 1, source, kafka, ..Options::default() };
    let mut bench = workbench(server, &options).await;
    bench.produce(1, 0..50, 1_000).await;
    let before = std::mem::take(&mut bench.fates).len() as i64;
    let mut processes = ["first", "second"].map(|name| bench.run(name, &[], &[]));
    bench.wait_for("pipeline", before).await;
    bench.produce(1, 50..100, 1_000).await;
    for partitions in [3, 4] {
        admin::add_partitions(bench.brokers(), bench.topic(), partitions).await.unwrap();
        let from = 100 * partitions as u64;
        // At once, so that records are there before anybody is assigned.
        tokio::time::sleep(Duration::from_millis(500)).await;
        bench.produce(partitions as i32, from..from + 100, 1_000).await;
        bench.wait_for("pipeline", before + bench.fates.len() as i64).await;
    }
    for process in &mut processes {
        process.signal(Signal::SIGTERM);
        process.done(PATIENCE);
    }
    bench.assert_exactly_once().await;
}

/// Larger than a fetch, than a chunk, and than most records by far.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_larger_than_a_fetch() {
    let (server, _alone) = server().await;
    let topic = Workbench::topic_name("large");
    server.create_topic(&topic, 1, &[("max.message.bytes", "30000000")]).await.unwrap();
    let kafka = format!(r#"{}, "fetch.message.max.bytes" = "100000""#, Options::default().kafka);
    let mut bench = Workbench::new(server.brokers(), &topic, &Options { partitions: 1, kafka, ..Options::default() });
    let settings = [("message.max.bytes", "30000000"), ("compression.type", "none")];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let producer = Producer::connect(server.brokers(), &settings).unwrap();
    for (id, size) in [10, 200_000, 20_000_000, 10, 5_000_000].into_iter().enumerate() {
        let value = format!(r#"{{"id":{id},"text":"{}"}}"#, "x".repeat(size));
        let value = Some(value.as_bytes());
        let record = NewRecord { topic: &topic, partition: Some(0), value, ..NewRecord::default() };
        let offset = producer.produce(record).await.unwrap().offset;
        bench.fates.insert((0, offset), Fate::Row);
    }
    bench.run_to_end("run");
    bench.assert_exactly_once().await;
}

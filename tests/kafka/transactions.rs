//! Transactions and compaction: offsets without records, also at the very end.

use crate::{server, workbench};
use alluvium_core::Partition;
use alluvium_kafka::{KafkaConfig, KafkaTopic, NewRecord, Producer};
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Fate, Options, Workbench};
use std::time::{Duration, Instant};

async fn end_of(bench: &Workbench) -> i64 {
    let config = KafkaConfig::new(bench.brokers(), bench.topic(), "tests");
    KafkaTopic::connect(&config).unwrap().watermarks(Partition(0)).await.unwrap().high
}

async fn put(producer: &Producer, topic: &str, key: &str, value: &str) -> i64 {
    let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
    let record = NewRecord { topic, partition: Some(0), key, value, ..NewRecord::default() };
    producer.produce(record).await.unwrap().offset
}

/// Aborted records are skipped, and markers at the end do not keep `--until-end` from ending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_transactions_are_not_read() {
    let (server, _alone) = server().await;
    let options = Options { partitions: 1, ..Options::default() };
    let mut bench = workbench(server, &options).await;
    let topic = bench.topic().to_owned();
    let producer = Producer::transactional(bench.brokers(), &topic, &[]).await.unwrap();
    for round in 0..3u64 {
        for (records, more) in [(50, round * 100..(round + 1) * 100), (1, 0..0)] {
            producer.begin().await.unwrap();
            for _ in 0..records {
                put(&producer, &topic, "aborted", r#"{"id":-1}"#).await;
            }
            producer.abort().await.unwrap();
            bench.produce(1, more, 300).await;
        }
    }
    bench.run_to_end("run");
    bench.assert_exactly_once().await;
    // The position is past the last marker, and there it ends again.
    assert_eq!(bench.positions("pipeline").await, [(Partition(0), end_of(&bench).await)]);
    bench.run_to_end("quiet");
}

/// Nothing but aborted records, ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_of_aborted_records_alone_is_at_its_end() {
    let (server, _alone) = server().await;
    let bench = workbench(server, &Options { partitions: 1, ..Options::default() }).await;
    let producer = Producer::transactional(bench.brokers(), bench.topic(), &[]).await.unwrap();
    producer.begin().await.unwrap();
    put(&producer, bench.topic(), "aborted", r#"{"id":-1}"#).await;
    producer.abort().await.unwrap();
    assert_eq!(bench.run_to_end("run")[0]["read"], 0);
    assert_eq!(bench.positions("pipeline").await, [(Partition(0), 2)]);
}

/// An open transaction ends what is stable: it is neither waited for nor passed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_is_the_end() {
    let (server, _alone) = server().await;
    let options = Options { partitions: 1, ..Options::default() };
    let mut bench = workbench(server, &options).await;
    bench.produce(1, 0..100, 300).await;
    let producer = Producer::transactional(bench.brokers(), bench.topic(), &[]).await.unwrap();
    producer.begin().await.unwrap();
    let open = put(&producer, bench.topic(), "open", r#"{"id":1}"#).await;
    bench.produce(1, 100..200, 300).await;
    bench.run_to_end("before");
    assert_eq!(bench.positions("pipeline").await, [(Partition(0), open)]);
    producer.commit().await.unwrap();
    bench.fates.insert((0, open), Fate::Row);
    bench.run_to_end("after");
    bench.assert_exactly_once().await;
}

/// Compaction leaves gaps of all sizes, and what was deleted at the end leaves one there too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_topic_is_read_to_its_end() {
    let (server, _alone) = server().await;
    let topic = Workbench::topic_name("compacted");
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("delete.retention.ms", "0"),
    ];
    server.create_topic(&topic, 1, &settings).await.unwrap();
    let options = Options { partitions: 1, transforms: String::new(), ..Options::default() };
    let bench = Workbench::new(server.brokers(), &topic, &options);
    let producer = Producer::connect(server.brokers(), &[]).unwrap();
    let mut newest = std::collections::BTreeMap::new();
    let mut produced = 0;
    for round in 0..20 {
        for key in 0..10 {
            let value = format!(r#"{{"key":{key},"round":{round}}}"#);
            newest.insert(key, put(&producer, &topic, &key.to_string(), &value).await);
            produced += 1;
        }
    }
    // Only segments that were closed are compacted, and a marker closes them without a record to keep.
    let transactional = Producer::transactional(server.brokers(), &topic, &[]).await.unwrap();
    let begun = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        transactional.begin().await.unwrap();
        put(&transactional, &topic, "0", r#"{"key":-1}"#).await;
        transactional.abort().await.unwrap();
        let segments = std::fs::read_dir(server.data().join(format!("{topic}-0"))).unwrap();
        let logs =
            segments.map(|entry| entry.unwrap()).filter(|entry| entry.path().extension().is_some_and(|e| e == "log"));
        // The first round's records are gone.
        let text: Vec<u8> = logs.flat_map(|entry| std::fs::read(entry.path()).unwrap_or_default()).collect();
        if !String::from_utf8_lossy(&text).contains(r#""round":0}"#) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing was compacted");
    }
    let summary = bench.run_to_end("run");
    let read = summary[0]["read"].as_i64().unwrap();
    assert!(read >= 10 && read < produced, "{summary:#}");
    assert_eq!(bench.positions("pipeline").await, [(Partition(0), end_of(&bench).await)]);
    let rows = bench.rows("pipeline").await;
    assert!(newest.values().all(|offset| rows.get(&(0, *offset)) == Some(&1)), "{newest:?} {rows:?}");
    bench.alluvium("verify", &["verify", "--scan", "--json", "pipeline.toml"], &[]).done(PATIENCE);
    assert_eq!(bench.run_to_end("quiet")[0]["read"], 0);
}

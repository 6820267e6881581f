//! The broker's life.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_kafka::{KafkaConfig, KafkaTopic, NewRecord, Producer};
use alluvium_testkit::kafka_server::KafkaServer;
use std::{
    fs,
    time::{Duration, Instant},
};

fn processes_with(text: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let command = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    processes.filter_map(command).filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn data_outlive_a_stop_and_a_kill_and_nothing_outlives_the_server() {
    let server = KafkaServer::start().unwrap();
    server.create_topic("orders", 3, &[]).await.unwrap();
    let topic = KafkaTopic::connect(&KafkaConfig::new(server.brokers(), "orders", "readers")).unwrap();
    assert_eq!(topic.partitions().await.unwrap().len(), 3);
    for round in 0..3 {
        let producer = Producer::connect(server.brokers(), &[]).unwrap();
        let record = NewRecord { topic: "orders", partition: Some(0), value: Some(b"x"), ..NewRecord::default() };
        assert_eq!(producer.produce(record).await.unwrap().offset, round);
        if round == 1 {
            server.stop()
        } else {
            server.kill()
        }
        let started = Instant::now();
        server.start_again().unwrap();
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }
    server.delete_topic("orders").await.unwrap();
    let data = server.data();
    assert_eq!(processes_with(data.parent().unwrap().to_str().unwrap()), 2);
    drop(server);
    assert_eq!(processes_with(data.parent().unwrap().to_str().unwrap()), 0);
    assert!(!data.exists());
}

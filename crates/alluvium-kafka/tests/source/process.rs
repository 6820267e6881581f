//! A member that is killed.

use crate::{broker::Broker, reading::Reading};
use alluvium_kafka::{KafkaConfig, KafkaSource};
use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const BROKERS: &str = "ALLUVIUM_TEST_BROKERS";
const TOPIC: &str = "ALLUVIUM_TEST_TOPIC";

pub async fn partitions_of_a_killed_process_come_back_within_ten_seconds(broker: &Broker) {
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..10).await;
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "process::member", "--nocapture"])
        .envs([(BROKERS, broker.brokers()), (TOPIC, &topic)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reads = tokio::task::spawn_blocking(|| lines.map_while(Result::ok).any(|line| line.contains("reading")));
    assert!(reads.await.unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    let started = Instant::now();
    let mut reading = Reading::new(KafkaSource::connect(KafkaConfig::new(broker.brokers(), &topic, &topic)).unwrap());
    reading.until_at(&[(0, 10)]).await;
    let took = started.elapsed();
    // The sandbox takes nearly two sessions for it.
    let limit = if broker.is_real() { 10 } else { 15 };
    assert!(took < Duration::from_secs(limit), "{took:?}");
    assert_eq!(reading.assigned.len(), 2);
}

/// What the killed process runs; nothing when run as a test.
#[tokio::test(flavor = "multi_thread")]
async fn member() {
    let (Ok(brokers), Ok(topic)) = (env::var(BROKERS), env::var(TOPIC)) else { return };
    let mut reading = Reading::new(KafkaSource::connect(KafkaConfig::new(&brokers, &topic, &topic)).unwrap());
    reading.until_at(&[(0, 10)]).await;
    #[expect(clippy::print_stdout, reason = "the word that the other process waits for")]
    {
        println!("reading");
    }
    reading.for_a_while(Duration::from_secs(120)).await;
}

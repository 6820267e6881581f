//! How fast a topic becomes chunks, and at what cost of CPU.
//!
//! ```text
//! cargo run -p alluvium-kafka --example consume_bench [RECORDS [BROKERS TOPIC]]
//! ```
//!
//! Without brokers it starts a real one and fills a topic of four partitions with so many records
//! (4,000,000) of about 340 bytes. Reads them with [`KafkaSource`], and, to compare, with librdkafka's
//! `poll` and the same settings, three times each.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use alluvium_core::{
    Classified, Partition,
    seam::{Event, Source},
};
use alluvium_kafka::{Error, KafkaConfig, KafkaSource, NewRecord, Producer};
use alluvium_testkit::kafka_server::{KafkaServer, ServerError};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
};
use std::{
    env, fs,
    process::ExitCode,
    time::{Duration, Instant},
};

const PARTITIONS: i32 = 4;

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("usage: consume_bench [RECORDS [BROKERS TOPIC]]")]
    Usage,
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Source(#[from] Error),
    #[error(transparent)]
    Poll(#[from] KafkaError),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            if let Failure::Source(error) = error {
                println!("{}", error.hint().unwrap_or_default());
            }
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let records = arguments.first().map_or(Ok(4_000_000), |text| text.parse().map_err(|_| Failure::Usage))?;
    let mut server = None;
    let (brokers, topic) = match arguments.get(1..3) {
        Some([brokers, topic]) => (brokers.clone(), topic.clone()),
        Some(_) | None => {
            let started = server.insert(KafkaServer::start()?);
            started.create_topic("bench", PARTITIONS, &[]).await?;
            let filled = Instant::now();
            fill(started.brokers(), "bench", records).await?;
            println!("filled in {:.1} s", filled.elapsed().as_secs_f64());
            (started.brokers().to_owned(), "bench".to_owned())
        }
    };
    for round in 0..3 {
        let meter = Meter::start();
        let read = read_chunks(&brokers, &topic, &format!("bench-{round}"), records).await?;
        meter.report("chunks", read);
        let (brokers, topic) = (brokers.clone(), topic.clone());
        let meter = Meter::start();
        let read = tokio::task::spawn_blocking(move || read_by_poll(&brokers, &topic, records)).await;
        meter.report("poll", read.map_err(|_| Failure::Usage)??);
    }
    Ok(())
}

async fn fill(brokers: &str, topic: &str, records: u64) -> Result<(), Error> {
    let producer = Producer::connect(brokers, &[])?;
    let mut value = String::new();
    for number in 0..records {
        use std::fmt::Write as _;
        value.clear();
        // Writing to a string cannot fail.
        let _infallible = write!(
            value,
            r#"{{"order_id":"{number:016x}","test":false,"event_time":"2026-03-01T00:{:02}:{:02}.{:03}Z","customer":{{"id":{},"email":"customer{number}@example.org","country":"NL"}},"amount":"{}.{:02}","items":[{{"sku":"A-{:05}","quantity":2,"price":"12.50"}},{{"sku":"B-{:05}","quantity":1,"price":"3.99"}}],"note":"leave it at the door, please"}}"#,
            number / 60 % 60,
            number % 60,
            number % 1000,
            number % 50_000,
            number % 900,
            number % 100,
            number % 7919,
            number % 104_729,
        );
        let partition = Some((number % PARTITIONS as u64) as i32);
        producer.enqueue(NewRecord { topic, partition, value: Some(value.as_bytes()), ..NewRecord::default() }).await?;
    }
    producer.flush().await
}

async fn read_chunks(brokers: &str, topic: &str, group: &str, records: u64) -> Result<u64, Error> {
    let mut source = KafkaSource::connect(KafkaConfig::new(brokers, topic, group))?;
    let mut read = 0;
    while read < records {
        match source.next().await? {
            Event::Assigned { partitions, ack } => {
                ack.send(partitions.into_iter().map(|partition: Partition| (partition, 0)).collect());
            }
            Event::Chunk(chunk) => read += chunk.records().len() as u64,
            Event::Revoked { ack, .. } => ack.send(()),
        }
    }
    source.close().await;
    Ok(read)
}

fn read_by_poll(brokers: &str, topic: &str, records: u64) -> Result<u64, KafkaError> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "bench-poll")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("check.crcs", "true")
        .set("fetch.queue.backoff.ms", "5")
        .set("queued.min.messages", "1000000")
        .set("queued.max.messages.kbytes", "32768")
        .set("fetch.message.max.bytes", "8388608")
        .create()?;
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    let (mut read, mut packed) = (0, Vec::with_capacity(1 << 20));
    while read < records {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            packed.extend_from_slice(message?.payload().unwrap_or_default());
            if packed.len() > 1 << 20 {
                packed.clear();
            }
            read += 1;
        }
    }
    Ok(read)
}

struct Meter {
    started: Instant,
    cpu: f64,
}

impl Meter {
    fn start() -> Self {
        Self { started: Instant::now(), cpu: cpu_seconds() }
    }

    fn report(self, what: &str, records: u64) {
        let (wall, cpu) = (self.started.elapsed().as_secs_f64(), cpu_seconds() - self.cpu);
        let millions = records as f64 / 1e6;
        println!(
            "{what:>7}: {:.2} M records/s, {:.2} CPU-s per million, {} MiB at most",
            millions / wall,
            cpu / millions,
            peak_memory() >> 10,
        );
    }
}

/// User and system time of this process; clock ticks are hundredths on every Linux.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}

/// KiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or_default()
}

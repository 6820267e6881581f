use alluvium_core::chunk::Header;
use alluvium_kafka::{KafkaConfig, KafkaSource, NewRecord, Producer, Sandbox};
use alluvium_testkit::kafka_server::KafkaServer;
use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

/// A broker of either kind.
pub enum Broker {
    Sandbox(Sandbox),
    /// A real one, that other tests use too.
    Real(&'static KafkaServer),
    /// A real one for one test.
    Own(KafkaServer),
}

impl Broker {
    pub fn sandbox() -> Self {
        Self::Sandbox(Sandbox::start(&[]).unwrap())
    }

    pub fn real() -> Self {
        Self::Real(KafkaServer::shared().unwrap())
    }

    pub fn brokers(&self) -> &str {
        match self {
            Self::Sandbox(sandbox) => sandbox.brokers(),
            Self::Real(_) | Self::Own(_) => self.server().brokers(),
        }
    }

    pub fn is_real(&self) -> bool {
        !matches!(self, Self::Sandbox(_))
    }

    pub fn server(&self) -> &KafkaServer {
        match self {
            Self::Sandbox(_) => panic!("a sandbox is no server"),
            Self::Real(server) => server,
            Self::Own(server) => server,
        }
    }

    /// A new topic with a name of its own.
    pub async fn topic(&self, partitions: i32) -> String {
        self.topic_with(partitions, &[]).await
    }

    /// The same with settings, which the sandbox has no use for.
    pub async fn topic_with(&self, partitions: i32, settings: &[(&str, &str)]) -> String {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let topic = format!("topic-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        match self {
            Self::Sandbox(sandbox) => sandbox.create_topic(&topic, partitions).await.unwrap(),
            Self::Real(_) | Self::Own(_) => self.server().create_topic(&topic, partitions, settings).await.unwrap(),
        }
        topic
    }

    /// A topic read by a group of the same name.
    pub fn config(&self, topic: &str, settings: &[(&str, &str)]) -> KafkaConfig {
        let mut config = KafkaConfig::new(self.brokers(), topic, topic);
        config.settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        config
    }

    pub fn source(&self, topic: &str) -> KafkaSource {
        KafkaSource::connect(self.config(topic, &[])).unwrap()
    }

    pub fn producer(&self) -> Producer {
        Producer::connect(self.brokers(), &[]).unwrap()
    }

    /// Writes numbers as records; on a new topic their offsets are the same numbers.
    pub async fn fill(&self, topic: &str, partition: i32, values: Range<i64>) {
        fill(&self.producer(), topic, partition, values).await;
    }
}

pub async fn fill(producer: &Producer, topic: &str, partition: i32, values: Range<i64>) {
    let mut deliveries = Vec::new();
    for value in values {
        deliveries.push(producer.enqueue(record(topic, partition, &value.to_string())).await.unwrap());
    }
    for delivery in deliveries {
        delivery.await.unwrap();
    }
}

pub fn record<'a>(topic: &'a str, partition: i32, value: &'a str) -> NewRecord<'a> {
    NewRecord { topic, partition: Some(partition), value: Some(value.as_bytes()), ..NewRecord::default() }
}

pub fn header<'a>(key: &'a str, value: Option<&'a [u8]>) -> Header<'a> {
    Header { key, value }
}

//! Making and deleting topics and records.

use crate::{Error, KafkaConfig, context::LogContext};
use rdkafka::{
    Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication},
    error::KafkaError,
};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Makes a topic with the brokers' default replication. `settings` are the topic's.
pub async fn create_topic(brokers: &str, topic: &str, partitions: i32, settings: &[(&str, &str)]) -> Result<(), Error> {
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
    let new = settings.iter().fold(new, |new, (key, value)| new.set(key, value));
    let made = client(brokers)?.create_topics([&new], &options()).await;
    first(made).map_err(|source| Error::CreateTopic { topic: topic.to_owned(), source: source.into() })
}

/// Raises a topic's number of partitions to `partitions`.
pub async fn add_partitions(brokers: &str, topic: &str, partitions: usize) -> Result<(), Error> {
    let more = NewPartitions::new(topic, partitions);
    let made = client(brokers)?.create_partitions([&more], &options()).await;
    first(made).map_err(|source| Error::CreateTopic { topic: topic.to_owned(), source: source.into() })
}

/// Deletes a topic with its records.
pub async fn delete_topic(brokers: &str, topic: &str) -> Result<(), Error> {
    let deleted = client(brokers)?.delete_topics(&[topic], &options()).await;
    first(deleted).map_err(|source| Error::DeleteTopic { topic: topic.to_owned(), source: source.into() })
}

/// Deletes the records of a partition below `offset`.
pub async fn delete_records(brokers: &str, topic: &str, partition: i32, offset: i64) -> Result<(), Error> {
    let failed = |source: KafkaError| Error::DeleteRecords { topic: topic.to_owned(), offset, source: source.into() };
    let mut below = TopicPartitionList::new();
    below.add_partition_offset(topic, partition, Offset::Offset(offset)).map_err(failed)?;
    let deleted = client(brokers)?.delete_records(&below, &options()).await.map_err(failed)?;
    deleted.elements().iter().try_for_each(|element| element.error()).map_err(failed)
}

fn client(brokers: &str) -> Result<AdminClient<LogContext>, Error> {
    KafkaConfig::client(brokers, &[])?.create_with_context(LogContext).map_err(Error::configure)
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT))
}

fn first(results: Result<Vec<rdkafka::admin::TopicResult>, KafkaError>) -> Result<(), KafkaError> {
    results?.into_iter().try_for_each(|result| result.map(drop).map_err(|(_, code)| KafkaError::AdminOp(code)))
}

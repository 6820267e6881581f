//! Questions about a topic, asked over a connection of their own: on a reader's connection they
//! would wait behind its long poll.

use crate::{ClientError, Error, KafkaConfig, context::Context, native};
use alluvium_core::{Partition, TopicId, position::Watermarks};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
    types::RDKafkaRespErr,
};
use std::{
    ffi::CString,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How long an answer may take, and how long a topic may be unknown: brokers hear of a new one late.
const TIMEOUT: Duration = Duration::from_secs(10);
const UNKNOWN: Duration = Duration::from_secs(3);
/// Between tries.
const AGAIN: Duration = Duration::from_millis(200);

/// How often, and after which waits, a partition that is not known is asked for again.
const NEW_PARTITION_TRIES: u32 = 15;
const NEW_PARTITION_WAIT: Duration = Duration::from_millis(200);

/// A topic that can be asked about, outside any group. Cheap to clone.
#[derive(Clone)]
pub struct KafkaTopic {
    asker: Arc<Asker>,
}

/// What [`KafkaTopic::check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// `host:port` as the brokers advertise themselves.
    pub brokers: Vec<String>,
    pub partitions: Vec<Partition>,
}

struct Asker {
    /// `None` only while it is dropped.
    client: Option<BaseConsumer<Context>>,
    brokers: String,
    topic: String,
    timeout: Duration,
    /// What the client said last of why there is no answer.
    trouble: Mutex<Option<(Code, String)>>,
}

impl KafkaTopic {
    /// Connects in the background; does no IO itself.
    pub fn connect(config: &KafkaConfig) -> Result<Self, Error> {
        let client = Some(config.consumer(None)?);
        let asker = Asker {
            client,
            brokers: config.broker_list(),
            topic: config.topic.clone(),
            timeout: TIMEOUT,
            trouble: Mutex::default(),
        };
        Ok(Self { asker: Arc::new(asker) })
    }

    /// The topic's name.
    pub fn name(&self) -> &str {
        &self.asker.topic
    }

    /// Whether the topic can be reached and read about. [`Error::Unreachable`],
    /// [`Error::Authentication`], [`Error::Authorization`] and [`Error::TopicMissing`] tell why not.
    pub async fn check(&self) -> Result<TopicInfo, Error> {
        self.ask(Asker::info).await
    }

    /// All partitions, rising.
    pub async fn partitions(&self) -> Result<Vec<Partition>, Error> {
        self.ask(Asker::info).await.map(|info| info.partitions)
    }

    /// The id of the topic of this name now; `None` when the brokers are too old to tell. A topic made
    /// anew has another.
    pub async fn id(&self) -> Result<Option<TopicId>, Error> {
        self.ask(Asker::id).await
    }

    /// The oldest offset, and the last stable one: transactions that are open end it.
    pub async fn watermarks(&self, partition: Partition) -> Result<Watermarks, Error> {
        self.ask(move |asker| asker.watermarks(partition)).await
    }

    /// The first offset at or after `timestamp` (milliseconds since the epoch); the high watermark
    /// when there is none.
    pub async fn offset_at(&self, partition: Partition, timestamp: i64) -> Result<i64, Error> {
        self.ask(move |asker| asker.offset_at(partition, timestamp)).await
    }

    /// librdkafka answers by blocking: not on the threads that drive futures.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Asker) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let asker = Arc::clone(&self.asker);
        let answer = tokio::task::spawn_blocking(move || question(&asker)).await;
        answer.unwrap_or_else(|_| Err(Error::Closed { topic: self.asker.topic.clone() }))
    }
}

impl Asker {
    fn client(&self) -> Result<&BaseConsumer<Context>, Error> {
        self.client.as_ref().ok_or_else(|| Error::Closed { topic: self.topic.clone() })
    }

    fn info(&self) -> Result<TopicInfo, Error> {
        self.describe().map(|(info, _)| info)
    }

    /// The topic, and the id of a broker that leads one of its partitions.
    fn describe(&self) -> Result<(TopicInfo, Option<i32>), Error> {
        let client = self.client()?;
        let started = Instant::now();
        let mut patience = Duration::from_secs(1);
        loop {
            // In growing steps, since librdkafka waits to the end also when it knows better.
            let left = self.timeout.saturating_sub(started.elapsed());
            let metadata = client.fetch_metadata(Some(&self.topic), patience.min(left));
            let metadata = match metadata {
                Ok(metadata) => metadata,
                Err(source) => {
                    self.listen();
                    let refused = self.trouble().as_ref().is_some_and(|(code, _)| is_refusal(*code));
                    if refused || !is_silence(&source) || started.elapsed() >= self.timeout {
                        let failed = |source| Error::Partitions { topic: self.topic.clone(), source };
                        return Err(self.failure(None, source, failed));
                    }
                    // Some failures come at once, again and again.
                    thread::sleep(AGAIN);
                    patience = (patience * 2).min(self.timeout);
                    continue;
                }
            };
            self.listen();
            *self.trouble() = None;
            let topic = metadata.topics().iter().find(|topic| topic.name() == self.topic);
            let code = topic.map_or(Code::UnknownTopicOrPartition, |topic| {
                topic.error().map_or(Code::NoError, |error: RDKafkaRespErr| error.into())
            });
            match (topic, code) {
                (Some(topic), Code::NoError) if !topic.partitions().is_empty() => {
                    let mut partitions: Vec<_> = topic.partitions().iter().map(|p| Partition(p.id())).collect();
                    partitions.sort_unstable();
                    let brokers = metadata.brokers().iter().map(|b| format!("{}:{}", b.host(), b.port())).collect();
                    let leader = topic.partitions().iter().map(|partition| partition.leader()).find(|id| *id >= 0);
                    return Ok((TopicInfo { brokers, partitions }, leader));
                }
                (_, Code::NoError | Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::LeaderNotAvailable) => {
                    if started.elapsed() >= UNKNOWN {
                        return Err(Error::TopicMissing { brokers: self.brokers.clone(), topic: self.topic.clone() });
                    }
                    thread::sleep(AGAIN);
                }
                (_, Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed) => {
                    let action = format!("describe topic {}", self.topic);
                    return Err(Error::Authorization { action, reason: code.to_string() });
                }
                (_, code) => {
                    let source = KafkaError::MetadataFetch(code).into();
                    return Err(Error::Partitions { topic: self.topic.clone(), source });
                }
            }
        }
    }

    fn id(&self) -> Result<Option<TopicId>, Error> {
        // Knows soonest, and best, why there is no answer.
        let (_, leader) = self.describe()?;
        let (brokers, topic) = (self.brokers.clone(), self.topic.clone());
        let name = CString::new(topic.as_str()).map_err(|_| Error::TopicName { topic: topic.clone() })?;
        native::topic_id(self.client()?.client(), &name, leader, self.timeout).map_err(|source| {
            match source.rdkafka_error_code() {
                // Deleted in between.
                Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => Error::TopicMissing { brokers, topic },
                _ => self.failure(None, source, |source| Error::TopicId { topic, source }),
            }
        })
    }

    fn watermarks(&self, partition: Partition) -> Result<Watermarks, Error> {
        let mut answer = self.client()?.fetch_watermarks(&self.topic, partition.0, self.timeout);
        // This client hears of a new partition later than the consumer that was given it.
        for _ in 0..NEW_PARTITION_TRIES {
            let unknown = |error: &KafkaError| {
                matches!(error.rdkafka_error_code(), Some(Code::UnknownPartition | Code::UnknownTopicOrPartition))
            };
            if !answer.as_ref().is_err_and(unknown) {
                break;
            }
            if self.client()?.fetch_metadata(Some(&self.topic), self.timeout).is_ok() {
                std::thread::sleep(NEW_PARTITION_WAIT);
            }
            answer = self.client()?.fetch_watermarks(&self.topic, partition.0, self.timeout);
        }
        let failed = |source| Error::Watermarks { topic: self.topic.clone(), partition, source };
        match answer {
            Ok((low, high)) => Ok(Watermarks { low, high }),
            Err(source) => Err(self.failure(Some(partition), source, failed)),
        }
    }

    fn offset_at(&self, partition: Partition, timestamp: i64) -> Result<i64, Error> {
        let topic = &self.topic;
        let failed = |source| {
            let failed = |source| Error::OffsetAt { topic: topic.clone(), partition, timestamp, source };
            self.failure(Some(partition), source, failed)
        };
        let mut question = TopicPartitionList::new();
        // Negative timestamps have other meanings for brokers; no record lies before the epoch.
        question.add_partition_offset(topic, partition.0, Offset::Offset(timestamp.max(0))).map_err(failed)?;
        let answer = self.client()?.offsets_for_times(question, self.timeout).map_err(failed)?;
        let Some(found) = answer.find_partition(topic, partition.0) else {
            return Err(Error::PartitionMissing { topic: topic.clone(), partition });
        };
        found.error().map_err(failed)?;
        match found.offset() {
            Offset::Offset(offset) => Ok(offset),
            _ => self.watermarks(partition).map(|watermarks| watermarks.high),
        }
    }

    /// An error with what the client said meanwhile.
    fn failure(
        &self,
        partition: Option<Partition>,
        source: KafkaError,
        failed: impl FnOnce(ClientError) -> Error,
    ) -> Error {
        let code = source.rdkafka_error_code();
        if let (Some(Code::UnknownPartition | Code::UnknownTopicOrPartition), Some(partition)) = (code, partition) {
            return Error::PartitionMissing { topic: self.topic.clone(), partition };
        }
        if !is_silence(&source) {
            return failed(source.into());
        }
        self.listen();
        let brokers = self.brokers.clone();
        match self.trouble().clone() {
            Some((code, reason)) if is_refusal(code) => Error::Authentication { brokers, reason },
            Some((_, reason)) => Error::Unreachable { brokers, reason },
            None => {
                let reason = format!("no answer within {} seconds", self.timeout.as_secs());
                Error::Unreachable { brokers, reason }
            }
        }
    }

    /// Serves the client's log lines and errors, and remembers the error that tells most.
    fn listen(&self) {
        let Some(client) = &self.client else { return };
        for _ in 0..64 {
            drop(client.poll(Duration::ZERO));
            let Some(newer) = client.context().take_error() else { continue };
            let mut trouble = self.trouble();
            // That all brokers are down says less than why one of them is.
            let kept = trouble.as_ref().is_some_and(|(code, _)| is_refusal(*code) || newer.0 == Code::AllBrokersDown);
            if !kept {
                *trouble = Some(newer);
            }
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Option<(Code, String)>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asker {
    /// Taking a client down waits for its threads: not on the threads that drive futures.
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            let spawned = thread::Builder::new().name("kafka-close".to_owned()).spawn(move || drop(client));
            if let Err(error) = spawned {
                tracing::debug!(%error, "a Kafka client was closed in place");
            }
        }
    }
}

impl fmt::Debug for KafkaTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KafkaTopic").field(&self.asker.topic).finish()
    }
}

/// Whether an error only says that no broker answered.
fn is_silence(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    code.is_some_and(|code| {
        matches!(
            code,
            Code::BrokerTransportFailure
                | Code::OperationTimedOut
                | Code::AllBrokersDown
                | Code::Resolve
                | Code::RequestTimedOut
                | Code::Authentication
        )
    })
}

fn is_refusal(code: Code) -> bool {
    matches!(code, Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism)
}

//! Writing records.

use crate::{Error, KafkaConfig, context::LogContext};
use alluvium_core::chunk::Header;
use rdkafka::{
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{self, OwnedHeaders},
    producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer as _},
};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(60);
/// How often a full queue is tried again.
const FULL: Duration = Duration::from_millis(5);

/// Writes records, each exactly once (idempotent). Cheap to clone.
#[derive(Clone)]
pub struct Producer {
    inner: FutureProducer<LogContext>,
}

/// A record to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    pub topic: &'a str,
    /// Chosen by the key's hash, or at random, when `None`.
    pub partition: Option<i32>,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Milliseconds since the epoch; now when `None` or 0.
    pub timestamp: Option<i64>,
    pub headers: &'a [Header<'a>],
}

/// Where a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub partition: i32,
    pub offset: i64,
}

/// A record on its way. Need not be awaited for the record to be written.
pub struct Delivery {
    topic: String,
    inner: DeliveryFuture,
}

impl Producer {
    /// A producer; connects in the background. `settings` are librdkafka's.
    pub fn connect(brokers: &str, settings: &[(String, String)]) -> Result<Self, Error> {
        Self::create(brokers, settings, None)
    }

    /// A producer of transactions. Ends those that another with the same `id` left open.
    pub async fn transactional(brokers: &str, id: &str, settings: &[(String, String)]) -> Result<Self, Error> {
        let producer = Self::create(brokers, settings, Some(id))?;
        producer.step("start", |inner| inner.init_transactions(TIMEOUT)).await?;
        Ok(producer)
    }

    fn create(brokers: &str, settings: &[(String, String)], id: Option<&str>) -> Result<Self, Error> {
        let mut config = KafkaConfig::client(brokers, &[])?;
        config.set("enable.idempotence", "true").set("compression.type", "lz4").set("linger.ms", "5");
        config.set("queue.buffering.max.kbytes", "65536");
        config.extend(settings.iter().cloned());
        if let Some(id) = id {
            config.set("transactional.id", id);
        }
        let inner = config.create_with_context(LogContext).map_err(Error::configure)?;
        Ok(Self { inner })
    }

    /// Writes a record and waits until the brokers have it.
    pub async fn produce(&self, record: NewRecord<'_>) -> Result<Delivered, Error> {
        self.enqueue(record).await?.await
    }

    /// Queues a record, waiting only while the queue is full.
    pub async fn enqueue(&self, record: NewRecord<'_>) -> Result<Delivery, Error> {
        loop {
            match self.inner.send_result(future_record(&record)) {
                Ok(inner) => return Ok(Delivery { topic: record.topic.to_owned(), inner }),
                Err((KafkaError::MessageProduction(Code::QueueFull), _)) => tokio::time::sleep(FULL).await,
                Err((source, _)) => {
                    return Err(Error::Produce { topic: record.topic.to_owned(), source: source.into() });
                }
            }
        }
    }

    /// Waits until all queued records are written, or have failed.
    pub async fn flush(&self) -> Result<(), Error> {
        let flushed = self.blocking(|inner| inner.flush(TIMEOUT)).await;
        flushed.map_err(|source| Error::Flush { source: source.into() })
    }

    /// Begins a transaction; records queued from now on belong to it.
    pub async fn begin(&self) -> Result<(), Error> {
        self.step("begin", |inner| inner.begin_transaction()).await
    }

    /// Commits the open transaction, with all records queued in it.
    pub async fn commit(&self) -> Result<(), Error> {
        self.step("commit", |inner| inner.commit_transaction(TIMEOUT)).await
    }

    /// Aborts the open transaction.
    pub async fn abort(&self) -> Result<(), Error> {
        self.step("abort", |inner| inner.abort_transaction(TIMEOUT)).await
    }

    async fn step(
        &self,
        step: &'static str,
        call: impl FnOnce(&FutureProducer<LogContext>) -> Result<(), KafkaError> + Send + 'static,
    ) -> Result<(), Error> {
        self.blocking(call).await.map_err(|source| Error::Transaction { step, source: source.into() })
    }

    async fn blocking(
        &self,
        call: impl FnOnce(&FutureProducer<LogContext>) -> Result<(), KafkaError> + Send + 'static,
    ) -> Result<(), KafkaError> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || call(&inner)).await.unwrap_or(Err(KafkaError::Canceled))
    }
}

fn future_record<'a>(record: &NewRecord<'a>) -> FutureRecord<'a, [u8], [u8]> {
    let headers = record.headers.iter().fold(OwnedHeaders::new_with_capacity(record.headers.len()), |all, header| {
        all.insert(message::Header { key: header.key, value: header.value })
    });
    FutureRecord {
        topic: record.topic,
        partition: record.partition,
        payload: record.value,
        key: record.key,
        timestamp: record.timestamp,
        headers: (!record.headers.is_empty()).then_some(headers),
    }
}

impl Future for Delivery {
    type Output = Result<Delivered, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.inner).poll(context).map(|delivered| {
            let source = match delivered {
                Ok(Ok(delivery)) => {
                    return Ok(Delivered { partition: delivery.partition, offset: delivery.offset });
                }
                Ok(Err((source, _))) => source,
                Err(_) => KafkaError::Canceled,
            };
            Err(Error::Produce { topic: self.topic.clone(), source: source.into() })
        })
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("topic", &self.topic).finish_non_exhaustive()
    }
}

//! A topic as a source of chunks.

use crate::{
    Error, KafkaConfig, KafkaTopic,
    native::MessageQueue,
    reader::{self, Command, Item, Reader, Timing},
};
use alluvium_core::{
    Partition, TopicId,
    position::Watermarks,
    seam::{Event, Source},
};
use rdkafka::consumer::Consumer;
use std::{
    collections::BTreeMap,
    ffi::CString,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use tokio::sync::{mpsc as events, oneshot};

/// How long leaving the group may take before it is left to go on by itself.
const LEAVE: Duration = Duration::from_secs(15);

/// A topic read as a member of a consumer group.
///
/// Beyond what [`Source`] promises:
/// - A partition that is missing in the acknowledgement of its assignment stays with this member,
///   and nothing is read of it until a seek tells its position.
/// - After [`Source::seek`] has returned, no chunk made before comes out of [`Source::next`], and no
///   error about a position of the time before.
/// - A chunk has up to about 1,000 records or 1 MiB; up to 8 MiB of chunks wait to be taken, and
///   up to about 16 MiB, and a fetch of as much, in librdkafka.
/// - An acknowledgement of an assignment is awaited for `max.poll.interval.ms`, one of a revocation
///   for a minute; partitions that are already lost are given back at once.
///
/// Errors of [`Source::next`]:
/// - [`Error::Fetch`]: the partition is read again from the named position a second later.
/// - [`Error::PositionGone`]: nothing is read of the partition until a seek.
/// - [`Error::Unreachable`], again every half minute while no broker answers; reading goes on by
///   itself once one does.
/// - [`Error::Fatal`] ends the source.
pub struct KafkaSource {
    topic: KafkaTopic,
    events: events::UnboundedReceiver<Item>,
    commands: mpsc::Sender<Command>,
    reader: thread::Thread,
    ended: Option<oneshot::Receiver<()>>,
    waiting: Arc<AtomicUsize>,
    epochs: Mutex<BTreeMap<Partition, u64>>,
}

impl KafkaSource {
    /// Joins the group in the background. The first thing that [`Source::next`] tells is an
    /// assignment, or why there is none. Does no IO itself.
    pub fn connect(config: KafkaConfig) -> Result<Self, Error> {
        Self::connect_with(config, Timing::default())
    }

    pub(crate) fn connect_with(config: KafkaConfig, timing: Timing) -> Result<Self, Error> {
        let topic = KafkaTopic::connect(&config)?;
        let config = Arc::new(config);
        let consumer = config.consumer(Some(&config.group))?;
        let name = CString::new(config.topic.as_str()).map_err(|_| Error::TopicName { topic: config.topic.clone() })?;
        consumer.subscribe(&[&config.topic]).map_err(|source| Error::Subscribe {
            topic: config.topic.clone(),
            group: config.group.clone(),
            source: source.into(),
        })?;
        let (sender, events) = events::unbounded_channel();
        let (commands, receiver) = mpsc::channel();
        let (ending, ended) = oneshot::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let parts = (commands.clone(), Arc::clone(&waiting), Arc::clone(&config));
        let run = move || {
            let (commands, waiting, config) = parts;
            // The receiver of events learns of the end by its channel closing, before the consumer
            // has left the group; `ending` tells of that.
            if let Some(queue) = MessageQueue::new(&consumer) {
                Reader::new(&consumer, config, name, timing, (commands, receiver), sender, waiting).run(queue);
            }
            consumer.context().close();
            drop(consumer);
            drop(ending);
        };
        let thread = thread::Builder::new().name("kafka-reader".to_owned()).spawn(run);
        let thread = thread.map_err(|source| Error::Thread { topic: config.topic.clone(), source })?;
        Ok(Self {
            topic,
            events,
            commands,
            reader: thread.thread().clone(),
            ended: Some(ended),
            waiting,
            epochs: Mutex::default(),
        })
    }

    /// The topic, to ask about it without this source.
    pub fn topic(&self) -> &KafkaTopic {
        &self.topic
    }

    fn command(&self, command: Command) {
        reader::command(&self.commands, &self.reader, command);
    }

    /// Whether a chunk, or what was wrong with a position, is of the time before the newest seek of its
    /// partition.
    fn is_stale(&self, event: &Result<Event, Error>, epoch: u64) -> bool {
        let partition = match event {
            Ok(Event::Chunk(chunk)) => chunk.partition(),
            Err(Error::PositionGone { partition, .. }) => *partition,
            _ => return false,
        };
        let epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        epochs.get(&partition).is_some_and(|newest| epoch < *newest)
    }
}

impl Source for KafkaSource {
    type Error = Error;

    async fn next(&mut self) -> Result<Event, Error> {
        loop {
            // Cancel safe: there is no other wait here.
            let Some(Item { event, epoch, bytes }) = self.events.recv().await else {
                return Err(Error::Closed { topic: self.topic.name().to_owned() });
            };
            if bytes > 0 {
                self.waiting.fetch_sub(bytes, Ordering::AcqRel);
                self.reader.unpark();
            }
            if !self.is_stale(&event, epoch) {
                return event;
            }
        }
    }

    fn topic_id(&self) -> impl Future<Output = Result<Option<TopicId>, Error>> + Send + 'static {
        let topic = self.topic.clone();
        async move { topic.id().await }
    }

    async fn partitions(&self) -> Result<Vec<Partition>, Error> {
        self.topic.partitions().await
    }

    async fn watermarks(&self, partition: Partition) -> Result<Watermarks, Error> {
        self.topic.watermarks(partition).await
    }

    async fn offset_at(&self, partition: Partition, timestamp: i64) -> Result<i64, Error> {
        self.topic.offset_at(partition, timestamp).await
    }

    fn seek(&self, positions: &[(Partition, i64)]) -> Result<(), Error> {
        for (partition, position) in positions {
            let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
            let epoch = epochs.entry(*partition).or_default();
            *epoch += 1;
            let seek = Command::Seek { partition: *partition, position: *position, epoch: *epoch };
            self.commands.send(seek).map_err(|_| Error::Closed { topic: self.topic.name().to_owned() })?;
        }
        self.reader.unpark();
        Ok(())
    }

    fn pause(&self) {
        self.command(Command::Pause);
    }

    fn resume(&self) {
        self.command(Command::Resume);
    }

    fn publish(&self, positions: &[(Partition, i64)]) {
        self.command(Command::Publish(positions.to_vec()));
    }

    /// Waits until the group has let this member go, so that others take over at once.
    async fn close(&mut self) {
        self.command(Command::Close);
        self.events.close();
        if let Some(ended) = self.ended.take()
            && tokio::time::timeout(LEAVE, ended).await.is_err()
        {
            tracing::warn!(topic = self.topic.name(), "leaving the group takes long; it goes on in the background");
        }
    }
}

impl Drop for KafkaSource {
    /// Leaves the group in the background.
    fn drop(&mut self) {
        self.command(Command::Close);
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource").field("topic", &self.topic).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::{NewRecord, Producer, Sandbox};
    use alluvium_core::{Classified, ErrorClass};
    use std::time::Instant;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_revocation_that_nobody_answers_does_not_hold_the_group_for_ever() {
        let sandbox = Sandbox::start(&[("orders", 2)]).unwrap();
        let timing = Timing { release: Duration::from_millis(700), ..Timing::default() };
        let mut config = KafkaConfig::new(sandbox.brokers(), "orders", "readers");
        config.settings = vec![("session.timeout.ms".to_owned(), "3000".to_owned())];
        let mut first = KafkaSource::connect_with(config.clone(), timing).unwrap();
        match first.next().await.unwrap() {
            Event::Assigned { partitions, ack } => ack.send(partitions.iter().map(|p| (*p, 0)).collect()),
            other => panic!("{other:?}"),
        }
        let mut second = KafkaSource::connect_with(config, timing).unwrap();
        let (given_up, _ack) = match first.next().await.unwrap() {
            Event::Revoked { partitions, ack, .. } => (partitions, ack),
            other => panic!("{other:?}"),
        };
        let started = Instant::now();
        match tokio::time::timeout(Duration::from_secs(20), second.next()).await.unwrap().unwrap() {
            Event::Assigned { partitions, .. } => assert_eq!(partitions, given_up),
            other => panic!("{other:?}"),
        }
        assert!(started.elapsed() >= Duration::from_millis(650), "{:?}", started.elapsed());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn brokers_that_stay_away_are_told_and_read_on_when_they_come_back() {
        let sandbox = Sandbox::start(&[("orders", 1)]).unwrap();
        let timing = Timing { patience: Duration::from_millis(500), ..Timing::default() };
        let config = KafkaConfig::new(sandbox.brokers(), "orders", "readers");
        let mut source = KafkaSource::connect_with(config, timing).unwrap();
        match source.next().await.unwrap() {
            Event::Assigned { ack, .. } => ack.send(vec![(Partition(0), 0)]),
            other => panic!("{other:?}"),
        }
        sandbox.go_down().await.unwrap();
        let started = Instant::now();
        for _ in 0..2 {
            let error = source.next().await.unwrap_err();
            assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
            assert_eq!(error.class(), ErrorClass::External);
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        sandbox.come_up().await.unwrap();
        let producer = Producer::connect(sandbox.brokers(), &[]).unwrap();
        let record = NewRecord { topic: "orders", partition: Some(0), value: Some(b"x"), ..NewRecord::default() };
        producer.produce(record).await.unwrap();
        loop {
            match source.next().await {
                Ok(Event::Chunk(chunk)) => {
                    assert_eq!((chunk.span().from(), chunk.span().to()), (0, 1));
                    break;
                }
                // The session may have ended meanwhile.
                Ok(Event::Revoked { ack, .. }) => ack.send(()),
                Ok(Event::Assigned { ack, .. }) => ack.send(vec![(Partition(0), 0)]),
                Err(error) => assert_eq!(error.class(), ErrorClass::External, "{error:?}"),
            }
        }
    }
}

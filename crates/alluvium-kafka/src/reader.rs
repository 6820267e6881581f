//! The thread that reads a topic as a member of its group.
//!
//! It never waits for the receiver of its events. When they are not taken fast enough, or while it
//! is paused, it stops taking messages; librdkafka then stops fetching, and the calls that serve
//! the group go on. A rebalance waits for its acknowledgement in the same way: as a state, not as a
//! blocked thread.

mod group;
mod seek;
mod trouble;

use crate::{
    Error, KafkaConfig,
    context::{self, Context, Rebalance},
    error::PackError,
    native::{Message, MessageQueue},
    pack::{Limits, Packed, Packer},
};
use alluvium_core::{
    Partition,
    chunk::{Header, Record, encode_headers},
    seam::Event,
};
use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use std::{
    collections::BTreeMap,
    ffi::CString,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::UnboundedSender;
use trouble::Trouble;

/// How long one call waits for messages: the longest that a command or a rebalance waits for us.
const POLL: Duration = Duration::from_millis(20);
/// The same while a rebalance waits for its acknowledgement.
const POLL_REBALANCING: Duration = Duration::from_millis(2);
/// Messages per call, and bytes of them to aim for.
const BATCH: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;
/// Bytes of chunks that wait for the receiver.
const BUDGET: usize = 8 << 20;
const SEEK: Duration = Duration::from_secs(5);
/// How often partitions are forwarded again: stopping one undoes it, some time later.
const FORWARD: Duration = Duration::from_secs(1);
const FORWARD_SOON: Duration = Duration::from_millis(20);
/// How long after a change of the assignment that may still happen.
const UNSETTLED: Duration = Duration::from_secs(5);
const PROBE: Duration = Duration::from_secs(2);

/// Waits that tests shorten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// How long brokers may be gone before it is told.
    pub(crate) patience: Duration,
    /// Between tries to read a partition that failed.
    pub(crate) retry: Duration,
    /// How long a revocation waits for its acknowledgement. The table's fence holds without it.
    pub(crate) release: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { patience: Duration::from_secs(30), retry: Duration::from_secs(1), release: Duration::from_secs(60) }
    }
}

/// What the source asks of its reader.
#[derive(Debug)]
pub(crate) enum Command {
    /// The acknowledgement of an assignment.
    Start {
        rebalance: u64,
        positions: Vec<(Partition, i64)>,
    },
    /// The acknowledgement of a revocation.
    Release {
        rebalance: u64,
    },
    Seek {
        partition: Partition,
        position: i64,
        epoch: u64,
    },
    Pause,
    Resume,
    Publish(Vec<(Partition, i64)>),
    Close,
}

/// An event on its way to the source's owner.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) event: Result<Event, Error>,
    /// For a chunk or an error of a position: the seek of the partition that it came after; for a chunk
    /// its share of the budget.
    pub(crate) epoch: u64,
    pub(crate) bytes: usize,
}

pub(crate) struct Reader<'c> {
    consumer: &'c BaseConsumer<Context>,
    config: Arc<KafkaConfig>,
    topic: CString,
    timing: Timing,
    commands: mpsc::Receiver<Command>,
    sender: mpsc::Sender<Command>,
    events: UnboundedSender<Item>,
    waiting: Arc<AtomicUsize>,
    packer: Packer,
    /// Partitions being fetched, with the seeks that still have to succeed.
    assigned: BTreeMap<Partition, Option<Seek>>,
    /// Partitions that the group gave us and nobody has told a position of, unless by a seek that
    /// waits for the end of a rebalance.
    held: BTreeMap<Partition, Option<i64>>,
    epochs: BTreeMap<Partition, u64>,
    pending: Option<Pending>,
    rebalances: u64,
    joined: bool,
    paused: bool,
    trouble: Option<Trouble>,
    message_bytes: usize,
    headers: Vec<u8>,
    /// When the assignment changed, and when partitions were forwarded last.
    changed: Instant,
    forwarded: Instant,
}

struct Seek {
    position: i64,
    due: Instant,
}

/// A rebalance that waits for its acknowledgement.
struct Pending {
    rebalance: u64,
    kind: Rebalance,
    since: Instant,
}

enum Next {
    GoOn,
    End,
}

impl<'c> Reader<'c> {
    pub(crate) fn new(
        consumer: &'c BaseConsumer<Context>,
        config: Arc<KafkaConfig>,
        topic: CString,
        timing: Timing,
        (sender, commands): (mpsc::Sender<Command>, mpsc::Receiver<Command>),
        events: UnboundedSender<Item>,
        waiting: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            consumer,
            config,
            topic,
            timing,
            commands,
            sender,
            events,
            waiting,
            packer: Packer::new(Limits::default()),
            assigned: BTreeMap::new(),
            held: BTreeMap::new(),
            epochs: BTreeMap::new(),
            pending: None,
            rebalances: 0,
            joined: false,
            paused: false,
            trouble: None,
            message_bytes: BATCH_BYTES / 64,
            headers: Vec::new(),
            changed: Instant::now(),
            forwarded: Instant::now(),
        }
    }

    /// Reads until it is closed, the events' receiver is gone, or the client fails for good.
    pub(crate) fn run(mut self, mut queue: MessageQueue<'c>) {
        while let Next::GoOn = self.turn(&mut queue) {}
        if let Some(pending) = self.pending.take() {
            self.log_failure("answering a rebalance while closing", context::refuse(self.consumer, &pending.kind));
        }
    }

    fn turn(&mut self, queue: &mut MessageQueue<'c>) -> Next {
        while let Ok(command) = self.commands.try_recv() {
            if let Next::End = self.obey(command, queue) {
                return Next::End;
            }
        }
        if let Next::End = self.serve_group(queue) {
            return Next::End;
        }
        self.serve_clock(queue);
        if self.events.is_closed() {
            return Next::End;
        }
        if self.paused || self.waiting.load(Ordering::Acquire) >= BUDGET {
            self.hand_out_due(true);
            thread::park_timeout(POLL);
            return Next::GoOn;
        }
        self.read(queue);
        Next::GoOn
    }

    fn obey(&mut self, command: Command, queue: &MessageQueue<'c>) -> Next {
        match command {
            Command::Start { rebalance, positions } => {
                if self.is_pending(rebalance) {
                    self.take(positions, queue);
                }
            }
            Command::Release { rebalance } => {
                if self.is_pending(rebalance) {
                    self.release(queue);
                }
            }
            Command::Seek { partition, position, epoch } => self.seek(partition, position, epoch, queue),
            Command::Pause => self.paused = true,
            Command::Resume => self.paused = false,
            Command::Publish(positions) => {
                let list = self.list(&positions).and_then(|list| self.consumer.commit(&list, CommitMode::Async));
                self.log_failure("writing group offsets", list);
            }
            Command::Close => return Next::End,
        }
        Next::GoOn
    }

    /// Serves what librdkafka has to tell besides messages. Each call also counts as a sign of life.
    fn serve_group(&mut self, queue: &MessageQueue<'c>) -> Next {
        // A call serves one event at most and does not tell whether it did.
        for _ in 0..4 {
            match self.consumer.poll(Duration::ZERO) {
                None => {}
                Some(Ok(message)) => self.stray(Partition(message.partition()), queue),
                Some(Err(error)) => {
                    if let Next::End = self.client_error(&error) {
                        return Next::End;
                    }
                }
            }
        }
        while let Some(rebalance) = self.consumer.context().next_rebalance() {
            self.rebalance(rebalance, queue);
        }
        Next::GoOn
    }

    /// What is due without anybody asking for it.
    fn serve_clock(&mut self, queue: &MessageQueue<'c>) {
        let now = Instant::now();
        let due = |(partition, seek): (&Partition, &Option<Seek>)| {
            seek.as_ref().filter(|seek| seek.due <= now).map(|seek| (*partition, seek.position))
        };
        let seeks: Vec<_> = self.assigned.iter().filter_map(due).collect();
        for (partition, position) in seeks {
            self.seek_now(partition, position);
        }
        self.fetch_held(queue);
        let patience = if self.changed.elapsed() < UNSETTLED { FORWARD_SOON } else { FORWARD };
        if self.forwarded.elapsed() > patience {
            self.forward_all(queue);
        }
        if let Some(Pending { kind, since, .. }) = &self.pending {
            let waited = since.elapsed();
            match kind {
                Rebalance::Assign(partitions) if waited > self.config.max_poll_interval() => {
                    let (topic, partitions) = (self.config.topic.clone(), partitions.clone());
                    self.take(Vec::new(), queue);
                    self.tell(Err(Error::AssignTimeout { topic, partitions, waited }));
                }
                Rebalance::Revoke { partitions, .. } if waited > self.timing.release => {
                    tracing::warn!(?partitions, ?waited, "giving partitions back without acknowledgement");
                    self.release(queue);
                }
                Rebalance::Assign(_) | Rebalance::Revoke { .. } => {}
            }
        }
        self.look_for_brokers();
    }

    fn read(&mut self, queue: &mut MessageQueue<'c>) {
        let most = (BATCH_BYTES / self.message_bytes.max(1)).clamp(16, BATCH);
        let timeout = if self.pending.is_some() { POLL_REBALANCING } else { POLL };
        let messages = queue.poll(most, timeout);
        let (count, now) = (messages.len(), Instant::now());
        let mut bytes = 0;
        for message in messages {
            let partition = Partition(message.partition());
            match message.code() {
                Code::NoError => {
                    let packed = self.pack(partition, &message, now);
                    bytes += message.value().map_or(0, <[u8]>::len) + message.key().map_or(0, <[u8]>::len);
                    self.hand_out(partition, packed);
                }
                Code::PartitionEOF => {
                    let packed = self.packer.end(partition, message.offset());
                    self.hand_out(partition, packed);
                }
                code => self.partition_error(partition, code, &message),
            }
        }
        if let Some(average) = bytes.checked_div(count) {
            self.trouble = None;
            self.message_bytes = average;
        }
        self.hand_out_due(count < most);
    }

    fn pack(&mut self, partition: Partition, message: &Message, now: Instant) -> Result<Option<Packed>, PackError> {
        self.packer.push(partition, record(message, &mut self.headers), now)
    }

    fn hand_out_due(&mut self, dry: bool) {
        for partition in self.packer.due(Instant::now(), dry) {
            let packed = self.packer.flush(partition);
            self.hand_out(partition, packed);
        }
    }

    fn hand_out(&mut self, partition: Partition, packed: Result<Option<Packed>, PackError>) {
        match packed {
            Ok(None) => {}
            Ok(Some(Packed { chunk, epoch })) => {
                let bytes = chunk.memory();
                self.waiting.fetch_add(bytes, Ordering::AcqRel);
                self.send(Item { event: Ok(Event::Chunk(chunk)), epoch, bytes });
            }
            Err(source) => {
                self.packer.stop(partition);
                self.tell(Err(Error::Chunk { topic: self.config.topic.clone(), partition, source }));
            }
        }
    }

    fn tell(&self, event: Result<Event, Error>) {
        self.send(Item { event, epoch: 0, bytes: 0 });
    }

    /// An error that a seek of its partition overtakes.
    fn tell_of(&self, partition: Partition, error: Error) {
        let epoch = self.epochs.get(&partition).copied().unwrap_or(0);
        self.send(Item { event: Err(error), epoch, bytes: 0 });
    }

    fn send(&self, item: Item) {
        // Without a receiver the next turn is the last; a rebalance in it is answered by its drop.
        drop(self.events.send(item));
    }

    fn list(&self, positions: &[(Partition, i64)]) -> Result<TopicPartitionList, KafkaError> {
        let mut list = TopicPartitionList::new();
        for (partition, position) in positions {
            list.add_partition_offset(&self.config.topic, partition.0, Offset::Offset(*position))?;
        }
        Ok(list)
    }

    fn log_failure(&self, what: &str, result: Result<(), KafkaError>) {
        if let Err(error) = result {
            tracing::warn!(topic = self.config.topic, group = self.config.group, %error, "{what} failed");
        }
    }
}

/// A message as a record; `headers` is room for what it packs.
pub(crate) fn record<'m>(message: &'m Message, headers: &'m mut Vec<u8>) -> Record<'m> {
    headers.clear();
    let found = message.headers();
    for (name, value) in &found {
        // Names can be any bytes for a broker; text is what they are meant to be.
        let name = String::from_utf8_lossy(name);
        encode_headers([Header { key: &name, value: *value }], headers);
    }
    Record {
        offset: message.offset(),
        timestamp: message.timestamp(),
        key: message.key(),
        value: message.value(),
        headers: (!found.is_empty()).then_some(headers.as_slice()),
    }
}

/// Sends a command and wakes the reader. One that is gone needs none.
pub(crate) fn command(sender: &mpsc::Sender<Command>, reader: &thread::Thread, command: Command) {
    if sender.send(command).is_ok() {
        reader.unpark();
    }
}

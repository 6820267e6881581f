//! The thread that reads a topic as a member of its group.
//!
//! It never waits for the receiver of its events. When they are not taken fast enough, or while it
//! is paused, it stops taking messages; librdkafka then stops fetching, and the calls that serve
//! the group go on. A rebalance waits for its acknowledgement in the same way: as a state, not as a
//! blocked thread.

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
    seam::{Ack, Event},
};
use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use std::{
    collections::{BTreeMap, BTreeSet},
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

/// How long one call waits for messages: the longest that a command or a rebalance waits for us.
const POLL: Duration = Duration::from_millis(20);
/// The same while a rebalance waits for its acknowledgement.
const POLL_REBALANCING: Duration = Duration::from_millis(2);
/// Messages per call, and bytes of them to aim for.
const BATCH: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;
/// Bytes of chunks that wait for the receiver.
const BUDGET: usize = 8 << 20;
/// How long a revocation waits for its acknowledgement. The table's fence holds without it.
const RELEASE: Duration = Duration::from_secs(60);
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
}

impl Default for Timing {
    fn default() -> Self {
        Self { patience: Duration::from_secs(30), retry: Duration::from_secs(1) }
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
    /// For a chunk: the seek of its partition that it was read after, and its share of the budget.
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

/// The brokers are gone.
struct Trouble {
    since: Instant,
    code: Code,
    reason: String,
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

    // The group.

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

    fn rebalance(&mut self, rebalance: Rebalance, queue: &MessageQueue<'c>) {
        self.rebalances += 1;
        self.joined = true;
        self.trouble = None;
        tracing::debug!(topic = self.config.topic, group = self.config.group, ?rebalance, "rebalance");
        let (number, sender, reader) = (self.rebalances, self.sender.clone(), thread::current());
        match &rebalance {
            // The end of every rebalance, also of one that gives us nothing new.
            Rebalance::Assign(partitions) if partitions.is_empty() => return self.answer(&rebalance, queue),
            Rebalance::Assign(partitions) => {
                let start = move |positions| Command::Start { rebalance: number, positions };
                let ack = Ack::new(move |positions| command(&sender, &reader, start(positions)));
                self.tell(Ok(Event::Assigned { partitions: partitions.clone(), ack }));
            }
            Rebalance::Revoke { partitions, lost } => {
                let read = self.stop(partitions, *lost);
                let ack = Ack::new(move |()| command(&sender, &reader, Command::Release { rebalance: number }));
                if read {
                    self.tell(Ok(Event::Revoked { partitions: partitions.clone(), lost: *lost, ack }));
                }
                // What is lost is somebody else's already; waiting would only delay our return.
                if *lost || !read {
                    return self.answer(&rebalance, queue);
                }
            }
        }
        self.pending = Some(Pending { rebalance: number, kind: rebalance, since: Instant::now() });
    }

    /// Stops reading partitions. Returns whether any of them was read or held.
    fn stop(&mut self, partitions: &[Partition], lost: bool) -> bool {
        let mut read = false;
        for partition in partitions {
            if !lost {
                let packed = self.packer.flush(*partition);
                self.hand_out(*partition, packed);
            }
            self.packer.stop(*partition);
            read |= self.assigned.remove(partition).is_some();
            read |= self.held.remove(partition).is_some();
        }
        read
    }

    fn is_pending(&self, rebalance: u64) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.rebalance == rebalance)
    }

    fn take(&mut self, positions: Vec<(Partition, i64)>, queue: &MessageQueue<'c>) {
        let Some(Pending { kind: Rebalance::Assign(given), .. }) = &self.pending else { return };
        let given: BTreeSet<_> = given.iter().copied().collect();
        // The last word on a partition counts.
        let positions: BTreeMap<_, _> =
            positions.into_iter().filter(|(partition, _)| given.contains(partition)).collect();
        let positions: Vec<_> = positions.into_iter().collect();
        self.pending = None;
        self.held.extend(given.into_iter().map(|partition| (partition, None)));
        self.fetch(&positions, queue);
    }

    /// Starts fetching held partitions, and answers an assignment that waits for it.
    fn fetch(&mut self, positions: &[(Partition, i64)], queue: &MessageQueue<'c>) {
        // A partition that cannot be fetched is told of once.
        self.held.extend(positions.iter().map(|(partition, _)| (*partition, None)));
        let mut known = Vec::with_capacity(positions.len());
        for (partition, position) in positions {
            let (topic, partition, position) = (self.config.topic.clone(), *partition, *position);
            if position < 0 {
                let reason = "a position is not negative".to_owned();
                self.tell(Err(Error::PositionGone { topic, partition, position, reason }));
            } else if queue.forward(&self.topic, partition.0) {
                known.push((partition, position));
            } else {
                self.tell(Err(Error::PartitionMissing { topic, partition }));
            }
        }
        let assigned = self.list(&known).and_then(|list| self.consumer.incremental_assign(&list));
        if let Err(source) = assigned {
            let partitions = known.iter().map(|(partition, _)| *partition).collect();
            self.tell(Err(Error::Assign { topic: self.config.topic.clone(), partitions, source: source.into() }));
            // The group waits for an answer, if only that nothing is taken.
            self.answer(&Rebalance::Assign(Vec::new()), queue);
            return;
        }
        for (partition, position) in known {
            self.start(partition, position);
            self.held.remove(&partition);
        }
        self.settle(queue);
    }

    /// Takes records of an assigned partition from this position on.
    fn start(&mut self, partition: Partition, position: i64) {
        let epoch = self.epochs.get(&partition).copied().unwrap_or(0);
        self.packer.start(partition, position, epoch);
        self.assigned.insert(partition, None);
    }

    fn release(&mut self, queue: &MessageQueue<'c>) {
        if let Some(Pending { kind, .. }) = self.pending.take() {
            self.answer(&kind, queue);
        }
    }

    /// Answers a rebalance: takes nothing, or gives back the revoked partitions.
    fn answer(&mut self, rebalance: &Rebalance, queue: &MessageQueue<'c>) {
        let answered = match rebalance {
            Rebalance::Assign(_) => self.consumer.incremental_assign(&TopicPartitionList::new()),
            Rebalance::Revoke { partitions, .. } => self.give_back(partitions),
        };
        self.log_failure("answering a rebalance", answered);
        self.settle(queue);
    }

    /// Brings all partitions to where we are, after an answered rebalance. librdkafka stops fetching
    /// during one and then goes on from where it believes us to be. Its belief can be wrong: after
    /// the end of a partition it is an offset too far, and the next record would be left out.
    fn settle(&mut self, queue: &MessageQueue<'c>) {
        self.changed = Instant::now();
        let reading = self.assigned.iter().filter(|(_, seek)| seek.is_none());
        let positions: Vec<_> = reading.filter_map(|(p, _)| Some((*p, self.packer.next(*p)?))).collect();
        for (partition, position, failure) in self.try_seek(&positions) {
            if failure.is_some() {
                let packed = self.packer.flush(partition);
                self.hand_out(partition, packed);
                self.packer.stop(partition);
                self.assigned.insert(partition, Some(Seek { position, due: Instant::now() }));
            }
        }
        self.forward_all(queue);
    }

    fn forward_all(&mut self, queue: &MessageQueue<'c>) {
        self.forwarded = Instant::now();
        for partition in self.assigned.keys() {
            queue.forward(&self.topic, partition.0);
        }
    }

    fn give_back(&self, partitions: &[Partition]) -> Result<(), KafkaError> {
        // librdkafka refuses the whole list when one of it was never taken.
        let mut list = TopicPartitionList::new();
        for element in self.consumer.assignment()?.elements() {
            if partitions.contains(&Partition(element.partition())) {
                list.add_partition(element.topic(), element.partition());
            }
        }
        self.consumer.incremental_unassign(&list)
    }

    /// A message came around our queue, so its partition is not forwarded: starts it anew.
    fn stray(&mut self, partition: Partition, queue: &MessageQueue<'c>) {
        if let Some(position) = self.packer.stop(partition) {
            tracing::warn!(%partition, position, "reading a partition anew: its messages went astray");
            queue.forward(&self.topic, partition.0);
            self.assigned.insert(partition, Some(Seek { position, due: Instant::now() }));
        }
    }

    // Seeks.

    fn seek(&mut self, partition: Partition, position: i64, epoch: u64, queue: &MessageQueue<'c>) {
        self.epochs.insert(partition, epoch);
        if let Some(held) = self.held.get_mut(&partition) {
            *held = Some(position);
            self.fetch_held(queue);
        } else if self.assigned.contains_key(&partition) {
            self.packer.stop(partition);
            self.seek_now(partition, position);
        } else {
            tracing::debug!(%partition, position, "not seeking in a partition that is not assigned");
        }
    }

    /// Starts fetching the held partitions whose position was told meanwhile.
    fn fetch_held(&mut self, queue: &MessageQueue<'c>) {
        if self.pending.is_none() {
            let told = |(partition, position): (&Partition, &Option<i64>)| Some((*partition, (*position)?));
            let positions: Vec<_> = self.held.iter().filter_map(told).collect();
            if !positions.is_empty() {
                self.fetch(&positions, queue);
            }
        }
    }

    /// Tries to seek. Nothing of the partition is handed out until it has succeeded.
    fn seek_now(&mut self, partition: Partition, position: i64) {
        for (partition, position, failure) in self.try_seek(&[(partition, position)]) {
            let restarted = match failure {
                None => true,
                // After some errors librdkafka has stopped fetching, and knows no seek out of that.
                Some(Code::State) if self.pending.is_none() => self.restart(partition, position),
                Some(_) => false,
            };
            if restarted {
                self.start(partition, position);
            } else {
                self.assigned.insert(partition, Some(Seek { position, due: Instant::now() + POLL }));
            }
        }
    }

    /// Seeks in assigned partitions; for each, why it failed. When it did not, all that librdkafka
    /// hands out from now on lies at or behind the position.
    fn try_seek(&self, positions: &[(Partition, i64)]) -> Vec<(Partition, i64, Option<Code>)> {
        if positions.is_empty() {
            return Vec::new();
        }
        let sought = self.list(positions).and_then(|list| self.consumer.seek_partitions(list, SEEK));
        let failure = |partition: Partition| match &sought {
            Ok(list) => {
                let element = list.find_partition(&self.config.topic, partition.0);
                element.map_or(Some(Code::UnknownPartition), |element| code_of(element.error()))
            }
            Err(error) => Some(error.rdkafka_error_code().unwrap_or(Code::Unknown)),
        };
        let result: Vec<_> = positions.iter().map(|(p, position)| (*p, *position, failure(*p))).collect();
        for (partition, position, failure) in &result {
            if let Some(code) = failure {
                tracing::debug!(%partition, position, ?code, "seeking failed");
            }
        }
        result
    }

    /// Takes a partition out of the assignment and in again at a position. Not during a rebalance,
    /// which that would answer.
    fn restart(&mut self, partition: Partition, position: i64) -> bool {
        self.changed = Instant::now();
        let list = self.list(&[(partition, position)]);
        let restarted = list.and_then(|list| {
            self.consumer.incremental_unassign(&list)?;
            self.consumer.incremental_assign(&list)
        });
        let succeeded = restarted.is_ok();
        self.log_failure("starting a partition anew", restarted);
        succeeded
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
                Rebalance::Revoke { partitions, .. } if waited > RELEASE => {
                    tracing::warn!(?partitions, ?waited, "giving partitions back without acknowledgement");
                    self.release(queue);
                }
                Rebalance::Assign(_) | Rebalance::Revoke { .. } => {}
            }
        }
        self.look_for_brokers();
    }

    // Messages.

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
        self.headers.clear();
        let headers = message.headers();
        for (name, value) in &headers {
            // Names can be any bytes for a broker; text is what they are meant to be.
            let name = String::from_utf8_lossy(name);
            encode_headers([Header { key: &name, value: *value }], &mut self.headers);
        }
        let record = Record {
            offset: message.offset(),
            timestamp: message.timestamp(),
            key: message.key(),
            value: message.value(),
            headers: (!headers.is_empty()).then_some(self.headers.as_slice()),
        };
        self.packer.push(partition, record, now)
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

    // Errors.

    /// An error of one partition. librdkafka goes on behind some of them, as if what it could not
    /// read had not been there, so nothing more is taken of the partition before a seek back.
    fn partition_error(&mut self, partition: Partition, code: Code, message: &Message) {
        let Some(position) = self.packer.position(partition) else { return };
        let (topic, reason) = (self.config.topic.clone(), message.reason());
        let gone = matches!(code, Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation);
        // Such an error outlives a seek in the queue; one about offsets before the position is old.
        if gone && (0..position).contains(&message.offset()) {
            return;
        }
        let packed = self.packer.flush(partition);
        self.hand_out(partition, packed);
        let position = self.packer.stop(partition).unwrap_or(position);
        if gone {
            self.tell(Err(Error::PositionGone { topic, partition, position, reason }));
            return;
        }
        self.assigned.insert(partition, Some(Seek { position, due: Instant::now() + self.timing.retry }));
        self.tell(Err(match code {
            Code::TopicAuthorizationFailed => self.unauthorized(reason),
            code => Error::Fetch { topic, partition, position, code, reason },
        }));
    }

    /// An error of the client or the group. What librdkafka tries again by itself is only logged.
    fn client_error(&mut self, error: &KafkaError) -> Next {
        let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
        let told = self.consumer.context().take_error().filter(|(of, _)| *of == code);
        let reason = told.map_or_else(|| code.to_string(), |(_, reason)| reason);
        let topic = self.config.topic.clone();
        if let Some((code, reason)) = self.consumer.client().fatal_error() {
            self.tell(Err(Error::Fatal { topic, code, reason }));
            return Next::End;
        }
        let (brokers, group) = (self.config.broker_list(), self.config.group.clone());
        match code {
            Code::AllBrokersDown | Code::Authentication | Code::SaslAuthenticationFailed => {
                // Once we were in, refused credentials are more likely a broker's than the owner's fault.
                if code != Code::AllBrokersDown && !self.joined && self.trouble.is_none() {
                    self.tell(Err(Error::Authentication { brokers, reason: reason.clone() }));
                }
                tracing::debug!(?code, reason, "brokers are gone");
                self.trouble.get_or_insert(Trouble { since: Instant::now(), code, reason });
            }
            Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed | Code::ClusterAuthorizationFailed => {
                let error = self.unauthorized(reason);
                self.tell(Err(error));
            }
            Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
                self.tell(Err(Error::TopicMissing { brokers, topic }));
            }
            Code::InconsistentGroupProtocol
            | Code::InvalidSessionTimeout
            | Code::InvalidGroupId
            | Code::GroupMaxSizeReached => self.tell(Err(Error::Group { group, code, reason })),
            code => tracing::warn!(topic, ?code, reason, "kafka client"),
        }
        Next::GoOn
    }

    fn unauthorized(&self, reason: String) -> Error {
        let action = format!("read topic {} as group {}", self.config.topic, self.config.group);
        Error::Authorization { action, reason }
    }

    /// After a while without brokers, asks once more, and tells.
    fn look_for_brokers(&mut self) {
        let patience = self.timing.patience;
        let Some(trouble) = self.trouble.take_if(|trouble| trouble.since.elapsed() > patience) else { return };
        if self.consumer.fetch_metadata(Some(&self.config.topic), PROBE).is_ok() {
            return;
        }
        let brokers = self.config.broker_list();
        let Trouble { code, reason, .. } = trouble;
        self.tell(Err(match code {
            Code::Authentication | Code::SaslAuthenticationFailed => {
                Error::Authentication { brokers, reason: reason.clone() }
            }
            _ => Error::Unreachable { brokers, reason: reason.clone() },
        }));
        self.trouble = Some(Trouble { since: Instant::now(), code, reason });
    }

    fn tell(&self, event: Result<Event, Error>) {
        self.send(Item { event, epoch: 0, bytes: 0 });
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

fn code_of(result: Result<(), KafkaError>) -> Option<Code> {
    result.err().map(|error| error.rdkafka_error_code().unwrap_or(Code::Unknown))
}

/// Sends a command and wakes the reader. One that is gone needs none.
pub(crate) fn command(sender: &mpsc::Sender<Command>, reader: &thread::Thread, command: Command) {
    if sender.send(command).is_ok() {
        reader.unpark();
    }
}

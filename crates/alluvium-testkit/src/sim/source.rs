//! A member that reads the simulated topic.

use super::broker::{Broker, MemberId, Notice};
use super::error::SimError;
use super::faults::{Faults, Plant};
use super::world::{Gate, World};
use alluvium_core::chunk::Record;
use alluvium_core::position::Watermarks;
use alluvium_core::seam::{Ack, Event, Source};
use alluvium_core::{Chunk, Partition, Records, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Chunks that wait to be taken.
const WAITING: usize = 6;

enum Command {
    Start { rebalance: u64, positions: Vec<(Partition, i64)> },
    Release { rebalance: u64 },
    Seek { partition: Partition, position: i64, epoch: u64 },
    Pause(bool),
    Close(oneshot::Sender<()>),
}

struct Item {
    event: Result<Event, SimError>,
    epoch: u64,
}

/// The driver's end of a member.
pub struct SimSource {
    broker: Arc<Broker>,
    world: Arc<World>,
    gate: Gate,
    faults: Faults,
    commands: mpsc::UnboundedSender<Command>,
    items: mpsc::UnboundedReceiver<Item>,
    waiting: Arc<AtomicUsize>,
    epochs: Mutex<BTreeMap<Partition, u64>>,
    /// Positions that were published.
    published: Arc<Mutex<BTreeMap<Partition, i64>>>,
}

impl SimSource {
    /// Joins the group in the background.
    pub fn connect(
        broker: &Arc<Broker>,
        world: &Arc<World>,
        gate: &Gate,
        faults: Faults,
        group: &str,
        published: Arc<Mutex<BTreeMap<Partition, i64>>>,
    ) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (outbox, items) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (told, notices) = mpsc::unbounded_channel();
        let reader = Reader {
            broker: broker.clone(),
            world: world.clone(),
            gate: gate.clone(),
            faults,
            group: group.to_owned(),
            member: None,
            told,
            notices,
            commands: inbox,
            sender: commands.downgrade(),
            items: outbox,
            waiting: waiting.clone(),
            reading: BTreeMap::new(),
            held: BTreeSet::new(),
            assigning: None,
            epochs: BTreeMap::new(),
            paused: false,
        };
        tokio::spawn(reader.run());
        let (broker, world, gate) = (broker.clone(), world.clone(), gate.clone());
        Self { broker, world, gate, faults, commands, items, waiting, epochs: Mutex::default(), published }
    }

    fn command(&self, command: Command) {
        // A reader that has ended needs none.
        drop(self.commands.send(command));
    }

    /// A request to the broker: it takes time, and can fail.
    async fn ask<T>(&self, what: &'static str, answer: impl FnOnce() -> Option<T>) -> Result<Option<T>, SimError> {
        self.gate.pass().await;
        self.world.pause(1..20).await;
        self.gate.pass().await;
        if self.world.strikes(self.faults.broker) {
            return Err(SimError::Passing { what });
        }
        Ok(answer())
    }

    /// Whether the item is of the time before a seek. Whether such chunks still show is the source's
    /// choice; errors never do.
    fn is_stale(&self, item: &Item) -> bool {
        let partition = match &item.event {
            Ok(Event::Chunk(chunk)) if !self.faults.shows_stale => chunk.partition(),
            Err(SimError::PositionGone { partition, .. }) => *partition,
            _ => return false,
        };
        let epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        epochs.get(&partition).is_some_and(|newest| item.epoch < *newest)
    }
}

impl std::fmt::Debug for SimSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimSource").field("process", &self.gate.name).finish_non_exhaustive()
    }
}

impl Source for SimSource {
    type Error = SimError;

    async fn next(&mut self) -> Result<Event, SimError> {
        loop {
            self.gate.pass().await;
            let item = self.items.recv().await.ok_or(SimError::Closed)?;
            if let Ok(Event::Chunk(_)) = item.event {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            if self.is_stale(&item) {
                continue;
            }
            if let Ok(Event::Chunk(chunk)) = &item.event {
                self.world.note(format_args!("{} takes {} of {}", self.gate.name, chunk.span(), chunk.partition()));
            }
            return item.event;
        }
    }

    async fn partitions(&self) -> Result<Vec<Partition>, SimError> {
        Ok(self.ask("listing partitions", || Some(self.broker.partitions())).await?.unwrap_or_default())
    }

    async fn watermarks(&self, partition: Partition) -> Result<Watermarks, SimError> {
        let asked = self.ask("asking for watermarks", || self.broker.watermarks(partition)).await?;
        asked.ok_or(SimError::PartitionMissing { partition })
    }

    async fn offset_at(&self, partition: Partition, timestamp: i64) -> Result<i64, SimError> {
        let find = || {
            self.broker.read(partition, |log| {
                let first = log.records.iter().find(|record| record.offset >= log.low && record.timestamp >= timestamp);
                first.map_or(log.high, |record| record.offset)
            })
        };
        self.ask("asking for an offset", find).await?.ok_or(SimError::PartitionMissing { partition })
    }

    fn seek(&self, positions: &[(Partition, i64)]) -> Result<(), SimError> {
        self.world.note(format_args!("{} seeks {positions:?}", self.gate.name));
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        for (partition, position) in positions {
            let epoch = epochs.entry(*partition).or_default();
            *epoch += 1;
            self.command(Command::Seek { partition: *partition, position: *position, epoch: *epoch });
        }
        Ok(())
    }

    fn pause(&self) {
        self.command(Command::Pause(true));
    }

    fn resume(&self) {
        self.command(Command::Pause(false));
    }

    fn publish(&self, positions: &[(Partition, i64)]) {
        if self.gate.life() == super::world::Life::Running {
            self.published.lock().unwrap_or_else(PoisonError::into_inner).extend(positions.iter().copied());
        }
    }

    async fn close(&mut self) {
        self.gate.pass().await;
        self.items.close();
        let (ended, end) = oneshot::channel();
        self.command(Command::Close(ended));
        // An error is an end too.
        drop(end.await);
    }
}

/// Reads for the driver, beside it.
struct Reader {
    broker: Arc<Broker>,
    world: Arc<World>,
    gate: Gate,
    faults: Faults,
    group: String,
    member: Option<MemberId>,
    told: mpsc::UnboundedSender<Notice>,
    notices: mpsc::UnboundedReceiver<Notice>,
    commands: mpsc::UnboundedReceiver<Command>,
    sender: mpsc::WeakUnboundedSender<Command>,
    items: mpsc::UnboundedSender<Item>,
    waiting: Arc<AtomicUsize>,
    reading: BTreeMap<Partition, Reading>,
    /// Partitions that are ours, and whose position nobody has told.
    held: BTreeSet<Partition>,
    /// The assignment whose answer is awaited.
    assigning: Option<u64>,
    epochs: BTreeMap<Partition, u64>,
    paused: bool,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    next: i64,
    /// Nothing is read until a seek.
    stopped: bool,
    /// Whether this is the first read after a rebalance.
    first: bool,
}

impl Reader {
    async fn run(mut self) {
        self.world.pause(1..200).await;
        loop {
            self.gate.pass().await;
            let wait = Duration::from_millis(self.world.within(1..70));
            match tokio::time::timeout(wait, self.commands.recv()).await {
                Ok(None) => return,
                Ok(Some(Command::Close(ended))) => {
                    self.gate.pass().await;
                    self.world.pause(1..50).await;
                    if let Some(member) = &self.member {
                        self.broker.leave(member);
                    }
                    drop(ended);
                    return;
                }
                Ok(Some(command)) => {
                    self.gate.pass().await;
                    self.command(command);
                }
                Err(_) => {
                    self.gate.pass().await;
                    self.group();
                    self.read();
                }
            }
        }
    }

    fn tell(&self, event: Result<Event, SimError>) {
        // Without a receiver nothing is told.
        drop(self.items.send(Item { event, epoch: 0 }));
    }

    fn command(&mut self, command: Command) {
        match command {
            // The answer to an assignment that was lost meanwhile says nothing of the next one.
            Command::Start { rebalance, .. } if self.assigning != Some(rebalance) => {}
            Command::Start { rebalance, positions } => {
                for (partition, position) in positions {
                    if self.held.remove(&partition) {
                        self.start(partition, position);
                    }
                }
                self.acknowledge(rebalance);
            }
            Command::Release { rebalance } => self.acknowledge(rebalance),
            Command::Seek { partition, position, epoch } => {
                self.epochs.insert(partition, epoch);
                if self.held.remove(&partition) || self.reading.contains_key(&partition) {
                    self.start(partition, position);
                }
            }
            Command::Pause(paused) => self.paused = paused,
            Command::Close(_) => {}
        }
    }

    fn start(&mut self, partition: Partition, next: i64) {
        self.reading.insert(partition, Reading { next, stopped: false, first: true });
    }

    fn acknowledge(&self, rebalance: u64) {
        if let Some(member) = &self.member {
            self.broker.acknowledge(member, rebalance);
        }
    }

    /// Signs of life, and what the group has to tell. Being forgotten is not always noticed at once.
    fn group(&mut self) {
        match &self.member {
            None => self.member = Some(self.broker.join(&self.group, self.told.clone())),
            Some(member) => {
                let forgotten = !self.broker.heartbeat(member);
                if forgotten && !self.world.strikes(self.faults.unaware) {
                    self.lose();
                    return;
                }
            }
        }
        while let Ok(notice) = self.notices.try_recv() {
            self.notice(notice);
        }
    }

    /// All is somebody else's already.
    fn lose(&mut self) {
        self.member = None;
        while self.notices.try_recv().is_ok() {}
        let partitions: Vec<_> = self.reading.keys().copied().chain(self.held.iter().copied()).collect();
        self.reading.clear();
        self.held.clear();
        self.assigning = None;
        self.world.note(format_args!("{} has lost {partitions:?}", self.gate.name));
        if !partitions.is_empty() && self.faults.plant != Some(Plant::HidesLosses) {
            self.tell(Ok(Event::Revoked { partitions, lost: true, ack: Ack::new(|()| ()) }));
        }
    }

    fn notice(&mut self, notice: Notice) {
        let sender = self.sender.clone();
        let send = move |command| drop(sender.upgrade().map(|sender| sender.send(command)));
        match notice {
            Notice::Assigned { rebalance, partitions } => {
                self.held.extend(partitions.iter().copied());
                self.assigning = Some(rebalance);
                let ack = Ack::new(move |positions| send(Command::Start { rebalance, positions }));
                self.tell(Ok(Event::Assigned { partitions, ack }));
            }
            Notice::Revoked { rebalance, partitions } => {
                for partition in &partitions {
                    // What was fetched still comes out.
                    if self.world.happens(0.5) {
                        self.read_partition(*partition);
                    }
                    self.reading.remove(partition);
                    self.held.remove(partition);
                }
                let ack = Ack::new(move |()| send(Command::Release { rebalance }));
                self.tell(Ok(Event::Revoked { partitions, lost: false, ack }));
            }
        }
    }

    fn read(&mut self) {
        if self.paused || self.waiting.load(Ordering::Relaxed) >= WAITING {
            return;
        }
        if !self.reading.is_empty() && self.world.strikes(self.faults.fetch) {
            return self.tell(Err(SimError::Passing { what: "fetching" }));
        }
        let partitions: Vec<_> = self.reading.iter().filter(|(_, at)| !at.stopped).map(|(p, _)| *p).collect();
        if let Some(partition) = self.world.pick(&partitions) {
            self.read_partition(partition);
        }
    }

    fn read_partition(&mut self, partition: Partition) {
        let Some(reading) = self.reading.get_mut(&partition).filter(|reading| !reading.stopped) else { return };
        let position = reading.next;
        let fetched = self.broker.read(partition, |log| {
            if position < log.low || position > log.high {
                return Err(SimError::PositionGone { partition, position });
            }
            let most = 1 + self.world.below(6);
            let first = log.records.partition_point(|record| record.offset < position);
            let found: Vec<_> = log.records.iter().skip(first).take(most).cloned().collect();
            // The end of a partition is told, also where its last offsets are no records.
            let last = found.last().map_or(log.high, |record| record.offset + 1);
            let is_end = found.len() < most;
            Ok((found, if is_end { log.high } else { last }))
        });
        let (mut found, to) = match fetched {
            None => return,
            Some(Err(error)) => {
                reading.stopped = true;
                let epoch = self.epochs.get(&partition).copied().unwrap_or(0);
                return drop(self.items.send(Item { event: Err(error), epoch }));
            }
            Some(Ok(fetched)) => fetched,
        };
        if to == position {
            return;
        }
        if self.faults.plant == Some(Plant::SkipsAfterRebalance) && reading.first && found.len() > 1 {
            found.remove(0);
        }
        *reading = Reading { next: to, first: false, ..*reading };
        let mut records = Records::default();
        for record in &found {
            let record = Record {
                offset: record.offset,
                timestamp: record.timestamp,
                key: None,
                value: record.value.as_deref(),
                headers: None,
            };
            // A few small records always fit.
            let _full = records.push(record).is_err();
        }
        let chunk = Span::new(position, to).ok().and_then(|span| Chunk::new(partition, span, records).ok());
        let Some(chunk) = chunk else { return self.world.violation("a chunk of the simulation is broken".to_owned()) };
        if self.world.strikes(self.faults.gap) {
            return self.world.note(format_args!("{} loses {} of {partition}", self.gate.name, chunk.span()));
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let epoch = self.epochs.get(&partition).copied().unwrap_or(0);
        drop(self.items.send(Item { event: Ok(Event::Chunk(chunk)), epoch }));
    }
}

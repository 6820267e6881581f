//! The loop: one `match` over all that can happen to a pipeline.
//!
//! Chunks go to workers as they come; a flush collects what the workers made and commits it in a
//! task of its own, while the loop goes on with the next one. At most one flush is under way.
//! Whatever speaks against the work done since the last commit (another process moved a partition,
//! a partition was lost, the schema moved) drops all of it and reads on from the table's positions.

use crate::budget::{Budget, Charge};
use crate::error::Error;
use crate::planner::Planner;
use crate::stages::{Plugins, Stages};
use crate::stats::Stats;
use crate::worker::{Job, QUEUE, Worker};
use alluvium_config::Pipeline;
use alluvium_core::position::Cursor;
use alluvium_core::seam::{Ack, Event, Outcome, Source, Table, TableState};
use alluvium_core::{
    Arrival, Chunk, Classified, CommitInfo, CommitKind, Edge, ErrorClass, Fault, Hook, Partition, PartitionProgress,
    TopicId,
};
use alluvium_schema::Shape;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

mod assign;
mod flush;
mod topic;

/// Records that the first columns are inferred from: so many, or what one flush brings.
const SAMPLE: u64 = 10_000;
/// How long a rebalance is held to commit what was read; well below `max.poll.interval.ms`.
const REVOKE_GRACE: Duration = Duration::from_secs(20);
/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How often `until_end` asks the table for partitions that others read.
const LOOK: Duration = Duration::from_secs(1);

/// How to run a pipeline.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Stop at the end of the topic as it is at the start.
    pub until_end: bool,
    pub workers: usize,
    pub compute: Compute,
}

/// Where records are worked on.
#[derive(Clone)]
pub enum Compute {
    /// On threads of their own: computing never holds up the runtime.
    Threads,
    /// As tasks of the runtime, each job after a pause of this length: under a paused clock and one
    /// thread, the order of all that happens is then decided by the pauses alone.
    Inline(Arc<dyn Fn() -> Duration + Send + Sync>),
}

impl std::fmt::Debug for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Threads => "Threads",
            Self::Inline(_) => "Inline",
        })
    }
}

/// A pipeline to be run.
pub struct PipelineRun {
    pub pipeline: Arc<Pipeline>,
    pub plugins: Plugins,
    pub options: RunOptions,
    pub stats: Arc<Stats>,
    pub hook: Hook,
}

impl std::fmt::Debug for PipelineRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipelineRun").field("pipeline", &self.pipeline.id).finish_non_exhaustive()
    }
}

/// What the owner of the process asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shutdown {
    No,
    /// Commit what was read, then end.
    Flush,
    /// End at once; what was not committed is read again next time.
    Now,
}

/// Runs one pipeline.
pub struct Driver<S: Source, T: Table> {
    pipeline: Arc<Pipeline>,
    source: S,
    table: Arc<T>,
    planner: Arc<Planner>,
    plugins: Plugins,
    options: RunOptions,
    stats: Arc<Stats>,
    hook: Hook,
    /// All bytes held.
    budget: Budget,
    /// The bytes of the files that are being written.
    open: Budget,
    workers: Vec<Worker<T::File>>,
    faults: mpsc::UnboundedReceiver<Error>,
    assigned: BTreeMap<Partition, Assigned>,
    /// Places for chunks that wait for their workers: reading goes on while there is one.
    places: Arc<Semaphore>,
    /// Chunks of the first batch, held until the columns are inferred.
    sample: Sample,
    unflushed: Unflushed,
    under_way: Option<JoinHandle<Result<Flushed, Error>>>,
    /// How often in a row the table's schema did not take a flush.
    misfits: u32,
    /// Whether all work was dropped, and reading waits for the flush under way to go on from the table.
    resetting: bool,
    leaving: Option<Leaving>,
    paused: bool,
    /// With `until_end`: where each partition ended at the start.
    ends: BTreeMap<Partition, i64>,
    lows: BTreeMap<Partition, i64>,
    /// The id of the topic that the positions belong to; every commit names it.
    topic_id: Option<TopicId>,
    /// A look at the topic's id while nothing is flushed, and when the next is due.
    look: Option<JoinHandle<Result<Option<TopicId>, S::Error>>>,
    next_id_look: Instant,
    /// Errors of the source since the last chunk.
    troubles: u32,
    next_look: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Assigned {
    cursor: Cursor,
    /// The worker that has all its chunks, in order.
    worker: usize,
    /// Whether nothing of it was handed to a worker since it was assigned.
    fresh: bool,
}

/// Chunks of the first batch.
#[derive(Debug, Default)]
struct Sample {
    chunks: Vec<(Chunk, Charge)>,
    records: u64,
    since: Option<Instant>,
}

/// What was handed to the workers since the last flush.
#[derive(Clone, Copy, Debug, Default)]
struct Unflushed {
    records: u64,
    since: Option<Instant>,
    /// Since when the first of it was held back as a sample.
    held: Option<Instant>,
    /// Whether the first records of an assignment are among it: its flush comes early.
    fresh: bool,
    /// Records of the flush under way.
    under_way: u64,
}

/// Why nothing more is read: what was read is committed first, if that can be done in time.
enum Leaving {
    Revoked { partitions: Vec<Partition>, ack: Ack<()>, until: Instant },
    Shutdown,
}

/// What became of a flush.
enum Flushed {
    Nothing,
    /// The brokers could not be asked whether the records are still those of the same topic.
    Unidentified(Fault),
    Settled {
        outcome: Outcome,
        /// Whether the rows in the table are this process's: another may have committed the same spans.
        own: bool,
        progress: Vec<PartitionProgress>,
    },
}

/// All that can happen.
enum Turn {
    Event(Event),
    Room,
    Trouble(Error),
    Flushed(Flushed),
    Looked(Option<TopicId>),
    Asked(Shutdown),
    Tick,
}

impl<S: Source, T: Table> std::fmt::Debug for Driver<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("pipeline", &self.pipeline.id).finish_non_exhaustive()
    }
}

impl<S: Source, T: Table> Driver<S, T> {
    /// A driver over the table's present state; starts its workers.
    pub fn new(run: PipelineRun, source: S, table: Arc<T>, state: &TableState) -> Result<Self, Error> {
        let PipelineRun { pipeline, plugins, options, stats, hook } = run;
        let planner = Arc::new(Planner::new(&pipeline, &plugins, state)?);
        planner.warn_unfilled();
        let limit = |bytes: u64| Budget::new(usize::try_from(bytes).unwrap_or(usize::MAX));
        let (budget, open) = (limit(pipeline.flush.memory), limit(pipeline.flush.size));
        let (report, faults) = mpsc::unbounded_channel();
        let mut workers = Vec::new();
        let count = options.workers.max(1);
        for number in 0..count {
            let stages = Stages::new(
                plugins.clone(),
                planner.clone(),
                pipeline.source.tombstones,
                &pipeline.limits,
                hook.clone(),
            );
            let name = format!("{}-{number}", pipeline.id.name());
            let budgets = [budget.clone(), open.clone()];
            workers.push(Worker::start(&name, &options.compute, table.clone(), stages, budgets, report.clone())?);
        }
        Ok(Self {
            pipeline,
            source,
            table,
            planner,
            plugins,
            options,
            stats,
            hook,
            budget,
            open,
            workers,
            faults,
            assigned: BTreeMap::new(),
            places: Arc::new(Semaphore::new(QUEUE * count)),
            sample: Sample::default(),
            unflushed: Unflushed::default(),
            under_way: None,
            misfits: 0,
            resetting: false,
            leaving: None,
            paused: false,
            ends: BTreeMap::new(),
            lows: BTreeMap::new(),
            topic_id: state.topic_id.clone(),
            look: None,
            next_id_look: Instant::now(),
            troubles: 0,
            next_look: Instant::now(),
        })
    }

    /// Runs until the end (`until_end`), a shutdown, or an error that trying again cannot mend.
    pub async fn run(mut self, shutdown: watch::Receiver<Shutdown>) -> Result<(), Error> {
        let patience = patience(shutdown.clone(), self.pipeline.flush.grace);
        // Whatever is being waited for, a shutdown ends it: dropped work is read again next time.
        let done = tokio::select! {
            biased;
            done = self.turns(shutdown) => Ok(done),
            asked = patience => Err(asked),
        };
        let done = match done {
            Ok(done) => done,
            Err(Shutdown::Flush) if !self.is_idle() => {
                let Unflushed { records, under_way, .. } = self.unflushed;
                Err(Error::GraceOver { records: self.sample.records + records + under_way })
            }
            Err(_) => Ok(()),
        };
        if let Some(Leaving::Revoked { ack, .. }) = self.leaving.take() {
            self.give_back(ack);
        }
        self.source.close().await;
        done
    }

    async fn turns(&mut self, mut shutdown: watch::Receiver<Shutdown>) -> Result<(), Error> {
        self.identify().await?;
        if self.options.until_end {
            self.find_ends().await?;
        }
        loop {
            if self.is_sample_due() {
                self.learn().await?;
            }
            if self.is_flush_due() {
                self.start_flush();
            }
            if self.is_over().await? {
                return Ok(());
            }
            match self.turn(&mut shutdown).await? {
                Turn::Event(Event::Chunk(chunk)) => self.chunk(chunk)?,
                Turn::Event(Event::Assigned { partitions, ack }) => self.assign(&partitions, ack).await?,
                Turn::Event(Event::Revoked { partitions, lost, ack }) => self.revoke(partitions, lost, ack).await?,
                Turn::Room => {}
                Turn::Trouble(error) => self.trouble(error).await?,
                Turn::Flushed(flushed) => self.settle(flushed).await?,
                Turn::Looked(topic_id) => self.looked(topic_id)?,
                Turn::Asked(Shutdown::No) => {}
                Turn::Asked(Shutdown::Flush) => self.leave_for_shutdown(),
                Turn::Asked(Shutdown::Now) => return Ok(()),
                Turn::Tick => {
                    self.throttle();
                    self.look();
                }
            }
        }
    }

    /// Waits for the next thing to happen.
    async fn turn(&mut self, shutdown: &mut watch::Receiver<Shutdown>) -> Result<Turn, Error> {
        let done = self.options.until_end && !self.assigned.is_empty() && self.is_at_ends();
        let has_room = self.places.available_permits() > 0;
        // A rebalance can still come when all is read.
        let wanted = self.leaving.is_none() && !self.resetting && (done || !self.budget.is_spent());
        let reading = wanted && has_room;
        if reading {
            self.hook.before(Edge::Poll);
        }
        let look = &mut self.look;
        let looked = async {
            match look {
                Some(task) => task.await,
                None => std::future::pending().await,
            }
        };
        let under_way = &mut self.under_way;
        let flushed = async {
            match under_way {
                Some(task) => task.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            fault = self.faults.recv() => match fault {
                Some(error) => Err(error),
                None => Err(Error::Worker { message: "all workers ended".to_owned() }),
            },
            changed = shutdown.changed() => match changed {
                Ok(()) => Ok(Turn::Asked(*shutdown.borrow_and_update())),
                // Nobody can ask any more: the process is ending.
                Err(_) => Ok(Turn::Asked(Shutdown::Now)),
            },
            done = flushed => {
                self.under_way = None;
                match done {
                    Ok(Ok(flushed)) => Ok(Turn::Flushed(flushed)),
                    // Its work was dropped; what became of it is in the table.
                    Ok(Err(_)) if self.resetting => Ok(Turn::Flushed(Flushed::Nothing)),
                    Ok(Err(error)) => Err(error),
                    Err(join) => Err(Error::Worker { message: join.to_string() }),
                }
            }
            done = looked => {
                self.look = None;
                match done {
                    Ok(Ok(topic_id)) => Ok(Turn::Looked(topic_id)),
                    // The source tells by itself that the brokers are away.
                    Ok(Err(error)) if error.class() == ErrorClass::External => Ok(Turn::Looked(None)),
                    Ok(Err(error)) => Ok(Turn::Trouble(Error::Source(Fault::new(error)))),
                    Err(join) => Err(Error::Worker { message: join.to_string() }),
                }
            }
            event = self.source.next(), if reading => match event {
                Ok(event) => Ok(Turn::Event(event)),
                Err(error) => Ok(Turn::Trouble(Error::Source(Fault::new(error)))),
            },
            // Only this loop takes places: what is free stays free.
            Ok(_place) = self.places.acquire(), if wanted && !has_room => Ok(Turn::Room),
            () = tokio::time::sleep(TICK) => Ok(Turn::Tick),
        }
    }

    /// The worker with the fewest partitions.
    fn idlest_worker(&self) -> usize {
        let load = |worker: &usize| self.assigned.values().filter(|assigned| assigned.worker == *worker).count();
        (0..self.workers.len()).min_by_key(load).unwrap_or_default()
    }

    fn chunk(&mut self, chunk: Chunk) -> Result<(), Error> {
        self.hook.after(Edge::Poll);
        self.troubles = 0;
        let partition = chunk.partition();
        let Some(assigned) = self.assigned.get_mut(&partition) else { return Ok(()) };
        let next = assigned.cursor.next;
        // Past the end that was asked for: whoever runs next reads it.
        if self.options.until_end && self.ends.get(&partition).is_some_and(|end| next >= *end) {
            return Ok(());
        }
        let found = chunk.span().from();
        let chunk = match chunk.arrive(next) {
            Arrival::Next(chunk) => chunk,
            // Read before a seek.
            Arrival::Known => return Ok(()),
            Arrival::Gap => {
                tracing::warn!(%partition, next, found, "records were left out: read again from there");
                return self.source.seek(&[(partition, next)]).map_err(|error| Error::Source(Fault::new(error)));
            }
        };
        assigned.cursor.next = chunk.span().to();
        self.stats.consume(chunk.records().len(), self.budget.used());
        self.stats.positions(self.assigned.iter().map(|(partition, assigned)| (*partition, assigned.cursor.next)));
        let charge = self.budget.charge(chunk.memory());
        // While earlier chunks are held, later ones must not overtake them.
        if self.planner.needs_sample() || !self.sample.chunks.is_empty() {
            self.sample.records += chunk.records().len() as u64;
            self.sample.since.get_or_insert_with(Instant::now);
            self.sample.chunks.push((chunk, charge));
        } else {
            self.hand_out(chunk, charge);
        }
        Ok(())
    }

    fn hand_out(&mut self, chunk: Chunk, charge: Charge) {
        let Some(assigned) = self.assigned.get_mut(&chunk.partition()) else { return };
        let Some(worker) = self.workers.get(assigned.worker) else { return };
        self.unflushed.fresh |= std::mem::take(&mut assigned.fresh);
        self.unflushed.records += chunk.records().len() as u64;
        let held = self.unflushed.held.take();
        self.unflushed.since.get_or_insert_with(|| held.unwrap_or_else(Instant::now));
        // Chunks that waited as a sample are more than there are places.
        let place = self.places.clone().try_acquire_owned().ok();
        worker.send(Job::Chunk(chunk, charge, place));
    }

    /// How long read records may wait for a flush. After an assignment there is often a backlog, and
    /// whoever looks at the table wants to see that the takeover went well: a tenth will do.
    fn interval(&self, fresh: bool) -> Duration {
        let every = self.pipeline.flush.every;
        if fresh { every / 10 } else { every }
    }

    fn is_sample_due(&self) -> bool {
        let Some(since) = self.sample.since else { return false };
        self.sample.records >= SAMPLE.min(self.pipeline.flush.rows)
            || since.elapsed() >= self.interval(self.assigned.values().any(|assigned| assigned.fresh))
            || self.budget.used() >= self.budget.limit() / 2
            || self.is_ending()
    }

    /// Infers the first columns from the chunks held, and lets them go.
    async fn learn(&mut self) -> Result<(), Error> {
        let chunks = std::mem::take(&mut self.sample.chunks);
        // Their wait counts: a first batch is not to wait twice.
        self.unflushed.held = self.sample.since.take();
        let planner = self.planner.clone();
        let (pipeline, plugins) = (&self.pipeline, self.plugins.clone());
        let tombstones = pipeline.source.tombstones;
        let mut stages = Stages::new(plugins, planner.clone(), tombstones, &pipeline.limits, self.hook.clone());
        let learn = move || {
            let mut shape = Shape::default();
            chunks.iter().try_for_each(|(chunk, _)| stages.observe(chunk, &mut shape))?;
            let spans = || chunks.iter().map(|(chunk, _)| (chunk.partition(), chunk.span()));
            planner.learn(&shape).map_err(|error| error.of(spans()))?;
            Ok::<_, Error>(chunks)
        };
        let chunks = match self.options.compute {
            Compute::Threads => tokio::task::spawn_blocking(learn).await,
            Compute::Inline(_) => Ok(learn()),
        };
        let chunks = chunks.map_err(|join| Error::Worker { message: join.to_string() })??;
        chunks.into_iter().for_each(|(chunk, charge)| self.hand_out(chunk, charge));
        self.sample = Sample::default();
        self.unflushed.held = None;
        Ok(())
    }

    /// Whether everything read is committed.
    fn is_idle(&self) -> bool {
        let sampling = !self.sample.chunks.is_empty() || self.unflushed.held.is_some();
        self.under_way.is_none() && !self.resetting && !sampling && self.unflushed.since.is_none()
    }

    /// Whether what was read should be committed without waiting for more.
    fn is_ending(&self) -> bool {
        self.leaving.is_some() || (self.options.until_end && self.is_at_ends())
    }

    /// Whether all that was assigned has been read to its end.
    fn is_at_ends(&self) -> bool {
        let at_end = |(partition, assigned): (&Partition, &Assigned)| {
            self.ends.get(partition).is_none_or(|end| assigned.cursor.next >= *end)
        };
        self.assigned.iter().all(at_end)
    }

    async fn is_over(&mut self) -> Result<bool, Error> {
        match &self.leaving {
            Some(Leaving::Shutdown) => Ok(self.is_idle()),
            Some(Leaving::Revoked { until, .. }) => {
                let expired = Instant::now() >= *until;
                if self.is_idle() || expired {
                    self.finish_revoke(expired).await?;
                }
                Ok(false)
            }
            None if self.options.until_end && self.is_idle() && self.is_at_ends() => self.others_are_at_ends().await,
            None => Ok(false),
        }
    }

    fn leave_for_shutdown(&mut self) {
        if let Some(Leaving::Revoked { ack, .. }) = self.leaving.replace(Leaving::Shutdown) {
            self.give_back(ack);
        }
    }

    /// Stops and resumes fetching as the budget asks.
    fn throttle(&mut self) {
        self.stats.memory.store(self.budget.used() as u64, Ordering::Relaxed);
        if !self.paused && self.budget.is_spent() {
            self.paused = true;
            self.source.pause();
        } else if self.paused && self.budget.has_room() {
            self.paused = false;
            self.source.resume();
        }
    }

    fn info(&self, kind: CommitKind) -> CommitInfo {
        CommitInfo {
            format: 1,
            kind,
            pipeline: self.pipeline.id.to_string(),
            generation: self.pipeline.id.generation(),
            topic: self.pipeline.source.topic.clone(),
            topic_id: self.topic_id.clone(),
            partitions: Vec::new(),
            plugins: self.plugins.references(),
            plan: None,
            replay: None,
        }
    }
}

/// Waits until no more time is to be given to a shutdown: none for one at once, the grace time for one
/// that flushes. Tells which of the two was asked for.
async fn patience(mut asked: watch::Receiver<Shutdown>, grace: Duration) -> Shutdown {
    let mut until = None;
    loop {
        let now = *asked.borrow_and_update();
        match now {
            Shutdown::No => {}
            Shutdown::Flush => drop(until.get_or_insert_with(|| Instant::now() + grace)),
            Shutdown::Now => return now,
        }
        let grace_over = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = asked.changed() => if changed.is_err() { return Shutdown::Now },
            () = grace_over => return now,
        }
    }
}

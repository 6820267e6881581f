//! Processes that start, die, freeze, wake and end; and what happens around them.

use super::broker::Broker;
use super::check;
use super::faults::{Faults, Plant};
use super::scenario::Scenario;
use super::source::SimSource;
use super::store::Store;
use super::table::SimTable;
use super::world::{Gate, Life, Protocol, World};
use alluvium_core::edge::{Edge, Point};
use alluvium_core::position::PositionError;
use alluvium_core::seam::Table;
use alluvium_core::{Classified, ErrorClass, Fault, Hook, Partition};
use alluvium_runtime::{Compute, Driver, Error, PipelineRun, Plugins, RunOptions, Shutdown, Stats};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a process may take to end once it was asked to, beyond its grace time.
const LEAVE: Duration = Duration::from_secs(20);
/// How long the last run may take in a calm world.
const LAST_RUN: Duration = Duration::from_secs(300);
/// How long requests of the dead can still arrive.
const AFTERMATH: Duration = Duration::from_secs(30);

/// A world with all that is in it.
#[derive(Debug)]
pub struct Stage {
    pub world: Arc<World>,
    pub scenario: Scenario,
    pub broker: Arc<Broker>,
    pub store: Arc<Store>,
    published: Arc<Mutex<BTreeMap<Partition, i64>>>,
}

/// A process that was started.
#[derive(Debug)]
pub struct Process {
    pub gate: Gate,
    pub stats: Arc<Stats>,
    shutdown: watch::Sender<Shutdown>,
    task: JoinHandle<Result<(), Error>>,
}

impl Process {
    pub fn ask(&self, shutdown: Shutdown) {
        self.shutdown.send_replace(shutdown);
    }

    /// Waits for its end.
    pub async fn end(self) -> Result<(), Error> {
        match self.task.await {
            Ok(done) => done,
            Err(join) => Err(Error::Worker { message: join.to_string() }),
        }
    }

    /// Ends it at once, as kill -9 does.
    pub async fn kill(self) {
        self.gate.set(Life::Dead);
        self.task.abort();
        // It has nothing to tell.
        drop(self.task.await);
    }
}

impl Stage {
    pub fn new(world: Arc<World>, scenario: Scenario) -> Arc<Self> {
        let broker = Broker::start(&world, scenario.partitions);
        let published = Arc::default();
        Arc::new(Self { world, scenario, broker, store: Arc::default(), published })
    }

    /// Starts a process, as the command line does.
    pub fn start(self: &Arc<Self>, name: &str, group: &'static str, until_end: bool) -> Process {
        self.start_with(name, group, until_end, |table| table)
    }

    /// Starts a process whose table is wrapped.
    pub fn start_with<T: Table>(
        self: &Arc<Self>,
        name: &str,
        group: &'static str,
        until_end: bool,
        wrap: impl FnOnce(SimTable) -> T + Send + 'static,
    ) -> Process {
        let gate = Gate::new(name);
        let stats = Arc::new(Stats::default());
        let (shutdown, asked) = watch::channel(Shutdown::No);
        self.world.note(format_args!("{name} starts, until the end: {until_end}"));
        let (stage, own_gate, own_stats) = (self.clone(), gate.clone(), stats.clone());
        let task = tokio::spawn(async move {
            let Stage { world, scenario, broker, store, published } = stage.as_ref();
            let (faults, pipeline) = (scenario.faults, &scenario.pipeline);
            let topic = &pipeline.source.topic;
            let table = wrap(SimTable::new(store, world, &own_gate, faults, &pipeline.id, topic));
            let state = table.load().await.map_err(|error| Error::Load(Fault::new(error)))?;
            let source = SimSource::connect(broker, world, &own_gate, faults, group, published.clone());
            let (dice, slowness) = (world.clone(), scenario.slowness);
            let pace = move || Duration::from_millis(dice.within(0..slowness));
            let options = RunOptions { until_end, workers: scenario.workers, compute: Compute::Inline(Arc::new(pace)) };
            let (dice, doomed) = (world.clone(), own_gate.clone());
            let hook = move |point: Point| {
                // Polls are so many that nobody would live to commit.
                if point.edge != Edge::Poll && dice.strikes(faults.death) {
                    dice.note(format_args!("{} dies at {point}", doomed.name));
                    doomed.set(Life::Dead);
                }
            };
            let run = PipelineRun {
                pipeline: pipeline.clone(),
                plugins: Plugins::default(),
                options,
                stats: own_stats,
                hook: Hook::new(hook),
            };
            Driver::new(run, source, Arc::new(table), &state)?.run(asked).await
        });
        Process { gate, stats, shutdown, task }
    }

    /// Notes how a process ended; what cannot be explained by the world's faults is a violation.
    fn judge(&self, name: &str, done: &Result<(), Error>) {
        let Err(error) = done else { return self.world.note(format_args!("{name} ends")) };
        self.world.note(format_args!("{name} ends: {error}"));
        let lost = matches!(error, Error::Position(PositionError::Lost { .. }));
        if error.class() != ErrorClass::External && !(lost && self.scenario.may_stop()) {
            self.world.violation(format!("{name} ended by {error:?}"));
        }
    }

    /// One place for a process: whenever it ends, another takes it, until the world is calm.
    async fn keep(self: Arc<Self>, place: usize, group: &'static str, lives: Arc<Mutex<Vec<Option<Handle>>>>) {
        let until = tokio::time::Instant::now() + Duration::from_millis(self.scenario.wild);
        let mut number = 0;
        let set = |life| {
            if let Some(slot) = lives.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place) {
                *slot = life;
            }
        };
        while tokio::time::Instant::now() < until {
            number += 1;
            let name = format!("p{place}.{number}");
            let mut process = self.start(&name, group, self.world.happens(0.2));
            set(Some(Handle { gate: process.gate.clone(), shutdown: process.shutdown.clone() }));
            tokio::select! {
                biased;
                () = process.gate.died() => process.kill().await,
                done = &mut process.task => match done {
                    Ok(done) => self.judge(&name, &done),
                    Err(join) => self.world.violation(format!("{name} ended by {join}")),
                },
                () = tokio::time::sleep_until(until) => {
                    set(None);
                    return self.finish(&name, process).await;
                }
            }
            set(None);
            self.world.pause(50..1_500).await;
        }
    }

    /// The end of a process when the world calms down.
    async fn finish(&self, name: &str, process: Process) {
        match self.world.below(4) {
            0 => return process.kill().await,
            1 => process.ask(Shutdown::Now),
            _ => process.ask(Shutdown::Flush),
        }
        process.gate.set(Life::Running);
        let gate = process.gate.clone();
        let patience = self.scenario.pipeline.flush.grace + LEAVE;
        tokio::select! {
            biased;
            () = gate.died() => {}
            done = tokio::time::timeout(patience, process.end()) => match done {
                Ok(done) => self.judge(name, &done),
                Err(_) => self.world.violation(format!("{name} did not end after it was asked to")),
            },
        }
        gate.set(Life::Dead);
    }

    /// What happens to processes, topic and table while the world is wild.
    async fn rage(self: Arc<Self>, lives: Arc<Mutex<Vec<Option<Handle>>>>) {
        let Self { world, scenario, broker, store, .. } = self.as_ref();
        loop {
            world.pause(1..scenario.calm * 2).await;
            let one = {
                let lives = lives.lock().unwrap_or_else(PoisonError::into_inner);
                lives.get(world.below(lives.len())).and_then(Clone::clone)
            };
            match (world.below(13), one) {
                (0 | 1, Some(life)) => {
                    world.note(format_args!("{} is killed", life.gate.name));
                    life.gate.set(Life::Dead);
                }
                (2 | 3, Some(life)) => {
                    world.note(format_args!("{} freezes", life.gate.name));
                    life.gate.set(Life::Frozen);
                    let world = world.clone();
                    tokio::spawn(async move {
                        world.pause(100..5_000).await;
                        world.note(format_args!("{} thaws", life.gate.name));
                        life.gate.set(Life::Running);
                    });
                }
                (4, Some(life)) => {
                    let shutdown = if world.happens(0.7) { Shutdown::Flush } else { Shutdown::Now };
                    world.note(format_args!("{} is asked to end: {shutdown:?}", life.gate.name));
                    life.shutdown.send_replace(shutdown);
                }
                (5 | 6, _) => broker.expel_one(),
                (7, _) if broker.partitions().len() < 5 => broker.add_partition(),
                (8 | 9, _) => store.foreign(world, !scenario.treatment.declared),
                (10, _) if scenario.loses => self.lose(),
                (11, _) if scenario.outage => world.go_out(1_000..40_000),
                _ => {}
            }
        }
    }

    /// Retention passes some of the records.
    fn lose(&self) {
        if let Some(partition) = self.world.pick(&self.broker.partitions()) {
            let high = self.broker.watermarks(partition).map_or(0, |watermarks| watermarks.high);
            self.broker.retain_from(partition, self.world.within(0..high.max(0) as u64 + 1) as i64);
        }
    }

    async fn produce(self: Arc<Self>) {
        loop {
            self.world.pause(20..600).await;
            if let Some(partition) = self.world.pick(&self.broker.partitions()) {
                self.broker.produce(partition, 1 + self.world.below(8));
            }
        }
    }

    /// One run to the end of all there is, in a calm world. Tells whether lost data stopped it.
    async fn last_run(self: &Arc<Self>) -> bool {
        let last = self.start("last", "readers", true);
        // Even a calm world is not still.
        let stage = self.clone();
        let around = tokio::spawn(async move {
            loop {
                stage.world.pause(50..1_000).await;
                match stage.world.below(4) {
                    0 => stage.broker.expel_one(),
                    _ => stage.store.foreign(&stage.world, !stage.scenario.treatment.declared),
                }
            }
        });
        let ended = tokio::time::timeout(LAST_RUN, last.end()).await;
        around.abort();
        match ended {
            Ok(Ok(())) => false,
            Ok(Err(Error::Position(PositionError::Lost { .. }))) if self.scenario.may_stop() => true,
            Ok(Err(error)) => {
                self.world.violation(format!("the last run ended by {error:?}"));
                false
            }
            Err(_) => {
                self.world.violation("the last run does not end".to_owned());
                false
            }
        }
    }

    /// The newest positions told to the group.
    pub fn published(&self) -> BTreeMap<Partition, i64> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What can be done to a process from outside.
#[derive(Clone, Debug)]
struct Handle {
    gate: Gate,
    shutdown: watch::Sender<Shutdown>,
}

/// Lives through the world of a seed.
pub async fn live(seed: u64, plant: Option<Plant>, traced: bool) -> Protocol {
    let world = World::new(seed, traced);
    let mut scenario = match Scenario::draw(&world) {
        Ok(scenario) => scenario,
        Err(error) => {
            world.violation(format!("the simulation's pipeline is refused: {error}"));
            return world.protocol();
        }
    };
    scenario.faults = Faults { plant, ..scenario.faults };
    world.note(format_args!("{scenario:?}"));
    let stage = Stage::new(world.clone(), scenario);
    for partition in stage.broker.partitions() {
        stage.broker.produce(partition, world.below(25));
    }
    let lives = Arc::new(Mutex::new(vec![None; stage.scenario.groups.len()]));
    let around = [tokio::spawn(stage.clone().produce()), tokio::spawn(stage.clone().rage(lives.clone()))];
    let places = stage.scenario.groups.iter().enumerate();
    let places: Vec<_> =
        places.map(|(place, group)| tokio::spawn(stage.clone().keep(place, group, lives.clone()))).collect();
    // One that is frozen all the while, and wakes when everything is done.
    let sleeper = if world.happens(0.3) { Some(sleeper(&stage).await) } else { None };
    tokio::time::sleep(Duration::from_millis(stage.scenario.wild)).await;
    around.iter().for_each(JoinHandle::abort);
    for place in places {
        if let Err(join) = place.await {
            world.violation(format!("a place ended by {join}"));
        }
    }
    world.calm();
    tokio::time::sleep(AFTERMATH).await;
    let stopped = stage.last_run().await;
    if let Some(sleeper) = sleeper {
        world.note(format_args!("{} wakes", sleeper.gate.name));
        sleeper.gate.set(Life::Running);
        tokio::time::sleep(AFTERMATH).await;
        stage.finish("sleeper", sleeper).await;
        tokio::time::sleep(AFTERMATH).await;
    }
    // Whoever opens the tables next writes what an interrupted commit owes.
    let Scenario { faults, pipeline, .. } = &stage.scenario;
    let next = SimTable::new(&stage.store, &world, &Gate::new("next"), *faults, &pipeline.id, &pipeline.source.topic);
    if let Err(error) = next.load().await {
        world.violation(format!("the tables cannot be opened: {error}"));
    }
    check::check(&stage, stopped);
    world.protocol()
}

/// A process that starts with the others, and freezes at some time.
async fn sleeper(stage: &Arc<Stage>) -> Process {
    let sleeper = stage.start("sleeper", "readers", false);
    stage.world.pause(100..stage.scenario.wild.min(3_000)).await;
    stage.world.note(format_args!("sleeper freezes for long"));
    sleeper.gate.set(Life::Frozen);
    sleeper
}

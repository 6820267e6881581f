//! The driver alone: when it flushes, when it stops reading, when it ends.

use alluvium_config::{LostData, Pipeline};
use alluvium_core::seam::{Flush, Outcome, Table, TableState};
use alluvium_core::{Classified, CommitKind, ErrorClass, Partition};
use alluvium_runtime::{Error, Shutdown};
use alluvium_testkit::sim::Scenario;
use alluvium_testkit::sim::check::check;
use alluvium_testkit::sim::error::SimError;
use alluvium_testkit::sim::processes::{Process, Stage};
use alluvium_testkit::sim::store::{Role, SimFile};
use alluvium_testkit::sim::table::{SimTable, SimWriter};
use alluvium_testkit::sim::world::World;
use arrow_schema::SchemaRef;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// What a table does not do until it is let.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    loads: bool,
    commits: bool,
}

/// A table that waits to be let.
struct HeldTable {
    table: SimTable,
    held: watch::Receiver<Held>,
}

impl HeldTable {
    async fn wait(&self, is_let: impl Fn(&Held) -> bool) {
        if self.held.clone().wait_for(is_let).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Table for HeldTable {
    type Error = SimError;
    type File = SimFile;
    type Writer = SimWriter;

    async fn load(&self) -> Result<TableState, SimError> {
        self.wait(|held| !held.loads).await;
        self.table.load().await
    }

    fn known_schema(&self) -> Option<SchemaRef> {
        self.table.known_schema()
    }

    fn writer(&self, schema: SchemaRef) -> Result<SimWriter, SimError> {
        self.table.writer(schema)
    }

    async fn commit(&self, flush: &mut Flush<SimFile>) -> Result<Outcome, SimError> {
        self.wait(|held| !held.commits).await;
        self.table.commit(flush).await
    }
}

/// A calm world with records in each partition.
fn stage(partitions: usize, records: usize, change: impl FnOnce(&mut Pipeline)) -> Arc<Stage> {
    let stage = Stage::new(World::new(7, false), Scenario::plain(partitions, change).unwrap());
    (0..partitions).for_each(|partition| stage.broker.produce(Partition(partition as i32), records));
    stage
}

fn start(stage: &Arc<Stage>, name: &str, until_end: bool, held: &watch::Sender<Held>) -> Process {
    let held = held.subscribe();
    stage.start_with(name, "readers", until_end, move |table| HeldTable { table, held })
}

/// The records read by each commit of rows.
fn commits(stage: &Stage) -> Vec<u64> {
    let history = stage.store.history(Role::Rows);
    let infos = history.iter().filter_map(|entry| entry.info.as_ref()).filter(|info| info.kind == CommitKind::Rows);
    infos.map(|info| info.partitions.iter().map(|progress| progress.counts.read).sum()).collect()
}

fn committed(stage: &Stage) -> u64 {
    commits(stage).iter().sum()
}

async fn until_committed(stage: &Stage, records: u64) {
    let all = async {
        while committed(stage) < records {
            sleep(Duration::from_millis(5)).await
        }
    };
    timeout(Duration::from_secs(120), all).await.expect("not committed in time");
}

/// Nothing is missing or doubled in a world where all was read.
fn is_whole(stage: &Stage) {
    check(stage, false);
    let violations = stage.world.protocol().violations;
    assert!(violations.is_empty(), "{violations:#?}");
}

const NEVER: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn reading_pauses_past_the_memory_budget_and_goes_on() {
    let (memory, records) = (1 << 20, 20_000);
    let stage = stage(1, records, |pipeline| {
        (pipeline.flush.memory, pipeline.flush.size, pipeline.flush.every) = (memory, memory / 2, NEVER);
    });
    let held = watch::Sender::new(Held { commits: true, ..Held::default() });
    let process = start(&stage, "p", false, &held);
    let mut most = 0;
    let mut watch = async |time| {
        let until = Instant::now() + time;
        while Instant::now() < until {
            most = most.max(process.stats.memory.load(Ordering::Relaxed));
            sleep(Duration::from_millis(5)).await;
        }
        process.stats.consumed.load(Ordering::Relaxed)
    };
    let stalled = watch(Duration::from_secs(30)).await;
    assert!(stalled > 0 && stalled < records as u64 / 2, "{stalled} records were read with no commit");
    assert_eq!(watch(Duration::from_secs(30)).await, stalled);
    held.send_replace(Held::default());
    while watch(Duration::from_secs(1)).await < records as u64 {}
    // Past the budget are at most the chunks that wait for a worker, as rows.
    assert!(most >= memory && most < memory + memory / 4, "{most} bytes were held");
    process.ask(Shutdown::Flush);
    process.end().await.unwrap();
    is_whole(&stage);
}

#[tokio::test(start_paused = true)]
async fn a_flush_comes_after_rows_size_or_time() {
    let by_rows = stage(2, 50, |pipeline| (pipeline.flush.every, pipeline.flush.rows) = (NEVER, 20));
    let held = watch::Sender::new(Held::default());
    let process = start(&by_rows, "rows", false, &held);
    until_committed(&by_rows, 80).await;
    sleep(Duration::from_secs(60)).await;
    let flushes = commits(&by_rows);
    assert!(flushes.iter().skip(1).all(|rows| (20..40).contains(rows)), "{flushes:?}");
    assert!(committed(&by_rows) < 100, "{flushes:?}");
    process.kill().await;

    let by_size = stage(2, 400, |pipeline| (pipeline.flush.every, pipeline.flush.size) = (NEVER, 8 << 10));
    let process = start(&by_size, "size", false, &held);
    until_committed(&by_size, 600).await;
    assert!((3..100).contains(&commits(&by_size).len()), "{:?}", commits(&by_size));
    process.kill().await;

    let by_time = stage(2, 10, |pipeline| pipeline.flush.every = Duration::from_secs(10));
    let process = start(&by_time, "time", false, &held);
    let started = Instant::now();
    until_committed(&by_time, 20).await;
    // The first comes after a tenth of the time.
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    by_time.broker.produce(Partition(0), 5);
    let started = Instant::now();
    until_committed(&by_time, 25).await;
    let waited = started.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(12)).contains(&waited), "{waited:?}");
    process.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_commits_what_was_read() {
    let stage = stage(2, 30, |pipeline| pipeline.flush.every = NEVER);
    let process = start(&stage, "p", false, &watch::Sender::new(Held::default()));
    while process.stats.consumed.load(Ordering::Relaxed) < 60 {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(committed(&stage), 0);
    process.ask(Shutdown::Flush);
    process.end().await.unwrap();
    is_whole(&stage);
}

/// A process whose commit does not come back, with work that it has read.
async fn stuck(held: &watch::Sender<Held>) -> (Arc<Stage>, Process) {
    let stage = stage(2, 30, |pipeline| {
        (pipeline.flush.every, pipeline.flush.grace) = (Duration::from_secs(1), Duration::from_secs(5));
    });
    held.send_replace(Held { commits: true, ..Held::default() });
    let process = start(&stage, "p", false, held);
    sleep(Duration::from_secs(20)).await;
    assert!(process.stats.consumed.load(Ordering::Relaxed) == 60 && committed(&stage) == 0);
    (stage, process)
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_with_its_grace_time() {
    let (_stage, process) = stuck(&watch::Sender::default()).await;
    process.ask(Shutdown::Flush);
    let started = Instant::now();
    let error = process.end().await.unwrap_err();
    assert!(matches!(error, Error::GraceOver { records: 60 }), "{error:?}");
    assert_eq!(error.class(), ErrorClass::External);
    let waited = started.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_shutdown_ends_at_once_and_loses_nothing() {
    let held = watch::Sender::default();
    let (stage, process) = stuck(&held).await;
    process.ask(Shutdown::Flush);
    sleep(Duration::from_secs(1)).await;
    process.ask(Shutdown::Now);
    let started = Instant::now();
    process.end().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    held.send_replace(Held::default());
    start(&stage, "again", true, &held).end().await.unwrap();
    is_whole(&stage);
}

/// Whatever the loop is waiting for, a shutdown is heard.
#[tokio::test(start_paused = true)]
async fn a_shutdown_is_heard_while_the_table_does_not_answer() {
    for (shutdown, time) in [(Shutdown::Flush, 6), (Shutdown::Now, 1)] {
        let held = watch::Sender::default();
        let stage = stage(1, 5, |pipeline| {
            (pipeline.flush.every, pipeline.flush.grace) = (Duration::from_secs(1), Duration::from_secs(5));
        });
        let process = start(&stage, "p", false, &held);
        until_committed(&stage, 5).await;
        sleep(Duration::from_secs(1)).await;
        held.send_replace(Held { loads: true, commits: true });
        // A partition that is new makes it ask the table.
        stage.broker.add_partition();
        sleep(Duration::from_secs(10)).await;
        process.ask(shutdown);
        let started = Instant::now();
        process.end().await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(time), "{shutdown:?}: {:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn partitions_that_were_lost_wait_for_the_flush_under_way() {
    let held = watch::Sender::default();
    let (stage, process) = stuck(&held).await;
    stage.broker.expel_one();
    sleep(Duration::from_secs(10)).await;
    // It hears a shutdown while it waits; here the commit comes back instead.
    held.send_replace(Held::default());
    until_committed(&stage, 60).await;
    process.ask(Shutdown::Flush);
    process.end().await.unwrap();
    is_whole(&stage);
    let (stage, process) = stuck(&held).await;
    stage.broker.expel_one();
    sleep(Duration::from_secs(10)).await;
    process.ask(Shutdown::Now);
    timeout(Duration::from_secs(1), process.end()).await.unwrap().unwrap();
    assert_eq!(committed(&stage), 0);
}

#[tokio::test(start_paused = true)]
async fn until_the_end_means_all_partitions_also_those_of_others() {
    let (slow, quick) = (watch::Sender::new(Held { commits: true, ..Held::default() }), watch::Sender::default());
    let stage = stage(2, 20, |pipeline| pipeline.flush.every = Duration::from_secs(1));
    let other = start(&stage, "other", false, &slow);
    sleep(Duration::from_secs(5)).await;
    let mut waiting = Box::pin(start(&stage, "waiting", true, &quick).end());
    // Its own half is done soon; the other's is not committed.
    assert!(timeout(Duration::from_secs(60), &mut waiting).await.is_err());
    slow.send_replace(Held::default());
    timeout(Duration::from_secs(60), waiting).await.expect("it does not end").unwrap();
    assert_eq!(committed(&stage), 40);
    other.ask(Shutdown::Flush);
    other.end().await.unwrap();
    is_whole(&stage);
}

#[tokio::test(start_paused = true)]
async fn until_the_end_ends_on_an_empty_topic_and_does_not_run_after_the_newest() {
    let held = watch::Sender::default();
    let stage = stage(3, 0, |pipeline| pipeline.flush.every = Duration::from_secs(1));
    start(&stage, "empty", true, &held).end().await.unwrap();
    assert_eq!(committed(&stage), 0);
    stage.broker.produce(Partition(1), 10);
    let busy = stage.clone();
    let producer = tokio::spawn(async move {
        loop {
            sleep(Duration::from_millis(20)).await;
            busy.broker.produce(Partition(1), 1);
        }
    });
    timeout(Duration::from_secs(30), start(&stage, "busy", true, &held).end()).await.expect("no end").unwrap();
    producer.abort();
    assert!(committed(&stage) >= 10, "{:?}", commits(&stage));
    start(&stage, "rest", true, &held).end().await.unwrap();
    is_whole(&stage);
}

/// Retention passes the position while the broker does not always answer: whether the position is gone is
/// asked until there is an answer. Once, a pipeline that was to skip what is lost stopped instead.
#[tokio::test(start_paused = true)]
async fn a_lost_position_is_found_out_although_the_broker_fails() {
    for seed in 0..20 {
        let skip = |pipeline: &mut Pipeline| {
            (pipeline.source.lost_data, pipeline.flush.every) = (LostData::Skip, Duration::from_secs(1));
        };
        let mut scenario = Scenario::plain(1, skip).unwrap();
        (scenario.loses, scenario.faults.broker) = (true, 0.4);
        let stage = Stage::new(World::new(seed, false), scenario);
        stage.broker.produce(Partition(0), 10);
        let process = start(&stage, "p", false, &watch::Sender::default());
        until_committed(&stage, 10).await;
        let high = stage.broker.watermarks(Partition(0)).unwrap().high;
        stage.broker.produce(Partition(0), 30);
        stage.broker.retain_from(Partition(0), high + 10);
        let read = stage.broker.log(Partition(0)).unwrap().records.iter().filter(|r| r.offset >= high + 10).count();
        until_committed(&stage, 10 + read as u64).await;
        process.ask(Shutdown::Flush);
        process.end().await.unwrap();
        is_whole(&stage);
    }
}

//! Real Kafka, three processes in a group, producers that keep going; kills, freezes, broker restarts,
//! new partitions, aborted transactions. At the end the table must hold what the producers' own ledger
//! says, each record once. `cargo xtask torture --minutes N --seed S` runs it for longer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod ledger;
mod members;
mod producer;
mod schedule;

use alluvium_core::Partition;
use alluvium_delta::{DeltaSink, TableRole};
use alluvium_kafka::{KafkaConfig, KafkaTopic, admin};
use alluvium_testkit::kafka_server::KafkaServer;
use alluvium_tests::workbench::{PATIENCE, redact, transform};
use alluvium_tests::{Options, Workbench};
use members::Members;
use producer::Producing;
use schedule::{Action, PARTITIONS, schedule};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// As short as the processes' session timeout; transactions that nobody ends are aborted soon.
const BROKER: &[(&str, &str)] = &[
    ("group.min.session.timeout.ms", "500"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "2000"),
];
const TICK: Duration = Duration::from_millis(10);

/// `ALLUVIUM_TORTURE_MINUTES` and `ALLUVIUM_TORTURE_SEED` say how long and which.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture() {
    let minutes: f64 =
        std::env::var("ALLUVIUM_TORTURE_MINUTES").map_or(0.75, |minutes| minutes.parse().expect("a number"));
    let seed: u64 = std::env::var("ALLUVIUM_TORTURE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let length = Duration::from_secs_f64(minutes * 60.0);
    println!("torture: seed {seed}, {} s", length.as_secs_f64());
    let server = tokio::task::spawn_blocking(|| KafkaServer::start_with(BROKER)).await.unwrap().unwrap();
    let topic = "torture";
    server.create_topic(topic, PARTITIONS as i32, &[]).await.unwrap();
    let options = Options {
        partitions: PARTITIONS as i32,
        transforms: transform("hostile-record", r#"{ mode = "trap-marker" }"#) + &redact(),
        // New partitions are found soon.
        kafka: Options::default().kafka + r#", "topic.metadata.refresh.interval.ms" = "2000""#,
        flush: "every = \"300ms\"\ngrace = \"10s\"".to_owned(),
        ..Options::default()
    };
    let bench = Workbench::new(server.brokers(), topic, &options);
    let steps = schedule(seed, length);
    let text = steps.iter().fold(String::new(), |mut text, step| {
        writeln!(text, "{step}").unwrap();
        text
    });
    std::fs::write(bench.dir().join("schedule.txt"), text).unwrap();
    let mut run = Run {
        members: Members::new(&bench),
        producing: Producing::start(server.brokers(), topic, PARTITIONS, seed),
        broker: tokio::spawn(async {}),
        adding: tokio::spawn(async {}),
        topic: KafkaTopic::connect(&KafkaConfig::new(server.brokers(), topic, "watch")).unwrap(),
        watch: Watch::new(bench.sink("pipeline").await),
        server: Arc::new(server),
        restarts: 0,
        begun: Instant::now(),
    };
    run.follow(&steps, length).await;
    let summary = run.finish(&bench).await;
    let wrong = run.wrong();
    drop(run);
    println!("{summary}");
    if !wrong.is_empty() {
        let dir = bench.keep();
        std::fs::write(dir.join("findings.txt"), wrong.join("\n")).unwrap();
        println!("{}", wrong.join("\n"));
        panic!("torture with seed {seed} found {} lines of wrong; see {}", wrong.len(), dir.display());
    }
}

struct Run<'a> {
    members: Members<'a>,
    producing: Producing,
    server: Arc<KafkaServer>,
    /// What is being done to the broker: one thing after the other.
    broker: JoinHandle<()>,
    /// The partitions that are being added.
    adding: JoinHandle<()>,
    topic: KafkaTopic,
    watch: Watch,
    restarts: u32,
    begun: Instant,
}

impl Run<'_> {
    async fn follow(&mut self, steps: &[schedule::Step], length: Duration) {
        for step in steps {
            self.wait_until(Duration::from_millis(step.at)).await;
            println!("{:>8.1} s  {:?}", self.begun.elapsed().as_secs_f64(), step.action);
            self.act(&step.action);
        }
        self.wait_until(length).await;
    }

    async fn wait_until(&mut self, at: Duration) {
        while self.begun.elapsed() < at {
            self.members.look();
            self.watch.look().await;
            tokio::time::sleep(TICK).await;
        }
    }

    fn act(&mut self, action: &Action) {
        let members = &mut self.members;
        match action {
            Action::Start(member, trap) => members.start(*member, trap.as_ref()),
            Action::Kill(member) => members.kill(*member),
            Action::Freeze(member) => members.freeze(*member),
            Action::Thaw(member) => members.thaw(*member),
            Action::Terminate(member) => members.terminate(*member),
            Action::BrokerKill => self.with_broker(|server| server.kill()),
            Action::BrokerStop => self.with_broker(|server| server.stop()),
            Action::BrokerStart => {
                self.restarts += 1;
                self.with_broker(|server| server.start_again().unwrap());
            }
            Action::Partitions(count) => self.add_partitions(*count),
        }
    }

    fn with_broker(&mut self, act: impl FnOnce(&KafkaServer) + Send + 'static) {
        let server = self.server.clone();
        let before = std::mem::replace(&mut self.broker, tokio::spawn(async {}));
        self.broker = tokio::spawn(async move {
            before.await.unwrap();
            tokio::task::spawn_blocking(move || act(&server)).await.unwrap();
        });
    }

    fn add_partitions(&mut self, count: usize) {
        let (shared, topic) = (self.producing.shared.clone(), self.topic.clone());
        let before = std::mem::replace(&mut self.adding, tokio::spawn(async {}));
        self.adding = tokio::spawn(async move {
            before.await.unwrap();
            // The broker may be away, also while it has an answer to give.
            while topic.partitions().await.map_or(0, |partitions| partitions.len()) < count {
                let _again = admin::add_partitions(&shared.brokers, &shared.topic, count).await.is_err();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            shared.partitions.store(count, Ordering::Release);
        });
    }

    /// Lets all come to an end, and compares.
    async fn finish(&mut self, bench: &Workbench) -> String {
        (&mut self.broker).await.unwrap();
        if self.topic.partitions().await.is_err() {
            let server = self.server.clone();
            tokio::task::spawn_blocking(move || server.start_again().unwrap()).await.unwrap();
        }
        (&mut self.adding).await.unwrap();
        self.members.all_work();
        self.producing.stop().await;
        let caught_up = self.catch_up().await;
        self.members.end().await;
        let mut again = bench.run("last", &["--until-end"], &[]);
        if again.ended_within(PATIENCE).is_none_or(|status| !status.success()) {
            self.members.faults.push(format!("the last run did not end well:\n{}", again.err()));
        }
        self.compare(bench).await;
        let ledger = self.producing.shared.ledger();
        let (counts, watch, (fenced, lost)) = (&self.members.counts, &self.watch, self.members.fenced());
        format!(
            "{} records acknowledged, {} aborted, {} unknown; {} versions; {counts:?}; {fenced} fenced, {lost} lost; {} broker restarts; {} partitions\n\
             longest time without a commit {:.1} s, caught up after {:.1} s",
            ledger.committed.len(),
            ledger.aborted.len(),
            ledger.unknown.len(),
            watch.versions,
            self.restarts,
            self.producing.shared.partitions.load(Ordering::Acquire),
            watch.longest.as_secs_f64(),
            caught_up.as_secs_f64()
        )
    }

    /// Waits until the table's positions are at the ends of all partitions.
    async fn catch_up(&mut self) -> Duration {
        let (begun, topic) = (Instant::now(), self.topic.clone());
        loop {
            let mut ends = BTreeMap::new();
            for partition in topic.partitions().await.expect("the broker is up") {
                ends.insert(partition, topic.watermarks(partition).await.expect("the broker is up").high);
            }
            self.members.look();
            self.watch.look().await;
            let at = |partition: &Partition| self.watch.positions.get(partition).copied().unwrap_or(0);
            if ends.iter().all(|(partition, end)| at(partition) == *end) {
                return begun.elapsed();
            }
            if begun.elapsed() > PATIENCE {
                let late = ends.iter().filter(|(partition, end)| at(partition) != **end);
                let late: Vec<_> = late.map(|(p, end)| format!("{p}: {} of {end}", at(p))).collect();
                self.members.faults.push(format!("not caught up after {PATIENCE:?}: {}", late.join(", ")));
                return begun.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn compare(&mut self, bench: &Workbench) {
        let arguments = ["verify", "--scan", "--json", "pipeline.toml"];
        let mut verify = bench.alluvium("verify", &arguments, &[]);
        if verify.ended_within(PATIENCE).is_none_or(|status| !status.success()) {
            self.members.faults.push(format!("verify:\n{}\n{}", verify.out(), verify.err()));
        }
        let sink = bench.sink("pipeline").await;
        let rows = sink.reader().first_rows(TableRole::Rows, None, usize::MAX).await.unwrap();
        let letters = sink.reader().first_rows(TableRole::DeadLetters, None, usize::MAX).await.unwrap();
        self.watch.versions = sink.reader().history(TableRole::Rows).await.unwrap().len();
        let mut ledger = self.producing.shared.ledger();
        let unknown = ledger.unknown.len() as u64;
        let acknowledged = ledger.committed.len() as u64;
        ledger.compare(&rows, &letters);
        let proof: serde_json::Value = serde_json::from_str(&verify.out()).unwrap_or_default();
        let partitions = proof["log"]["partitions"].as_array().cloned().unwrap_or_default();
        let read: u64 = partitions.iter().map(|partition| partition["read"].as_u64().unwrap()).sum();
        if !(acknowledged..=acknowledged + unknown).contains(&read) {
            let told = || format!("{read} records read, {acknowledged} acknowledged, {unknown} unknown");
            ledger.findings.add("counts", told);
        }
    }

    fn wrong(&mut self) -> Vec<String> {
        let mut wrong = std::mem::take(&mut self.members.faults);
        wrong.append(&mut self.watch.faults);
        wrong.extend(self.producing.shared.ledger().findings.lines());
        wrong
    }
}

/// Watches the table's positions, which only rise. It only reads: a sink that loads would write what a
/// killed process owes.
struct Watch {
    sink: DeltaSink,
    next: Instant,
    positions: BTreeMap<Partition, i64>,
    moved: Instant,
    longest: Duration,
    versions: usize,
    faults: Vec<String>,
}

impl Watch {
    fn new(sink: DeltaSink) -> Self {
        let (next, positions) = (Instant::now(), BTreeMap::new());
        Self { sink, next, positions, moved: next, longest: Duration::ZERO, versions: 0, faults: Vec::new() }
    }

    async fn look(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Duration::from_millis(250);
        for (partition, position) in self.sink.reader().state().await.unwrap().positions {
            let before = self.positions.insert(partition, position).unwrap_or(0);
            if position < before {
                self.faults.push(format!("the position of partition {partition} fell from {before} to {position}"));
            }
            if position != before {
                self.longest = self.longest.max(self.moved.elapsed());
                self.moved = Instant::now();
            }
        }
    }
}

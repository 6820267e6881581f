//! A pipeline in a directory of its own, and the table it writes.

use crate::{Fate, Process, record};
use alluvium_core::{Partition, PipelineId};
use alluvium_delta::{DeltaConfig, DeltaReader, DeltaSink, TableRole};
use alluvium_kafka::{Delivery, NewRecord, Producer};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Long enough for a slow machine, short enough to be told of a hang.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a pipeline file says beyond the usual.
#[derive(Clone, Debug)]
pub struct Options {
    pub partitions: i32,
    pub generation: u32,
    /// Entries of `source.kafka`; usually a session as short as the sandbox and a real broker allow.
    pub kafka: String,
    /// Lines of `[source]`.
    pub source: String,
    /// `[[transform]]` tables.
    pub transforms: String,
    pub schema: String,
    /// Lines of `[sink]`.
    pub sink: String,
    /// What the tables' locations start with; empty for the pipeline's own directory.
    pub tables: String,
    /// Options of the object store.
    pub storage: Vec<(String, String)>,
    pub flush: String,
    pub limits: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            partitions: 3,
            generation: 1,
            kafka: r#""session.timeout.ms" = "1500", "heartbeat.interval.ms" = "300""#.to_owned(),
            source: "tombstones = \"dead-letter\"".to_owned(),
            transforms: redact(),
            schema: "mapping = \"infer\"".to_owned(),
            sink: String::new(),
            tables: String::new(),
            storage: Vec::new(),
            flush: "every = \"200ms\"".to_owned(),
            limits: String::new(),
        }
    }
}

/// A component that `cargo xtask plugins` has built.
pub fn plugin(name: &str) -> PathBuf {
    let named = std::env::var_os("ALLUVIUM_PLUGINS").map(PathBuf::from);
    let beside = || {
        let binary = crate::process::binary();
        binary.parent().unwrap().parent().unwrap().join("plugins")
    };
    let path = named.unwrap_or_else(beside).join(format!("{name}.wasm"));
    assert!(path.is_file(), "{} is missing: run `cargo xtask plugins`", path.display());
    path
}

/// The redact plugin, which drops test orders.
pub fn redact() -> String {
    transform("redact", r#"{ fields = ["customer.email"] }"#)
}

/// A `[[transform]]` table.
pub fn transform(name: &str, with: &str) -> String {
    format!("[[transform]]\nplugin = {:?}\nwith = {with}\n", plugin(name))
}

/// A topic, a pipeline that reads it, and what was produced into it.
pub struct Workbench {
    dir: tempfile::TempDir,
    brokers: String,
    topic: String,
    tables: String,
    storage: Vec<(String, String)>,
    /// What must become of each record, by partition and offset.
    pub fates: BTreeMap<(i32, i64), Fate>,
}

impl Workbench {
    /// A workbench on a broker that already has `topic` with `options.partitions`.
    pub fn new(brokers: &str, topic: &str, options: &Options) -> Self {
        let dir = tempfile::Builder::new().prefix("alluvium-test-").tempdir().expect("a directory");
        let (brokers, topic_name) = (brokers.to_owned(), topic.to_owned());
        let (tables, storage) = (options.tables.clone(), options.storage.clone());
        let bench = Self { dir, brokers, topic: topic_name, tables, storage, fates: BTreeMap::new() };
        bench.write("pipeline.toml", topic, options);
        bench
    }

    /// Another name for every topic, so that tests can share a broker.
    pub fn topic_name(prefix: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes a pipeline file; its pipeline and table are named like the file.
    pub fn write(&self, file: &str, topic: &str, options: &Options) {
        let name = file.trim_end_matches(".toml");
        let Options { generation, kafka, source, transforms, schema, sink, tables, storage, flush, limits, .. } =
            options;
        let option = |(key, value): &(String, String)| {
            // A secret must not stand in the pipeline file.
            if !key.contains("SECRET") {
                return format!("{key:?} = {value:?}");
            }
            std::fs::write(self.dir().join("secret"), value).expect("a secret's file can be written");
            format!("{key:?} = {{ file = \"secret\" }}")
        };
        let storage = storage.iter().map(option).collect::<Vec<_>>().join(", ");
        // Workbenches that share a topic are groups of their own.
        let own = self.dir().file_name().expect("a directory's name").to_string_lossy();
        let text = format!(
            r#"version = 1
tenant = "test"
name = "{name}"
generation = {generation}

[source]
brokers = ["{}"]
topic = "{topic}"
group = "{topic}.{name}.{own}"
kafka = {{ {kafka} }}
{source}

{transforms}
[schema]
{schema}

[sink]
table = "{tables}{name}"
storage = {{ {storage} }}
{sink}

[flush]
{flush}

[limits]
{limits}
"#,
            self.brokers
        );
        std::fs::write(self.dir().join(file), text).expect("the pipeline file can be written");
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Leaves the directory as it is, to be looked at.
    pub fn keep(self) -> PathBuf {
        self.dir.keep()
    }

    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Goes on with other brokers; the pipeline file is to be written again.
    pub fn move_to(&mut self, brokers: &str) {
        brokers.clone_into(&mut self.brokers);
    }

    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Produces these values into a partition of a topic, in order.
    pub async fn send(&self, topic: &str, partition: i32, values: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let producer = Producer::connect(&self.brokers, &[]).expect("a producer");
        for value in values {
            let (partition, value) = (Some(partition), Some(value.as_ref()));
            let record = NewRecord { topic, partition, value, ..NewRecord::default() };
            drop(producer.enqueue(record).await.expect("a place in the queue"));
        }
        producer.flush().await.expect("the records are delivered");
    }

    /// Produces records `range` of `count` into each partition.
    pub async fn produce(&mut self, partitions: i32, range: Range<u64>, count: u64) {
        self.produce_all(partitions, range, |partition, index| record(partition, index, count)).await;
    }

    /// Produces what `make` makes of a partition and an index.
    pub async fn produce_all(
        &mut self,
        partitions: i32,
        range: Range<u64>,
        make: impl Fn(i32, u64) -> (Option<Vec<u8>>, Fate),
    ) {
        let producer = Producer::connect(&self.brokers, &[]).expect("a producer");
        let mut on_their_way = Vec::new();
        for index in range {
            for partition in 0..partitions {
                on_their_way.push(enqueue(&producer, &self.topic, partition, make(partition, index)).await);
            }
        }
        self.fates.extend(settle(on_their_way).await);
    }

    /// Goes on producing in the background, from record `from` of `count` on, `rate` records of each
    /// partition every 10 ms.
    pub fn flow(&self, partitions: i32, from: u64, count: u64, rate: u64) -> Flow {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (brokers, topic) = (self.brokers.clone(), self.topic.clone());
        let task = tokio::spawn(async move {
            let producer = Producer::connect(&brokers, &[]).expect("a producer");
            let mut on_their_way = Vec::new();
            let mut next = from;
            let produced = async {
                loop {
                    for index in next..next + rate {
                        for partition in 0..partitions {
                            on_their_way
                                .push(enqueue(&producer, &topic, partition, record(partition, index, count)).await);
                        }
                    }
                    next += rate;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::select! {
                () = produced => {}
                _ = stopped => {}
            }
            settle(on_their_way).await
        });
        Flow { stop, task }
    }

    /// Ends a flow; how many records it produced.
    pub async fn end_flow(&mut self, flow: Flow) -> usize {
        let _ended = flow.stop.send(());
        let fates = flow.task.await.expect("the flow's task");
        let count = fates.len();
        self.fates.extend(fates);
        count
    }

    /// Starts `alluvium run --json` on the pipeline file, with more arguments and variables.
    pub fn run(&self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Process {
        self.alluvium(name, &[&["run", "--json", "pipeline.toml"], arguments].concat(), environment)
    }

    pub fn alluvium(&self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Process {
        Process::start(self.dir(), name, arguments, environment)
    }

    /// Runs to the end of the topic, which must be refused as wrong input; what was told.
    pub fn run_refused(&self, name: &str) -> String {
        let mut process = self.run(name, &["--until-end"], &[]);
        assert_eq!(process.wait(PATIENCE).code(), Some(2), "{}", process.err());
        process.err()
    }

    /// Starts `alluvium run` behind the words that lead into a namespace; its log tells of commits.
    pub fn run_inside(&self, name: &str, inside: &[String], arguments: &[&str]) -> Process {
        self.inside(name, inside, &[&["run", "pipeline.toml"], arguments].concat())
    }

    pub fn inside(&self, name: &str, inside: &[String], arguments: &[&str]) -> Process {
        Process::start_behind(self.dir(), name, inside, arguments, &[("ALLUVIUM_LOG", "info")])
    }

    /// Writes the pipeline file anew; its tables are where they were.
    pub fn rewrite(&mut self, options: &Options) {
        self.storage = options.storage.clone();
        self.write("pipeline.toml", &self.topic, options);
    }

    /// Runs to the end of the topic.
    pub fn run_to_end(&self, name: &str) -> Value {
        self.run(name, &["--until-end"], &[]).done(PATIENCE)
    }

    /// The configuration of a pipeline's tables.
    pub fn config(&self, pipeline: &str) -> DeltaConfig {
        let place = |name: &str| match self.tables.as_str() {
            start if start.contains("://") => format!("{start}{name}"),
            start => self.dir().join(format!("{start}{name}")).display().to_string(),
        };
        DeltaConfig {
            table: place(pipeline),
            dead_letters: place(&format!("{pipeline}_dead_letters")),
            pipeline: PipelineId::new("test", pipeline, 1).expect("a name"),
            topic: self.topic.clone(),
            partition_by: Vec::new(),
            storage: self.storage.clone(),
            file_size: 1 << 27,
        }
    }

    pub async fn sink(&self, pipeline: &str) -> DeltaSink {
        DeltaSink::open(self.config(pipeline)).await.expect("the table opens")
    }

    pub fn tables(&self, pipeline: &str) -> DeltaReader {
        DeltaReader::open(self.config(pipeline)).expect("the tables open")
    }

    /// The sum of stored positions.
    pub async fn committed(&self, pipeline: &str) -> i64 {
        let state = self.tables(pipeline).state().await.expect("the table loads");
        state.positions.iter().map(|(_, position)| position).sum()
    }

    /// Waits until the table's positions add up to at least `wanted`.
    pub async fn wait_for(&self, pipeline: &str, wanted: i64) {
        let begun = Instant::now();
        loop {
            let committed = self.committed(pipeline).await;
            if committed >= wanted {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "only {committed} of {wanted} records are committed");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How often each offset is in the table.
    pub async fn rows(&self, pipeline: &str) -> BTreeMap<(i32, i64), u32> {
        let mut rows = BTreeMap::new();
        let mut scan = self.tables(pipeline).scan_rows("_kafka", None).await.expect("a scan");
        while let Some(batch) = scan.next().await {
            for row in batch.expect("rows") {
                *rows.entry((row.partition.0, row.offset)).or_default() += 1;
            }
        }
        rows
    }

    /// How often each offset is in the dead letters.
    pub async fn dead_letters(&self, pipeline: &str) -> BTreeMap<(i32, i64), u32> {
        let columns = ["partition", "offset"].map(str::to_owned);
        let tables = self.tables(pipeline);
        let batch = tables.first_rows(TableRole::DeadLetters, Some(&columns), usize::MAX).await.expect("dead letters");
        let mut letters = BTreeMap::new();
        if batch.num_columns() == 2 {
            let partitions = batch.column(0).as_primitive::<Int32Type>();
            let offsets = batch.column(1).as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                *letters.entry((partitions.value(row), offsets.value(row))).or_default() += 1;
            }
        }
        letters
    }

    /// The table and the dead letters hold exactly what was produced, each record once, and the
    /// table proves it by itself.
    pub async fn assert_exactly_once(&self) {
        let wanted = |fate: Fate| -> BTreeMap<(i32, i64), u32> {
            self.fates.iter().filter(|(_, found)| **found == fate).map(|(place, _)| (*place, 1)).collect()
        };
        assert_same("rows", &self.rows("pipeline").await, &wanted(Fate::Row));
        assert_same("dead letters", &self.dead_letters("pipeline").await, &wanted(Fate::DeadLetter));
        let proof = self.alluvium("verify", &["verify", "--scan", "--json", "pipeline.toml"], &[]).done(PATIENCE);
        let read: u64 =
            proof["log"]["partitions"].as_array().unwrap().iter().map(|p| p["read"].as_u64().unwrap()).sum();
        assert_eq!(read, self.fates.len() as u64, "{proof:#}");
    }

    /// The positions that the table holds.
    pub async fn positions(&self, pipeline: &str) -> Vec<(Partition, i64)> {
        let mut positions = self.tables(pipeline).state().await.expect("the table loads").positions;
        positions.sort_unstable();
        positions
    }
}

/// A producer in the background.
pub struct Flow {
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<BTreeMap<(i32, i64), Fate>>,
}

async fn enqueue(
    producer: &Producer,
    topic: &str,
    partition: i32,
    (value, fate): (Option<Vec<u8>>, Fate),
) -> (Delivery, Fate) {
    let record = NewRecord {
        topic,
        partition: Some(partition),
        key: Some(b"key"),
        value: value.as_deref(),
        ..NewRecord::default()
    };
    (producer.enqueue(record).await.expect("a place in the queue"), fate)
}

async fn settle(on_their_way: Vec<(Delivery, Fate)>) -> BTreeMap<(i32, i64), Fate> {
    let mut fates = BTreeMap::new();
    for (delivery, fate) in on_their_way {
        let delivered = delivery.await.expect("the record is delivered");
        fates.insert((delivered.partition, delivered.offset), fate);
    }
    fates
}

fn assert_same(what: &str, found: &BTreeMap<(i32, i64), u32>, wanted: &BTreeMap<(i32, i64), u32>) {
    let missing: Vec<_> = wanted.keys().filter(|place| !found.contains_key(place)).take(10).collect();
    let doubled: Vec<_> = found.iter().filter(|(_, times)| **times > 1).take(10).collect();
    let stray: Vec<_> = found.keys().filter(|place| !wanted.contains_key(place)).take(10).collect();
    assert!(
        missing.is_empty() && doubled.is_empty() && stray.is_empty(),
        "{what}: missing {missing:?}, doubled {doubled:?}, should not be there {stray:?} (of {} wanted)",
        wanted.len()
    );
}

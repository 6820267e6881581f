//! Two processes that grow one table at once.

use crate::process::{Process, Signal};
use crate::workbench::{Options, PATIENCE, Workbench};
use alluvium_core::PipelineId;
use alluvium_delta::{DeltaConfig, DeltaReader, TableRole};
use alluvium_kafka::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a process says that lost a version of the log to the other.
pub const LOST: &str = "another writer's entry took the version";
/// What it says when the other's columns have other types than its own, or other names.
pub const MOVED: &str = "the table's schema changed under a flush";

/// What the two add at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    Different,
    Same,
    TwoTypes,
}

impl Growth {
    pub const ALL: [Self; 3] = [Self::Different, Self::Same, Self::TwoTypes];

    /// New fields at the top and in a struct, as one of the two has them; `name` is part of their names.
    pub fn record(self, at: usize, id: i64, name: &str) -> Value {
        let (field, value, inner) = match self {
            Self::Different => (format!("{name}_{at}"), json!(id), json!(id)),
            Self::Same => (name.to_owned(), json!(id), json!([{ "x": id }])),
            Self::TwoTypes if at == 0 => (name.to_owned(), json!(id), json!({ "x": id })),
            Self::TwoTypes => (name.to_owned(), json!(format!("text {id}")), json!([id])),
        };
        json!({ "id": id, field.clone(): value, "u": { "a": id, field: inner } })
    }
}

/// Both get new fields at the same time, in every way, again and again; the table's rows.
pub async fn rounds(two_pipelines: bool, rounds: usize) -> (Rivals, Vec<Row>) {
    let mut rivals = Rivals::start(two_pipelines, None).await;
    let mut id = 10..;
    for round in 0..rounds {
        for growth in Growth::ALL {
            let name = format!("{growth:?}_{round}").to_lowercase();
            for at in [0, 1] {
                rivals.send(at, growth.record(at, id.next().unwrap(), &name)).await;
            }
        }
        for at in [0, 1] {
            rivals.settled(at).await;
        }
    }
    let rows = rivals.finish().await;
    let errs = [0, 1].map(|at| rivals.process(at).err());
    let moved = errs.iter().map(|err| err.matches(MOVED).count()).sum::<usize>();
    // On a busy machine one may see the other's columns before it plans its own.
    assert!(moved >= rounds / 3, "only {moved} times in {rounds} rounds:\n{}\n{}", errs[0], errs[1]);
    // The two before, the two of metadata, and in each round four.
    let names: Vec<String> = rivals.columns().await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 4 + 4 * rounds, "{names:?}");
    (rivals, rows)
}

/// A row of the table.
pub struct Row {
    /// Partition and offset.
    pub place: (i64, i64),
    /// The record that it was made of.
    pub record: Value,
    /// The text of its rescue column; empty for null.
    pub rescued: String,
}

/// Two processes with a partition each: of one pipeline, or of two that write into one table.
pub struct Rivals {
    pub bench: Workbench,
    _sandbox: Sandbox,
    /// Without a process until it is started.
    processes: [Option<Process>; 2],
    places: [Place; 2],
    /// What was sent, by its id.
    sent: BTreeMap<i64, Value>,
}

/// Where a process reads, and how far it was sent records.
struct Place {
    topic: String,
    partition: i32,
    end: i64,
    config: DeltaConfig,
}

impl Rivals {
    /// The table is there; both wait for records. The first freezes at `freeze`, if there is one.
    pub async fn start(two_pipelines: bool, freeze: Option<&str>) -> Self {
        let topics = ["rivals", "others"].map(Workbench::topic_name);
        let partitions = if two_pipelines { 1 } else { 2 };
        let sandbox = Sandbox::start(&[(&topics[0], partitions), (&topics[1], 1)]).unwrap();
        // Who made the table is soon forgotten by the group; who is frozen stays in it. On the sandbox both,
        // and the coming of a second member, take two sessions.
        let soon = Options { partitions, transforms: String::new(), ..Options::default() };
        let kafka = r#""session.timeout.ms" = "4000", "heartbeat.interval.ms" = "300""#.to_owned();
        let options = Options { kafka, ..soon.clone() };
        let bench = Workbench::new(sandbox.brokers(), &topics[0], &soon);
        let first = bench.config("pipeline");
        let place = |topic: &str, partition, config| Place { topic: topic.to_owned(), partition, end: 0, config };
        let places = if two_pipelines {
            bench.write("other.toml", &topics[1], &options);
            let file = bench.dir().join("other.toml");
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, text.replace("table = \"other\"", "table = \"pipeline\"")).unwrap();
            let pipeline = PipelineId::new("test", "other", 1).unwrap();
            let second = DeltaConfig { pipeline, topic: topics[1].clone(), ..first.clone() };
            [place(&topics[0], 0, first), place(&topics[1], 0, second)]
        } else {
            [0, 1].map(|partition| place(&topics[0], partition, first.clone()))
        };
        let mut rivals = Self { bench, _sandbox: sandbox, processes: [None, None], places, sent: BTreeMap::new() };
        for at in 0..2 {
            rivals.send(at, json!({ "id": at, "u": { "a": at } })).await;
        }
        rivals.bench.run_to_end("base");
        rivals.bench.rewrite(&options);
        rivals.begin(two_pipelines, freeze).await;
        rivals
    }

    async fn begin(&mut self, two_pipelines: bool, freeze: Option<&str>) {
        let log = ("ALLUVIUM_LOG", "info,alluvium_delta=debug,deltalake=warn,buoyant_kernel=off");
        let freeze: Vec<_> = [log].into_iter().chain(freeze.map(|at| ("ALLUVIUM_FREEZE_AT", at))).collect();
        self.processes[0] = Some(self.bench.run("first", &[], &freeze));
        // Alone, it has all partitions; then the other takes one.
        self.assigned(0).await;
        let file = if two_pipelines { "other.toml" } else { "pipeline.toml" };
        self.processes[1] = Some(self.bench.alluvium("second", &["run", "--json", file], &[log]));
        let taken = self.assigned(1).await;
        if !two_pipelines && taken == [0] {
            self.places.swap(0, 1);
        }
        self.settled(1).await;
    }

    /// Waits until a process has partitions.
    async fn assigned(&self, at: usize) -> Vec<i32> {
        let begun = Instant::now();
        loop {
            let err = self.process(at).err();
            let lines = err.lines().filter(|line| line.contains("assigned")).filter_map(|line| line.split_once('['));
            let number = |text: &str| text.split_once(',').and_then(|(number, _)| number.parse().ok());
            let mut numbers = lines.map(|(_, text)| text.split('(').filter_map(number).collect::<Vec<_>>());
            if let Some(numbers) = numbers.rfind(|numbers| !numbers.is_empty()) {
                return numbers;
            }
            assert!(begun.elapsed() < PATIENCE, "no partition: {err}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn process(&self, at: usize) -> &Process {
        self.processes[at].as_ref().unwrap()
    }

    pub fn wait_frozen(&mut self) {
        self.processes[0].as_mut().unwrap().wait_frozen(PATIENCE);
    }

    /// Sends a record, which has an id of its own, to one of the two.
    pub async fn send(&mut self, at: usize, record: Value) {
        let Place { topic, partition, end, .. } = &mut self.places[at];
        self.bench.send(topic, *partition, [record.to_string()]).await;
        *end += 1;
        assert!(self.sent.insert(record["id"].as_i64().unwrap(), record).is_none());
    }

    /// Waits until what was sent to one of the two is committed.
    pub async fn settled(&self, at: usize) {
        let Place { partition, end, config, .. } = &self.places[at];
        let reader = DeltaReader::open(config.clone()).unwrap();
        let begun = Instant::now();
        loop {
            let positions = reader.state().await.unwrap().positions;
            if positions.iter().any(|(there, position)| there.0 == *partition && position == end) {
                return;
            }
            let errs = [0, 1].map(|at| self.process(at).err());
            assert!(begun.elapsed() < PATIENCE, "{positions:?} instead of {end}:\n{}\n{}", errs[0], errs[1]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends both; then each record is in the table once, and each of its values is in its column or in
    /// the rescue column. The rows, in the order of their places.
    pub async fn finish(&mut self) -> Vec<Row> {
        for process in self.processes.iter_mut().flatten() {
            process.signal(Signal::SIGTERM);
            process.done(PATIENCE);
        }
        let batch = self.bench.tables("pipeline").first_rows(TableRole::Rows, None, usize::MAX).await.unwrap();
        let mut missing = self.sent.clone();
        let row = |row| {
            let found = alluvium::rows::row(&batch, row);
            let rescued = found["_rescued"].as_str().unwrap_or_default().to_owned();
            let saved = serde_json::from_str(&rescued).unwrap_or_default();
            let id = found["id"].as_i64().unwrap();
            let record = missing.remove(&id).unwrap_or_else(|| panic!("{id} is there twice"));
            check(&record, &found, &saved, &id.to_string());
            let place = ["partition", "offset"].map(|name| found["_kafka"][name].as_i64().unwrap());
            Row { place: place.into(), record, rescued }
        };
        let mut rows: Vec<Row> = (0..batch.num_rows()).map(row).collect();
        rows.sort_by_key(|row| row.place);
        assert!(missing.is_empty(), "{missing:?} are not there");
        for file in ["pipeline.toml", "other.toml"] {
            if self.bench.dir().join(file).exists() {
                self.bench.alluvium("verify", &["verify", "--scan", "--json", file], &[]).done(PATIENCE);
            }
        }
        rows
    }

    /// The table's columns, as DDL has their types.
    pub async fn columns(&self) -> Vec<(String, String)> {
        let schema = self.bench.tables("pipeline").state().await.unwrap().schema.unwrap();
        let kind = |field: &arrow_schema::Field| alluvium_core::DataType::from_arrow(field.data_type()).unwrap();
        schema.fields().iter().map(|field| (field.name().clone(), kind(field).to_string())).collect()
    }
}

/// Every value of a record is in its column or rescued, and not both.
fn check(record: &Value, row: &Value, rescued: &Value, path: &str) {
    for (name, value) in record.as_object().unwrap() {
        let (path, there, saved) = (format!("{path}.{name}"), &row[name], &rescued[name]);
        if value.is_object() && there.is_object() {
            check(value, there, saved, &path);
        } else {
            let whole = (there == value && saved.is_null()) || (there.is_null() && saved == value);
            assert!(whole, "{path}: {value} became {there}, and {saved} was rescued");
        }
    }
}

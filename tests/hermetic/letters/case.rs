//! A table with dead letters in a directory of its own, made without a broker.

use alluvium_core::PipelineId;
use alluvium_delta::{DeltaConfig, DeltaSink, TableRole};
use alluvium_tests::Process;
use alluvium_tests::workbench::PATIENCE;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What the pipeline file says of its schema while it is broken, and when it is fixed: a string for a
/// number is rejected, then rescued; a column is new.
pub const BROKEN: &str = "[[schema.column]]\nname = \"id\"\ntype = \"bigint\"\n\
    [[schema.column]]\nname = \"amount\"\ntype = \"int\"\n";
pub const FIXED: &str = "[[schema.column]]\nname = \"id\"\ntype = \"bigint\"\n\
    [[schema.column]]\nname = \"amount\"\ntype = \"int\"\non_conflict = \"rescue\"\n\
    [[schema.column]]\nname = \"note\"\ntype = \"string\"\n";

/// A record that is a row, one that is rejected until the file is fixed, and one that always is.
pub const GOOD: &str = r#"{"id":1,"amount":7}"#;
pub const BAD: &str = r#"{"id":2,"amount":"many","note":"\u001b[31mred"}"#;
pub const HOPELESS: &str = r#"{"id":3,"#;

pub struct Case {
    pub dir: tempfile::TempDir,
}

/// A pipeline file over the table `pipeline`.
pub fn file(schema: &str, rest: &str) -> String {
    format!(
        "version = 1\ntenant = \"test\"\nname = \"pipeline\"\n[source]\nbrokers = [\"localhost:1\"]\n\
        topic = \"letters\"\n{rest}\n[schema]\n{schema}\n[sink]\ntable = \"pipeline\"\n"
    )
}

impl Case {
    /// Runs the records, which must not hold line ends, through a pipeline into its table.
    pub fn new(file: &str, records: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let case = Self { dir: tempfile::Builder::new().prefix("alluvium-letters-").tempdir().unwrap() };
        let mut text = String::new();
        records.into_iter().for_each(|record| text.extend([record.as_ref(), "\n"]));
        std::fs::write(case.dir.path().join("records"), text).unwrap();
        case.write(file);
        case.run("try", &["try", "--json", "--table", "pipeline", "pipeline.toml", "records"]).done(PATIENCE);
        case
    }

    /// A table of two good records, three bad ones and a hopeless one.
    pub fn usual() -> Self {
        Self::new(&file(BROKEN, ""), [GOOD, BAD, HOPELESS, BAD, GOOD, BAD])
    }

    pub fn write(&self, file: &str) {
        std::fs::write(self.dir.path().join("pipeline.toml"), file).unwrap();
    }

    /// The same once more, in another directory.
    pub fn copy(&self) -> Self {
        let dir = tempfile::Builder::new().prefix("alluvium-letters-").tempdir().unwrap();
        copy(self.dir.path(), dir.path());
        Self { dir }
    }

    pub fn run(&self, name: &str, arguments: &[&str]) -> Process {
        Process::start(self.dir.path(), name, arguments, &[])
    }

    pub fn letters(&self, arguments: &[&str]) -> Process {
        self.letters_with(arguments, &[])
    }

    pub fn letters_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Process {
        let name = format!("letters-{}", arguments.concat().replace(['/', '.', ' '], "_"));
        let arguments = [&["dead-letters", "pipeline.toml"], arguments].concat();
        Process::start(self.dir.path(), &name, &arguments, environment)
    }

    pub fn replay(&self, arguments: &[&str]) -> Value {
        self.letters(&[&["replay", "--json"], arguments].concat()).done(PATIENCE)
    }

    pub fn list(&self, arguments: &[&str]) -> Value {
        self.letters(&[&["list", "--json"], arguments].concat()).done(PATIENCE)
    }

    pub async fn sink(&self) -> DeltaSink {
        self.sink_of("pipeline", 1, Vec::new()).await
    }

    pub async fn sink_of(&self, pipeline: &str, generation: u32, partition_by: Vec<String>) -> DeltaSink {
        let place = |name: &str| self.dir.path().join(name).display().to_string();
        let config = DeltaConfig {
            table: place("pipeline"),
            dead_letters: place("pipeline_dead_letters"),
            pipeline: PipelineId::new("test", pipeline, generation).unwrap(),
            topic: "letters".to_owned(),
            partition_by,
            storage: Vec::new(),
            file_size: 1 << 27,
        };
        DeltaSink::open(config).await.unwrap()
    }

    /// How often each offset is in the table.
    pub async fn rows(&self) -> BTreeMap<i64, u32> {
        let mut rows = BTreeMap::new();
        let mut scan = self.sink().await.reader().scan_rows("_kafka", None).await.unwrap();
        while let Some(batch) = scan.next().await {
            batch.unwrap().iter().for_each(|row| *rows.entry(row.offset).or_default() += 1);
        }
        rows
    }

    /// The versions of both tables.
    pub async fn versions(&self) -> [u64; 2] {
        let sink = self.sink().await;
        let last = async |role| sink.reader().history(role).await.unwrap().last().unwrap().entry.version;
        [last(TableRole::Rows).await, last(TableRole::DeadLetters).await]
    }

    /// Each of these offsets is a row once and no other is; these letters are open and no others are; and
    /// the table proves it.
    pub async fn check(&self, context: &str, rows: &[i64], open: &[i64]) {
        let wanted: BTreeMap<i64, u32> = rows.iter().map(|offset| (*offset, 1)).collect();
        assert_eq!(self.rows().await, wanted, "{context}");
        assert_eq!(offsets(&self.list(&["--limit", "100000"])), open, "{context}");
        let mut verify = self.run("verify", &["verify", "--scan", "--json", "pipeline.toml"]);
        assert!(verify.wait(PATIENCE).success(), "{context}: {}{}", verify.out(), verify.err());
    }
}

/// The offsets in a list, in order.
pub fn offsets(list: &Value) -> Vec<i64> {
    let letters = list["letters"].as_array().unwrap();
    let mut offsets: Vec<i64> = letters.iter().map(|letter| letter["offset"].as_i64().unwrap()).collect();
    offsets.sort_unstable();
    assert_eq!(list["count"], offsets.len() as u64, "{list:#}");
    offsets
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to)
        } else {
            drop(std::fs::copy(entry.path(), to))
        }
    }
}

//! A checked pipeline.

use crate::Setting;
use alluvium_core::position::StartPolicy;
use alluvium_core::{AppId, Coercion, DataType, Derivation, Evolve, OnConflict, Partition, PipelineId};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a pipeline file says. Made by [`crate::parse`] alone, so that an invalid one cannot be built.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pipeline {
    /// `tenant`, `name` and `generation`.
    pub id: PipelineId,
    pub source: Source,
    /// In the order in which they run.
    pub transforms: Vec<Transform>,
    pub schema: Schema,
    pub sink: Sink,
    pub flush: Flush,
    pub limits: Limits,
    pub tests: Vec<Test>,
}

impl Pipeline {
    /// The id of a partition's transactions in the table's log.
    pub fn app_id(&self, partition: Partition) -> AppId {
        AppId::new(&self.id, &self.source.topic, partition)
    }
}

/// `[source]`
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// `host:port` each, at least one.
    pub brokers: Vec<String>,
    pub topic: String,
    pub format: Format,
    pub start: StartPolicy,
    pub tombstones: Tombstones,
    pub lost_data: LostData,
    /// The consumer group; `None`: the runtime names it.
    pub group: Option<String>,
    /// Settings for librdkafka, in the file's order; none that would break a promise.
    pub kafka: Vec<(String, Setting)>,
}

/// `format`: how records are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    Json,
}

/// `tombstones`: what becomes of records without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tombstones {
    /// They are counted as filtered.
    Drop,
    DeadLetter,
}

/// `lost_data`: what to do when the broker no longer has the offsets to be read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LostData {
    Stop,
    /// Read on where the broker starts, and record the gap.
    Skip,
}

/// `[[transform]]`, and `mapping` where it names a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Transform {
    pub plugin: PluginSource,
    /// The plugin's configuration: an object, empty by default.
    pub with: serde_json::Value,
    /// Line and column of the table in the file, from 1.
    pub at: (usize, usize),
}

/// Where a plugin's component is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PluginSource {
    /// A path as written: a relative one is relative to the pipeline file.
    File(String),
    /// `name@version`, in a registry. Not to be had yet: [`crate::parse`] refuses it.
    Named { name: String, version: String },
}

/// `[schema]`
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub mapping: Mapping,
    pub evolve: Evolve,
    /// The most columns that the table may grow to; each field of a struct counts as one.
    pub max_columns: usize,
    /// Paths of fields that are left out: neither columns nor rescued.
    pub drops: Vec<Vec<String>>,
}

/// Where the mapping plan comes from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Mapping {
    /// From the records.
    Infer,
    /// Declared, at least one.
    Columns(Vec<Column>),
    /// From a schema-mapping plugin.
    Plugin(Transform),
}

/// `[[schema.column]]`
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub data_type: DataType,
    /// The parts of the path in the record, at least one.
    pub from: Vec<String>,
    pub on_conflict: OnConflict,
    /// Coercions by the path inside the column, as a plan has them; empty for the value itself.
    pub coercions: BTreeMap<String, Coercion>,
    pub derivation: Option<Derivation>,
    /// JSON: the value where the record does not have the field.
    pub default: Option<String>,
    pub comment: Option<String>,
    /// Line and column of the table in the file, from 1.
    pub at: (usize, usize),
}

/// `[sink]`
#[derive(Clone, Debug, PartialEq)]
pub struct Sink {
    /// A path or URL as written: a relative path is relative to the pipeline file.
    pub table: String,
    /// The same, for the dead letters; never the table, in it or around it.
    pub dead_letters: String,
    pub partition_by: Vec<String>,
    pub metadata: Metadata,
    /// Options for the object store, in the file's order.
    pub storage: Vec<(String, Setting)>,
}

/// `[sink.metadata]`: names of the columns that alluvium adds; `None`: the column is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Partition, offset and timestamp of a row's record.
    pub kafka: Option<String>,
    pub key: Option<String>,
    pub headers: Option<String>,
    /// Values that did not fit; there when the plan can rescue.
    pub rescued: String,
}

impl Default for Metadata {
    fn default() -> Self {
        Self { kafka: Some("_kafka".to_owned()), key: None, headers: None, rescued: "_rescued".to_owned() }
    }
}

/// `[flush]`: when buffered rows are committed, whichever comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flush {
    pub every: Duration,
    pub rows: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes of data not yet committed; reading pauses when they are used up. At least `size`.
    pub memory: u64,
    /// What the last flush may take at shutdown.
    pub grace: Duration,
}

impl Default for Flush {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            rows: 500_000,
            size: 128 << 20,
            memory: 512 << 20,
            grace: Duration::from_secs(30),
        }
    }
}

/// `[limits]`: what one call of a plugin may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of the plugin's memory.
    pub memory: u64,
    pub time: Duration,
    /// Bytes that a call may return.
    pub output: u64,
    /// From 0 to 1: when a larger share of a chunk's records fails in a plugin, the pipeline stops.
    pub trapping_share: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 64 << 20, time: Duration::from_secs(2), output: 64 << 20, trapping_share: 0.5 }
    }
}

/// `[[test]]`
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Unlike the other tests' names.
    pub name: String,
    pub input: Input,
    pub expect: Expect,
    /// Line and column of the table in the file, from 1.
    pub at: (usize, usize),
}

/// A test's record.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// `input`: the record as a value.
    Value(serde_json::Value),
    /// `input_text`: the exact text.
    Text(String),
}

impl Input {
    /// The record's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Value(value) => value.to_string().into_bytes(),
            Self::Text(text) => text.clone().into_bytes(),
        }
    }
}

/// What a test's record has to become.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// `{…}` or `[{…}, …]`: these rows, at least one; each an object with the columns to compare.
    Rows(Vec<serde_json::Value>),
    /// `"filtered"`
    Filtered,
    /// `"rejected"`, or `"rejected: conflict"` with the code of the reason.
    Rejected(Option<String>),
}

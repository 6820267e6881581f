//! The lines of a log entry, as far as they are read and written here.

use crate::error::Error;
use crate::writer::DataFile;
use alluvium_core::info::COMMIT_INFO_KEY;
use alluvium_core::{CommitInfo, PartitionProgress, TopicId};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// The `protocol` action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Protocol {
    pub min_reader_version: i32,
    pub min_writer_version: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader_features: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_features: Option<Vec<String>>,
}

/// The `metaData` action. What is not named here is kept as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub id: String,
    pub format: Format,
    pub schema_string: String,
    #[serde(default, deserialize_with = "or_default")]
    pub partition_columns: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub configuration: BTreeMap<String, Option<String>>,
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Format {
    pub provider: String,
    #[serde(default, deserialize_with = "or_default")]
    pub options: BTreeMap<String, Option<String>>,
}

/// Some writers spell what is empty as null.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Metadata {
    pub(crate) fn property(&self, key: &str) -> Option<&str> {
        self.configuration.get(key)?.as_deref()
    }

    fn new(schema_string: String, partition_columns: Vec<String>) -> Self {
        Self {
            id: Uuid::new_v4().to_string(),
            format: Format { provider: "parquet".to_owned(), options: BTreeMap::new() },
            schema_string,
            partition_columns,
            configuration: BTreeMap::new(),
            rest: BTreeMap::from([("createdTime".to_owned(), json!(now_ms()))]),
        }
    }
}

/// The `txn` action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Transaction {
    pub app_id: String,
    pub version: i64,
}

/// The `add` action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Add {
    pub path: String,
    pub partition_values: BTreeMap<String, Option<String>>,
    pub size: u64,
    pub modification_time: i64,
    pub data_change: bool,
    pub stats: String,
}

impl From<&DataFile> for Add {
    fn from(file: &DataFile) -> Self {
        Self {
            path: file.url(),
            partition_values: file.partition_values().clone(),
            size: file.size(),
            modification_time: file.modified(),
            data_change: true,
            stats: file.stats().to_owned(),
        }
    }
}

/// Dead letters that an entry of the rows' log names: what their own log is to say of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedLetters {
    /// See [`alluvium_core::letters::Marks`].
    pub mark: i64,
    pub partitions: Vec<PartitionProgress>,
    /// Their files, uploaded before they were named.
    pub files: Vec<Add>,
}

/// One line of a log entry; actions that are not read here leave all fields empty.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    pub protocol: Option<Protocol>,
    pub meta_data: Option<Metadata>,
    pub txn: Option<Transaction>,
    pub commit_info: Option<CommitLine>,
}

/// The `commitInfo` action: free in form, so that every field may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommitLine {
    #[serde(default)]
    pub txn_id: Option<Value>,
    #[serde(default)]
    pub timestamp: Option<Value>,
    #[serde(default)]
    pub operation: Option<Value>,
    #[serde(default, rename = "alluvium")]
    pub info: Option<Value>,
    #[serde(default, rename = "alluviumDeadLetters")]
    pub letters: Option<Value>,
}

/// What a commit's own account says of the topic it read.
#[derive(Debug, Deserialize)]
struct Origin {
    pipeline: String,
    generation: u32,
    topic: String,
    #[serde(default)]
    topic_id: Option<TopicId>,
}

impl CommitLine {
    /// The id of the topic, when the commit is of the pipeline whose transactions start with `prefix`.
    pub(crate) fn topic_id(&self, prefix: &str) -> Option<TopicId> {
        let Origin { pipeline, generation, topic, topic_id } = Origin::deserialize(self.info.as_ref()?).ok()?;
        topic_id.filter(|_| format!("{pipeline}/{generation}/{topic}/") == prefix)
    }
}

/// The lines of a log entry.
pub(crate) fn lines<'a, T: Deserialize<'a> + 'a>(
    entry: &'a [u8],
) -> impl Iterator<Item = Result<T, serde_json::Error>> + 'a {
    serde_json::Deserializer::from_slice(entry).into_iter::<T>()
}

/// Whether a log entry was written by the commit of this id.
pub(crate) fn is_of(entry: &[u8], id: Uuid) -> bool {
    let id = id.to_string();
    lines::<Line>(entry)
        .filter_map(|line| line.ok()?.commit_info?.txn_id)
        .any(|found| found.as_str() == Some(id.as_str()))
}

/// A log entry to be written.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Tells this commit's entry from every other in the log.
    pub id: Uuid,
    pub bytes: Bytes,
}

/// What a log entry consists of.
#[derive(Debug, Default)]
pub(crate) struct EntryParts<'a> {
    pub protocol: Option<&'a Protocol>,
    pub metadata: Option<&'a Metadata>,
    pub files: Vec<Add>,
    /// Rows in the files.
    pub rows: u64,
    pub letters: Option<&'a NamedLetters>,
    pub transactions: Vec<Transaction>,
    pub partition_by: &'a [String],
}

/// Encodes a log entry. `operation` is what the table's history shows.
pub(crate) fn entry(
    table: &str,
    operation: Operation,
    info: &CommitInfo,
    parts: &EntryParts<'_>,
) -> Result<Entry, Error> {
    let encode = |source| Error::EncodeEntry { table: table.to_owned(), source };
    let id = Uuid::new_v4();
    let mut lines = vec![commit_line(id, operation, info, parts).map_err(encode)?];
    lines.extend(parts.protocol.map(|protocol| json!({ "protocol": protocol })));
    lines.extend(parts.metadata.map(|metadata| json!({ "metaData": metadata })));
    lines.extend(parts.transactions.iter().map(|transaction| json!({ "txn": transaction })));
    lines.extend(parts.files.iter().map(|file| json!({ "add": file })));
    let mut bytes = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut bytes, &line).map_err(encode)?;
        bytes.push(b'\n');
    }
    Ok(Entry { id, bytes: bytes.into() })
}

/// What a commit does, as `DESCRIBE HISTORY` shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Write,
    AddColumns,
}

fn commit_line(
    id: Uuid,
    operation: Operation,
    info: &CommitInfo,
    parts: &EntryParts<'_>,
) -> Result<Value, serde_json::Error> {
    // Readers expect the values of parameters and metrics to be strings.
    let (operation, parameters) = match operation {
        Operation::Write => {
            let partition_by = serde_json::to_string(parts.partition_by)?;
            ("WRITE", json!({ "mode": "Append", "partitionBy": partition_by }))
        }
        Operation::AddColumns => ("ADD COLUMNS", json!({})),
    };
    let bytes: u64 = parts.files.iter().map(|file| file.size).sum();
    let info = serde_json::to_value(info)?;
    let mut line = json!({
        "timestamp": now_ms(),
        "operation": operation,
        "operationParameters": parameters,
        "operationMetrics": {
            "numFiles": parts.files.len().to_string(),
            "numOutputRows": parts.rows.to_string(),
            "numOutputBytes": bytes.to_string(),
        },
        "isBlindAppend": true,
        "engineInfo": concat!("alluvium/", env!("CARGO_PKG_VERSION")),
        "txnId": id.to_string(),
        (COMMIT_INFO_KEY): info,
    });
    if let Some(letters) = parts.letters {
        line["alluviumDeadLetters"] = serde_json::to_value(letters)?;
    }
    Ok(json!({ "commitInfo": line }))
}

/// What an entry says of its commit, and the dead letters that it names.
pub(crate) fn named_letters(entry: &[u8]) -> Option<(CommitInfo, NamedLetters)> {
    let commit = lines::<Line>(entry).find_map(|line| line.ok()?.commit_info)?;
    let info = serde_json::from_value(commit.info?).ok()?;
    Some((info, serde_json::from_value(commit.letters?).ok()?))
}

/// The metadata of a new table.
pub(crate) fn new_metadata(schema_string: String, partition_columns: &[String]) -> Metadata {
    Metadata::new(schema_string, partition_columns.to_vec())
}

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

//! Records that could not become rows.

use crate::{Chunk, Partition};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The part of a record's way at which it was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Before any plugin: tombstones, when the pipeline asks for them.
    Source,
    /// A record plugin.
    RecordPlugin,
    /// JSON to typed columns.
    Mapping,
    /// A column plugin.
    ColumnPlugin,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::RecordPlugin => "record-plugin",
            Self::Mapping => "mapping",
            Self::ColumnPlugin => "column-plugin",
        })
    }
}

/// Why a record was rejected: a stable code for programs, a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Stable, kebab-case: `malformed`, `conflict`, `tombstone`, `plugin-reject`, `plugin-trap`,
    /// `plugin-timeout`, `plugin-memory`, `plugin-output`, `plugin-failed`.
    pub code: &'static str,
    pub message: String,
}

/// A record that could not become rows, with its raw bytes as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub partition: Partition,
    pub offset: i64,
    /// Milliseconds since the epoch, or [`crate::chunk::NO_TIMESTAMP`].
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// As [`crate::chunk::encode_headers`] makes them.
    pub headers: Option<Vec<u8>>,
    pub stage: Stage,
    pub reason: Reason,
    /// Digest of the plugin that rejected it or failed on it.
    pub plugin: Option<String>,
}

impl DeadLetter {
    /// The record at `index` of `chunk` as a dead letter; `None` when there is no such record.
    pub fn of(chunk: &Chunk, index: usize, stage: Stage, reason: Reason, plugin: Option<String>) -> Option<Self> {
        let record = chunk.records().get(index)?;
        Some(Self {
            partition: chunk.partition(),
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.map(<[u8]>::to_vec),
            stage,
            reason,
            plugin,
        })
    }

    /// Bytes held in memory, for budgets.
    pub fn memory(&self) -> usize {
        let bytes = [&self.key, &self.value, &self.headers].into_iter().flatten().map(Vec::len).sum::<usize>();
        bytes + self.reason.message.len() + size_of::<Self>()
    }
}

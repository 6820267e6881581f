//! What a commit says of itself in the Delta log.

use crate::letters::ReplayNumber;
use crate::{Counts, Partition, Span, TopicId};
use serde::{Deserialize, Serialize};

/// The key under which [`CommitInfo`] lies in a commit's `commitInfo` action.
pub const COMMIT_INFO_KEY: &str = "alluvium";

/// What a commit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitKind {
    /// Rows (possibly none) and the positions after them.
    Rows,
    /// Positions chosen by the start policy, before the first record is read.
    Start,
    /// Columns added for rows to come.
    Schema,
    /// Dead letters, in the dead letters' own table.
    DeadLetters,
    /// Offsets passed over on the owner's word, after data was lost.
    Skip,
    /// Rows of replayed dead letters. No position moves.
    Replay,
}

/// A partition's share of a commit. Of a replay, the span reaches from its lowest to its highest offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionProgress {
    pub partition: Partition,
    #[serde(flatten)]
    pub span: Span,
    #[serde(flatten)]
    pub counts: Counts,
}

/// A plugin that had a part in a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginRef {
    pub name: String,
    /// `sha256:` and 64 hex digits, of the component's bytes.
    pub digest: String,
}

/// What a commit says of itself: enough to prove from the log alone that every offset was
/// accounted for once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitInfo {
    /// The version of this form: 1.
    pub format: u32,
    pub kind: CommitKind,
    /// `tenant/name`.
    pub pipeline: String,
    pub generation: u32,
    pub topic: String,
    /// The topic's id; absent when the brokers did not tell one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<TopicId>,
    pub partitions: Vec<PartitionProgress>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<PluginRef>,
    /// Digest of the mapping plan that made the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The replay that this commit is, or whose letters and marks it adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayNumber>,
}

impl CommitInfo {
    /// Rows of a commit to the dead letters' table: letters, and a replay's marks, one for each record.
    pub fn letter_rows(&self) -> u64 {
        let rows = |progress: &PartitionProgress| {
            let marks = if self.replay.is_some() { progress.counts.read } else { 0 };
            progress.counts.rejected + marks
        };
        self.partitions.iter().map(rows).sum()
    }
}

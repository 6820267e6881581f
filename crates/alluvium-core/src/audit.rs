//! Proof from a log alone that no offset is missing or doubled.
//!
//! Every commit names the spans it covers and where their records went. If the spans of a partition
//! join from the first to the stored position, if the counts balance, and if nothing but these
//! commits added rows, then each offset is accounted for exactly once.

use crate::{AppId, CommitInfo, CommitKind, Counts, Partition, PipelineId, Span};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One commit of a table's log, as far as the audit needs it.
#[derive(Clone, Debug, Default)]
pub struct LogEntry {
    pub version: u64,
    /// What the commit says of itself; `None` when another writer made it.
    pub info: Option<CommitInfo>,
    /// Transaction ids and versions set by the commit.
    pub transactions: Vec<(String, i64)>,
    /// Rows in the files added with a data change; `None` when a file does not tell.
    pub rows_added: Option<u64>,
    /// Files added with a data change.
    pub files_added: u64,
    /// Files removed with a data change.
    pub files_removed: u64,
}

/// What speaks against the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum Finding {
    /// Offsets `[from, to)` are in no commit.
    Gap { version: u64, partition: Partition, from: i64, to: i64 },
    /// Offsets `[from, to)` are in two commits.
    Overlap { version: u64, partition: Partition, from: i64, to: i64 },
    /// A commit's counts do not add up.
    Unbalanced { version: u64, partition: Partition, counts: Counts },
    /// A commit's transaction is not the end of its span.
    Position { version: u64, partition: Partition, expected: i64, found: Option<i64> },
    /// A commit's files hold another number of rows than it says.
    Rows { version: u64, said: u64, found: u64 },
    /// Another writer moved a position of this pipeline.
    ForeignPosition { version: u64, transaction: String, to: i64 },
    /// Another writer added rows.
    ForeignRows { version: u64, files: u64 },
    /// Another writer removed or rewrote rows.
    ForeignRemoval { version: u64, files: u64 },
}

impl Finding {
    /// Whether it contradicts exactly once, or only tells that others wrote to the table too.
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::ForeignRows { .. } | Self::ForeignRemoval { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { version, partition, from, to } => {
                write!(f, "version {version}: partition {partition} misses offsets [{from}, {to})")
            }
            Self::Overlap { version, partition, from, to } => {
                write!(f, "version {version}: partition {partition} has offsets [{from}, {to}) twice")
            }
            Self::Unbalanced { version, partition, counts } => write!(
                f,
                "version {version}: partition {partition}: {} records read, but {} kept, {} filtered and {} rejected",
                counts.read, counts.kept, counts.filtered, counts.rejected
            ),
            Self::Position { version, partition, expected, found: Some(found) } => write!(
                f,
                "version {version}: partition {partition} ends at offset {expected}, but its position was set to {found}"
            ),
            Self::Position { version, partition, expected, found: None } => write!(
                f,
                "version {version}: partition {partition} ends at offset {expected}, but its position was not set"
            ),
            Self::Rows { version, said, found } => {
                write!(f, "version {version}: {said} rows are said, but its files hold {found}")
            }
            Self::ForeignPosition { version, transaction, to } => {
                write!(f, "version {version}: another writer set the position of {transaction} to {to}")
            }
            Self::ForeignRows { version, files } => {
                write!(f, "version {version}: another writer added rows ({files} files)")
            }
            Self::ForeignRemoval { version, files } => {
                write!(f, "version {version}: another writer removed or rewrote rows ({files} files)")
            }
        }
    }
}

/// What the log proves of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionProof {
    pub partition: Partition,
    /// The first offset that the log speaks of.
    pub from: i64,
    /// The position after the last commit.
    pub to: i64,
    #[serde(flatten)]
    pub counts: Counts,
    /// Offsets passed over on the owner's word.
    pub skipped: i64,
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The first version of the log that is still there; above 0, what came before cannot be proven.
    pub first_version: u64,
    pub last_version: u64,
    pub commits: u64,
    pub partitions: Vec<PartitionProof>,
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing contradicts exactly once.
    pub fn holds(&self) -> bool {
        !self.findings.iter().any(Finding::is_fault)
    }

    /// Whether an offset lies where this report says nothing: past its last commit, or before the first
    /// entry of a log that was cleaned up.
    pub fn is_outside(&self, partition: Partition, offset: i64) -> bool {
        match self.partitions.iter().find(|proof| proof.partition == partition) {
            Some(proof) => offset >= proof.to || (offset < proof.from && self.first_version > 0),
            None => true,
        }
    }

    /// The sum over all partitions.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for proof in &self.partitions {
            sum += proof.counts;
        }
        sum
    }
}

/// Audits one pipeline's commits to one table. `entries` are the log's commits in rising order of
/// version; `stored` are the positions that the newest snapshot holds.
pub fn audit(pipeline: &PipelineId, topic: &str, entries: &[LogEntry], stored: &[(Partition, i64)]) -> Report {
    let mut report = Report {
        first_version: entries.first().map_or(0, |entry| entry.version),
        last_version: entries.last().map_or(0, |entry| entry.version),
        ..Report::default()
    };
    let mut proofs: BTreeMap<Partition, PartitionProof> = BTreeMap::new();
    for entry in entries {
        match entry.info.as_ref().filter(|info| is_of(info, pipeline, topic)) {
            Some(info) => own_commit(entry, info, pipeline, topic, &mut proofs, &mut report),
            None => foreign_commit(entry, pipeline, topic, &mut report),
        }
    }
    for (partition, position) in stored {
        check_stored(*partition, *position, &mut proofs, &mut report);
    }
    report.partitions = proofs.into_values().collect();
    report
}

fn is_of(info: &CommitInfo, pipeline: &PipelineId, topic: &str) -> bool {
    info.pipeline == pipeline.to_string() && info.generation == pipeline.generation() && info.topic == topic
}

fn own_commit(
    entry: &LogEntry,
    info: &CommitInfo,
    pipeline: &PipelineId,
    topic: &str,
    proofs: &mut BTreeMap<Partition, PartitionProof>,
    report: &mut Report,
) {
    let version = entry.version;
    report.commits += 1;
    if info.kind == CommitKind::Schema {
        return;
    }
    for progress in &info.partitions {
        let (partition, span, counts) = (progress.partition, progress.span, progress.counts);
        if !counts.balance() {
            report.findings.push(Finding::Unbalanced { version, partition, counts });
        }
        let app_id = AppId::new(pipeline, topic, partition);
        let found = entry.transactions.iter().find(|(id, _)| id == app_id.as_str()).map(|(_, to)| *to);
        if found != Some(span.to()) {
            report.findings.push(Finding::Position { version, partition, expected: span.to(), found });
        }
        extend(version, partition, span, counts, info.kind, proofs, report);
    }
    let said = info.partitions.iter().map(|progress| progress.counts.rows).sum();
    let written = info.kind == CommitKind::Rows;
    if let Some(found) = entry.rows_added.filter(|found| written && *found != said) {
        report.findings.push(Finding::Rows { version, said, found });
    }
}

fn extend(
    version: u64,
    partition: Partition,
    span: Span,
    counts: Counts,
    kind: CommitKind,
    proofs: &mut BTreeMap<Partition, PartitionProof>,
    report: &mut Report,
) {
    let proof = proofs.entry(partition).or_insert_with(|| PartitionProof {
        partition,
        from: span.from(),
        to: span.from(),
        counts: Counts::default(),
        skipped: 0,
    });
    let (before, from) = (proof.to, span.from());
    if from > before {
        report.findings.push(Finding::Gap { version, partition, from: before, to: from });
    } else if from < before {
        let to = before.min(span.to());
        report.findings.push(Finding::Overlap { version, partition, from, to });
    }
    proof.to = span.to();
    proof.counts += counts;
    if kind == CommitKind::Skip {
        proof.skipped += span.to() - span.from();
    }
}

fn foreign_commit(entry: &LogEntry, pipeline: &PipelineId, topic: &str, report: &mut Report) {
    let version = entry.version;
    let prefix = format!("{}/{}/{}/{topic}/", pipeline.tenant(), pipeline.name(), pipeline.generation());
    for (transaction, to) in entry.transactions.iter().filter(|(id, _)| id.starts_with(&prefix)) {
        report.findings.push(Finding::ForeignPosition { version, transaction: transaction.clone(), to: *to });
    }
    // Another pipeline of ours, or another generation, writes by the same rules.
    if entry.info.is_some() {
        return;
    }
    if entry.files_removed > 0 {
        report.findings.push(Finding::ForeignRemoval { version, files: entry.files_removed });
    } else if entry.files_added > 0 {
        report.findings.push(Finding::ForeignRows { version, files: entry.files_added });
    }
}

fn check_stored(
    partition: Partition,
    position: i64,
    proofs: &mut BTreeMap<Partition, PartitionProof>,
    report: &mut Report,
) {
    let version = report.last_version;
    match proofs.get(&partition) {
        Some(proof) if proof.to == position => {}
        Some(proof) => {
            report.findings.push(Finding::Position { version, partition, expected: proof.to, found: Some(position) });
        }
        // All commits of this partition were cleaned up with the old part of the log.
        None if report.first_version > 0 => {
            let counts = Counts::default();
            proofs.insert(partition, PartitionProof { partition, from: position, to: position, counts, skipped: 0 });
        }
        None => {
            report.findings.push(Finding::Position { version, partition, expected: 0, found: Some(position) });
        }
    }
}

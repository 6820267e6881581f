//! Proof from a log alone that no offset is missing or doubled.
//!
//! Every commit names the spans it covers and where their records went. If the spans of a partition
//! join from the first to the stored position, if the counts balance, and if nothing but these
//! commits added rows, then each offset is accounted for exactly once.
//!
//! [`audit_letters`] compares the dead letters' log with it; [`Scan`] does so with the rows and the
//! letters themselves.

use crate::letters::ReplayNumber;
use crate::{AppId, CommitInfo, CommitKind, Counts, Partition, PipelineId, Span, TopicId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

mod letters;
mod scan;

pub use letters::{LettersProof, LettersReport, audit_letters};
pub use scan::{Scan, ScanFinding, ScanReport};

/// A data file that a commit added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub path: String,
    /// False when the rows are only laid out anew.
    pub data_change: bool,
    /// `None` when the commit does not tell.
    pub rows: Option<u64>,
    pub bytes: Option<u64>,
}

/// One commit of a table's log, as far as the audit needs it.
#[derive(Clone, Debug, Default)]
pub struct LogEntry {
    pub version: u64,
    /// What the commit says of itself; `None` when another writer made it.
    pub info: Option<CommitInfo>,
    /// What its writer did, by its own account, as `OPTIMIZE`.
    pub operation: Option<String>,
    /// Transaction ids and versions set by the commit.
    pub transactions: Vec<(String, i64)>,
    pub adds: Vec<FileChange>,
    pub removes: Vec<FileChange>,
}

impl LogEntry {
    fn is_of(&self, pipeline: &PipelineId, topic: &str) -> bool {
        let of = |info: &CommitInfo| {
            info.pipeline == pipeline.to_string() && info.generation == pipeline.generation() && info.topic == topic
        };
        self.info.as_ref().is_some_and(of)
    }

    /// The mark of dead letters that the commit set; see [`crate::letters::Marks`].
    fn mark(&self, pipeline: &PipelineId, topic: &str) -> Option<i64> {
        let id = AppId::dead_letters(pipeline, topic);
        self.transactions.iter().find(|(found, _)| found == id.as_str()).map(|(_, mark)| *mark)
    }

    /// Files added with a data change.
    fn added(&self) -> impl Iterator<Item = &FileChange> {
        self.adds.iter().filter(|file| file.data_change)
    }

    /// Rows in the files added with a data change; `None` when a file does not tell.
    pub fn rows_added(&self) -> Option<u64> {
        self.added().map(|file| file.rows).sum()
    }

    /// What a commit of another writer did to the rows, if anything.
    fn foreign(&self) -> Option<Finding> {
        let (version, operation) = (self.version, self.operation.clone());
        let removed = self.removes.iter().filter(|file| file.data_change).count() as u64;
        let added = self.added().count() as u64;
        match (removed, added) {
            (0, 0) => None,
            (0, files) => Some(Finding::ForeignRows { version, operation, files, rows: self.rows_added() }),
            (files, _) => Some(Finding::ForeignRemoval { version, operation, files }),
        }
    }
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
    /// A commit read another topic of the same name: offsets before and after mean other records.
    Topic { version: u64, before: TopicId, after: TopicId },
    /// A replay did not set its number, or one that is not above those before it.
    Replay { version: u64, number: Option<i64>, before: Option<i64>, found: Option<i64> },
    /// Another writer moved a position of this pipeline, or the number of its replays.
    ForeignPosition { version: u64, transaction: String, to: i64 },
    /// A commit adds a file that an earlier one of this pipeline had added: its rows are there once,
    /// and counted twice.
    FileAgain { version: u64, path: String, first: u64 },
    /// Another writer added rows; only a scan can tell whether they are this pipeline's once more.
    ForeignRows { version: u64, operation: Option<String>, files: u64, rows: Option<u64> },
    /// Another writer removed or rewrote rows.
    ForeignRemoval { version: u64, operation: Option<String>, files: u64 },
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
            Self::Topic { version, before, after } => {
                write!(f, "version {version}: the topic before had id {before}, this one has id {after}")
            }
            Self::Replay { version, number, before, found } => {
                let told = |number: &Option<i64>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
                let (number, before, found) = (told(number), told(before), told(found));
                write!(f, "version {version}: replay {number} follows replay {before}, and set the number {found}")
            }
            Self::ForeignPosition { version, transaction, to } => {
                write!(f, "version {version}: another writer set the position of {transaction} to {to}")
            }
            Self::FileAgain { version, path, first } => {
                write!(f, "version {version}: file {path} was already added by version {first}")
            }
            Self::ForeignRows { version, operation, files, rows } => {
                let operation = operation.as_deref().unwrap_or("unnamed operation");
                write!(f, "version {version}: another writer added ")?;
                match rows {
                    Some(rows) => write!(f, "{rows} rows")?,
                    None => f.write_str("rows")?,
                }
                write!(f, " ({operation}, {files} files)")
            }
            Self::ForeignRemoval { version, operation, files } => {
                let operation = operation.as_deref().unwrap_or("unnamed operation");
                write!(f, "version {version}: another writer removed or rewrote rows ({operation}, {files} files)")
            }
        }
    }
}

/// A span that a commit covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    pub version: u64,
    pub span: Span,
    pub counts: Counts,
    /// Whether another writer removed or rewrote rows of this commit later.
    pub touched: bool,
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
    /// Records that were rejected and then replayed; the counts say what became of them in the end.
    pub replayed: u64,
    /// Of those, the ones of the newest replay, and what became of them, by its version.
    #[serde(skip)]
    pub newest_replay: Option<(u64, Counts)>,
    /// What it consists of, in the order of versions.
    #[serde(skip)]
    pub covered: Vec<Covered>,
}

impl PartitionProof {
    fn at(partition: Partition, position: i64) -> Self {
        let counts = Counts::default();
        let (from, to, covered) = (position, position, Vec::new());
        Self { partition, from, to, counts, skipped: 0, replayed: 0, newest_replay: None, covered }
    }
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The first version of the log that is still there; above 0, what came before cannot be proven.
    pub first_version: u64,
    pub last_version: u64,
    pub commits: u64,
    /// The newest replay of dead letters.
    pub replay: Option<ReplayNumber>,
    /// Records of replays that reach back before what is left of the log: they are in no count.
    pub unplaced: Counts,
    /// Whether another writer removed or rewrote rows of a replay later.
    #[serde(skip)]
    pub replays_touched: bool,
    pub partitions: Vec<PartitionProof>,
    pub findings: Vec<Finding>,
    /// The newest mark of dead letters, and the version that set it.
    #[serde(skip)]
    pub letters: Option<(i64, u64)>,
}

impl Report {
    /// Whether nothing contradicts exactly once.
    pub fn holds(&self) -> bool {
        !self.findings.iter().any(Finding::is_fault)
    }

    /// The sum over all partitions.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for proof in &self.partitions {
            sum += proof.counts;
        }
        sum
    }

    fn partition(&self, partition: Partition) -> Option<&PartitionProof> {
        self.partitions.iter().find(|proof| proof.partition == partition)
    }
}

/// Audits one pipeline's commits to one table. `entries` are the log's commits in rising order of
/// version, without a hole; `stored` are the positions that the newest of them leaves.
pub fn audit(pipeline: &PipelineId, topic: &str, entries: &[LogEntry], stored: &[(Partition, i64)]) -> Report {
    let mut audit = Audit { pipeline, topic, report: Report::default(), proofs: BTreeMap::new(), topic_id: None };
    audit.report.first_version = entries.first().map_or(0, |entry| entry.version);
    audit.report.last_version = entries.last().map_or(0, |entry| entry.version);
    let mut files = Files::default();
    for entry in entries {
        if entry.is_of(pipeline, topic) {
            audit.own_commit(entry);
            audit.report.letters =
                audit.report.letters.max(entry.mark(pipeline, topic).map(|mark| (mark, entry.version)));
            let again = files.add_own(entry);
            audit.report.findings.extend(again);
        } else {
            audit.foreign_commit(entry);
            files.follow(entry);
        }
    }
    for (partition, position) in stored {
        audit.check_stored(*partition, *position);
    }
    let Audit { mut report, mut proofs, .. } = audit;
    let is_replay = |entry: &&LogEntry| {
        entry.is_of(pipeline, topic) && entry.info.as_ref().is_some_and(|info| info.kind == CommitKind::Replay)
    };
    let replays: Vec<u64> = entries.iter().filter(is_replay).map(|entry| entry.version).collect();
    for covered in proofs.values_mut().flat_map(|proof| &mut proof.covered) {
        covered.touched = files.touched.contains(&covered.version);
    }
    report.replays_touched = replays.iter().any(|version| files.touched.contains(version));
    report.partitions = proofs.into_values().collect();
    report
}

/// Which commits' rows lie in which files, through the hands of other writers.
#[derive(Default)]
struct Files {
    /// By path; files that were removed stay, since a restored table has them back.
    sources: HashMap<String, Arc<BTreeSet<u64>>>,
    /// Commits of which rows were removed or rewritten.
    touched: BTreeSet<u64>,
}

impl Files {
    fn add_own(&mut self, entry: &LogEntry) -> Vec<Finding> {
        let (version, source) = (entry.version, Arc::new(BTreeSet::from([entry.version])));
        let mut again = Vec::new();
        for file in &entry.adds {
            if let Some(earlier) = self.sources.insert(file.path.clone(), source.clone()) {
                let first = earlier.first().copied().unwrap_or_default();
                again.push(Finding::FileAgain { version, path: file.path.clone(), first });
            }
        }
        again
    }

    /// Takes over what another writer made of the files: what it removed lies in what it added.
    fn follow(&mut self, entry: &LogEntry) {
        let mut moved = BTreeSet::new();
        for file in &entry.removes {
            let Some(source) = self.sources.get(&file.path) else { continue };
            moved.extend(source.iter());
            if file.data_change {
                self.touched.extend(source.iter());
            }
        }
        if moved.is_empty() {
            return;
        }
        let moved = Arc::new(moved);
        for file in &entry.adds {
            self.sources.entry(file.path.clone()).or_insert_with(|| moved.clone());
        }
    }
}

struct Audit<'a> {
    pipeline: &'a PipelineId,
    topic: &'a str,
    report: Report,
    proofs: BTreeMap<Partition, PartitionProof>,
    /// The topic's id in the newest commit that names one.
    topic_id: Option<TopicId>,
}

impl Audit<'_> {
    fn own_commit(&mut self, entry: &LogEntry) {
        let Some(info) = &entry.info else { return };
        let version = entry.version;
        self.report.commits += 1;
        if let Some(after) = &info.topic_id
            && let Some(before) = self.topic_id.replace(after.clone()).filter(|before| before != after)
        {
            self.report.findings.push(Finding::Topic { version, before, after: after.clone() });
        }
        match info.kind {
            CommitKind::Schema => return,
            CommitKind::Replay => return self.replay(entry, info),
            _ => {}
        }
        for progress in &info.partitions {
            let (partition, span, counts) = (progress.partition, progress.span, progress.counts);
            if !counts.balance() {
                self.report.findings.push(Finding::Unbalanced { version, partition, counts });
            }
            let app_id = AppId::new(self.pipeline, self.topic, partition);
            let found = entry.transactions.iter().find(|(id, _)| id == app_id.as_str()).map(|(_, to)| *to);
            if found != Some(span.to()) {
                self.report.findings.push(Finding::Position { version, partition, expected: span.to(), found });
            }
            self.extend(partition, info.kind, Covered { version, span, counts, touched: false });
        }
        if info.kind == CommitKind::Rows {
            self.check_rows(entry, info);
        }
    }

    fn check_rows(&mut self, entry: &LogEntry, info: &CommitInfo) {
        let said = info.partitions.iter().map(|progress| progress.counts.rows).sum();
        if let Some(found) = entry.rows_added().filter(|found| *found != said) {
            self.report.findings.push(Finding::Rows { version: entry.version, said, found });
        }
    }

    /// A replay moves no position: it tells anew what became of records that were rejected before.
    fn replay(&mut self, entry: &LogEntry, info: &CommitInfo) {
        let (version, number, before) = (entry.version, info.replay, self.report.replay);
        let app_id = AppId::replay(self.pipeline, self.topic);
        let found = entry.transactions.iter().find(|(id, _)| id == app_id.as_str()).map(|(_, number)| *number);
        if number.is_none() || found != number || number <= before {
            self.report.findings.push(Finding::Replay { version, number, before, found });
        }
        self.report.replay = before.max(number);
        self.check_rows(entry, info);
        for progress in &info.partitions {
            let (partition, counts) = (progress.partition, progress.counts);
            if !counts.balance() {
                self.report.findings.push(Finding::Unbalanced { version, partition, counts });
            }
            let is_whole = |proof: &&mut PartitionProof| proof.from <= progress.span.from();
            let Some(proof) = self.proofs.get_mut(&partition).filter(is_whole) else {
                self.report.unplaced += counts;
                continue;
            };
            proof.replayed += counts.read;
            proof.newest_replay = Some((version, counts));
            proof.counts.kept += counts.kept;
            proof.counts.rows += counts.rows;
            proof.counts.filtered += counts.filtered;
            match (proof.counts.rejected + counts.rejected).checked_sub(counts.read) {
                Some(rejected) => proof.counts.rejected = rejected,
                // More than were rejected.
                None => self.report.findings.push(Finding::Unbalanced { version, partition, counts }),
            }
        }
    }

    fn extend(&mut self, partition: Partition, kind: CommitKind, covered: Covered) {
        let Covered { version, span, counts, .. } = covered;
        let proof = self.proofs.entry(partition).or_insert_with(|| PartitionProof::at(partition, span.from()));
        let (before, from) = (proof.to, span.from());
        if from > before {
            self.report.findings.push(Finding::Gap { version, partition, from: before, to: from });
        } else if from < before {
            let to = before.min(span.to());
            self.report.findings.push(Finding::Overlap { version, partition, from, to });
        }
        proof.to = span.to();
        proof.counts += counts;
        proof.covered.push(covered);
        if kind == CommitKind::Skip {
            proof.skipped += span.to() - span.from();
        }
    }

    fn foreign_commit(&mut self, entry: &LogEntry) {
        let (version, pipeline) = (entry.version, self.pipeline);
        let prefix = format!("{}/{}/{}/{}/", pipeline.tenant(), pipeline.name(), pipeline.generation(), self.topic);
        for (transaction, to) in entry.transactions.iter().filter(|(id, _)| id.starts_with(&prefix)) {
            let transaction = transaction.clone();
            self.report.findings.push(Finding::ForeignPosition { version, transaction, to: *to });
        }
        // Another pipeline of ours, or another generation, writes by the same rules.
        if entry.info.is_none() {
            self.report.findings.extend(entry.foreign());
        }
    }

    fn check_stored(&mut self, partition: Partition, position: i64) {
        let version = self.report.last_version;
        let position_is = |expected| Finding::Position { version, partition, expected, found: Some(position) };
        match self.proofs.get(&partition) {
            Some(proof) if proof.to == position => {}
            Some(proof) => self.report.findings.push(position_is(proof.to)),
            // All commits of this partition were cleaned up with the old part of the log.
            None if self.report.first_version > 0 => {
                self.proofs.insert(partition, PartitionProof::at(partition, position));
            }
            None => self.report.findings.push(position_is(0)),
        }
    }
}

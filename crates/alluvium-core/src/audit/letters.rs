//! The dead letters' log beside that of the rows.

use super::{Finding, LogEntry, Report};
use crate::letters::Marks;
use crate::{CommitKind, Partition, PipelineId};
use serde::Serialize;

/// What the dead letters' log says of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LettersProof {
    pub partition: Partition,
    /// Records that the rows' log says were rejected.
    pub rejected: u64,
    /// Letters of spans that the rows' log covers, less those that were replayed.
    pub letters: u64,
    /// Letters that the rows' log names, and that are not in their table yet.
    pub owed: u64,
}

impl LettersProof {
    /// Whether there can be as many letters as records were rejected.
    fn holds(&self, partial: bool) -> bool {
        let found = self.letters + self.owed;
        found == self.rejected || (partial && found < self.rejected)
    }
}

/// The result of an audit of the dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LettersReport {
    /// The first version of the log that is still there; above 0, older letters are not counted.
    pub first_version: u64,
    pub last_version: u64,
    /// The pipeline's letters, replayed or not, by the log.
    pub letters: u64,
    /// The version of the rows' log whose letters are not in their table yet: a process ended between
    /// the two commits, or is at it. The next run writes them before anything else.
    pub owed: Option<u64>,
    pub partitions: Vec<LettersProof>,
    pub findings: Vec<Finding>,
}

impl LettersReport {
    /// Whether nothing contradicts exactly once.
    pub fn holds(&self) -> bool {
        self.wrong().next().is_none() && !self.findings.iter().any(Finding::is_fault)
    }

    /// Whether another writer removed or rewrote letters.
    pub fn is_touched(&self) -> bool {
        self.findings.iter().any(|finding| matches!(finding, Finding::ForeignRemoval { .. }))
    }

    /// Partitions with another number of letters than of rejected records.
    pub fn wrong(&self) -> impl Iterator<Item = &LettersProof> {
        self.partitions.iter().filter(|proof| !proof.holds(self.first_version > 0))
    }
}

/// Audits one pipeline's commits of dead letters against its commits of rows, whose log was read before:
/// letters of later rows are left out.
pub fn audit_letters(pipeline: &PipelineId, topic: &str, entries: &[LogEntry], rows: &Report) -> LettersReport {
    let mut report = LettersReport {
        first_version: entries.first().map_or(0, |entry| entry.version),
        last_version: entries.last().map_or(0, |entry| entry.version),
        ..LettersReport::default()
    };
    let written = entries.iter().filter_map(|entry| entry.mark(pipeline, topic)).max();
    let marks = Marks { named: rows.letters.map(|(mark, _)| mark), written };
    // Where the letters' log was cleaned up, the mark may have gone with it.
    let owing = rows.letters.filter(|_| marks.owed().is_some() && (report.first_version == 0 || written.is_some()));
    report.owed = owing.map(|(_, version)| version);
    for proof in &rows.partitions {
        let partition = proof.partition;
        // A replay takes its letters out of the table, and adds to it, when what it owes is written.
        let replay = proof.newest_replay.filter(|(version, _)| report.owed == Some(*version));
        let rejected =
            replay.map_or(proof.counts.rejected, |(_, counts)| proof.counts.rejected + counts.read - counts.rejected);
        let owing = proof.covered.iter().filter(|covered| report.owed == Some(covered.version));
        let owed = owing.map(|covered| covered.counts.rejected).sum();
        report.partitions.push(LettersProof { partition, rejected, letters: 0, owed });
    }
    for entry in entries {
        let version = entry.version;
        let Some(info) = entry.info.as_ref().filter(|_| entry.is_of(pipeline, topic)) else {
            report.findings.extend(entry.foreign().filter(|_| entry.info.is_none()));
            continue;
        };
        if info.kind != CommitKind::DeadLetters {
            continue;
        }
        let said = info.letter_rows();
        report.letters += info.partitions.iter().map(|progress| progress.counts.rejected).sum::<u64>();
        if let Some(found) = entry.rows_added().filter(|found| *found != said) {
            report.findings.push(Finding::Rows { version, said, found });
        }
        for progress in &info.partitions {
            let Some(covered) = rows.partition(progress.partition) else { continue };
            let (from, to) = (progress.span.from(), progress.span.to());
            let proof = report.partitions.iter_mut().find(|proof| proof.partition == progress.partition);
            // Others are older than what is left of the rows' log, or newer than what was read of it.
            if let Some(proof) = proof.filter(|_| from >= covered.from && to <= covered.to) {
                let taken = if info.replay.is_some() { progress.counts.read } else { 0 };
                proof.letters = (proof.letters + progress.counts.rejected).saturating_sub(taken);
            }
        }
    }
    report
}

//! The dead letters' log beside that of the rows.

use super::{Finding, LogEntry, Report};
use crate::{CommitKind, Partition, PipelineId};
use serde::Serialize;

/// What the dead letters' log says of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LettersProof {
    pub partition: Partition,
    /// Records that the rows' log says were rejected.
    pub rejected: u64,
    /// Letters of spans that the rows' log covers.
    pub letters: u64,
    /// Letters of spans that reach out of what the rows' log covers: some may be in it.
    pub beside: u64,
}

impl LettersProof {
    /// Whether there can be as many letters as records were rejected.
    fn holds(&self, partial: bool) -> bool {
        let most = if partial { u64::MAX } else { self.letters + self.beside };
        (self.letters..=most).contains(&self.rejected)
    }
}

/// The result of an audit of the dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LettersReport {
    /// The first version of the log that is still there; above 0, older letters are not counted.
    pub first_version: u64,
    pub last_version: u64,
    /// The pipeline's letters, by the log.
    pub letters: u64,
    /// Whether letters are there whose rows are not: a process ended between the two commits. The
    /// next run commits those rows, and does not write the letters again.
    pub ahead: bool,
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

/// Audits one pipeline's commits of dead letters against its commits of rows. A flush that is made
/// anew after a crash may end elsewhere than before, so spans of letters need not be those of rows.
pub fn audit_letters(pipeline: &PipelineId, topic: &str, entries: &[LogEntry], rows: &Report) -> LettersReport {
    let mut report = LettersReport {
        first_version: entries.first().map_or(0, |entry| entry.version),
        last_version: entries.last().map_or(0, |entry| entry.version),
        ..LettersReport::default()
    };
    for proof in &rows.partitions {
        let (partition, rejected) = (proof.partition, proof.counts.rejected);
        report.partitions.push(LettersProof { partition, rejected, letters: 0, beside: 0 });
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
        let said = info.partitions.iter().map(|progress| progress.counts.rejected).sum();
        report.letters += said;
        if let Some(found) = entry.rows_added().filter(|found| *found != said) {
            report.findings.push(Finding::Rows { version, said, found });
        }
        for progress in &info.partitions {
            let (partition, letters) = (progress.partition, progress.counts.rejected);
            let covered = rows.partition(partition).map_or((0, 0), |proof| (proof.from, proof.to));
            let (from, to) = (progress.span.from(), progress.span.to());
            report.ahead |= to > covered.1;
            // Before what is left of the rows' log.
            if to <= covered.0 {
                continue;
            }
            let proof = match report.partitions.iter_mut().find(|proof| proof.partition == partition) {
                Some(proof) => proof,
                None => report.partitions.push_mut(LettersProof { partition, rejected: 0, letters: 0, beside: 0 }),
            };
            if from >= covered.0 && to <= covered.1 {
                proof.letters += letters;
            } else {
                proof.beside += letters;
            }
        }
    }
    report
}

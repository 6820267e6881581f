//! Proof from a table that no offset is missing or doubled.

use crate::failure::Failure;
use alluvium_config::Pipeline;
use alluvium_core::audit::{LogEntry, Report, audit};
use alluvium_core::seam::Table;
use alluvium_core::{Partition, PipelineId};
use alluvium_delta::{DeltaSink, TableRole};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a table proves of its pipeline.
#[derive(Debug, Serialize)]
pub struct Proof {
    pub log: Report,
    /// Dead letters that the table of dead letters holds, by its own log.
    pub dead_letters: u64,
    /// Whether dead letters are there whose rows are not: a process ended between the two commits. The
    /// pipeline's next run commits those rows, and does not write the letters again.
    pub letters_ahead: bool,
    /// Why the rows cannot be told apart from others', if they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unscanned: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<Scan>,
}

/// What the metadata column of the rows says.
#[derive(Debug, Default, Serialize)]
pub struct Scan {
    pub rows: u64,
    /// Rows whose offset is in the table more than once.
    pub doubled: u64,
    /// Rows at offsets that no commit covers.
    pub stray: u64,
    /// Records that became rows by the log, less those found.
    pub missing: i64,
}

impl Proof {
    pub fn holds(&self) -> bool {
        let scanned = self.scan.as_ref().is_none_or(|scan| scan.doubled == 0 && scan.missing == 0 && scan.stray == 0);
        self.log.holds() && self.letters_hold() && scanned
    }

    /// Whether there are as many dead letters as records were rejected.
    pub fn letters_hold(&self) -> bool {
        let rejected = self.log.counts().rejected;
        // What the cleaned up part of a log counted is not known any more.
        let partial = self.log.first_version > 0 && self.dead_letters >= rejected;
        self.dead_letters == rejected || partial || (self.letters_ahead && self.dead_letters > rejected)
    }
}

/// Audits the log, and the rows too where `column` names their metadata column.
pub async fn prove(sink: &DeltaSink, pipeline: &Pipeline, column: Option<&str>) -> Result<Proof, Failure> {
    let failed = |error: alluvium_delta::Error| Failure::classified(&error);
    let (id, topic) = (&pipeline.id, &pipeline.source.topic);
    let (entries, positions) = consistent(sink).await?;
    let log = audit(id, topic, &entries, &positions);
    if log.commits == 0 {
        let generation = id.generation();
        return Err(Failure::input(format!(
            "the table holds no commit of pipeline {id} (generation {generation}) on topic {topic}"
        ))
        .with_hint("check `table`, `tenant`, `name`, `generation` and `topic` in the pipeline file"));
    }
    let letters = sink.history(TableRole::DeadLetters).await.map_err(failed)?;
    let own = letters.iter().map(|commit| &commit.entry).filter(|entry| is_of(entry, id, topic));
    let dead_letters = own.filter_map(|entry| entry.rows_added).sum();
    let ahead = |entry: &LogEntry| {
        entry.info.iter().flat_map(|info| &info.partitions).any(|progress| {
            let proof = log.partitions.iter().find(|proof| proof.partition == progress.partition);
            proof.is_none_or(|proof| progress.span.to() > proof.to)
        })
    };
    let letters_ahead = letters.iter().map(|commit| &commit.entry).filter(|entry| is_of(entry, id, topic)).any(ahead);
    let others = entries.iter().any(|entry| entry.files_added > 0 && entry.info.is_some() && !is_of(entry, id, topic));
    let unscanned = (column.is_some() && others)
        .then_some("rows of other pipelines or generations are in the table: they cannot be told apart");
    let scan = match column.filter(|_| unscanned.is_none()) {
        Some(column) => Some(scan(sink, column, &log).await?),
        None => None,
    };
    Ok(Proof { log, dead_letters, letters_ahead, unscanned, scan })
}

/// The log's entries and the positions of one moment, also while the pipeline runs.
async fn consistent(sink: &DeltaSink) -> Result<(Vec<LogEntry>, Vec<(Partition, i64)>), Failure> {
    let failed = |error: alluvium_delta::Error| Failure::classified(&error);
    let mut tries = 0;
    loop {
        let before = sink.load().await.map_err(failed)?.positions;
        let history = sink.history(TableRole::Rows).await.map_err(failed)?;
        let after = sink.load().await.map_err(failed)?.positions;
        tries += 1;
        if before == after || tries == 20 {
            return Ok((history.into_iter().map(|commit| commit.entry).collect(), after));
        }
    }
}

fn is_of(entry: &LogEntry, id: &PipelineId, topic: &str) -> bool {
    let of = |info: &alluvium_core::CommitInfo| {
        info.pipeline == id.to_string() && info.generation == id.generation() && info.topic == topic
    };
    entry.info.as_ref().is_some_and(of)
}

/// The offsets of one partition that were seen, one bit each.
struct Seen {
    from: i64,
    to: i64,
    bits: Vec<u64>,
    distinct: u64,
}

impl Seen {
    /// Marks an offset; whether it is new, and whether it is covered at all.
    fn mark(&mut self, offset: i64) -> Option<bool> {
        if offset < self.from || offset >= self.to {
            return None;
        }
        let at = (offset - self.from) as usize;
        let word = self.bits.get_mut(at / 64)?;
        let new = *word & (1 << (at % 64)) == 0;
        *word |= 1 << (at % 64);
        self.distinct += u64::from(new);
        Some(new)
    }
}

async fn scan(sink: &DeltaSink, column: &str, log: &Report) -> Result<Scan, Failure> {
    let failed = |error: alluvium_delta::Error| Failure::classified(&error);
    let mut seen: BTreeMap<Partition, Seen> = BTreeMap::new();
    for proof in &log.partitions {
        let words = (proof.to - proof.from).max(0) as usize / 64 + 1;
        seen.insert(proof.partition, Seen { from: proof.from, to: proof.to, bits: vec![0; words], distinct: 0 });
    }
    let mut scan = Scan::default();
    let mut rows = sink.scan_kafka_column(column).await.map_err(failed)?;
    while let Some(batch) = rows.next().await {
        for row in batch.map_err(failed)? {
            scan.rows += 1;
            // Later rows of one record are told by their number, not by their offset.
            let first = row.row.is_none_or(|row| row == 0);
            match seen.get_mut(&row.partition).map(|seen| seen.mark(row.offset)) {
                Some(Some(new)) if first && !new => scan.doubled += 1,
                Some(Some(_)) => {}
                // Committed since the log was read, or before the oldest entry that is left of it.
                _ if log.is_outside(row.partition, row.offset) => {}
                _ => scan.stray += 1,
            }
        }
    }
    let distinct: u64 = seen.values().map(|seen| seen.distinct).sum();
    scan.missing = log.counts().kept as i64 - distinct as i64;
    Ok(scan)
}

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
        self.log.holds() && self.dead_letters == self.log.counts().rejected && scanned
    }
}

/// Audits the log, and the rows too where `column` names their metadata column.
pub async fn prove(sink: &DeltaSink, pipeline: &Pipeline, column: Option<&str>) -> Result<Proof, Failure> {
    let failed = |error: alluvium_delta::Error| Failure::classified(&error);
    let (id, topic) = (&pipeline.id, &pipeline.source.topic);
    let entries: Vec<LogEntry> =
        sink.history(TableRole::Rows).await.map_err(failed)?.into_iter().map(|commit| commit.entry).collect();
    let state = sink.load().await.map_err(failed)?;
    let log = audit(id, topic, &entries, &state.positions);
    let letters = sink.history(TableRole::DeadLetters).await.map_err(failed)?;
    let own = letters.iter().map(|commit| &commit.entry).filter(|entry| is_of(entry, id, topic));
    let dead_letters = own.filter_map(|entry| entry.rows_added).sum();
    let scan = match column {
        Some(column) => Some(scan(sink, column, &log).await?),
        None => None,
    };
    Ok(Proof { log, dead_letters, scan })
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
                _ => scan.stray += 1,
            }
        }
    }
    let distinct: u64 = seen.values().map(|seen| seen.distinct).sum();
    scan.missing = log.counts().kept as i64 - distinct as i64;
    Ok(scan)
}

//! Proof from a table that no offset is missing or doubled.

use crate::failure::Failure;
use alluvium_config::Pipeline;
use alluvium_core::audit::{LettersReport, LogEntry, Report, Scan, ScanReport, audit, audit_letters};
use alluvium_delta::{DeltaReader, Error, FileFault, KafkaScan, LetterFilter, TableRole};
use serde::Serialize;

/// What a table proves of its pipeline.
#[derive(Debug, Serialize)]
pub struct Proof {
    pub log: Report,
    pub dead_letters: LettersReport,
    /// Data files that are not there as the log says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    /// Why rows were not scanned, if they could not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unscanned: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<ScanReport>,
}

/// A data file that is missing or of another size.
#[derive(Debug, Serialize)]
pub struct File {
    pub table: &'static str,
    pub path: String,
    /// Bytes by the log.
    pub said: u64,
    /// Bytes in the store; `None` when it is missing.
    pub found: Option<u64>,
}

impl Proof {
    pub fn holds(&self) -> bool {
        let scanned = self.scan.as_ref().is_none_or(ScanReport::holds);
        self.log.holds() && self.dead_letters.holds() && self.files.is_empty() && scanned
    }
}

/// Audits the logs, and the rows and letters too where `column` names the rows' metadata column.
/// All is of one moment, also while the pipeline runs: that of the newest commit of rows.
pub async fn prove(tables: &DeltaReader, pipeline: &Pipeline, column: Option<&str>) -> Result<Proof, Failure> {
    let (id, topic) = (&pipeline.id, &pipeline.source.topic);
    let entries = history(tables, TableRole::Rows).await?;
    let newest = entries.last().map(|entry| entry.version);
    let positions = match newest {
        Some(version) => tables.positions(version).await.map_err(failed)?,
        None => Vec::new(),
    };
    let log = audit(id, topic, &entries, &positions);
    let (Some(newest), 1..) = (newest, log.commits) else {
        let generation = id.generation();
        return Err(Failure::input(format!(
            "the table holds no commit of pipeline {id} (generation {generation}) on topic {topic}"
        ))
        .with_hint("check `table`, `tenant`, `name`, `generation` and `topic` in the pipeline file"));
    };
    // Letters follow their rows: those of all rows seen but the newest are there by now.
    let letters = history(tables, TableRole::DeadLetters).await?;
    let newest_letters = letters.last().map(|entry| entry.version);
    let dead_letters = audit_letters(id, topic, &letters, &log);
    let mut proof = Proof { log, dead_letters, files: Vec::new(), unscanned: None, scan: None };
    let Some(column) = column else { return Ok(proof) };
    let others = entries.iter().any(|entry| {
        let own = |info: &alluvium_core::CommitInfo| {
            info.pipeline == id.to_string() && info.generation == id.generation() && info.topic == *topic
        };
        !entry.adds.is_empty() && entry.info.as_ref().is_some_and(|info| !own(info))
    });
    if others {
        let why = "rows of other pipelines or generations are in the table: they cannot be told apart";
        proof.unscanned = Some(why);
        return Ok(proof);
    }
    for (table, role, version) in
        [("table", TableRole::Rows, Some(newest)), ("dead letters", TableRole::DeadLetters, newest_letters)]
    {
        let Some(version) = version else { continue };
        let faults = tables.file_faults(role, version).await.map_err(failed)?;
        let file = |FileFault { path, said, found }| File { table, path, said, found };
        proof.files.extend(faults.into_iter().map(file));
    }
    if !proof.files.is_empty() {
        proof.unscanned = Some("files are missing or damaged");
        return Ok(proof);
    }
    let mut scan = Scan::new(&proof.log, &proof.dead_letters);
    let mut rows = tables.scan_rows(column, Some(newest)).await.map_err(failed)?;
    each(&mut rows, |row| scan.row(row.partition, row.offset, row.row.unwrap_or(0))).await?;
    let standings = tables.letter_standings(newest_letters, &LetterFilter::default()).await.map_err(failed)?;
    standings.into_iter().for_each(|(place, standing)| scan.letter(place, standing));
    let scan = scan.finish();
    proof.scan = Some(scan);
    Ok(proof)
}

async fn history(tables: &DeltaReader, role: TableRole) -> Result<Vec<LogEntry>, Failure> {
    let history = tables.history(role).await.map_err(failed)?;
    Ok(history.into_iter().map(|commit| commit.entry).collect())
}

async fn each(scan: &mut KafkaScan, mut take: impl FnMut(alluvium_delta::KafkaRow)) -> Result<(), Failure> {
    while let Some(batch) = scan.next().await {
        batch.map_err(failed)?.into_iter().for_each(&mut take);
    }
    Ok(())
}

/// A log that is broken is the table's fault, not the pipeline file's.
fn failed(error: Error) -> Failure {
    match error {
        Error::ParseLog { .. } | Error::LogHole { .. } => Failure::classified(&error).into_failed(),
        error => Failure::classified(&error),
    }
}

//! The commit of a flush: judged and written against one version of the log.
//!
//! Each attempt looks at the newest version, judges the flush's spans on it, and writes the entry
//! that follows it. Whoever loses a version to another writer reads that writer's entry and starts
//! over; nothing that was checked on one version is ever written after another.

use crate::actions::{EntryParts, Operation, Transaction, entry, new_metadata};
use crate::error::Error;
use crate::letters::Letters;
use crate::load::LogState;
use crate::log::{Appended, TableLog};
use crate::protocol;
use crate::reader::{check, check_partition_columns};
use crate::schema::{self, Fit};
use crate::sink::{DeltaSink, Rows};
use crate::store::TableStore;
use crate::writer::DataFile;
use alluvium_core::commit::{Claim, Verdict, judge};
use alluvium_core::seam::{Flush, Outcome};
use alluvium_core::{AppId, CommitInfo, CommitKind};
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;

/// Versions that may be lost to other writers before a commit gives up.
const MAX_ATTEMPTS: u32 = 100;
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Counts attempts, with growing waits between them.
#[derive(Debug, Default)]
pub(crate) struct Attempts(u32);

impl Attempts {
    pub(crate) async fn next(&mut self, store: &TableStore) -> Result<(), Error> {
        if self.0 >= MAX_ATTEMPTS {
            return Err(Error::Contended { table: store.table(), attempts: self.0 });
        }
        // The first loss is common where writers share a table, and its winner is already through.
        if let Some(doublings) = self.0.checked_sub(2) {
            let wait = Duration::from_millis(5) * 2u32.pow(doublings.min(10));
            tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
        }
        self.0 += 1;
        Ok(())
    }
}

/// Checks that a flush can be told apart from its repetition.
pub(crate) fn check_flush(flush: &Flush<DataFile>) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for progress in &flush.info.partitions {
        if !seen.insert(progress.partition) {
            return Err(Error::DuplicatePartition { partition: progress.partition });
        }
    }
    let moves = flush.info.partitions.iter().any(|progress| !progress.span.is_empty());
    let carries = !flush.files.is_empty() || !flush.dead_letters.is_empty();
    if carries && !moves { Err(Error::NothingMoves) } else { Ok(()) }
}

/// Adds columns to a table, as a commit of its own.
pub(crate) async fn append_growth(log: &mut TableLog, info: &CommitInfo, schema: Value) -> Result<Appended, Error> {
    let Some(state) = log.state() else { return Ok(Appended::Lost) };
    let protocol = protocol::grown(state, &schema);
    let mut metadata = state.metadata.clone();
    metadata.schema_string = schema.to_string();
    let info = CommitInfo { kind: CommitKind::Schema, partitions: Vec::new(), ..info.clone() };
    let parts = EntryParts { protocol: protocol.as_ref(), metadata: Some(&metadata), ..EntryParts::default() };
    let entry = entry(&log.store.name, Operation::AddColumns, &info, &parts)?;
    log.append(&entry).await
}

impl DeltaSink {
    /// Commits a flush whose files are uploaded.
    pub(crate) async fn commit_uploaded(&self, rows: &mut Rows, flush: &Flush<DataFile>) -> Result<Outcome, Error> {
        let mut attempts = Attempts::default();
        let mut letters_are_in = flush.dead_letters.is_empty();
        loop {
            attempts.next(&rows.log.store).await?;
            rows.log.refresh().await?;
            self.adopt(rows)?;
            match judge(&self.claims(rows, flush)) {
                Verdict::Proceed => {}
                Verdict::AlreadyCommitted => return Ok(Outcome::AlreadyCommitted),
                Verdict::Fenced { found } => return Ok(Outcome::Fenced { found }),
            }
            let growth = match self.fit(rows.log.state(), flush)? {
                Fit::Fits => None,
                Fit::Grows(schema) => Some(schema),
                Fit::Moved { column } => return Ok(Outcome::SchemaMoved { column }),
                Fit::Unnameable { column } => return Err(Error::ColumnName { column }),
            };
            if !letters_are_in {
                self.commit_letters(flush).await?;
                letters_are_in = true;
            }
            if let Appended::Landed(version) = self.append(&mut rows.log, flush, growth).await? {
                return Ok(Outcome::Committed { version });
            }
        }
    }

    /// Checks the state just read, and takes over what writers need of it.
    pub(crate) fn adopt(&self, rows: &mut Rows) -> Result<(), Error> {
        let Some(state) = rows.log.state() else { return Ok(()) };
        check(&rows.log.store, state)?;
        check_partition_columns(&self.config, state)?;
        self.adopt_layout(state);
        let known = state.partitions(&self.config.transaction_prefix());
        rows.seen.extend(known.into_iter().map(|(partition, _)| partition));
        Ok(())
    }

    fn claims(&self, rows: &Rows, flush: &Flush<DataFile>) -> Vec<Claim> {
        let positions = rows.log.state().map(|state| &state.positions);
        let claim = |progress: &alluvium_core::PartitionProgress| {
            let id = AppId::new(&self.config.pipeline, &self.config.topic, progress.partition);
            Claim {
                partition: progress.partition,
                span: progress.span,
                stored: positions.and_then(|positions| positions.get(id.as_str()).copied()),
                // A position that was there and is gone means another table in this one's place.
                may_be_absent: flush.may_be_absent && !rows.seen.contains(&progress.partition),
            }
        };
        flush.info.partitions.iter().map(claim).collect()
    }

    fn fit(&self, state: Option<&LogState>, flush: &Flush<DataFile>) -> Result<Fit, Error> {
        let columns = schema::columns(&flush.schema)?;
        let Some(state) = state else {
            let missing = |name: &&String| flush.schema.field_with_name(name).is_err();
            return match self.config.partition_by.iter().find(missing) {
                Some(column) => Err(Error::PartitionColumnMissing { column: column.clone() }),
                None => Ok(schema::with_notes(schema::fit_new(&columns), &flush.schema)),
            };
        };
        let table = self.config.table.as_str();
        let schema = schema::parse(table, &state.metadata.schema_string)?;
        let filled = |name: &str| !flush.files.iter().any(|file| file.may_be_null(name));
        let empty = schema::left_empty(&schema, &flush.schema, filled).filter(|_| !flush.files.is_empty());
        match (schema::fit(&schema, &columns), empty) {
            (Fit::Fits | Fit::Grows(_), Some(column)) => Err(Error::NotNull { table: table.to_owned(), column }),
            (fit, _) => Ok(schema::with_notes(fit, &flush.schema)),
        }
    }

    async fn commit_letters(&self, flush: &Flush<DataFile>) -> Result<(), Error> {
        let mut log = self.letters.lock().await;
        let letters =
            Letters { config: &self.config, hooks: &self.hooks, info: &flush.info, letters: &flush.dead_letters };
        letters.commit(&mut log).await?;
        if let Some(state) = log.state() {
            self.letters_maintenance.after_commit(&log.store, state);
        }
        Ok(())
    }

    /// Writes the entry of the rows, after that of the columns they need. A table that is absent
    /// is created by the same entry. Nothing is judged between the two: the second follows the
    /// first directly, or is lost.
    async fn append(
        &self,
        log: &mut TableLog,
        flush: &Flush<DataFile>,
        growth: Option<Value>,
    ) -> Result<Appended, Error> {
        let mut created = None;
        match growth {
            Some(schema) if log.state().is_some() => {
                self.hooks.at("schema:before");
                let appended = append_growth(log, &flush.info, schema).await?;
                self.hooks.at("schema:after");
                if appended == Appended::Lost || log.state().is_none() {
                    return Ok(Appended::Lost);
                }
            }
            Some(schema) => created = Some(schema),
            None if log.state().is_none() => created = Some(schema::new_schema(&[])),
            None => {}
        }
        let partition_by = &self.config.partition_by;
        let protocol = created.as_ref().map(protocol::of_new_table);
        let metadata = created.as_ref().map(|schema| new_metadata(schema.to_string(), partition_by));
        let transactions = flush.info.partitions.iter().map(|progress| Transaction {
            app_id: AppId::new(&self.config.pipeline, &self.config.topic, progress.partition).as_str().to_owned(),
            version: progress.span.to(),
        });
        let parts = EntryParts {
            protocol: protocol.as_ref(),
            metadata: metadata.as_ref(),
            files: &flush.files.iter().collect::<Vec<_>>(),
            transactions: transactions.collect(),
            partition_by,
        };
        let entry = entry(&log.store.name, Operation::Write, &flush.info, &parts)?;
        self.hooks.at("commit:before");
        let appended = log.append(&entry).await?;
        self.hooks.at("commit:after");
        Ok(appended)
    }
}

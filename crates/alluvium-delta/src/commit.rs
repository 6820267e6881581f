//! The commit of a flush, step by step as [`alluvium_core::commit`] says.
//!
//! Each turn looks at the newest version, has the next step judged on it, and writes the entry that
//! follows it. Whoever loses a version to another writer reads that writer's entry and starts over;
//! nothing that was checked on one version is ever written after another.

use crate::actions::{Add, EntryParts, NamedLetters, Operation, Transaction, entry, new_metadata};
use crate::error::Error;
use crate::load::LogState;
use crate::log::{Appended, TableLog};
use crate::protocol;
use crate::reader::{check, check_partition_columns};
use crate::replay::Replay;
use crate::schema;
use crate::sink::DeltaSink;
use crate::store::TableStore;
use crate::writer::DataFile;
use alluvium_core::commit::{Claim, Fit, Step, next_step};
use alluvium_core::seam::{Flush, Outcome};
use alluvium_core::{AppId, CommitInfo, CommitKind, Edge, PartitionProgress};
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
    pub(crate) async fn commit_uploaded(
        &self,
        rows: &mut TableLog,
        flush: &Flush<DataFile>,
        replay: Option<&Replay<'_>>,
    ) -> Result<Outcome, Error> {
        let mut attempts = Attempts::default();
        let mut encoded = None;
        let mut landed = None;
        loop {
            attempts.next(&rows.store).await?;
            self.refresh(rows).await?;
            let marks = self.marks(rows).await?;
            let moves = self.moves(rows.state(), flush, replay);
            let claims: Vec<Claim> = moves.iter().map(|(_, claim)| *claim).collect();
            match next_step(marks, &claims, || self.fit(rows.state(), flush))? {
                Step::Letters => {
                    self.write_owed(rows).await?;
                }
                Step::Growth(schema) => {
                    self.hook.before(Edge::Schema);
                    append_growth(rows, &flush.info, schema).await?;
                    self.hook.after(Edge::Schema);
                }
                Step::Rows => {
                    let letters = match replay {
                        Some(replay) => Some(self.name_replay(rows, flush, replay).await?),
                        None => self.name_letters(rows, flush, &mut encoded).await?,
                    };
                    if let Appended::Landed(version) = self.append(rows, flush, &moves, letters.as_ref()).await? {
                        if letters.is_none() {
                            return Ok(Outcome::Committed { version });
                        }
                        landed = Some(version);
                    }
                }
                Step::Done(outcome) => {
                    return Ok(landed.map_or(outcome, |version| Outcome::Committed { version }));
                }
            }
        }
    }

    /// Checks the state just read, and takes over what writers need of it.
    pub(crate) fn adopt(&self, rows: &TableLog) -> Result<(), Error> {
        let Some(state) = rows.state() else { return Ok(()) };
        check(&rows.store, state)?;
        check_partition_columns(&self.config, state)?;
        self.adopt_layout(state)
    }

    /// The transactions that a flush moves: its partitions' positions, or the number of its replay, which
    /// is judged like a position.
    fn moves(
        &self,
        state: Option<&LogState>,
        flush: &Flush<DataFile>,
        replay: Option<&Replay<'_>>,
    ) -> Vec<(AppId, Claim)> {
        let (pipeline, topic) = (&self.config.pipeline, &self.config.topic);
        let stored = |id: &AppId| state.and_then(|state| state.positions.get(id.as_str()).copied());
        if let Some(replay) = replay {
            let id = AppId::replay(pipeline, topic);
            return vec![(id.clone(), replay.chosen.claim(stored(&id)))];
        }
        let claim = |progress: &PartitionProgress| {
            let id = AppId::new(pipeline, topic, progress.partition);
            let (partition, span) = (progress.partition, progress.span);
            let (stored, may_be_absent) = (stored(&id), flush.absent.contains(&partition));
            (id, Claim { partition, span, stored, may_be_absent })
        };
        flush.info.partitions.iter().map(claim).collect()
    }

    /// How the rows fit; a table that is absent is created with all their columns, by their own entry.
    fn fit(&self, state: Option<&LogState>, flush: &Flush<DataFile>) -> Result<Fit<Value>, Error> {
        let Some(state) = state else { return Ok(Fit::Fits) };
        let columns = schema::columns(&flush.schema)?;
        let table = self.config.table.as_str();
        let schema = schema::parse(table, &state.metadata.schema_string)?;
        let filled = |name: &str| !flush.files.iter().any(|file| file.may_be_null(name));
        let empty = schema::left_empty(&schema, &flush.schema, filled).filter(|_| !flush.files.is_empty());
        let fit = schema::with_notes(schema::fit(&schema, &columns), &flush.schema);
        match (fit, empty) {
            (schema::Fit::Moved { column }, _) => Ok(Fit::Moved { column }),
            (schema::Fit::Unnameable { column }, _) => Err(Error::ColumnName { column }),
            (_, Some(column)) => Err(Error::NotNull { table: table.to_owned(), column }),
            (schema::Fit::Fits, None) => Ok(Fit::Fits),
            (schema::Fit::Grows(grown), None) => {
                let now = schema::arrow(table, &state.metadata.schema_string)?;
                let dropped = match self.planned() {
                    Some(planned) => schema::dropped(&flush.schema, &planned, &now)?,
                    None => None,
                };
                Ok(dropped.map_or(Fit::Grows(grown), |column| Fit::Moved { column }))
            }
        }
    }

    /// The schema of a table that is created for a flush.
    fn new_schema(&self, flush: &Flush<DataFile>) -> Result<Value, Error> {
        let columns = schema::columns(&flush.schema)?;
        let missing = |name: &&String| flush.schema.field_with_name(name).is_err();
        if let Some(column) = self.config.partition_by.iter().find(missing) {
            return Err(Error::PartitionColumnMissing { column: column.clone() });
        }
        match schema::with_notes(schema::fit_new(&columns), &flush.schema) {
            schema::Fit::Grows(schema) => Ok(schema),
            schema::Fit::Unnameable { column } => Err(Error::ColumnName { column }),
            schema::Fit::Fits | schema::Fit::Moved { .. } => Ok(schema::new_schema(&[])),
        }
    }

    /// Writes the entry of the rows, which names their dead letters. A table that is absent is created by
    /// the same entry.
    async fn append(
        &self,
        log: &mut TableLog,
        flush: &Flush<DataFile>,
        moves: &[(AppId, Claim)],
        letters: Option<&NamedLetters>,
    ) -> Result<Appended, Error> {
        let (pipeline, topic) = (&self.config.pipeline, &self.config.topic);
        let created = log.state().is_none().then(|| self.new_schema(flush)).transpose()?;
        let partition_by = &self.config.partition_by;
        let protocol = created.as_ref().map(protocol::of_new_table);
        let metadata = created.as_ref().map(|schema| new_metadata(schema.to_string(), partition_by));
        let position =
            |(id, claim): &(AppId, Claim)| Transaction { app_id: id.as_str().to_owned(), version: claim.span.to() };
        let mark = letters.map(|letters| Transaction {
            app_id: AppId::dead_letters(pipeline, topic).as_str().to_owned(),
            version: letters.mark,
        });
        let parts = EntryParts {
            protocol: protocol.as_ref(),
            metadata: metadata.as_ref(),
            files: flush.files.iter().map(Add::from).collect(),
            rows: flush.files.iter().map(DataFile::rows).sum(),
            letters,
            transactions: moves.iter().map(position).chain(mark).collect(),
            partition_by,
        };
        let entry = entry(&log.store.name, Operation::Write, &flush.info, &parts)?;
        self.hook.before(Edge::Commit);
        let appended = log.append(&entry).await?;
        self.hook.after(Edge::Commit);
        Ok(appended)
    }
}

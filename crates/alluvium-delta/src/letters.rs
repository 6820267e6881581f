//! Dead letters: a table of their own, which follows the rows' log.
//!
//! A flush's letters are encoded and uploaded first, then named by the entry of its rows, and only then
//! added to their table, by whoever finds that they are owed ([`alluvium_core::letters`]).

use crate::actions::{Add, EntryParts, NamedLetters, Operation, Transaction, entry, named_letters, new_metadata};
use crate::commit::{Attempts, append_growth};
use crate::config::DeltaConfig;
use crate::error::Error;
use crate::letter_rows::{self, fields, letter_batches};
use crate::letter_scan::{LetterFilter, standings};
use crate::load::LogState;
use crate::log::{Appended, TableLog, read_entry};
use crate::protocol;
use crate::reader::check;
use crate::schema::{self, Fit};
use crate::sink::DeltaSink;
use crate::store::TableStore;
use crate::upload::upload;
use crate::writer::{DataFile, DeltaFileWriter, Layout};
use alluvium_core::letters::{Marks, in_doubt, missing};
use alluvium_core::seam::{Flush, RowWriter};
use alluvium_core::{AppId, CommitInfo, CommitKind, Counts, DeadLetter, Edge, Partition, PartitionProgress, Place};
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// The letters of a flush that were encoded for their table, by their index, with their numbers.
pub(crate) type Encoded = Option<(Vec<(usize, i64)>, Vec<DataFile>)>;

impl DeltaSink {
    /// How far the dead letters are, by the rows' log as it was just read and the newest letters'.
    pub(crate) async fn marks(&self, rows: &TableLog) -> Result<Marks, Error> {
        let named = self.mark(rows);
        let mut log = self.letters.lock().await;
        // Marks only rise: what was written when the log was read last is written now.
        if (Marks { named, written: self.mark(&log) }).owed().is_some() {
            log.refresh().await?;
        }
        Ok(Marks { named, written: self.mark(&log) })
    }

    fn mark(&self, log: &TableLog) -> Option<i64> {
        let id = AppId::dead_letters(&self.config.pipeline, &self.config.topic);
        log.state()?.positions.get(id.as_str()).copied()
    }

    /// Encodes and uploads the letters of a flush that their table does not hold, for the rows' entry to
    /// name them; `None` when there are none. Refuses a table that could not take them afterwards.
    pub(crate) async fn name_letters(
        &self,
        rows: &TableLog,
        flush: &Flush<DataFile>,
        encoded: &mut Encoded,
    ) -> Result<Option<NamedLetters>, Error> {
        let (letters, info) = (flush.dead_letters.as_slice(), &flush.info);
        if letters.is_empty() {
            return Ok(None);
        }
        let mut log = self.letters.lock().await;
        log.refresh().await?;
        grown(&log)?;
        let missing = self.missing_letters(&log, letters).await?;
        if missing.is_empty() {
            return Ok(None);
        }
        let files = match encoded.take() {
            Some((indices, files)) if indices == missing => files,
            _ => {
                let numbered = missing.iter().filter_map(|(index, number)| Some((letters.get(*index)?, *number)));
                let batches = letter_batches(&self.config, &numbered.collect::<Vec<_>>());
                self.encode_letters(&log, batches).await?
            }
        };
        let (missing, files) = encoded.insert((missing, files));
        upload(&log.store, files, &self.hook).await?;
        let mut counts: BTreeMap<Partition, u64> = BTreeMap::new();
        for letter in missing.iter().filter_map(|(index, _)| letters.get(*index)) {
            *counts.entry(letter.partition).or_default() += 1;
        }
        let progress = |progress: &PartitionProgress| {
            let rejected = *counts.get(&progress.partition)?;
            let counts = Counts { read: rejected, rejected, ..Counts::default() };
            Some(PartitionProgress { counts, ..progress.clone() })
        };
        let partitions = info.partitions.iter().filter_map(progress).collect();
        let mark = self.next_mark(rows, &log);
        Ok(Some(NamedLetters { mark, partitions, files: files.iter().map(Add::from).collect() }))
    }

    /// The mark of an entry of the rows' log that names letters and is written next.
    pub(crate) fn next_mark(&self, rows: &TableLog, letters: &TableLog) -> i64 {
        let version = rows.state().map_or(0, |state| i64::try_from(state.version + 1).unwrap_or(i64::MAX));
        Marks { named: self.mark(rows), written: self.mark(letters) }.next(version)
    }

    async fn missing_letters(&self, log: &TableLog, letters: &[DeadLetter]) -> Result<Vec<(usize, i64)>, Error> {
        let places = || letters.iter().map(|letter| (letter.partition, letter.offset));
        let stored = |partition| stored(log.state(), &self.config, partition);
        let present = match in_doubt(places(), stored) {
            Some(oldest) => standings(&log.store, None, &self.config, &LetterFilter::default(), oldest).await?,
            None => HashMap::new(),
        };
        let standing = |place: Place| present.get(&place).map(|entry| entry.standing).unwrap_or_default();
        let missing = missing(places(), |place| standing(place).is_open());
        let place = |index: usize| letters.get(index).map(|letter| (letter.partition, letter.offset));
        Ok(missing.into_iter().filter_map(|index| Some((index, standing(place(index)?).next_letter()))).collect())
    }

    /// Encodes rows of the letters' table.
    pub(crate) async fn encode_letters(
        &self,
        log: &TableLog,
        batches: Result<Vec<RecordBatch>, ArrowError>,
    ) -> Result<Vec<DataFile>, Error> {
        let batches = batches.map_err(|source| Error::DeadLetterRows { source })?;
        let partition_by = log.state().map(|state| state.metadata.partition_columns.clone()).unwrap_or_default();
        let layout = Layout { partition_by, file_size: self.config.file_size, ..Layout::default() };
        let encode = move || {
            let mut writer = DeltaFileWriter::new(letter_rows::schema(), layout)?;
            batches.iter().try_for_each(|batch| writer.write(batch))?;
            writer.finish()
        };
        let table = log.store.table();
        tokio::task::spawn_blocking(encode).await.map_err(|source| Error::Worker { table, source })?
    }

    /// Writes the letters that the rows' log owes, if it does; true when it did.
    pub(crate) async fn write_owed(&self, rows: &TableLog) -> Result<bool, Error> {
        let Some(mark) = self.marks(rows).await?.owed() else { return Ok(false) };
        let (info, letters) = find_named(rows, mark).await?;
        let info = CommitInfo { kind: CommitKind::DeadLetters, partitions: letters.partitions.clone(), ..info };
        let mut log = self.letters.lock().await;
        check_files(&log.store, &letters).await?;
        let mut attempts = Attempts::default();
        loop {
            attempts.next(&log.store).await?;
            log.refresh().await?;
            if (Marks { named: Some(mark), written: self.mark(&log) }).owed().is_none() {
                return Ok(true);
            }
            if let Some(schema) = grown(&log)? {
                append_growth(&mut log, &info, schema).await?;
                continue;
            }
            if let Appended::Landed(_) = self.append_letters(&mut log, &info, &letters).await? {
                if let Some(state) = log.state() {
                    self.letters_maintenance.after_commit(&log.store, state, &self.hook);
                }
                return Ok(true);
            }
        }
    }

    async fn append_letters(
        &self,
        log: &mut TableLog,
        info: &CommitInfo,
        letters: &NamedLetters,
    ) -> Result<Appended, Error> {
        let (pipeline, topic) = (&self.config.pipeline, &self.config.topic);
        let position = |progress: &PartitionProgress| Transaction {
            app_id: AppId::new(pipeline, topic, progress.partition).as_str().to_owned(),
            // Never back: up to there, letters may be in the table.
            version: stored(log.state(), &self.config, progress.partition)
                .map_or(progress.span.to(), |stored| stored.max(progress.span.to())),
        };
        let app_id = AppId::dead_letters(pipeline, topic).as_str().to_owned();
        let mark = Transaction { app_id, version: letters.mark };
        let created = log.state().is_none().then(|| schema::new_schema(&fields()));
        let (protocol, metadata) = match &created {
            Some(schema) => (Some(protocol::of_new_table(schema)), Some(new_metadata(schema.to_string(), &[]))),
            None => (None, None),
        };
        let parts = EntryParts {
            protocol: protocol.as_ref(),
            metadata: metadata.as_ref(),
            files: letters.files.clone(),
            rows: info.letter_rows(),
            letters: None,
            transactions: letters.partitions.iter().map(position).chain([mark]).collect(),
            partition_by: &[],
        };
        let entry = entry(&log.store.name, Operation::Write, info, &parts)?;
        self.hook.before(Edge::DeadLetters);
        let appended = log.append(&entry).await?;
        self.hook.after(Edge::DeadLetters);
        Ok(appended)
    }
}

/// Checks that the dead letters' table may be written; the schema that it must grow to first, if it must.
pub(crate) fn grown(log: &TableLog) -> Result<Option<Value>, Error> {
    let Some(state) = log.state() else { return Ok(None) };
    check(&log.store, state)?;
    let table = log.store.table();
    let columns = schema::parse(&table, &state.metadata.schema_string)?;
    match schema::fit(&columns, &fields()) {
        Fit::Fits => Ok(None),
        Fit::Grows(grown) => Ok(Some(grown)),
        Fit::Moved { column } | Fit::Unnameable { column } => Err(Error::DeadLettersSchema { table, column }),
    }
}

/// The letters of a mark, from the entry that names them. It is the newest of this pipeline: while
/// letters are owed, none is written after it.
async fn find_named(rows: &TableLog, mark: i64) -> Result<(CommitInfo, NamedLetters), Error> {
    let newest = rows.state().map_or(0, |state| state.version);
    for version in (0..=newest).rev() {
        let Some((entry, _)) = read_entry(&rows.store, version).await? else {
            let missing = format!("version {version} of its log");
            return Err(Error::LettersGone { table: rows.store.table(), mark, missing });
        };
        if let Some(found) = named_letters(&entry).filter(|(_, letters)| letters.mark == mark) {
            return Ok(found);
        }
    }
    Err(Error::LettersGone { table: rows.store.table(), mark, missing: "the log entry that names them".to_owned() })
}

/// Checks that files which nothing names but an entry of another table are still there: a table with a
/// missing file cannot be read any more.
async fn check_files(store: &TableStore, letters: &NamedLetters) -> Result<(), Error> {
    let (table, mark) = (store.table(), letters.mark);
    for Add { path, .. } in &letters.files {
        let found = match Path::from_url_path(path) {
            Ok(parsed) => store.store.head(&parsed).await,
            Err(source) => return Err(Error::FilePath { table, path: path.clone(), source }),
        };
        match found {
            Ok(_) => {}
            Err(object_store::Error::NotFound { .. }) => {
                return Err(Error::LettersGone { table, mark, missing: format!("their file {path}") });
            }
            Err(source) => return Err(Error::LettersFile { table, path: path.clone(), source }),
        }
    }
    Ok(())
}

fn stored(state: Option<&LogState>, config: &DeltaConfig, partition: Partition) -> Option<i64> {
    let id = AppId::new(&config.pipeline, &config.topic, partition);
    state?.positions.get(id.as_str()).copied()
}

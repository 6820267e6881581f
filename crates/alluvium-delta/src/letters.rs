//! Dead letters: a table of their own, which follows the rows' log.
//!
//! A flush's letters are encoded and uploaded first, then named by the entry of its rows, and only then
//! added to their table, by whoever finds that they are owed ([`alluvium_core::letters`]).

use crate::actions::{Add, EntryParts, NamedLetters, Operation, Transaction, entry, named_letters, new_metadata};
use crate::commit::{Attempts, append_growth};
use crate::config::DeltaConfig;
use crate::error::Error;
use crate::load::LogState;
use crate::log::{Appended, TableLog, read_entry};
use crate::protocol;
use crate::reader::check;
use crate::scan::letters_from;
use crate::schema::{self, Fit};
use crate::sink::DeltaSink;
use crate::store::TableStore;
use crate::upload::upload;
use crate::writer::{DataFile, DeltaFileWriter, Layout};
use alluvium_core::chunk::{NO_TIMESTAMP, decode_headers};
use alluvium_core::data_type::Field;
use alluvium_core::letters::{Marks, Place, in_doubt, missing};
use alluvium_core::seam::{Flush, RowWriter};
use alluvium_core::{AppId, CommitInfo, CommitKind, Counts, DataType, DeadLetter, Partition, PartitionProgress};
use arrow_array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType as ArrowType, Schema, SchemaRef};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Bytes of letters put into one batch.
const BATCH_BYTES: usize = 32 * 1024 * 1024;

/// The letters of a flush that were encoded for their table, by their index.
pub(crate) type Encoded = Option<(Vec<usize>, Vec<DataFile>)>;

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
            _ => self.encode_letters(&log, missing.iter().filter_map(|index| letters.get(*index))).await?,
        };
        let (missing, files) = encoded.insert((missing, files));
        upload(&log.store, files).await?;
        let mut counts: BTreeMap<Partition, u64> = BTreeMap::new();
        for letter in missing.iter().filter_map(|index| letters.get(*index)) {
            *counts.entry(letter.partition).or_default() += 1;
        }
        let progress = |progress: &PartitionProgress| {
            let rejected = *counts.get(&progress.partition)?;
            let counts = Counts { read: rejected, rejected, ..Counts::default() };
            Some(PartitionProgress { counts, ..progress.clone() })
        };
        let partitions = info.partitions.iter().filter_map(progress).collect();
        let version = rows.state().map_or(0, |state| i64::try_from(state.version + 1).unwrap_or(i64::MAX));
        let mark = Marks { named: self.mark(rows), written: self.mark(&log) }.next(version);
        Ok(Some(NamedLetters { mark, partitions, files: files.iter().map(Add::from).collect() }))
    }

    async fn missing_letters(&self, log: &TableLog, letters: &[DeadLetter]) -> Result<Vec<usize>, Error> {
        let places = || letters.iter().map(|letter| (letter.partition, letter.offset));
        let stored = |partition| stored(log.state(), &self.config, partition);
        let present: HashSet<Place> = match in_doubt(places(), stored) {
            Some(oldest) => letters_from(&log.store, &self.config, oldest).await?,
            None => HashSet::new(),
        };
        Ok(missing(places(), |place| present.contains(&place)))
    }

    async fn encode_letters<'a>(
        &self,
        log: &TableLog,
        letters: impl Iterator<Item = &'a DeadLetter>,
    ) -> Result<Vec<DataFile>, Error> {
        let batches = batches(&self.config, letters).map_err(|source| Error::DeadLetterRows { source })?;
        let partition_by = log.state().map(|state| state.metadata.partition_columns.clone()).unwrap_or_default();
        let layout = Layout { partition_by, file_size: self.config.file_size, ..Layout::default() };
        let encode = move || {
            let mut writer = DeltaFileWriter::new(schema(), layout)?;
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
                    self.letters_maintenance.after_commit(&log.store, state);
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
            rows: letters.partitions.iter().map(|progress| progress.counts.rejected).sum(),
            letters: None,
            transactions: letters.partitions.iter().map(position).chain([mark]).collect(),
            partition_by: &[],
        };
        let entry = entry(&log.store.name, Operation::Write, info, &parts)?;
        self.hooks.at("dead-letters:before");
        let appended = log.append(&entry).await?;
        self.hooks.at("dead-letters:after");
        Ok(appended)
    }
}

/// Checks that the dead letters' table may be written; the schema that it must grow to first, if it must.
fn grown(log: &TableLog) -> Result<Option<Value>, Error> {
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

/// The columns of the dead letters' table.
fn fields() -> Vec<Field> {
    let field = |name: &str, data_type| Field { name: name.to_owned(), data_type };
    let header = DataType::Struct(vec![field("key", DataType::String), field("value", DataType::Binary)]);
    vec![
        field("topic", DataType::String),
        field("partition", DataType::Int),
        field("offset", DataType::BigInt),
        field("timestamp", DataType::Timestamp),
        field("key", DataType::Binary),
        field("value", DataType::Binary),
        field("headers", DataType::Array(Box::new(header))),
        field("stage", DataType::String),
        field("reason", DataType::String),
        field("message", DataType::String),
        field("plugin", DataType::String),
        // Several pipelines may share the table.
        field("pipeline", DataType::String),
        field("generation", DataType::Int),
    ]
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(fields().iter().map(Field::to_arrow).collect::<Vec<_>>()))
}

fn batches<'a>(
    config: &DeltaConfig,
    letters: impl Iterator<Item = &'a DeadLetter>,
) -> Result<Vec<RecordBatch>, ArrowError> {
    let (mut batches, mut pending, mut bytes) = (Vec::new(), Vec::new(), 0);
    for letter in letters {
        bytes += letter.memory();
        pending.push(letter);
        if bytes >= BATCH_BYTES {
            batches.push(batch(config, &pending)?);
            (pending, bytes) = (Vec::new(), 0);
        }
    }
    if !pending.is_empty() {
        batches.push(batch(config, &pending)?);
    }
    Ok(batches)
}

fn batch(config: &DeltaConfig, letters: &[&DeadLetter]) -> Result<RecordBatch, ArrowError> {
    let constant = |text: &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(letters.iter().map(|_| text))) };
    let text = |part: fn(&DeadLetter) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(letters.iter().map(|letter| part(letter))))
    };
    let binary = |part: fn(&DeadLetter) -> Option<&[u8]>| -> ArrayRef {
        Arc::new(BinaryArray::from_iter(letters.iter().map(|letter| part(letter))))
    };
    let timestamps = letters.iter().map(|letter| {
        let known = (letter.timestamp != NO_TIMESTAMP).then_some(letter.timestamp);
        known.and_then(|ms| ms.checked_mul(1000))
    });
    let generation = i32::try_from(config.pipeline.generation()).unwrap_or(i32::MAX);
    let columns: Vec<ArrayRef> = vec![
        constant(&config.topic),
        Arc::new(Int32Array::from_iter_values(letters.iter().map(|letter| letter.partition.0))),
        Arc::new(Int64Array::from_iter_values(letters.iter().map(|letter| letter.offset))),
        Arc::new(timestamps.collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        binary(|letter| letter.key.as_deref()),
        binary(|letter| letter.value.as_deref()),
        headers(letters)?,
        text(|letter| letter.stage.to_string()),
        text(|letter| letter.reason.code.to_owned()),
        text(|letter| letter.reason.message.clone()),
        Arc::new(StringArray::from_iter(letters.iter().map(|letter| letter.plugin.as_deref()))),
        constant(&config.pipeline.to_string()),
        Arc::new(Int32Array::from_iter_values(letters.iter().map(|_| generation))),
    ];
    RecordBatch::try_new(schema(), columns)
}

fn headers(letters: &[&DeadLetter]) -> Result<ArrayRef, ArrowError> {
    let (mut keys, mut values, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    for letter in letters {
        let headers = letter.headers.as_deref().map(decode_headers).unwrap_or_default();
        lengths.push(headers.len());
        for header in headers {
            keys.push(header.key);
            values.push(header.value);
        }
    }
    let schema = schema();
    let field = schema.field_with_name("headers")?;
    let ArrowType::List(element) = field.data_type() else {
        return Err(ArrowError::SchemaError("headers are a list".to_owned()));
    };
    let ArrowType::Struct(inner) = element.data_type() else {
        return Err(ArrowError::SchemaError("a header is a struct".to_owned()));
    };
    let columns: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from_iter_values(keys)), Arc::new(BinaryArray::from_iter(values))];
    let structs = StructArray::try_new(inner.clone(), columns, None)?;
    let nulls = NullBuffer::from_iter(letters.iter().map(|letter| letter.headers.is_some()));
    let list =
        ListArray::try_new(element.clone(), OffsetBuffer::from_lengths(lengths), Arc::new(structs), Some(nulls))?;
    Ok(Arc::new(list))
}

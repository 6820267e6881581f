//! Dead letters: a table of their own, committed before the rows of the same spans.
//!
//! A letter is committed once. When the stored position says that a span's letters may have landed
//! before (a crash between this commit and the rows'), the table itself is asked which did: a plugin
//! that timed out the first time need not the second, so the position alone could drop a letter.

use crate::actions::{EntryParts, Operation, Transaction, entry, new_metadata};
use crate::commit::{Attempts, append_growth};
use crate::config::DeltaConfig;
use crate::error::Error;
use crate::load::LogState;
use crate::log::{Appended, TableLog};
use crate::protocol;
use crate::reader::check;
use crate::scan::letters_from;
use crate::schema::{self, Fit};
use crate::sink::Hooks;
use crate::upload::upload;
use crate::writer::{DataFile, DeltaFileWriter, Layout};
use alluvium_core::chunk::{NO_TIMESTAMP, decode_headers};
use alluvium_core::data_type::Field;
use alluvium_core::seam::RowWriter;
use alluvium_core::{AppId, CommitInfo, CommitKind, Counts, DataType, DeadLetter, Partition, PartitionProgress};
use arrow_array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType as ArrowType, Schema, SchemaRef};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Bytes of letters put into one batch.
const BATCH_BYTES: usize = 32 * 1024 * 1024;

/// The dead letters of a flush on their way into their table.
pub(crate) struct Letters<'a> {
    pub config: &'a DeltaConfig,
    pub hooks: &'a Hooks,
    pub info: &'a CommitInfo,
    pub letters: &'a [DeadLetter],
}

impl Letters<'_> {
    /// Commits the letters that are not in the table yet.
    pub(crate) async fn commit(&self, log: &mut TableLog) -> Result<(), Error> {
        let mut encoded: Option<(Vec<usize>, Vec<DataFile>)> = None;
        let mut attempts = Attempts::default();
        loop {
            attempts.next(&log.store).await?;
            log.refresh().await?;
            if !self.prepare(log).await? {
                continue;
            }
            let missing = self.missing(log).await?;
            if missing.is_empty() {
                return Ok(());
            }
            let files = match encoded.take() {
                Some((indices, files)) if indices == missing => files,
                _ => self.encode(log, &missing).await?,
            };
            let (_, files) = encoded.insert((missing, files));
            upload(&log.store, files).await?;
            let appended = self.append(log, encoded.as_ref()).await?;
            if let Appended::Landed(_) = appended {
                return Ok(());
            }
        }
    }

    /// Checks that the table may be written and has all columns; false when another writer was faster.
    async fn prepare(&self, log: &mut TableLog) -> Result<bool, Error> {
        let Some(state) = log.state() else { return Ok(true) };
        check(&log.store, state)?;
        let table = log.store.table();
        let columns = schema::parse(&table, &state.metadata.schema_string)?;
        match schema::fit(&columns, &fields()) {
            Fit::Fits => Ok(true),
            Fit::Grows(grown) => Ok(append_growth(log, self.info, grown).await? != Appended::Lost),
            Fit::Moved { column } | Fit::Unnameable { column } => Err(Error::DeadLettersSchema { table, column }),
        }
    }

    /// The letters that the table does not hold, by their index.
    async fn missing(&self, log: &TableLog) -> Result<Vec<usize>, Error> {
        let before = |letter: &&DeadLetter| {
            stored(log.state(), self.config, letter.partition).is_some_and(|stored| letter.offset < stored)
        };
        let oldest = self.letters.iter().filter(before).map(|letter| letter.offset).min();
        let present: HashSet<(Partition, i64)> = match oldest {
            Some(oldest) => letters_from(&log.store, self.config, oldest).await?,
            None => HashSet::new(),
        };
        let is_missing = |letter: &DeadLetter| !present.contains(&(letter.partition, letter.offset));
        let letters = self.letters.iter().enumerate();
        Ok(letters.filter(|(_, letter)| is_missing(letter)).map(|(index, _)| index).collect())
    }

    fn of<'a>(&'a self, indices: &'a [usize]) -> impl Iterator<Item = &'a DeadLetter> {
        indices.iter().filter_map(|index| self.letters.get(*index))
    }

    async fn encode(&self, log: &TableLog, indices: &[usize]) -> Result<Vec<DataFile>, Error> {
        let batches = batches(self.config, self.of(indices)).map_err(|source| Error::DeadLetterRows { source })?;
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

    async fn append(
        &self,
        log: &mut TableLog,
        encoded: Option<&(Vec<usize>, Vec<DataFile>)>,
    ) -> Result<Appended, Error> {
        let Some((indices, files)) = encoded else { return Ok(Appended::Lost) };
        let mut counts: BTreeMap<Partition, u64> = BTreeMap::new();
        for letter in self.of(indices) {
            *counts.entry(letter.partition).or_default() += 1;
        }
        let progress = |progress: &&PartitionProgress| counts.contains_key(&progress.partition);
        let partitions = self.info.partitions.iter().filter(progress).map(|progress| {
            let rejected = counts.get(&progress.partition).copied().unwrap_or_default();
            PartitionProgress { counts: Counts { read: rejected, rejected, ..Counts::default() }, ..progress.clone() }
        });
        let info = CommitInfo { kind: CommitKind::DeadLetters, partitions: partitions.collect(), ..self.info.clone() };
        let transactions = info.partitions.iter().map(|progress| Transaction {
            app_id: AppId::new(&self.config.pipeline, &self.config.topic, progress.partition).as_str().to_owned(),
            // Never back: a position may already lie past this flush, whose letters are late.
            version: stored(log.state(), self.config, progress.partition)
                .map_or(progress.span.to(), |stored| stored.max(progress.span.to())),
        });
        let created = log.state().is_none().then(|| schema::new_schema(&fields()));
        let (protocol, metadata) = match &created {
            Some(schema) => (Some(protocol::of_new_table(schema)), Some(new_metadata(schema.to_string(), &[]))),
            None => (None, None),
        };
        let parts = EntryParts {
            protocol: protocol.as_ref(),
            metadata: metadata.as_ref(),
            files: &files.iter().collect::<Vec<_>>(),
            transactions: transactions.collect(),
            partition_by: &[],
        };
        let entry = entry(&log.store.name, Operation::Write, &info, &parts)?;
        self.hooks.at("dead-letters:before");
        let appended = log.append(&entry).await?;
        self.hooks.at("dead-letters:after");
        Ok(appended)
    }
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

//! Reading the tables: their history, some of their rows, and one column of all.

use crate::actions::{Line, Transaction, lines};
use crate::config::DeltaConfig;
use crate::error::Error;
use crate::load::{LOG, LogFile, with_snapshot};
use crate::log::read_entry;
use crate::sink::{DeltaSink, TableRole};
use crate::store::TableStore;
use alluvium_core::audit::LogEntry;
use alluvium_core::{CommitInfo, Partition};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;
use arrow_select::concat::concat_batches;
use buoyant_kernel as kernel;
use futures::{StreamExt, TryStreamExt, stream};
use kernel::engine::arrow_data::ArrowEngineData;
use kernel::expressions::{ColumnName, Expression, Predicate};
use kernel::schema::{DataType, StructField, StructType};
use kernel::{Engine, SnapshotRef};
use object_store::path::Path;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Log entries read at the same time.
const ENTRIES_AT_ONCE: usize = 16;
/// Batches of a scan that may wait to be taken.
const BATCHES_AHEAD: usize = 4;

/// A commit, as the table's log has it.
#[derive(Clone, Debug)]
pub struct Commit {
    /// What the audit needs of it.
    pub entry: LogEntry,
    /// Milliseconds since the epoch, as its writer says.
    pub timestamp: Option<i64>,
    pub operation: Option<String>,
    pub adds: Vec<FileChange>,
    pub removes: Vec<FileChange>,
}

/// A data file that a commit added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub path: String,
    /// False when the rows are only laid out anew.
    pub data_change: bool,
    pub rows: Option<u64>,
    pub bytes: Option<u64>,
}

/// Where a row came from, as the pipeline's metadata column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KafkaRow {
    pub partition: Partition,
    pub offset: i64,
    /// The number of the row among those of its record; `None` when the column has no such field.
    pub row: Option<i32>,
}

/// A scan of the metadata column of all active files, batch by batch.
#[derive(Debug)]
pub struct KafkaScan {
    batches: mpsc::Receiver<Result<Vec<KafkaRow>, Error>>,
    worker: Option<JoinHandle<Result<(), Error>>>,
    table: String,
}

impl KafkaScan {
    /// The next rows, in no order; `None` after the last.
    pub async fn next(&mut self) -> Option<Result<Vec<KafkaRow>, Error>> {
        if let Some(batch) = self.batches.recv().await {
            return Some(batch);
        }
        match self.worker.take()?.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Err(error)),
            Err(source) => Some(Err(Error::Worker { table: self.table.clone(), source })),
        }
    }
}

impl DeltaSink {
    /// Every commit that the table's log still holds, oldest first; empty when there is no table.
    pub async fn history(&self, role: TableRole) -> Result<Vec<Commit>, Error> {
        let store = self.store(role);
        let commits = stream::iter(versions(store).await?).map(|version| commit(store, version));
        commits.buffered(ENTRIES_AT_ONCE).try_filter_map(async |commit| Ok(commit)).try_collect().await
    }

    /// Up to `limit` rows of a table, the newest files' first, with these columns or all. A batch
    /// without columns when there is no table.
    pub async fn first_rows(
        &self,
        role: TableRole,
        columns: Option<&[String]>,
        limit: usize,
    ) -> Result<RecordBatch, Error> {
        let store = self.store(role);
        if versions(store).await?.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::new(Schema::empty())));
        }
        let wanted = columns.map(<[String]>::to_vec);
        let table = store.table();
        let scanned = with_snapshot(store, move |snapshot, engine| {
            let schema = match &wanted {
                Some(names) => match names.iter().find(|name| !snapshot.schema().contains(name)) {
                    Some(column) => return Ok(Err(Error::NoColumn { table, column: column.clone() })),
                    None => snapshot.schema().project(names)?,
                },
                None => snapshot.schema(),
            };
            first_rows(snapshot, engine, schema, limit).map(Ok)
        });
        scanned.await?
    }

    /// Reads where every row of the table came from. `column` is the pipeline's metadata column, a
    /// struct of partition, offset and perhaps row.
    pub async fn scan_kafka_column(&self, column: &str) -> Result<KafkaScan, Error> {
        let store = self.store(TableRole::Rows).clone();
        let table = store.table();
        let (send, batches) = mpsc::channel(BATCHES_AHEAD);
        if versions(&store).await?.is_empty() {
            return Ok(KafkaScan { batches, worker: None, table });
        }
        let column = column.to_owned();
        let worker = tokio::spawn(async move {
            let table = store.table();
            let scanned = with_snapshot(&store, move |snapshot, engine| {
                let Some(schema) = kafka_schema(&snapshot.schema(), &column)? else {
                    return Ok(Err(Error::KafkaColumn { table, column }));
                };
                for batch in scan(snapshot, engine, Arc::new(schema), None)? {
                    let Some(rows) = kafka_rows(&batch?) else {
                        return Ok(Err(Error::KafkaColumn { table, column }));
                    };
                    // Nobody is listening any more.
                    if send.blocking_send(Ok(rows)).is_err() {
                        break;
                    }
                }
                Ok(Ok(()))
            });
            scanned.await?
        });
        Ok(KafkaScan { batches, worker: Some(worker), table })
    }
}

/// Offsets from `oldest` on of the pipeline's letters in the dead letters' table.
pub(crate) async fn letters_from(
    store: &TableStore,
    config: &DeltaConfig,
    oldest: i64,
) -> Result<HashSet<(Partition, i64)>, Error> {
    let (pipeline, topic) = (config.pipeline.to_string(), config.topic.clone());
    let generation = i32::try_from(config.pipeline.generation()).unwrap_or(i32::MAX);
    with_snapshot(store, move |snapshot, engine| {
        let schema = snapshot.schema().project(&["pipeline", "topic", "generation", "partition", "offset"])?;
        let mut found = HashSet::new();
        for batch in scan(snapshot, engine, schema, Some(oldest))? {
            let batch = batch?;
            let text = |index: usize| batch.column(index).as_string_opt::<i32>();
            let number = |index: usize| batch.column(index).as_primitive_opt::<Int32Type>();
            let offsets = batch.column(4).as_primitive_opt::<Int64Type>();
            let columns = (text(0), text(1), number(2), number(3), offsets);
            let (Some(pipelines), Some(topics), Some(generations), Some(partitions), Some(offsets)) = columns else {
                return Err(kernel::Error::generic("columns of the dead letters have other types than their schema"));
            };
            for row in 0..batch.num_rows() {
                let own = pipelines.value(row) == pipeline && topics.value(row) == topic;
                if own && generations.value(row) == generation && offsets.value(row) >= oldest {
                    found.insert((Partition(partitions.value(row)), offsets.value(row)));
                }
            }
        }
        Ok(found)
    })
    .await
}

type Batches = Box<dyn Iterator<Item = kernel::DeltaResult<RecordBatch>>>;

/// All rows of a snapshot. With `oldest`, files whose offsets all lie below may be left out.
fn scan(
    snapshot: SnapshotRef,
    engine: Arc<dyn Engine>,
    schema: Arc<StructType>,
    oldest: Option<i64>,
) -> kernel::DeltaResult<Batches> {
    let recent = oldest.map(|oldest| {
        let offset = Expression::from(ColumnName::new(["offset"]));
        Arc::new(Predicate::ge(offset, Expression::literal(oldest)))
    });
    let scan = snapshot.scan_builder().with_schema(schema).with_predicate(recent).build()?;
    let data = scan.execute(engine)?;
    Ok(Box::new(data.map(|data| Ok(ArrowEngineData::try_from_engine_data(data?)?.into()))))
}

fn first_rows(
    snapshot: SnapshotRef,
    engine: Arc<dyn Engine>,
    schema: Arc<StructType>,
    limit: usize,
) -> kernel::DeltaResult<RecordBatch> {
    use kernel::engine::arrow_conversion::TryIntoArrow;
    let arrow: Schema = schema.as_ref().try_into_arrow()?;
    let (mut batches, mut rest) = (Vec::new(), limit);
    if rest > 0 {
        for batch in scan(snapshot, engine, schema, None)? {
            let batch = batch?;
            let batch = batch.slice(0, batch.num_rows().min(rest));
            rest -= batch.num_rows();
            batches.push(batch);
            if rest == 0 {
                break;
            }
        }
    }
    let schema = batches.first().map_or_else(|| Arc::new(arrow), RecordBatch::schema);
    if schema.fields().is_empty() {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        return Ok(RecordBatch::try_new_with_options(schema, Vec::new(), &options)?);
    }
    Ok(concat_batches(&schema, &batches)?)
}

/// The part of a table's schema that tells where rows came from.
fn kafka_schema(table: &StructType, column: &str) -> kernel::DeltaResult<Option<StructType>> {
    let Some(field) = table.field(column) else { return Ok(None) };
    let DataType::Struct(inner) = field.data_type() else { return Ok(None) };
    let wanted = [("partition", DataType::INTEGER), ("offset", DataType::LONG), ("row", DataType::INTEGER)];
    let there =
        |(name, data_type): &(&str, DataType)| inner.field(name).is_some_and(|field| field.data_type() == data_type);
    let fields: Vec<StructField> =
        wanted.iter().filter(|wanted| there(wanted)).filter_map(|(name, _)| inner.field(name).cloned()).collect();
    if !fields.iter().any(|field| field.name() == "partition") || !fields.iter().any(|field| field.name() == "offset") {
        return Ok(None);
    }
    let inner = StructType::try_new(fields)?;
    let field = StructField::new(field.name().clone(), DataType::from(inner), field.is_nullable());
    StructType::try_new([field]).map(Some)
}

/// The rows of a batch of one metadata column; rows without one are left out.
fn kafka_rows(batch: &RecordBatch) -> Option<Vec<KafkaRow>> {
    let column = batch.columns().first()?.as_struct_opt()?;
    let partitions = column.column_by_name("partition")?.as_primitive_opt::<Int32Type>()?;
    let offsets = column.column_by_name("offset")?.as_primitive_opt::<Int64Type>()?;
    let numbers = match column.column_by_name("row") {
        Some(numbers) => Some(numbers.as_primitive_opt::<Int32Type>()?),
        None => None,
    };
    let there = |row: &usize| column.is_valid(*row) && partitions.is_valid(*row) && offsets.is_valid(*row);
    let row = |row: usize| KafkaRow {
        partition: Partition(partitions.value(row)),
        offset: offsets.value(row),
        row: numbers.filter(|numbers| numbers.is_valid(row)).map(|numbers| numbers.value(row)),
    };
    Some((0..column.len()).filter(there).map(row).collect())
}

/// The versions whose entries are still in the log, in order.
async fn versions(store: &TableStore) -> Result<Vec<u64>, Error> {
    let list = |source| Error::ListLog { table: store.table(), source };
    let files = store.store.list(Some(&Path::from(LOG))).map_err(list);
    let entries = files.try_filter_map(async |meta| {
        Ok(match LogFile::parse(&meta.location) {
            Some(LogFile::Entry(version)) => Some(version),
            _ => None,
        })
    });
    let mut versions: Vec<u64> = entries.try_collect().await?;
    versions.sort_unstable();
    Ok(versions)
}

/// One line of a log entry, with what a history shows.
#[derive(Debug, Deserialize)]
struct HistoryLine {
    add: Option<FileLine>,
    remove: Option<FileLine>,
    #[serde(flatten)]
    line: Line,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileLine {
    path: String,
    #[serde(default)]
    data_change: bool,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    stats: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RowCount {
    num_records: Option<u64>,
}

impl From<FileLine> for FileChange {
    fn from(line: FileLine) -> Self {
        let stats = line.stats.as_deref().and_then(|stats| serde_json::from_str::<RowCount>(stats).ok());
        let rows = stats.and_then(|stats| stats.num_records);
        Self { path: line.path, data_change: line.data_change, rows, bytes: line.size }
    }
}

/// A commit; `None` when its entry was cleaned up meanwhile.
async fn commit(store: &TableStore, version: u64) -> Result<Option<Commit>, Error> {
    let Some((bytes, _)) = read_entry(store, version).await? else { return Ok(None) };
    let mut commit = Commit {
        entry: LogEntry { version, ..LogEntry::default() },
        timestamp: None,
        operation: None,
        adds: Vec::new(),
        removes: Vec::new(),
    };
    for line in lines::<HistoryLine>(&bytes) {
        let line = line.map_err(|source| Error::ParseLog { table: store.table(), version, source })?;
        commit.adds.extend(line.add.map(FileChange::from));
        commit.removes.extend(line.remove.map(FileChange::from));
        let transaction = |Transaction { app_id, version }| (app_id, version);
        commit.entry.transactions.extend(line.line.txn.map(transaction));
        if let Some(info) = line.line.commit_info {
            commit.timestamp = info.timestamp.as_ref().and_then(Value::as_i64);
            commit.operation = info.operation.as_ref().and_then(Value::as_str).map(str::to_owned);
            commit.entry.info = info.info.and_then(|info| own_info(store, version, info));
        }
    }
    let added = commit.adds.iter().filter(|file| file.data_change);
    commit.entry.rows_added = added.clone().map(|file| file.rows).sum();
    commit.entry.files_added = added.count() as u64;
    commit.entry.files_removed = commit.removes.iter().filter(|file| file.data_change).count() as u64;
    Ok(Some(commit))
}

fn own_info(store: &TableStore, version: u64, info: Value) -> Option<CommitInfo> {
    match serde_json::from_value(info) {
        Ok(info) => Some(info),
        Err(error) => {
            tracing::warn!(table = %store.name, version, %error, "a commit's own account is of another form");
            None
        }
    }
}

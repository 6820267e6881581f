//! Reading the tables: their state, their history, their rows. Nothing is created, tried out or
//! changed by it, so that credentials that may only read will do.

use crate::actions::{Line, Transaction, lines};
use crate::config::DeltaConfig;
use crate::error::Error;
use crate::letter_rows::Letter;
use crate::letter_scan::{self, LetterFilter};
use crate::load::{self, LOG, LogFile, LogState};
use crate::log::read_entry;
use crate::protocol;
use crate::scan::{self, FileFault, KafkaScan, Scan, TextRow};
use crate::schema;
use crate::store::{Access, TableStore};
use alluvium_core::audit::{FileChange, LogEntry};
use alluvium_core::letters::Marks;
use alluvium_core::seam::TableState;
use alluvium_core::{AppId, CommitInfo, Partition, Place, Standing};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Log entries read at the same time.
const ENTRIES_AT_ONCE: usize = 16;

/// Which of a pipeline's two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableRole {
    Rows,
    DeadLetters,
}

/// A commit, as the table's log has it.
#[derive(Clone, Debug)]
pub struct Commit {
    /// What the audit needs of it.
    pub entry: LogEntry,
    /// Milliseconds since the epoch, as its writer says.
    pub timestamp: Option<i64>,
}

/// A pipeline's table and the dead letters beside it, to be read.
#[derive(Clone, Debug)]
pub struct DeltaReader {
    config: DeltaConfig,
    rows: TableStore,
    letters: TableStore,
}

impl DeltaReader {
    /// Opens both tables' stores. A table that is absent reads as one without commits.
    pub fn open(config: DeltaConfig) -> Result<Self, Error> {
        let rows = TableStore::open(&config.table, &config.storage, Access::Read)?;
        let letters = TableStore::open(&config.dead_letters, &config.storage, Access::Read)?;
        Self::of(config, rows, letters)
    }

    pub(crate) fn of(config: DeltaConfig, rows: TableStore, letters: TableStore) -> Result<Self, Error> {
        if rows.url == letters.url {
            return Err(Error::SameLocation { table: config.table });
        }
        Ok(Self { config, rows, letters })
    }

    pub(crate) fn store(&self, role: TableRole) -> &TableStore {
        match role {
            TableRole::Rows => &self.rows,
            TableRole::DeadLetters => &self.letters,
        }
    }

    /// The newest state of the rows' table.
    pub async fn state(&self) -> Result<TableState, Error> {
        let state = load::load(&self.rows, &self.config.transaction_prefix()).await?;
        state.map_or_else(|| Ok(TableState::default()), |state| self.table_state(&state))
    }

    /// The newest state of the rows' table; refuses tables that a sink would refuse to write.
    pub async fn writable_state(&self) -> Result<TableState, Error> {
        let prefix = self.config.transaction_prefix();
        let states = futures::try_join!(load::load(&self.rows, &prefix), load::load(&self.letters, &prefix))?;
        if let (_, Some(letters)) = &states {
            check(&self.letters, letters)?;
        }
        let (Some(rows), _) = &states else { return Ok(TableState::default()) };
        check(&self.rows, rows)?;
        check_partition_columns(&self.config, rows)?;
        self.table_state(rows)
    }

    pub(crate) fn table_state(&self, state: &LogState) -> Result<TableState, Error> {
        Ok(TableState {
            schema: Some(schema::arrow(&self.config.table, &state.metadata.schema_string)?),
            partition_by: state.metadata.partition_columns.clone(),
            positions: state.partitions(&self.config.transaction_prefix()),
            topic_id: state.topic_id.clone(),
        })
    }

    /// The pipeline's positions as a version of the rows' table left them.
    pub async fn positions(&self, version: u64) -> Result<Vec<(Partition, i64)>, Error> {
        let prefix = self.config.transaction_prefix();
        Ok(load::load_version(&self.rows, &prefix, version).await?.partitions(&prefix))
    }

    /// The commits that a table's log still holds, oldest first and without a hole; empty when there
    /// is no table.
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
        scan::some_rows(store, columns, limit).await
    }

    /// Where every row of a version (or of the newest) came from. `column` is the pipeline's metadata
    /// column, a struct of partition, offset and perhaps row: nothing else is read.
    pub async fn scan_rows(&self, column: &str, version: Option<u64>) -> Result<KafkaScan, Error> {
        match versions(&self.rows).await?.is_empty() {
            true => Ok(KafkaScan::empty(&self.rows)),
            false => Ok(scan::rows(&self.rows, version, column)),
        }
    }

    /// The values of a column of text, such as the rescued one, that are not null. `kafka` is the
    /// pipeline's metadata column: it tells where the records were.
    pub async fn scan_texts(&self, column: &str, kafka: Option<&str>) -> Result<Scan<TextRow>, Error> {
        match versions(&self.rows).await?.is_empty() {
            true => Ok(Scan::empty(&self.rows)),
            false => Ok(scan::texts(&self.rows, column, kafka)),
        }
    }

    /// What a version of the dead letters' table (or the newest) says of each record that it speaks of.
    /// Only records whose newest letter passes the filter.
    pub async fn letter_standings(
        &self,
        version: Option<u64>,
        filter: &LetterFilter,
    ) -> Result<HashMap<Place, Standing>, Error> {
        if versions(&self.letters).await?.is_empty() {
            return Ok(HashMap::new());
        }
        let found = letter_scan::standings(&self.letters, version, &self.config, filter, 0).await?;
        Ok(found.into_iter().filter(|(_, entry)| entry.matches).map(|(place, entry)| (place, entry.standing)).collect())
    }

    /// These letters, whole, batch by batch: each the one of its place with this number.
    pub async fn scan_letters(&self, mut wanted: HashMap<Place, i64>) -> Result<Scan<Letter>, Error> {
        if versions(&self.letters).await?.is_empty() {
            return Ok(Scan::empty(&self.letters));
        }
        let offsets = || wanted.keys().map(|(_, offset)| *offset);
        let bounds = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
        let select = move |place: Place, number: i64| {
            let is_wanted = wanted.get(&place) == Some(&number);
            is_wanted && wanted.remove(&place).is_some()
        };
        Ok(letter_scan::letters(&self.letters, &self.config, bounds, select))
    }

    /// Whether the newest commit of rows names dead letters, or marks, that are not in their table yet.
    pub async fn owes_letters(&self) -> Result<bool, Error> {
        let prefix = self.config.transaction_prefix();
        let (rows, letters) = futures::try_join!(load::load(&self.rows, &prefix), load::load(&self.letters, &prefix))?;
        let id = AppId::dead_letters(&self.config.pipeline, &self.config.topic);
        let mark = |state: Option<LogState>| state?.positions.get(id.as_str()).copied();
        Ok(Marks { named: mark(rows), written: mark(letters) }.owed().is_some())
    }

    /// The data files of a version that the store does not hold as the log says.
    pub async fn file_faults(&self, role: TableRole, version: u64) -> Result<Vec<FileFault>, Error> {
        scan::file_faults(self.store(role), Some(version)).await
    }
}

/// Refuses a table that must not be written.
pub(crate) fn check(store: &TableStore, state: &LogState) -> Result<(), Error> {
    protocol::check(state).map_err(|refusal| Error::Refused { table: store.table(), refusal })
}

pub(crate) fn check_partition_columns(config: &DeltaConfig, state: &LogState) -> Result<(), Error> {
    let (found, configured) = (&state.metadata.partition_columns, &config.partition_by);
    if found == configured {
        return Ok(());
    }
    let table = config.table.clone();
    Err(Error::PartitionColumns { table, found: found.clone(), configured: configured.clone() })
}

/// The versions from which on the log is whole, in order.
async fn versions(store: &TableStore) -> Result<Vec<u64>, Error> {
    let list = |source| Error::ListLog { table: store.table(), source };
    let mut files = store.store.list(Some(&Path::from(LOG)));
    let (mut versions, mut checkpoint) = (Vec::new(), None);
    while let Some(meta) = files.try_next().await.map_err(list)? {
        match LogFile::parse(&meta.location) {
            Some(LogFile::Entry(version)) => versions.push(version),
            Some(LogFile::Checkpoint(version)) => checkpoint = checkpoint.max(Some(version)),
            None => {}
        }
    }
    versions.sort_unstable();
    let Some(newest) = versions.last() else { return Ok(versions) };
    let rising = versions.iter().rev().zip((0..=*newest).rev());
    let whole = rising.take_while(|(found, version)| *found == version).count();
    let first = newest + 1 - whole as u64;
    // What a cleanup removes, a checkpoint holds.
    if first > 0 && checkpoint.is_none_or(|checkpoint| checkpoint + 1 < first) {
        return Err(Error::LogHole { table: store.table(), version: first - 1 });
    }
    Ok(versions.split_off(versions.len() - whole))
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
    #[serde(default)]
    deletion_vector: Option<DeletionVector>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RowCount {
    num_records: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct DeletionVector {
    cardinality: u64,
}

impl FileLine {
    fn change(self) -> FileChange {
        let stats = self.stats.as_deref().and_then(|stats| serde_json::from_str::<RowCount>(stats).ok());
        let deleted = self.deletion_vector.map_or(0, |vector| vector.cardinality);
        let rows = stats.and_then(|stats| stats.num_records).map(|rows| rows.saturating_sub(deleted));
        FileChange { path: self.path, data_change: self.data_change, rows, bytes: self.size }
    }
}

/// A commit; `None` when its entry was cleaned up meanwhile.
async fn commit(store: &TableStore, version: u64) -> Result<Option<Commit>, Error> {
    let Some((bytes, _)) = read_entry(store, version).await? else { return Ok(None) };
    let mut commit = Commit { entry: LogEntry { version, ..LogEntry::default() }, timestamp: None };
    let entry = &mut commit.entry;
    for line in lines::<HistoryLine>(&bytes) {
        let line = line.map_err(|source| Error::ParseLog { table: store.table(), version, source })?;
        entry.adds.extend(line.add.map(FileLine::change));
        entry.removes.extend(line.remove.map(FileLine::change));
        let transaction = |Transaction { app_id, version }| (app_id, version);
        entry.transactions.extend(line.line.txn.map(transaction));
        if let Some(info) = line.line.commit_info {
            commit.timestamp = info.timestamp.as_ref().and_then(Value::as_i64);
            entry.operation = info.operation.as_ref().and_then(Value::as_str).map(str::to_owned);
            entry.info = info.info.and_then(|info| own_info(store, version, info));
        }
    }
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

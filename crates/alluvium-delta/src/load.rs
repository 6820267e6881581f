//! A table's state from its log: what a commit is judged by, and nothing else.
//!
//! The kernel finds and reads checkpoints of every kind; later entries are read here, one by one.

use crate::actions::{Line, Metadata, Protocol, lines};
use crate::engine::{Wait, engine};
use crate::error::Error;
use crate::log::read_entry;
use crate::store::TableStore;
use alluvium_core::{Partition, TopicId};
use buoyant_kernel as kernel;
use deltalake::arrow::array::{Array, AsArray, RecordBatch};
use deltalake::arrow::datatypes::Int64Type;
use futures::{StreamExt, TryStreamExt, stream};
use kernel::engine::arrow_data::ArrowEngineData;
use kernel::{Engine, Snapshot, SnapshotRef};
use object_store::ObjectMeta;
use object_store::path::Path;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;

pub(crate) const LOG: &str = "_delta_log";

/// How many entries are looked through for the topic's id. Beyond, others have written so much that
/// the id counts as unknown.
const LOOKED_BACK: usize = 1000;
/// Log entries read at the same time; mostly the first has what is looked for.
const ENTRIES_AT_ONCE: usize = 4;

/// A table at one version.
#[derive(Clone, Debug)]
pub(crate) struct LogState {
    pub version: u64,
    pub protocol: Protocol,
    pub metadata: Metadata,
    /// Versions of the pipeline's own transactions, by their id.
    pub positions: HashMap<String, i64>,
    /// The id of the topic that the pipeline's newest commit with one read.
    pub topic_id: Option<TopicId>,
    /// The newest checkpoint known of.
    pub checkpoint: Option<u64>,
    /// The log entry of `version` as it was listed: another one in its place is another table.
    pub head: Option<Head>,
}

/// What tells a log entry from another one of the same version.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    size: u64,
    /// Whole seconds: a store's listing and its answers need not have the same precision.
    modified: i64,
    e_tag: Option<String>,
}

impl Head {
    pub(crate) fn is_same(&self, other: &Head) -> bool {
        match (&self.e_tag, &other.e_tag) {
            (Some(one), Some(other)) => one == other,
            _ => self.size == other.size && self.modified == other.modified,
        }
    }
}

impl From<&ObjectMeta> for Head {
    fn from(meta: &ObjectMeta) -> Self {
        Self { size: meta.size, modified: meta.last_modified.timestamp(), e_tag: meta.e_tag.clone() }
    }
}

impl LogState {
    /// The pipeline's positions, in the order of partitions; its transactions' ids start with `prefix`.
    pub(crate) fn partitions(&self, prefix: &str) -> Vec<(Partition, i64)> {
        let position = |(id, version): (&String, &i64)| {
            let partition = id.strip_prefix(prefix)?.parse().ok()?;
            Some((Partition(partition), *version))
        };
        let mut positions: Vec<_> = self.positions.iter().filter_map(position).collect();
        positions.sort_unstable();
        positions
    }

    /// Takes in the entry that follows.
    pub(crate) fn follow(
        &mut self,
        table: &str,
        version: u64,
        entry: &[u8],
        prefix: &str,
        head: Option<Head>,
    ) -> Result<(), Error> {
        let mut next = self.clone();
        for line in lines::<Line>(entry) {
            let line = line.map_err(|source| Error::ParseLog { table: table.to_owned(), version, source })?;
            let operation = line.commit_info.as_ref().and_then(|info| info.operation.as_ref());
            if operation.is_some_and(|operation| operation == "RESTORE") {
                // Its writers leave transactions as they are, and rightly: a restored table lacks rows as
                // after a DELETE. Positions that went back with it would bring them in again, beside
                // those that other partitions or pipelines wrote meanwhile.
                tracing::warn!(
                    table,
                    version,
                    "another writer restored an older version: what was committed since is gone from the table, and is not written again"
                );
            }
            if let Some(protocol) = line.protocol {
                next.protocol = protocol;
            }
            if let Some(metadata) = line.meta_data {
                next.metadata = metadata;
            }
            if let Some(transaction) = line.txn.filter(|transaction| transaction.app_id.starts_with(prefix)) {
                next.positions.insert(transaction.app_id, transaction.version);
            }
            if let Some(topic_id) = line.commit_info.and_then(|commit| commit.topic_id(prefix)) {
                next.topic_id = Some(topic_id);
            }
        }
        next.version = version;
        next.head = head;
        *self = next;
        Ok(())
    }
}

/// A file of the log.
pub(crate) enum LogFile {
    Entry(u64),
    Checkpoint(u64),
}

impl LogFile {
    /// Where the entry of a version is.
    pub(crate) fn entry(version: u64) -> Path {
        Path::from_iter([LOG.to_owned(), format!("{version:020}.json")])
    }

    /// Where the checkpoint of a version is, when it is one file.
    pub(crate) fn checkpoint(version: u64) -> Path {
        Path::from_iter([LOG.to_owned(), format!("{version:020}.checkpoint.parquet")])
    }

    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Entry(version) | Self::Checkpoint(version) => *version,
        }
    }

    pub(crate) fn parse(path: &Path) -> Option<Self> {
        let name = path.filename()?;
        let (digits, rest) = name.split_at_checked(20)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let version = digits.parse().ok()?;
        if rest == ".json" {
            return Some(Self::Entry(version));
        }
        rest.starts_with(".checkpoint.").then_some(Self::Checkpoint(version))
    }
}

/// Loads the newest state; `None` when there is no table.
pub(crate) async fn load(store: &TableStore, prefix: &str) -> Result<Option<LogState>, Error> {
    if !exists(store).await? {
        return Ok(None);
    }
    let own = prefix.to_owned();
    let state = with_snapshot(store, None, move |snapshot, engine| state_of(&snapshot, engine.as_ref(), &own));
    let mut state = state.await?;
    if !state.positions.is_empty() {
        state.topic_id = newest_topic_id(store, state.version, prefix).await?;
    }
    Ok(Some(state))
}

/// Looks back from a version for the pipeline's newest commit that names the id of its topic. Only
/// log entries do, so that what was cleaned up behind a checkpoint tells nothing any more.
async fn newest_topic_id(store: &TableStore, version: u64, prefix: &str) -> Result<Option<TopicId>, Error> {
    let back = (0..=version).rev().take(LOOKED_BACK);
    let mut entries = stream::iter(back).map(|version| read_entry(store, version)).buffered(ENTRIES_AT_ONCE);
    while let Some((entry, _)) = entries.try_next().await?.flatten() {
        // An entry that is no log entry was refused by the kernel already, or belongs to the past.
        let found = lines::<Line>(&entry).filter_map(|line| line.ok()?.commit_info?.topic_id(prefix)).next();
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

async fn exists(store: &TableStore) -> Result<bool, Error> {
    let list = |source| Error::ListLog { table: store.table(), source };
    let mut files = store.store.list(Some(&Path::from(LOG)));
    while let Some(meta) = files.try_next().await.map_err(list)? {
        if LogFile::parse(&meta.location).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The state of one version.
pub(crate) async fn load_version(store: &TableStore, prefix: &str, version: u64) -> Result<LogState, Error> {
    let prefix = prefix.to_owned();
    with_snapshot(store, Some(version), move |snapshot, engine| state_of(&snapshot, engine.as_ref(), &prefix)).await
}

/// Runs `work` on the snapshot of a version or on the newest, on a thread that may block.
pub(crate) async fn with_snapshot<T: Send + 'static>(
    store: &TableStore,
    version: Option<u64>,
    work: impl FnOnce(SnapshotRef, Arc<dyn Engine>) -> kernel::DeltaResult<T> + Send + 'static,
) -> Result<T, Error> {
    let (here, wait) = (store.clone(), Wait::With(Handle::current()));
    let task = tokio::task::spawn_blocking(move || on_snapshot(&here, version, &wait, work));
    task.await.map_err(|source| Error::Worker { table: store.table(), source })?
}

/// Runs `work` on the snapshot of a version or on the newest, on this thread. Blocks.
pub(crate) fn on_snapshot<T>(
    store: &TableStore,
    version: Option<u64>,
    wait: &Wait,
    work: impl FnOnce(SnapshotRef, Arc<dyn Engine>) -> kernel::DeltaResult<T>,
) -> Result<T, Error> {
    let engine = engine(store, wait);
    let builder = Snapshot::builder_for(store.url.as_str());
    let builder = match version {
        Some(version) => builder.at_version(version),
        None => builder,
    };
    let done = builder.build(engine.as_ref()).and_then(|snapshot| work(snapshot, engine));
    done.map_err(|source| load_error(store.table(), source))
}

/// An unsupported or broken table stays so; everything else may pass.
fn load_error(table: String, error: kernel::Error) -> Error {
    let error = match error {
        kernel::Error::Backtraced { source, .. } => *source,
        error => error,
    };
    match error {
        kernel::Error::Unsupported(_) | kernel::Error::InvalidProtocol(_) | kernel::Error::Schema(_) => {
            Error::Unreadable { table, source: error.into() }
        }
        error => Error::Load { table, source: error.into() },
    }
}

fn state_of(snapshot: &SnapshotRef, engine: &dyn Engine, prefix: &str) -> kernel::DeltaResult<LogState> {
    let configuration = snapshot.table_configuration();
    let features = |features: Option<&[kernel::table_features::TableFeature]>| {
        features.map(|features| features.iter().map(|feature| feature.as_ref().to_owned()).collect())
    };
    let protocol = configuration.protocol();
    Ok(LogState {
        version: snapshot.version(),
        protocol: Protocol {
            min_reader_version: protocol.min_reader_version(),
            min_writer_version: protocol.min_writer_version(),
            reader_features: features(protocol.reader_features()),
            writer_features: features(protocol.writer_features()),
        },
        metadata: serde_json::from_value(serde_json::to_value(configuration.metadata())?)?,
        positions: transactions(snapshot, engine, prefix)?,
        topic_id: None,
        checkpoint: snapshot.log_segment().checkpoint_version,
        head: None,
    })
}

/// All transactions whose id starts with `prefix`. The log comes newest first: the first version
/// seen of an id is its newest.
fn transactions(
    snapshot: &SnapshotRef,
    engine: &dyn Engine,
    prefix: &str,
) -> kernel::DeltaResult<HashMap<String, i64>> {
    let mut found = HashMap::new();
    let schema = kernel::actions::LOG_TXN_SCHEMA.clone();
    for actions in snapshot.log_segment().read_actions(engine, schema)? {
        let batch: RecordBatch = ArrowEngineData::try_from_engine_data(actions?.actions)?.into();
        for (id, version) in transactions_of(&batch) {
            if id.starts_with(prefix) {
                found.entry(id.to_owned()).or_insert(version);
            }
        }
    }
    Ok(found)
}

fn transactions_of(batch: &RecordBatch) -> impl Iterator<Item = (&str, i64)> {
    let columns = batch.column_by_name("txn").and_then(|column| column.as_struct_opt()).and_then(|transactions| {
        let ids = transactions.column_by_name("appId")?.as_string_opt::<i32>()?;
        let versions = transactions.column_by_name("version")?.as_primitive_opt::<Int64Type>()?;
        Some((transactions, ids, versions))
    });
    columns.into_iter().flat_map(|(transactions, ids, versions)| {
        let there = move |row: &usize| transactions.is_valid(*row) && ids.is_valid(*row) && versions.is_valid(*row);
        (0..transactions.len()).filter(there).map(move |row| (ids.value(row), versions.value(row)))
    })
}

//! The sink: a pipeline's table and the dead letters beside it.

use crate::commit::{Attempts, append_growth, check_flush};
use crate::config::DeltaConfig;
use crate::error::Error;
use crate::load::LogState;
use crate::log::{Appended, TableLog};
use crate::maintain::{self, Maintenance};
use crate::reader::{DeltaReader, TableRole, check};
use crate::replay::Replay;
use crate::schema;
use crate::stats::StatsColumns;
use crate::store::{Access, TableStore};
use crate::thread::Thread;
use crate::upload::upload;
use crate::writer::{DataFile, DeltaFileWriter, Layout};
use alluvium_core::seam::{Flush, Outcome, Table, TableState};
use alluvium_core::{CommitInfo, Hook};
use arrow_schema::SchemaRef;
use object_store::ObjectStore;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Mutex;

/// A Delta table that a pipeline writes, and the dead letters beside it.
#[derive(Debug)]
pub struct DeltaSink {
    pub(crate) config: DeltaConfig,
    pub(crate) hook: Hook,
    reader: DeltaReader,
    /// One committer at a time.
    pub(crate) rows: Mutex<TableLog>,
    pub(crate) letters: Mutex<TableLog>,
    layout: RwLock<Layout>,
    /// The rows' schema as it was seen last, with the text that it was read from.
    schema: RwLock<Option<(String, SchemaRef)>>,
    /// The table's columns as they were when they were last loaded, or written by a commit.
    planned: RwLock<Option<SchemaRef>>,
    thread: Thread,
    rows_maintenance: Maintenance,
    pub(crate) letters_maintenance: Maintenance,
}

impl DeltaSink {
    /// Opens both tables' stores. Local directories are created; tables are not, until something
    /// is committed. Fails when a store cannot commit safely or a table must not be written.
    pub async fn open(config: DeltaConfig) -> Result<Self, Error> {
        let rows = TableStore::open(&config.table, &config.storage, Access::Write)?;
        let letters = TableStore::open(&config.dead_letters, &config.storage, Access::Write)?;
        Self::open_stores(config, rows, letters).await
    }

    /// Opens both tables in a store of the caller's, whose root is that of the tables' URLs.
    pub async fn open_with_store(store: Arc<dyn ObjectStore>, config: DeltaConfig) -> Result<Self, Error> {
        let rows = TableStore::within(store.clone(), &config.table, &config.storage)?;
        let letters = TableStore::within(store, &config.dead_letters, &config.storage)?;
        Self::open_stores(config, rows, letters).await
    }

    async fn open_stores(config: DeltaConfig, rows: TableStore, letters: TableStore) -> Result<Self, Error> {
        let reader = DeltaReader::of(config.clone(), rows.clone(), letters.clone())?;
        futures::try_join!(rows.probe(), letters.probe())?;
        let prefix = config.transaction_prefix();
        let layout = Layout {
            partition_by: config.partition_by.clone(),
            stats: StatsColumns::default(),
            file_size: config.file_size,
        };
        let thread = Thread::default();
        let sink = Self {
            hook: Hook::NONE,
            rows: Mutex::new(TableLog::new(rows, prefix.clone())),
            letters: Mutex::new(TableLog::new(letters, prefix)),
            reader,
            layout: RwLock::new(layout),
            schema: RwLock::default(),
            planned: RwLock::default(),
            rows_maintenance: Maintenance::on(&thread),
            letters_maintenance: Maintenance::on(&thread),
            thread,
            config,
        };
        sink.check().await?;
        Ok(sink)
    }

    /// Refuses tables that must not be written, before anything is done.
    async fn check(&self) -> Result<(), Error> {
        let mut rows = self.rows.lock().await;
        let mut letters = self.letters.lock().await;
        futures::try_join!(rows.refresh(), letters.refresh())?;
        self.adopt(&rows)?;
        letters.state().map_or(Ok(()), |state| check(&letters.store, state))
    }

    /// Sets what is called on both sides of every edge of a commit.
    pub fn with_hook(mut self, hook: Hook) -> Self {
        self.hook = hook;
        self
    }

    pub fn config(&self) -> &DeltaConfig {
        &self.config
    }

    /// The same tables, to be read.
    pub fn reader(&self) -> &DeltaReader {
        &self.reader
    }

    /// Waits for a checkpoint that is being written beside the commits.
    pub async fn finish_maintenance(&self) {
        self.rows_maintenance.finish().await;
        self.letters_maintenance.finish().await;
    }

    /// Writes a checkpoint of a table now, and cleans up its log.
    pub async fn maintain(&self, role: TableRole) -> Result<(), Error> {
        maintain::maintain(self.reader.store(role), &self.thread, &self.hook).await
    }

    pub(crate) async fn refresh(&self, rows: &mut TableLog) -> Result<(), Error> {
        rows.refresh().await?;
        self.adopt(rows)
    }

    /// Takes over what writers need of a state, and what others ask for without IO.
    pub(crate) fn adopt_layout(&self, state: &LogState) -> Result<(), Error> {
        let text = &state.metadata.schema_string;
        let is_known = |known: &Option<(String, SchemaRef)>| known.as_ref().is_some_and(|(known, _)| known == text);
        if !is_known(&self.schema.read().unwrap_or_else(PoisonError::into_inner)) {
            let schema = schema::arrow(&self.config.table, text)?;
            *self.schema.write().unwrap_or_else(PoisonError::into_inner) = Some((text.clone(), schema));
        }
        let stats = StatsColumns::of(|key| state.metadata.property(key).map(str::to_owned));
        let mut layout = self.layout.write().unwrap_or_else(PoisonError::into_inner);
        layout.stats = stats;
        Ok(())
    }
}

impl DeltaSink {
    fn remember_plan(&self) {
        *self.planned.write().unwrap_or_else(PoisonError::into_inner) = self.known_schema();
    }

    /// The table's columns as those know them who plan rows for it.
    pub(crate) fn planned(&self) -> Option<SchemaRef> {
        self.planned.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Table for DeltaSink {
    type Error = Error;
    type File = DataFile;
    type Writer = DeltaFileWriter;

    async fn load(&self) -> Result<TableState, Error> {
        let mut rows = self.rows.lock().await;
        self.refresh(&mut rows).await?;
        while self.write_owed(&rows).await? {
            self.refresh(&mut rows).await?;
        }
        self.remember_plan();
        rows.state().map_or_else(|| Ok(TableState::default()), |state| self.reader.table_state(state))
    }

    fn known_schema(&self) -> Option<SchemaRef> {
        let known = self.schema.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|(_, schema)| schema.clone())
    }

    fn writer(&self, schema: SchemaRef) -> Result<DeltaFileWriter, Error> {
        let layout = self.layout.read().unwrap_or_else(PoisonError::into_inner).clone();
        DeltaFileWriter::new(schema, layout)
    }

    async fn commit(&self, flush: &mut Flush<DataFile>) -> Result<Outcome, Error> {
        self.commit_flush(flush, None).await
    }
}

impl DeltaSink {
    pub(crate) async fn commit_flush(
        &self,
        flush: &mut Flush<DataFile>,
        replay: Option<&Replay<'_>>,
    ) -> Result<Outcome, Error> {
        check_flush(flush)?;
        self.upload(&mut flush.files).await?;
        let mut rows = self.rows.lock().await;
        let outcome = self.commit_uploaded(&mut rows, flush, replay).await?;
        if let (Outcome::Committed { .. }, Some(state)) = (&outcome, rows.state()) {
            self.adopt_layout(state)?;
            self.remember_plan();
            self.rows_maintenance.after_commit(self.reader.store(TableRole::Rows), state, &self.hook);
        }
        Ok(outcome)
    }

    /// Adds to the table what rows of `schema` need and it has not, as a commit of its own that moves
    /// no position. The version; `None` when nothing was missing. Fails with [`Error::NoTable`] while
    /// there is none, and with [`Error::Moved`] when a column is of another type.
    pub async fn grow(&self, info: &CommitInfo, schema: &SchemaRef) -> Result<Option<u64>, Error> {
        let mut rows = self.rows.lock().await;
        let mut attempts = Attempts::default();
        loop {
            attempts.next(&rows.store).await?;
            self.refresh(&mut rows).await?;
            // Nothing follows an entry whose dead letters could be forgotten.
            if self.write_owed(&rows).await? {
                continue;
            }
            let Some(state) = rows.state() else { return Err(Error::NoTable { table: rows.store.table() }) };
            let table = schema::parse(&self.config.table, &state.metadata.schema_string)?;
            let columns = schema::columns(schema)?;
            let grown = match schema::with_notes(schema::fit(&table, &columns), schema) {
                schema::Fit::Fits => return Ok(None),
                schema::Fit::Moved { column } => return Err(Error::Moved { table: rows.store.table(), column }),
                schema::Fit::Unnameable { column } => return Err(Error::ColumnName { column }),
                schema::Fit::Grows(grown) => grown,
            };
            if let Appended::Landed(version) = append_growth(&mut rows, info, grown).await? {
                return Ok(Some(version));
            }
        }
    }

    /// Uploads files of rows that are still in memory, to be committed later.
    pub async fn upload(&self, files: &mut [DataFile]) -> Result<(), Error> {
        upload(self.reader.store(TableRole::Rows), files, &self.hook).await
    }
}

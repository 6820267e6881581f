//! What the simulated tables hold, whoever wrote it, and how entries get there.

use super::faults::Faults;
use super::world::{Gate, Life, World};
use alluvium_core::audit::{FileChange, LogEntry};
use alluvium_core::{CommitInfo, DeadLetter, PartitionProgress};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// A data file: named by log entries once it is uploaded.
#[derive(Clone, Debug)]
pub struct SimFile {
    pub batches: Vec<RecordBatch>,
    pub(super) uploaded: Arc<AtomicBool>,
}

impl SimFile {
    pub(super) fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.num_rows() as u64).sum()
    }
}

/// Dead letters on their way into their table.
#[derive(Clone, Debug)]
pub struct NamedLetters {
    pub mark: i64,
    pub partitions: Vec<PartitionProgress>,
    pub letters: Vec<DeadLetter>,
}

/// One version of a table.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Its writer's own number for it.
    pub id: u64,
    pub info: Option<CommitInfo>,
    pub transactions: Vec<(String, i64)>,
    /// The whole schema from here on, where it changes.
    pub schema: Option<SchemaRef>,
    pub files: Vec<SimFile>,
    /// In the rows' log: the letters that this entry names.
    pub named: Option<NamedLetters>,
    /// In the letters' log: the letters that it holds.
    pub letters: Vec<DeadLetter>,
    /// Rows that another engine deleted.
    pub deleted: Vec<(i32, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Rows,
    Letters,
}

/// The rows' table and that of the dead letters.
#[derive(Debug, Default)]
pub struct Store {
    rows: Mutex<Vec<Entry>>,
    letters: Mutex<Vec<Entry>>,
}

/// What became of the write of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Landed,
    /// The version was taken.
    Lost,
    Failed,
}

impl Store {
    /// A table's log. An entry's version is its place.
    pub fn log(&self, role: Role) -> MutexGuard<'_, Vec<Entry>> {
        let log = match role {
            Role::Rows => &self.rows,
            Role::Letters => &self.letters,
        };
        log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_if_absent(&self, world: &World, role: Role, version: usize, entry: Entry) -> bool {
        let mut log = self.log(role);
        if log.len() != version {
            return false;
        }
        let kind = entry.info.as_ref().map(|info| info.kind);
        world.note(format_args!("{role:?} {version}: {kind:?} {:?}", entry.transactions));
        if entry.files.iter().any(|file| !file.uploaded.load(Ordering::Relaxed)) {
            world.violation(format!("{role:?} {version} names a file that was never uploaded"));
        }
        log.push(entry);
        true
    }

    /// Writes the entry of a version. The request lives on by itself once it is made: it can land
    /// although its process has died, long after an error, or never.
    pub(super) async fn write(
        self: &Arc<Self>,
        world: &Arc<World>,
        gate: &Gate,
        faults: Faults,
        role: Role,
        version: usize,
        entry: Entry,
    ) -> Written {
        gate.pass().await;
        let fault = if world.is_table_struck(faults.write) { 1 + world.below(4) } else { 0 };
        let (answer, answered) = oneshot::channel();
        let (store, dice, life) = (self.clone(), world.clone(), gate.clone());
        tokio::spawn(async move {
            match fault {
                // An answer that takes long.
                4 => dice.pause(200..4_000).await,
                // It lands after its error was told.
                3 => dice.pause(300..20_000).await,
                _ => dice.pause(1..40).await,
            }
            let cut_off = life.life() == Life::Dead && dice.happens(0.5);
            let lands = fault != 1 && !cut_off && store.put_if_absent(&dice, role, version, entry);
            // Nobody listens after an error.
            let _gone = answer.send(if lands { Written::Landed } else { Written::Lost }).is_err();
        });
        match fault {
            1 | 3 => world.pause(1..200).await,
            2 => {
                // It lands, and an error is told.
                drop(answered.await);
                world.pause(1..200).await;
            }
            _ => {
                let written = answered.await.unwrap_or(Written::Failed);
                gate.pass().await;
                return written;
            }
        }
        gate.pass().await;
        Written::Failed
    }

    /// A commit of another engine: it has no faults, and only its commit's place is chance.
    pub fn foreign(&self, world: &World, may_clash: bool) {
        let mut log = self.log(Role::Rows);
        let Some(schema) = schema_of(&log) else { return };
        let mut entry = Entry { id: u64::MAX, ..Entry::default() };
        let what = match world.below(if may_clash { 4 } else { 3 }) {
            0 => "optimize",
            1 => {
                let files: Vec<_> = log.iter().flat_map(|entry| &entry.files).cloned().collect();
                let gone: Vec<_> = log.iter().flat_map(|entry| entry.deleted.iter().copied()).collect();
                let Some(file) = files.get(world.below(files.len())) else { return };
                let rows = file.batches.iter().flat_map(super::records::rows);
                entry.deleted = rows.map(|row| (row.partition, row.offset)).filter(|row| !gone.contains(row)).collect();
                "delete"
            }
            2 => {
                entry.schema = with_column(&schema, &format!("foreign{}", world.below(5)), DataType::Int64);
                "add columns"
            }
            _ => {
                // A column that records bring too, of another type than theirs, or in another case.
                let (name, data_type) = match world.below(2) {
                    0 => (format!("extra{}", world.below(4)), DataType::Utf8),
                    _ => (format!("EXTRA{}", world.below(4)), DataType::Int64),
                };
                entry.schema = with_column(&schema, &name, data_type);
                "add a clashing column"
            }
        };
        world.note(format_args!("Rows {}: another engine: {what} {:?}", log.len(), entry.deleted));
        log.push(entry);
    }

    /// The log as the audit reads it. A file's name is the place where it is named first.
    pub fn history(&self, role: Role) -> Vec<LogEntry> {
        let log = self.log(role);
        let mut files: Vec<(&SimFile, String)> = Vec::new();
        let mut history = Vec::new();
        for (version, entry) in log.iter().enumerate() {
            let mut adds = Vec::new();
            for (index, file) in entry.files.iter().enumerate() {
                let known = files.iter().find(|(known, _)| Arc::ptr_eq(&known.uploaded, &file.uploaded));
                let path = known.map_or_else(|| format!("{version}-{index}"), |(_, path)| path.clone());
                files.push((file, path.clone()));
                adds.push(FileChange { path, data_change: true, rows: Some(file.rows()), bytes: None });
            }
            if !entry.letters.is_empty() {
                let (path, rows) = (format!("{version}-letters"), Some(entry.letters.len() as u64));
                adds.push(FileChange { path, data_change: true, rows, bytes: None });
            }
            history.push(LogEntry {
                version: version as u64,
                info: entry.info.clone(),
                operation: None,
                transactions: entry.transactions.clone(),
                adds,
                removes: Vec::new(),
            });
        }
        history
    }
}

pub(super) fn schema_of(log: &[Entry]) -> Option<SchemaRef> {
    log.iter().rev().find_map(|entry| entry.schema.clone())
}

/// The schema with one more column; none when there is one of that name.
fn with_column(schema: &Schema, name: &str, data_type: DataType) -> Option<SchemaRef> {
    if schema.fields().iter().any(|field| field.name().eq_ignore_ascii_case(name)) {
        return None;
    }
    let new = Arc::new(Field::new(name, data_type, true));
    let fields: Vec<_> = schema.fields().iter().cloned().chain([new]).collect();
    Some(Arc::new(Schema::new(fields)))
}

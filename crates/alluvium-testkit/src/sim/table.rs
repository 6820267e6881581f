//! A process's handle on the simulated tables: the commit protocol, over logs in memory.

use super::error::SimError;
use super::faults::{Faults, Plant};
use super::store::{Entry, NamedLetters, Role, SimFile, Store, Written};
use super::world::{Gate, Life, World};
use alluvium_core::commit::{Claim, Fit, Step, next_step};
use alluvium_core::letters::{Marks, missing};
use alluvium_core::seam::{Flush, Outcome, RowWriter, Table, TableState};
use alluvium_core::{AppId, CommitInfo, CommitKind, Counts, Partition, PartitionProgress, PipelineId};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;

/// Versions that may be lost to other writers before a commit gives up.
const MAX_ATTEMPTS: u32 = 100;

/// What one process knows of a log.
#[derive(Debug, Default)]
struct Snapshot {
    /// The number of entries seen.
    next: usize,
    positions: BTreeMap<Partition, i64>,
    schema: Option<SchemaRef>,
    /// Places that have a letter.
    letters: BTreeSet<(Partition, i64)>,
    /// How far dead letters are, in this log.
    mark: Option<i64>,
}

#[derive(Debug)]
pub struct SimTable {
    store: Arc<Store>,
    world: Arc<World>,
    gate: Gate,
    faults: Faults,
    pipeline: PipelineId,
    topic: String,
    rows: Mutex<Snapshot>,
    letters: Mutex<Snapshot>,
}

/// Collects rows; a file is what was written.
#[derive(Debug)]
pub struct SimWriter {
    batches: Vec<RecordBatch>,
}

impl RowWriter for SimWriter {
    type File = SimFile;
    type Error = SimError;

    fn write(&mut self, batch: &RecordBatch) -> Result<(), SimError> {
        self.batches.push(batch.clone());
        Ok(())
    }

    fn memory(&self) -> usize {
        self.batches.iter().flat_map(RecordBatch::columns).map(Array::get_buffer_memory_size).sum()
    }

    fn finish(self) -> Result<Vec<SimFile>, SimError> {
        Ok(vec![SimFile { batches: self.batches, uploaded: Arc::new(AtomicBool::new(false)) }])
    }
}

impl SimTable {
    pub fn new(
        store: &Arc<Store>,
        world: &Arc<World>,
        gate: &Gate,
        faults: Faults,
        pipeline: &PipelineId,
        topic: &str,
    ) -> Self {
        Self {
            store: store.clone(),
            world: world.clone(),
            gate: gate.clone(),
            faults,
            pipeline: pipeline.clone(),
            topic: topic.to_owned(),
            rows: Mutex::default(),
            letters: Mutex::default(),
        }
    }

    fn has(&self, plant: Plant) -> bool {
        self.faults.plant == Some(plant)
    }

    /// A point at which the process can die.
    async fn point(&self, name: &str) {
        if self.world.strikes(self.faults.death) {
            self.world.note(format_args!("{} dies {name}", self.gate.name));
            self.gate.set(Life::Dead);
        }
        self.gate.pass().await;
    }

    /// Takes in what is new in a log. The answer is of some moment of the time that it takes.
    async fn refresh(&self, role: Role, known: &mut Snapshot) -> Result<(), SimError> {
        self.gate.pass().await;
        self.world.pause(1..15).await;
        let new: Vec<Entry> = self.store.log(role).iter().skip(known.next).cloned().collect();
        self.world.pause(1..15).await;
        self.gate.pass().await;
        if self.world.is_table_struck(self.faults.load) {
            return Err(SimError::Passing { what: "reading a table" });
        }
        new.iter().for_each(|entry| self.follow(known, entry));
        Ok(())
    }

    fn follow(&self, known: &mut Snapshot, entry: &Entry) {
        known.next += 1;
        known.letters.extend(entry.letters.iter().map(|letter| (letter.partition, letter.offset)));
        if let Some(schema) = &entry.schema {
            known.schema = Some(schema.clone());
        }
        let prefix = format!(
            "{}/{}/{}/{}/",
            self.pipeline.tenant(),
            self.pipeline.name(),
            self.pipeline.generation(),
            self.topic
        );
        let marks = AppId::dead_letters(&self.pipeline, &self.topic);
        for (id, version) in &entry.transactions {
            if id == marks.as_str() {
                known.mark = Some(*version);
            }
            if let Some(partition) = id.strip_prefix(&prefix).and_then(|number| number.parse().ok()) {
                known.positions.insert(Partition(partition), *version);
            }
        }
    }

    async fn upload(&self, files: &[SimFile]) -> Result<(), SimError> {
        self.point("before an upload").await;
        for file in files.iter().filter(|file| !file.uploaded.load(Ordering::Relaxed)) {
            self.world.pause(1..60).await;
            self.gate.pass().await;
            if self.world.is_table_struck(self.faults.upload) {
                return Err(SimError::Passing { what: "uploading a file" });
            }
            file.uploaded.store(true, Ordering::Relaxed);
        }
        self.point("after an upload").await;
        Ok(())
    }

    /// Writes the entry that follows a snapshot. `false`: another writer was faster.
    async fn append(&self, role: Role, known: &mut Snapshot, mut entry: Entry) -> Result<bool, SimError> {
        self.point("before a log entry").await;
        entry.id = self.world.within(1..u64::MAX);
        let version = known.next;
        let write = self.store.write(&self.world, &self.gate, self.faults, role, version, entry.clone());
        let landed = match write.await {
            Written::Landed => true,
            Written::Lost => false,
            Written::Failed => self.settle(role, version, entry.id).await?,
        };
        self.point("after a log entry").await;
        if landed {
            self.follow(known, &entry);
        }
        Ok(landed)
    }

    /// What became of a write that failed.
    async fn settle(&self, role: Role, version: usize, id: u64) -> Result<bool, SimError> {
        self.world.pause(1..40).await;
        self.gate.pass().await;
        if self.world.is_table_struck(self.faults.load) {
            return Err(SimError::Passing { what: "reading back a log entry" });
        }
        let found = self.store.log(role).get(version).map(|entry| entry.id);
        match found {
            Some(found) => Ok(found == id),
            None => Err(SimError::Passing { what: "writing a log entry" }),
        }
    }

    async fn commit_rows(&self, rows: &mut Snapshot, flush: &Flush<SimFile>) -> Result<Outcome, SimError> {
        let mut landed = None;
        for attempt in 0..MAX_ATTEMPTS {
            self.refresh(Role::Rows, rows).await?;
            let mut marks = self.marks(rows).await?;
            if landed.is_none() && self.has(Plant::ForgetsLetters) {
                marks.written = marks.named;
            }
            let mut claims = self.claims(rows, flush);
            let unjudged = self.has(Plant::NeverJudges) || (attempt > 0 && self.has(Plant::RetriesUnjudged));
            if unjudged && landed.is_none() {
                claims.iter_mut().for_each(|claim| claim.stored = Some(claim.span.from()));
            }
            match next_step(marks, &claims, || Ok::<_, SimError>(fit(rows.schema.as_ref(), &flush.schema)))? {
                Step::Letters => self.write_owed(rows).await?,
                Step::Growth(schema) => {
                    let info = CommitInfo { kind: CommitKind::Schema, partitions: Vec::new(), ..flush.info.clone() };
                    let growth = Entry { info: Some(info), schema: Some(schema), ..Entry::default() };
                    self.append(Role::Rows, rows, growth).await?;
                }
                Step::Rows => {
                    let named = self.name_letters(rows, flush).await?;
                    let owes = named.is_some();
                    let positions = flush.info.partitions.iter().map(|progress| self.transaction(progress));
                    let entry = Entry {
                        info: Some(flush.info.clone()),
                        transactions: positions.chain(named.iter().map(|named| self.mark(named.mark))).collect(),
                        schema: rows.schema.is_none().then(|| flush.schema.clone()),
                        files: flush.files.clone(),
                        named,
                        ..Entry::default()
                    };
                    let version = rows.next as u64;
                    if self.append(Role::Rows, rows, entry).await? {
                        if !owes {
                            return Ok(Outcome::Committed { version });
                        }
                        landed = Some(version);
                    }
                }
                Step::Done(outcome) => return Ok(landed.map_or(outcome, |version| Outcome::Committed { version })),
            }
        }
        Err(SimError::Passing { what: "winning a version" })
    }

    fn mark(&self, mark: i64) -> (String, i64) {
        (AppId::dead_letters(&self.pipeline, &self.topic).as_str().to_owned(), mark)
    }

    fn transaction(&self, progress: &PartitionProgress) -> (String, i64) {
        let id = AppId::new(&self.pipeline, &self.topic, progress.partition);
        (id.as_str().to_owned(), progress.span.to())
    }

    fn claims(&self, rows: &Snapshot, flush: &Flush<SimFile>) -> Vec<Claim> {
        let claim = |progress: &PartitionProgress| Claim {
            partition: progress.partition,
            span: progress.span,
            stored: rows.positions.get(&progress.partition).copied(),
            may_be_absent: flush.absent.contains(&progress.partition),
        };
        flush.info.partitions.iter().map(claim).collect()
    }

    async fn marks(&self, rows: &Snapshot) -> Result<Marks, SimError> {
        let mut letters = self.letters.lock().await;
        if (Marks { named: rows.mark, written: letters.mark }).owed().is_some() {
            self.refresh(Role::Letters, &mut letters).await?;
        }
        Ok(Marks { named: rows.mark, written: letters.mark })
    }

    /// The letters that their table does not hold, for the rows' entry to name them.
    async fn name_letters(&self, rows: &Snapshot, flush: &Flush<SimFile>) -> Result<Option<NamedLetters>, SimError> {
        if flush.dead_letters.is_empty() {
            return Ok(None);
        }
        let mut known = self.letters.lock().await;
        self.refresh(Role::Letters, &mut known).await?;
        let places = flush.dead_letters.iter().map(|letter| (letter.partition, letter.offset));
        let missing = missing(places, |place| known.letters.contains(&place));
        let letters: Vec<_> = missing.iter().filter_map(|index| flush.dead_letters.get(*index)).cloned().collect();
        if letters.is_empty() {
            return Ok(None);
        }
        self.point("before letters are uploaded").await;
        self.world.pause(1..60).await;
        let mut partitions = flush.info.partitions.clone();
        partitions.retain(|progress| letters.iter().any(|letter| letter.partition == progress.partition));
        for progress in &mut partitions {
            let rejected = letters.iter().filter(|letter| letter.partition == progress.partition).count() as u64;
            progress.counts = Counts { read: rejected, rejected, ..Counts::default() };
        }
        let mark = Marks { named: rows.mark, written: known.mark }.next(rows.next as i64);
        Ok(Some(NamedLetters { mark, partitions, letters }))
    }

    /// Writes the letters that the rows' log owes, whoever named them.
    async fn write_owed(&self, rows: &Snapshot) -> Result<(), SimError> {
        let Some(mark) = self.marks(rows).await?.owed() else { return Ok(()) };
        let owed = {
            let log = self.store.log(Role::Rows);
            let named = |entry: &Entry| Some((entry.info.clone()?, entry.named.clone().filter(|of| of.mark == mark)?));
            log.iter().take(rows.next).rev().find_map(named)
        };
        let (info, NamedLetters { partitions, letters, .. }) = owed.ok_or(SimError::LettersGone)?;
        let info = CommitInfo { kind: CommitKind::DeadLetters, partitions: partitions.clone(), ..info };
        let mut known = self.letters.lock().await;
        for attempt in 0..MAX_ATTEMPTS {
            self.refresh(Role::Letters, &mut known).await?;
            let is_blind = attempt > 0 && self.has(Plant::RepeatsLetters);
            if !is_blind && (Marks { named: Some(mark), written: known.mark }).owed().is_none() {
                return Ok(());
            }
            let transactions = partitions.iter().map(|progress| {
                let (id, to) = self.transaction(progress);
                (id, known.positions.get(&progress.partition).map_or(to, |stored| to.max(*stored)))
            });
            let transactions = transactions.chain([self.mark(mark)]).collect();
            let (info, letters) = (Some(info.clone()), letters.clone());
            if self.append(Role::Letters, &mut known, Entry { info, transactions, letters, ..Entry::default() }).await?
            {
                return Ok(());
            }
        }
        Err(SimError::Passing { what: "winning a version of the dead letters" })
    }
}

impl Table for SimTable {
    type Error = SimError;
    type File = SimFile;
    type Writer = SimWriter;

    async fn load(&self) -> Result<TableState, SimError> {
        let mut rows = self.rows.lock().await;
        self.refresh(Role::Rows, &mut rows).await?;
        while self.marks(&rows).await?.owed().is_some() && !self.has(Plant::ForgetsLetters) {
            self.write_owed(&rows).await?;
            self.refresh(Role::Rows, &mut rows).await?;
        }
        let positions = rows.positions.iter().map(|(partition, at)| (*partition, *at)).collect();
        Ok(TableState { schema: rows.schema.clone(), partition_by: Vec::new(), positions, topic_id: None })
    }

    fn known_schema(&self) -> Option<SchemaRef> {
        self.rows.try_lock().ok()?.schema.clone()
    }

    fn writer(&self, _schema: SchemaRef) -> Result<SimWriter, SimError> {
        Ok(SimWriter { batches: Vec::new() })
    }

    async fn commit(&self, flush: &mut Flush<SimFile>) -> Result<Outcome, SimError> {
        self.upload(&flush.files).await?;
        let mut rows = self.rows.lock().await;
        let outcome = self.commit_rows(&mut rows, flush).await?;
        let spans = flush.info.partitions.iter().map(|progress| (progress.partition.0, progress.span.to()));
        self.world.note(format_args!("{}: {outcome:?} {:?}", self.gate.name, spans.collect::<Vec<_>>()));
        Ok(outcome)
    }
}

/// How rows of a schema go into a table; one that is absent is made with all their columns.
fn fit(table: Option<&SchemaRef>, rows: &SchemaRef) -> Fit<SchemaRef> {
    let Some(table) = table else { return Fit::Fits };
    match merged(table.fields(), rows.fields()) {
        Err(column) => Fit::Moved { column },
        Ok(fields) if fields == *table.fields() => Fit::Fits,
        Ok(fields) => Fit::Grows(Arc::new(Schema::new(fields))),
    }
}

/// The table's fields with those of the rows that it has not yet; or the column that is another one.
fn merged(table: &Fields, rows: &Fields) -> Result<Fields, String> {
    let mut fields: Vec<Arc<Field>> = table.to_vec();
    for new in rows {
        let Some(there) = fields.iter_mut().find(|there| there.name().eq_ignore_ascii_case(new.name())) else {
            fields.push(new.clone());
            continue;
        };
        let data_type = match (there.data_type(), new.data_type()) {
            _ if there.name() != new.name() => return Err(new.name().clone()),
            (DataType::Struct(inner), DataType::Struct(more)) => {
                DataType::Struct(merged(inner, more).map_err(|inner| format!("{}.{inner}", new.name()))?)
            }
            (one, other) if one == other => continue,
            _ => return Err(new.name().clone()),
        };
        *there = Arc::new(there.as_ref().clone().with_data_type(data_type));
    }
    Ok(fields.into())
}

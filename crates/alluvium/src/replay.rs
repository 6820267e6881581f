//! Dead letters through the present plugins, into the table.

use crate::failure::Failure;
use crate::load::Loaded;
use alluvium_config::Limits;
use alluvium_core::chunk::Record;
use alluvium_core::seam::{Flush, Outcome, RowWriter, Table};
use alluvium_core::{
    Chunk, CommitInfo, CommitKind, Counts, DeadLetter, Fault, Hook, Partition, PartitionProgress, Place, Records, Span,
    TopicId,
};
use alluvium_delta::{Chosen, DataFile, DeltaFileWriter, DeltaSink, Letter, LetterFilter};
use alluvium_runtime::{Error, Planner, Processed, Stages};
use alluvium_schema::Shape;
use arrow_schema::SchemaRef;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Records of one chunk, and bytes of values, as when they come from Kafka.
const CHUNK: usize = 1000;
const CHUNK_BYTES: usize = 8 << 20;
/// Records that first columns are inferred from, and bytes of them that may be held.
const SAMPLE: usize = 10_000;
const SAMPLE_BYTES: usize = 64 << 20;
/// Bytes of encoded rows, and of letters that were rejected again, before they leave the memory.
const WRITER_BYTES: usize = 64 << 20;
const AGAIN_BYTES: usize = 16 << 20;
/// How often letters are chosen anew because others came first.
const TRIES: u32 = 20;

/// What became of the letters.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Replayed {
    /// `None` when there was nothing to replay.
    pub number: Option<i64>,
    #[serde(flatten)]
    pub counts: Counts,
    /// Open letters that were left: the table was set back behind them, and will be given their records anew.
    pub ahead: u64,
}

/// Replays a pipeline's dead letters.
pub struct Replayer {
    pub loaded: Loaded,
    pub sink: Arc<DeltaSink>,
    pub hook: Hook,
}

impl Replayer {
    /// Replays the open letters that pass the filter.
    pub async fn replay(&self, filter: &LetterFilter) -> Result<Replayed, Failure> {
        for _ in 0..TRIES {
            let chosen = self.sink.choose(filter).await.map_err(failed)?;
            if chosen.is_empty() {
                return Ok(Replayed { ahead: chosen.ahead, ..Replayed::default() });
            }
            if let Some(replayed) = self.attempt(&chosen).await? {
                return Ok(replayed);
            }
            tracing::info!(
                replay = chosen.number,
                "another replay or a schema came first: the letters are chosen anew"
            );
        }
        Err(Failure::new("other replays came first, again and again").with_hint("run the same command again"))
    }

    /// One try; `None` when another replay or a change of the schema came first.
    async fn attempt(&self, chosen: &Chosen) -> Result<Option<Replayed>, Failure> {
        let state = self.sink.load().await.map_err(failed)?;
        let mut work = Work::new(self, &state)?;
        let mut waiting: HashSet<Place> = chosen.places().collect();
        let mut again = Vec::new();
        let mut letters = self.sink.chosen_letters(chosen).await.map_err(failed)?;
        let (mut held, mut is_last) = (Held::default(), false);
        while !is_last {
            match letters.next().await {
                Some(batch) => held.add(batch.map_err(failed)?, &mut waiting),
                None => is_last = true,
            }
            let is_due = !work.planner.needs_sample() || held.letters.len() >= SAMPLE || held.bytes >= SAMPLE_BYTES;
            if is_due || is_last {
                let chunks = chunks(std::mem::take(&mut held).letters)?;
                work = work.process_on_a_thread(chunks).await?;
                self.sink.upload(&mut work.files).await.map_err(failed)?;
            }
            let rejected: usize = work.again.iter().map(DeadLetter::memory).sum();
            if rejected >= AGAIN_BYTES || (is_last && rejected > 0) {
                let letters = std::mem::take(&mut work.again);
                again.extend(self.sink.upload_again(chosen, &letters).await.map_err(failed)?);
            }
        }
        // Somebody deleted them meanwhile: on purpose.
        waiting.into_iter().for_each(|place| work.filtered(place));
        self.commit(chosen, work, again).await
    }

    async fn commit(&self, chosen: &Chosen, mut work: Work, again: Vec<DataFile>) -> Result<Option<Replayed>, Failure> {
        work.close().map_err(|error| failed(*error))?;
        let partitions = work.progress();
        let mut counts = Counts::default();
        partitions.iter().for_each(|progress| counts += progress.counts);
        let layout = work.planner.layout();
        let schema = if work.files.is_empty() { work.planner.committable() } else { layout.schema().clone() };
        let id = &self.loaded.pipeline.id;
        let info = CommitInfo {
            format: 1,
            kind: CommitKind::Replay,
            pipeline: id.to_string(),
            generation: id.generation(),
            topic: self.loaded.pipeline.source.topic.clone(),
            topic_id: work.topic_id.clone(),
            partitions,
            plugins: self.loaded.plugins.references(),
            plan: Some(layout.plan_digest().to_owned()),
            replay: Some(chosen.number),
        };
        let mut flush = Flush { info, schema, files: work.files, dead_letters: Vec::new(), absent: BTreeSet::new() };
        Ok(match self.sink.commit_replay(&mut flush, chosen, again).await.map_err(failed)? {
            Outcome::Committed { .. } => Some(Replayed { number: Some(chosen.number), counts, ahead: chosen.ahead }),
            Outcome::AlreadyCommitted | Outcome::Fenced { .. } | Outcome::SchemaMoved { .. } => None,
        })
    }
}

fn failed(error: alluvium_delta::Error) -> Failure {
    Failure::classified(&error)
}

/// Letters that were read and not processed yet.
#[derive(Default)]
struct Held {
    letters: Vec<Letter>,
    bytes: usize,
}

impl Held {
    fn add(&mut self, letters: Vec<Letter>, waiting: &mut HashSet<Place>) {
        for letter in letters {
            if waiting.remove(&(letter.partition, letter.offset)) {
                self.bytes += letter.value.as_ref().map_or(0, Vec::len);
                self.letters.push(letter);
            }
        }
    }
}

/// Letters as chunks of their partitions, in the order of offsets. What lies between them is nobody's.
fn chunks(mut letters: Vec<Letter>) -> Result<Vec<Chunk>, Failure> {
    letters.sort_unstable_by_key(|letter| (letter.partition, letter.offset));
    let mut chunks = Vec::new();
    let mut rest = letters.as_slice();
    while let Some(first) = rest.first() {
        let mut bytes = 0;
        let fits = |letter: &&Letter| {
            bytes += letter.value.as_ref().map_or(0, Vec::len);
            letter.partition == first.partition && (letter.offset == first.offset || bytes <= CHUNK_BYTES)
        };
        let count = rest.iter().take(CHUNK).take_while(fits).count().max(1);
        let (own, after) = rest.split_at(count);
        chunks.push(chunk(first.partition, own)?);
        rest = after;
    }
    Ok(chunks)
}

fn chunk(partition: Partition, letters: &[Letter]) -> Result<Chunk, Failure> {
    let mut records = Records::default();
    for letter in letters {
        let Letter { offset, timestamp, key, value, headers, .. } = letter;
        let (key, value, headers) = (key.as_deref(), value.as_deref(), headers.as_deref());
        let record = Record { offset: *offset, timestamp: *timestamp, key, value, headers };
        records.push(record).map_err(|error| Failure::caused("dead letters do not fit into one chunk", &error))?;
    }
    let ends = (letters.first(), letters.last());
    let (from, to) = (ends.0.map_or(0, |letter| letter.offset), ends.1.map_or(0, |letter| letter.offset + 1));
    let span = Span::new(from, to).map_err(|error| Failure::caused("a dead letter has no offset", &error))?;
    Chunk::new(partition, span, records).map_err(|error| Failure::caused("dead letters are out of order", &error))
}

/// The stages, and what they made so far.
struct Work {
    planner: Arc<Planner>,
    stages: Stages,
    sink: Arc<DeltaSink>,
    writer: Option<(SchemaRef, DeltaFileWriter)>,
    files: Vec<DataFile>,
    again: Vec<DeadLetter>,
    /// The lowest and highest offset of each partition, and what became of its records.
    places: BTreeMap<Partition, (i64, i64, Counts)>,
    /// The table's own: nobody asks a broker for letters.
    topic_id: Option<TopicId>,
}

impl Work {
    fn new(replayer: &Replayer, state: &alluvium_core::seam::TableState) -> Result<Self, Failure> {
        let Loaded { pipeline, plugins, .. } = &replayer.loaded;
        let planner = Planner::new(pipeline, plugins, state).map_err(|error| Failure::classified(&error))?;
        let planner = Arc::new(planner);
        // These are all the bad records there are: that many of them fail says nothing of the plugin.
        let limits = Limits { trapping_share: 1.0, ..pipeline.limits.clone() };
        let tombstones = pipeline.source.tombstones;
        let stages = Stages::new(plugins.clone(), planner.clone(), tombstones, &limits, replayer.hook.clone());
        Ok(Self {
            planner,
            stages,
            sink: replayer.sink.clone(),
            writer: None,
            files: Vec::new(),
            again: Vec::new(),
            places: BTreeMap::new(),
            topic_id: state.topic_id.clone(),
        })
    }

    /// Plugins may take long: not on the threads that wait.
    async fn process_on_a_thread(mut self, chunks: Vec<Chunk>) -> Result<Self, Failure> {
        let work = tokio::task::spawn_blocking(move || {
            self.process(&chunks)?;
            Ok(self)
        });
        let done = work.await.map_err(|error| Failure::caused("the dead letters cannot be processed", &error))?;
        done.map_err(|error: Error| Failure::classified(&error))
    }

    fn process(&mut self, chunks: &[Chunk]) -> Result<(), Error> {
        if self.planner.needs_sample() {
            let mut shape = Shape::default();
            chunks.iter().try_for_each(|chunk| self.stages.observe(chunk, &mut shape))?;
            self.planner.learn(&shape)?;
        }
        chunks.iter().try_for_each(|chunk| self.chunk(chunk))
    }

    fn chunk(&mut self, chunk: &Chunk) -> Result<(), Error> {
        match self.stages.process(chunk) {
            Ok(processed) => self.take(chunk, processed),
            // Together they are too many for the search; one by one each has its own time.
            Err(Error::TooManyFailures { .. } | Error::Multiplied { .. }) if chunk.records().len() > 1 => {
                (0..chunk.records().len()).try_for_each(|index| self.chunk(&single(chunk, index)?))
            }
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, chunk: &Chunk, processed: Processed) -> Result<(), Error> {
        let (partition, span) = (chunk.partition(), chunk.span());
        let encode = |source| Error::Encode { partition, span, source: Fault::new(source) };
        let schema = processed.layout.schema();
        if processed.batch.num_rows() > 0 {
            let is_other =
                |(open, writer): &(SchemaRef, DeltaFileWriter)| open != schema || writer.memory() >= WRITER_BYTES;
            if self.writer.as_ref().is_some_and(is_other) {
                self.close().map_err(|error| encode(*error))?;
            }
            if self.writer.is_none() {
                self.writer = Some((schema.clone(), self.sink.writer(schema.clone()).map_err(encode)?));
            }
            if let Some((_, writer)) = &mut self.writer {
                writer.write(&processed.batch).map_err(encode)?;
            }
        }
        self.again.extend(processed.dead_letters);
        let place = |offset| (offset, offset, Counts::default());
        let (low, high, counts) = self.places.entry(partition).or_insert_with(|| place(span.from()));
        (*low, *high) = ((*low).min(span.from()), (*high).max(span.to() - 1));
        *counts += processed.counts;
        Ok(())
    }

    fn filtered(&mut self, (partition, offset): Place) {
        let (low, high, counts) = self.places.entry(partition).or_insert((offset, offset, Counts::default()));
        (*low, *high) = ((*low).min(offset), (*high).max(offset));
        *counts += Counts { read: 1, filtered: 1, ..Counts::default() };
    }

    fn close(&mut self) -> Result<(), Box<alluvium_delta::Error>> {
        if let Some((_, writer)) = self.writer.take() {
            self.files.extend(writer.finish().map_err(Box::new)?);
        }
        Ok(())
    }

    fn progress(&self) -> Vec<PartitionProgress> {
        let progress = |(partition, (low, high, counts)): (&Partition, &(i64, i64, Counts))| {
            let span = Span::new(*low, high + 1).ok()?;
            Some(PartitionProgress { partition: *partition, span, counts: *counts })
        };
        self.places.iter().filter_map(progress).collect()
    }
}

/// One record of a chunk as a chunk of its own.
fn single(chunk: &Chunk, index: usize) -> Result<Chunk, Error> {
    let broken = |message: String| Error::Worker { message };
    let mut records = Records::default();
    let mut span = Span::empty(0);
    if let Some(record) = chunk.records().get(index) {
        span = Span::new(record.offset, record.offset + 1).map_err(|error| broken(error.to_string()))?;
        records.push(record).map_err(|error| broken(error.to_string()))?;
    }
    Chunk::new(chunk.partition(), span, records).map_err(|error| broken(error.to_string()))
}

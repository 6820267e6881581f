//! The two seams at which IO is plugged in: [`Source`] and [`Table`].
//!
//! Each has a real implementation and a faulty one for tests; both pass one conformance suite.

use crate::{Chunk, Classified, CommitInfo, DeadLetter, Partition, TopicId, position::Watermarks};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;

/// What a source has to tell.
#[derive(Debug)]
pub enum Event {
    /// Records of an assigned partition, following those before without a gap.
    Chunk(Chunk),
    /// Partitions were given to this process. Nothing is read of them until `ack` has been told
    /// where each starts.
    Assigned { partitions: Vec<Partition>, ack: Ack<Vec<(Partition, i64)>> },
    /// Partitions are being taken away. The source holds the rebalance until `ack` is called, so
    /// that flushed work can be committed first. With `lost`, they already belong to another.
    Revoked { partitions: Vec<Partition>, lost: bool, ack: Ack<()> },
}

/// An answer that the source waits for. Dropping it unanswered answers with the default.
pub struct Ack<T: Default> {
    answer: Option<Box<dyn FnOnce(T) + Send + Sync>>,
}

impl<T: Default> Ack<T> {
    pub fn new(answer: impl FnOnce(T) + Send + Sync + 'static) -> Self {
        Self { answer: Some(Box::new(answer)) }
    }

    pub fn send(mut self, value: T) {
        if let Some(answer) = self.answer.take() {
            answer(value);
        }
    }
}

impl<T: Default> Drop for Ack<T> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            answer(T::default());
        }
    }
}

impl<T: Default> fmt::Debug for Ack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ack")
    }
}

/// A topic being read by a member of a consumer group.
pub trait Source: Send + 'static {
    type Error: Classified;

    /// The next event. Cancel safe: a dropped call loses nothing.
    fn next(&mut self) -> impl Future<Output = Result<Event, Self::Error>> + Send;

    /// The id of the topic of this name now; `None` when the source cannot tell. Does not borrow
    /// the source, so that a flush can ask before its commit.
    fn topic_id(&self) -> impl Future<Output = Result<Option<TopicId>, Self::Error>> + Send + 'static {
        std::future::ready(Ok(None))
    }

    /// All partitions of the topic, assigned here or not.
    fn partitions(&self) -> impl Future<Output = Result<Vec<Partition>, Self::Error>> + Send;

    /// What the broker holds of a partition now.
    fn watermarks(&self, partition: Partition) -> impl Future<Output = Result<Watermarks, Self::Error>> + Send;

    /// The first offset whose record's timestamp is at or after `timestamp` (milliseconds since the
    /// epoch); the high watermark when there is none.
    fn offset_at(&self, partition: Partition, timestamp: i64) -> impl Future<Output = Result<i64, Self::Error>> + Send;

    /// Reads assigned partitions anew from these positions. Chunks made before may still arrive, and
    /// records may repeat; the first chunk made after starts exactly at its position. Errors about a
    /// position of the time before are not told any more.
    fn seek(&self, positions: &[(Partition, i64)]) -> Result<(), Self::Error>;

    /// Stops fetching until [`Source::resume`], staying in the group.
    fn pause(&self);

    fn resume(&self);

    /// Tells the broker the committed positions, for lag dashboards only; nothing reads them back.
    fn publish(&self, positions: &[(Partition, i64)]);

    /// Leaves the group.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}

/// The state of a table that a pipeline starts from.
#[derive(Clone, Debug, Default)]
pub struct TableState {
    /// The table's schema; `None` while there is no table.
    pub schema: Option<SchemaRef>,
    /// The table's partition columns.
    pub partition_by: Vec<String>,
    /// Stored positions of the pipeline, by partition of the topic.
    pub positions: Vec<(Partition, i64)>,
    /// The id of the topic that the positions belong to, by the pipeline's newest commit that names
    /// one; `None` when no commit that is still in the log does.
    pub topic_id: Option<TopicId>,
}

/// A flush: files and dead letters of the spans that `info` names, to be committed at once.
#[derive(Debug)]
pub struct Flush<F> {
    pub info: CommitInfo,
    /// The schema that the files' rows need; the table grows to it first.
    pub schema: SchemaRef,
    pub files: Vec<F>,
    pub dead_letters: Vec<DeadLetter>,
    /// Partitions for which no position may stand for their span's start; see [`crate::commit::Claim`].
    pub absent: BTreeSet<Partition>,
}

/// What became of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed {
        version: u64,
    },
    /// An earlier try had landed.
    AlreadyCommitted,
    /// Another writer moved a partition: drop the work, read on from what the table says.
    Fenced {
        found: Vec<(Partition, Option<i64>)>,
    },
    /// The table's schema changed so that the files' rows no longer fit: plan anew, and read again.
    SchemaMoved {
        column: String,
    },
}

impl Outcome {
    /// Whether work done since the flush stands. Otherwise all of it is dropped, and reading goes on
    /// from what the table says.
    pub fn holds(&self) -> bool {
        matches!(self, Self::Committed { .. } | Self::AlreadyCommitted)
    }
}

/// Encodes rows into data files, on the calling thread.
pub trait RowWriter: Send {
    type File: Send + 'static;
    type Error: Classified;

    /// Appends rows; the batch's schema is the writer's.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Self::Error>;

    /// Bytes held in memory.
    fn memory(&self) -> usize;

    /// The finished files, still in memory.
    fn finish(self) -> Result<Vec<Self::File>, Self::Error>;
}

/// A table and the dead letters beside it.
pub trait Table: Send + Sync + 'static {
    type Error: Classified;
    type File: Send + 'static;
    type Writer: RowWriter<File = Self::File, Error = Self::Error>;

    /// Reads the newest state, after writing the dead letters that an interrupted commit owes.
    fn load(&self) -> impl Future<Output = Result<TableState, Self::Error>> + Send;

    /// The table's schema as this handle saw it last: after a commit, that of the version committed.
    /// `None` while there is no table. Does no IO.
    fn known_schema(&self) -> Option<SchemaRef>;

    /// A writer of rows of `schema`. Does no IO.
    fn writer(&self, schema: SchemaRef) -> Result<Self::Writer, Self::Error>;

    /// Commits a flush as one transaction, by the steps of [`crate::commit`]: uploads its files, grows the
    /// schema, commits the rows, then their dead letters. Creates tables that are absent. May be called
    /// again with the same flush after an error.
    fn commit(&self, flush: &mut Flush<Self::File>) -> impl Future<Output = Result<Outcome, Self::Error>> + Send;
}

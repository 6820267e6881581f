//! Records into chunks whose spans join. Pure: no IO, and the time is an argument.

use crate::error::PackError;
use alluvium_core::{Chunk, Partition, Records, Span, chunk::Record};
use std::{
    mem,
    time::{Duration, Instant},
};

/// When a chunk is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) records: usize,
    /// Of keys, values and headers. One record may be larger.
    pub(crate) bytes: usize,
    /// How long a record may wait for others.
    pub(crate) linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { records: 1000, bytes: 1 << 20, linger: Duration::from_millis(50) }
    }
}

/// A chunk, and which seek of its partition it was read after.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) chunk: Chunk,
    pub(crate) epoch: u64,
}

/// Packs the records of the partitions that were started; those of others it drops.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    lanes: Vec<Lane>,
    /// Index of the lane used last: records come in runs of one partition.
    last: usize,
    limits: Limits,
}

#[derive(Debug)]
struct Lane {
    partition: Partition,
    epoch: u64,
    /// Where the next chunk's span starts.
    position: i64,
    /// The lowest offset not yet taken.
    next: i64,
    records: Records,
    bytes: usize,
    /// When the oldest waiting record came.
    since: Option<Instant>,
    /// Records and bytes of the chunk before, to allocate once.
    before: (usize, usize),
}

impl Packer {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes records of a partition from `position` on; what waited of it is dropped.
    pub(crate) fn start(&mut self, partition: Partition, position: i64, epoch: u64) {
        self.stop(partition);
        self.lanes.push(Lane {
            partition,
            epoch,
            position,
            next: position,
            records: Records::default(),
            bytes: 0,
            since: None,
            before: (0, 0),
        });
    }

    /// Takes no more records of a partition, and drops those that wait. Returns the position up to
    /// which chunks were made.
    pub(crate) fn stop(&mut self, partition: Partition) -> Option<i64> {
        let index = self.lanes.iter().position(|lane| lane.partition == partition)?;
        Some(self.lanes.swap_remove(index).position)
    }

    /// Where the next chunk of a started partition starts.
    pub(crate) fn position(&self, partition: Partition) -> Option<i64> {
        self.lanes.iter().find(|lane| lane.partition == partition).map(|lane| lane.position)
    }

    /// Takes a record. Returns the chunk before it when the record does not fit into that, or the
    /// one that it makes full. Records before the position, or seen already, are dropped.
    pub(crate) fn push(
        &mut self,
        partition: Partition,
        record: Record<'_>,
        now: Instant,
    ) -> Result<Option<Packed>, PackError> {
        let limits = self.limits;
        let Some(lane) = self.lane(partition) else { return Ok(None) };
        if record.offset < lane.next {
            return Ok(None);
        }
        let bytes = [record.key, record.value, record.headers].into_iter().flatten().map(<[u8]>::len).sum::<usize>();
        let mut full = None;
        if !lane.records.is_empty() && lane.bytes + bytes > limits.bytes {
            full = lane.pack(lane.next)?;
        }
        if lane.records.is_empty() {
            let (records, value_bytes) = lane.before;
            lane.records = Records::with_capacity(records, value_bytes);
            lane.since = Some(now);
        }
        lane.records.push(record)?;
        lane.bytes += bytes;
        lane.next = record.offset + 1;
        if full.is_none() && lane.records.len() >= limits.records {
            full = lane.pack(lane.next)?;
        }
        Ok(full)
    }

    /// The partition holds nothing more below `offset`: the chunk up to there, unless its span were
    /// empty. Covers offsets without records: transaction markers, compacted ones.
    pub(crate) fn end(&mut self, partition: Partition, offset: i64) -> Result<Option<Packed>, PackError> {
        match self.lane(partition) {
            Some(lane) => {
                lane.next = lane.next.max(offset);
                lane.pack(lane.next)
            }
            None => Ok(None),
        }
    }

    /// The chunk of a partition's waiting records.
    pub(crate) fn flush(&mut self, partition: Partition) -> Result<Option<Packed>, PackError> {
        match self.lane(partition) {
            Some(lane) => lane.pack(lane.next),
            None => Ok(None),
        }
    }

    /// The partitions whose records have waited long enough; with `dry`, all that have any.
    pub(crate) fn due(&self, now: Instant, dry: bool) -> Vec<Partition> {
        let waits = |lane: &&Lane| {
            lane.since.is_some_and(|since| dry || now.saturating_duration_since(since) >= self.limits.linger)
        };
        self.lanes.iter().filter(waits).map(|lane| lane.partition).collect()
    }

    fn lane(&mut self, partition: Partition) -> Option<&mut Lane> {
        if self.lanes.get(self.last).is_none_or(|lane| lane.partition != partition) {
            self.last = self.lanes.iter().position(|lane| lane.partition == partition)?;
        }
        self.lanes.get_mut(self.last)
    }
}

impl Lane {
    fn pack(&mut self, to: i64) -> Result<Option<Packed>, PackError> {
        if to <= self.position {
            return Ok(None);
        }
        let span = Span::new(self.position, to)?;
        let records = mem::take(&mut self.records);
        if !records.is_empty() {
            self.before = (records.len(), records.values().data().len());
        }
        self.bytes = 0;
        self.since = None;
        self.position = to;
        Ok(Some(Packed { chunk: Chunk::new(self.partition, span, records)?, epoch: self.epoch }))
    }
}

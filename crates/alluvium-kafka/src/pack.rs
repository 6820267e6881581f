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

    /// The lowest offset of a started partition that was not taken yet.
    pub(crate) fn next(&self, partition: Partition) -> Option<i64> {
        self.lanes.iter().find(|lane| lane.partition == partition).map(|lane| lane.next)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn record(offset: i64, value: &[u8]) -> Record<'_> {
        Record { offset, timestamp: offset, key: None, value: Some(value), headers: None }
    }

    fn packer(records: usize, bytes: usize) -> Packer {
        Packer::new(Limits { records, bytes, linger: Duration::from_millis(50) })
    }

    /// What a partition holds: visible offsets, and where it ends (behind them, or behind markers).
    #[derive(Clone, Debug)]
    struct Log {
        visible: Vec<i64>,
        end: i64,
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// The next records come.
        Deliver(usize),
        /// Some that came before come again, as after a pause.
        Again(usize),
        /// The rest comes, and the end.
        End,
        Flush,
        Seek(i64),
        Stop,
    }

    fn logs() -> impl Strategy<Value = Vec<Log>> {
        let log = (prop::collection::vec(1..4i64, 0..60), 0..5i64).prop_map(|(gaps, markers)| {
            let mut next = -1;
            let visible: Vec<_> = gaps.iter().map(|gap| (next += gap, next).1).collect();
            Log { visible, end: next + 1 + markers }
        });
        prop::collection::vec(log, 1..4)
    }

    fn ops() -> impl Strategy<Value = Vec<(usize, Op)>> {
        let op = prop_oneof![
            5 => (1..20usize).prop_map(Op::Deliver),
            1 => (1..20usize).prop_map(Op::Again),
            1 => Just(Op::End),
            1 => Just(Op::Flush),
            1 => (0..150i64).prop_map(Op::Seek),
            1 => Just(Op::Stop),
        ];
        prop::collection::vec((0..4usize, op), 0..80)
    }

    /// A partition as the test sees it: where reading started, what came, where the broker is.
    struct Model {
        from: i64,
        at: i64,
        epoch: u64,
        seen: Vec<i64>,
        /// Index of the next visible record that the broker sends.
        next: usize,
    }

    proptest! {
        #[test]
        fn spans_join_and_hold_every_record_once(
            logs in logs(),
            ops in ops(),
            records in 1..8usize,
            bytes in 1..40usize,
        ) {
            let mut packer = packer(records, bytes);
            let mut models: BTreeMap<i32, Model> = BTreeMap::new();
            let mut epoch = 0;
            let now = Instant::now();
            for (index, op) in ops {
                let number = index % logs.len();
                let (partition, log) = (Partition(number as i32), &logs[number]);
                let mut out = Vec::new();
                match op {
                    Op::Seek(position) => {
                        let position = position.min(log.end);
                        epoch += 1;
                        packer.start(partition, position, epoch);
                        let next = log.visible.partition_point(|offset| *offset < position);
                        models.insert(partition.0, Model { from: position, at: position, epoch, seen: vec![], next });
                    }
                    Op::Stop => {
                        let at = packer.stop(partition);
                        prop_assert_eq!(at, models.remove(&partition.0).map(|model| model.at));
                    }
                    Op::Deliver(_) | Op::Again(_) | Op::End => {
                        // Of partitions that are not read, records may come too.
                        let next = models.get(&partition.0).map_or(0, |model| model.next);
                        let (from, to) = match op {
                            Op::Deliver(count) => (next, (next + count).min(log.visible.len())),
                            Op::Again(count) => (next.saturating_sub(count), next),
                            _ => (next, log.visible.len()),
                        };
                        for offset in &log.visible[from..to] {
                            let value = vec![b'x'; (*offset % 13) as usize];
                            out.extend(packer.push(partition, record(*offset, &value), now).unwrap());
                        }
                        if matches!(op, Op::End) {
                            out.extend(packer.end(partition, log.end).unwrap());
                        }
                        if let Some(model) = models.get_mut(&partition.0) {
                            model.next = to.max(next);
                        }
                    }
                    Op::Flush => out.extend(packer.flush(partition).unwrap()),
                }
                for Packed { chunk, epoch } in out {
                    let model = models.get_mut(&chunk.partition().0).expect("a chunk of a partition that is not read");
                    prop_assert_eq!(epoch, model.epoch);
                    prop_assert_eq!(chunk.span().from(), model.at);
                    prop_assert!(chunk.span().to() > model.at);
                    prop_assert!(chunk.records().len() <= records);
                    let values = chunk.records().values().data().len();
                    prop_assert!(values <= bytes || chunk.records().len() == 1, "{} bytes", values);
                    model.at = chunk.span().to();
                    model.seen.extend(chunk.records().offsets());
                }
                for (number, model) in &models {
                    let log = &logs[*number as usize];
                    let expected: Vec<_> =
                        log.visible.iter().copied().filter(|o| (model.from..model.at).contains(o)).collect();
                    prop_assert_eq!(&model.seen, &expected);
                    prop_assert_eq!(packer.position(Partition(*number)), Some(model.at));
                }
            }
            // What the broker had sent comes out at the end.
            for (number, model) in models {
                let last = packer.flush(Partition(number)).unwrap();
                let at = last.map_or(model.at, |packed| packed.chunk.span().to());
                let sent = logs[number as usize].visible[..model.next].last().map_or(0, |offset| offset + 1);
                prop_assert!(at >= sent.max(model.from));
            }
        }
    }

    #[test]
    fn a_record_larger_than_a_chunk_makes_one_of_its_own() {
        let mut packer = packer(100, 10);
        let now = Instant::now();
        packer.start(Partition(0), 5, 0);
        assert!(packer.push(Partition(0), record(5, b"abc"), now).unwrap().is_none());
        let before = packer.push(Partition(0), record(6, &[0; 100]), now).unwrap().unwrap().chunk;
        assert_eq!((before.span(), before.records().len()), (Span::new(5, 6).unwrap(), 1));
        let large = packer.push(Partition(0), record(9, b"d"), now).unwrap().unwrap().chunk;
        assert_eq!((large.span(), large.records().len()), (Span::new(6, 7).unwrap(), 1));
    }

    #[test]
    fn records_wait_for_others_a_while_only() {
        let mut packer = packer(100, 1000);
        let now = Instant::now();
        packer.start(Partition(0), 0, 0);
        packer.start(Partition(1), 0, 0);
        packer.push(Partition(1), record(0, b"a"), now).unwrap();
        assert_eq!(packer.due(now + Duration::from_millis(49), false), []);
        assert_eq!(packer.due(now + Duration::from_millis(50), false), [Partition(1)]);
        assert_eq!(packer.due(now, true), [Partition(1)]);
        packer.flush(Partition(1)).unwrap().unwrap();
        assert_eq!(packer.due(now + Duration::from_secs(1), true), []);
    }

    #[test]
    fn an_end_without_records_covers_markers() {
        let mut packer = packer(100, 1000);
        packer.start(Partition(0), 7, 3);
        let packed = packer.end(Partition(0), 9).unwrap().unwrap();
        assert_eq!((packed.epoch, packed.chunk.span()), (3, Span::new(7, 9).unwrap()));
        assert!(packed.chunk.records().is_empty());
        assert!(packer.end(Partition(0), 9).unwrap().is_none());
        assert!(packer.end(Partition(0), 8).unwrap().is_none());
        assert!(packer.end(Partition(1), 8).unwrap().is_none());
    }
}

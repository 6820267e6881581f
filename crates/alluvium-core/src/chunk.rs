//! Records of one partition with the span they cover.

use crate::{Packed, Partition, Span, packed::PackedFull};

/// The timestamp of a record that has none.
pub const NO_TIMESTAMP: i64 = -1;

/// Records column by column; all columns have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    keys: Packed,
    values: Packed,
    headers: Packed,
}

/// One record, as it is appended to [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub offset: i64,
    /// Milliseconds since the epoch, or [`NO_TIMESTAMP`].
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// As [`encode_headers`] makes them; `None` when the record has none.
    pub headers: Option<&'a [u8]>,
}

impl Records {
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Self {
            offsets: Vec::with_capacity(records),
            timestamps: Vec::with_capacity(records),
            keys: Packed::with_capacity(records, records * 8),
            values: Packed::with_capacity(records, bytes),
            headers: Packed::default(),
        }
    }

    pub fn push(&mut self, record: Record<'_>) -> Result<(), PackedFull> {
        self.values.push(record.value)?;
        self.keys.push(record.key)?;
        self.headers.push(record.headers)?;
        self.offsets.push(record.offset);
        self.timestamps.push(record.timestamp);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// Milliseconds since the epoch, or [`NO_TIMESTAMP`].
    pub fn timestamps(&self) -> &[i64] {
        &self.timestamps
    }

    pub fn keys(&self) -> &Packed {
        &self.keys
    }

    pub fn values(&self) -> &Packed {
        &self.values
    }

    pub fn into_values(self) -> Packed {
        self.values
    }

    pub fn headers(&self) -> &Packed {
        &self.headers
    }

    /// The record at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<Record<'_>> {
        Some(Record {
            offset: *self.offsets.get(index)?,
            timestamp: *self.timestamps.get(index)?,
            key: self.keys.get(index),
            value: self.values.get(index),
            headers: self.headers.get(index),
        })
    }

    /// Bytes held in memory, for budgets.
    pub fn memory(&self) -> usize {
        let numbers = self.offsets.capacity() + self.timestamps.capacity();
        numbers * size_of::<i64>() + self.keys.memory() + self.values.memory() + self.headers.memory()
    }
}

/// Consecutive records of one partition with the span they cover. The span rides with the data
/// through every stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    partition: Partition,
    span: Span,
    records: Records,
}

/// Records that do not lie in their span in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    #[error("record at offset {offset} of partition {partition} lies outside its chunk's span {span}")]
    Outside { partition: Partition, span: Span, offset: i64 },
    #[error("record at offset {offset} of partition {partition} follows offset {before}")]
    Order { partition: Partition, before: i64, offset: i64 },
}

/// A chunk on its arrival.
#[expect(clippy::large_enum_variant, reason = "almost every arrival is a chunk: boxing it would gain nothing")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// What follows, without what was known before.
    Next(Chunk),
    /// Nothing new.
    Known,
    /// Records between are missing: they must be read first.
    Gap,
}

impl Chunk {
    /// A chunk; its records' offsets must rise and lie in `span`. No records at all is a span
    /// that holds none (transaction markers, compaction).
    pub fn new(partition: Partition, span: Span, records: Records) -> Result<Self, ChunkError> {
        if let Some(pair) = records.offsets.windows(2).find(|pair| pair[1] <= pair[0]) {
            return Err(ChunkError::Order { partition, before: pair[0], offset: pair[1] });
        }
        let ends = [records.offsets.first(), records.offsets.last()];
        if let Some(offset) = ends.into_iter().flatten().find(|offset| !span.contains(**offset)) {
            return Err(ChunkError::Outside { partition, span, offset: *offset });
        }
        Ok(Self { partition, span, records })
    }

    /// What to do with a chunk that arrives when `next` is the next offset to take. A source that was
    /// told to read anew may repeat what is already known.
    pub fn arrive(self, next: i64) -> Arrival {
        if self.span.from() > next {
            return Arrival::Gap;
        }
        self.starting_at(next).map_or(Arrival::Known, Arrival::Next)
    }

    /// The part of the chunk from `offset` on; `None` when the span ends before or does not reach
    /// back to `offset`.
    fn starting_at(self, offset: i64) -> Option<Self> {
        if self.span.from() == offset {
            return Some(self);
        }
        let span = Span::new(offset, self.span.to()).ok().filter(|_| self.span.contains(offset))?;
        let mut records = Records::default();
        let first = self.records.offsets.partition_point(|found| *found < offset);
        for index in first..self.records.len() {
            records.push(self.records.get(index)?).ok()?;
        }
        Some(Self { partition: self.partition, span, records })
    }

    pub fn partition(&self) -> Partition {
        self.partition
    }

    pub fn span(&self) -> Span {
        self.span
    }

    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Bytes held in memory, for budgets.
    pub fn memory(&self) -> usize {
        self.records.memory()
    }
}

/// A header of a Kafka record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub key: &'a str,
    pub value: Option<&'a [u8]>,
}

/// Packs headers into one byte string: for each, the length of the key (u32, little endian), the
/// key, the length of the value plus one (u32; 0 for a null value), the value.
pub fn encode_headers<'a>(headers: impl IntoIterator<Item = Header<'a>>, out: &mut Vec<u8>) {
    for header in headers {
        // Kafka bounds a whole record well below 4 GiB.
        out.extend_from_slice(&(header.key.len() as u32).to_le_bytes());
        out.extend_from_slice(header.key.as_bytes());
        let length = header.value.map_or(0, |value| value.len() as u32 + 1);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(header.value.unwrap_or_default());
    }
}

/// The headers that [`encode_headers`] packed; stops at the first that is cut off.
pub fn decode_headers(packed: &[u8]) -> Vec<Header<'_>> {
    let mut headers = Vec::new();
    let mut rest = packed;
    while let Some((header, left)) = decode_header(rest) {
        headers.push(header);
        rest = left;
    }
    headers
}

fn decode_header(bytes: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let (key_length, rest) = decode_length(bytes)?;
    let (key, rest) = rest.split_at_checked(key_length)?;
    let key = std::str::from_utf8(key).ok()?;
    let (value_length, rest) = decode_length(rest)?;
    let Some(value_length) = value_length.checked_sub(1) else {
        return Some((Header { key, value: None }, rest));
    };
    let (value, rest) = rest.split_at_checked(value_length)?;
    Some((Header { key, value: Some(value) }, rest))
}

fn decode_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*length) as usize, rest))
}

//! Buffers of values, which can be cut back: Arrow's builders cannot.
//!
//! No buffer can outgrow the 32-bit offsets of Arrow: each value takes at least the bytes of its
//! JSON text, and the decoder takes less than 2 GiB of records for one batch.

use arrow_array::{ArrowPrimitiveType, BooleanArray, GenericByteArray, PrimitiveArray, types::ByteArrayType};
use arrow_buffer::{
    ArrowNativeType, BooleanBufferBuilder, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::ArrowError;

/// Room for a usual chunk's records.
const CAPACITY: usize = 1024;

/// An empty vector with the room that `used` took, and some more.
fn emptied<T>(used: &mut Vec<T>) -> Vec<T> {
    let room = used.len() + used.len() / 8;
    std::mem::replace(used, Vec::with_capacity(room))
}

/// Values of a fixed width.
pub(super) struct Values<T> {
    values: Vec<T>,
    validity: NullBufferBuilder,
}

impl<T: ArrowNativeType> Values<T> {
    pub(super) fn new() -> Self {
        Self { values: Vec::with_capacity(CAPACITY), validity: NullBufferBuilder::new(CAPACITY) }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    #[inline(always)]
    pub(super) fn push(&mut self, value: T) {
        self.values.push(value);
        self.validity.append_non_null();
    }

    /// Appends a value if there is one; whether there was.
    #[inline(always)]
    pub(super) fn push_some(&mut self, value: Option<T>) -> bool {
        if let Some(value) = value {
            self.push(value);
        }
        value.is_some()
    }

    pub(super) fn push_null(&mut self) {
        self.values.push(T::default());
        self.validity.append_null();
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
        self.validity.truncate(len);
    }

    pub(super) fn finish<P: ArrowPrimitiveType<Native = T>>(&mut self) -> Result<PrimitiveArray<P>, ArrowError> {
        PrimitiveArray::try_new(ScalarBuffer::from(emptied(&mut self.values)), self.validity.finish())
    }
}

pub(super) struct Booleans {
    values: BooleanBufferBuilder,
    validity: NullBufferBuilder,
}

impl Booleans {
    pub(super) fn new() -> Self {
        Self { values: BooleanBufferBuilder::new(CAPACITY), validity: NullBufferBuilder::new(CAPACITY) }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    #[inline(always)]
    pub(super) fn push(&mut self, value: bool) {
        self.values.append(value);
        self.validity.append_non_null();
    }

    pub(super) fn push_null(&mut self) {
        self.values.append(false);
        self.validity.append_null();
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
        self.validity.truncate(len);
    }

    pub(super) fn finish(&mut self) -> BooleanArray {
        BooleanArray::new(self.values.finish(), self.validity.finish())
    }
}

/// Where each value of variable length ends, and which values are null.
pub(super) struct Ends {
    /// The start of the first value, which is 0, then the end of each.
    ends: Vec<i32>,
    validity: NullBufferBuilder,
}

impl Ends {
    pub(super) fn new() -> Self {
        let mut ends = Vec::with_capacity(CAPACITY + 1);
        ends.push(0);
        Self { ends, validity: NullBufferBuilder::new(CAPACITY) }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// The end of the last value.
    pub(super) fn last(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, end: usize) {
        self.ends.push(end as i32);
        self.validity.append_non_null();
    }

    pub(super) fn push_null(&mut self) {
        self.push_nulls(1);
    }

    pub(super) fn push_nulls(&mut self, count: usize) {
        let end = self.last() as i32;
        self.ends.resize(self.ends.len() + count, end);
        self.validity.append_n_nulls(count);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.ends.truncate(len + 1);
        self.validity.truncate(len);
    }

    pub(super) fn finish(&mut self) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        let mut next = Vec::with_capacity(self.ends.len() + self.ends.len() / 8);
        next.push(0);
        let ends = std::mem::replace(&mut self.ends, next);
        (OffsetBuffer::new(ScalarBuffer::from(ends)), self.validity.finish())
    }
}

/// Strings and byte strings.
pub(super) struct Bytes {
    data: Vec<u8>,
    ends: Ends,
}

impl Bytes {
    pub(super) fn new() -> Self {
        Self { data: Vec::with_capacity(16 * CAPACITY), ends: Ends::new() }
    }

    /// No room taken beforehand: for a column that is hardly ever used.
    pub(super) fn empty() -> Self {
        let ends = Ends { ends: vec![0], validity: NullBufferBuilder::new(0) };
        Self { data: Vec::new(), ends }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline(always)]
    pub(super) fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.ends.push(self.data.len());
    }

    /// Appends what `write` appends, unless that fails.
    pub(super) fn push_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let before = self.data.len();
        let written = write(&mut self.data);
        match written {
            Ok(()) => self.ends.push(self.data.len()),
            Err(_) => self.data.truncate(before),
        }
        written
    }

    pub(super) fn push_null(&mut self) {
        self.ends.push_null();
    }

    pub(super) fn push_nulls(&mut self, count: usize) {
        self.ends.push_nulls(count);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.data.truncate(self.ends.last());
    }

    pub(super) fn finish<T: ByteArrayType<Offset = i32>>(&mut self) -> Result<GenericByteArray<T>, ArrowError> {
        let (offsets, nulls) = self.ends.finish();
        GenericByteArray::try_new(offsets, Buffer::from_vec(emptied(&mut self.data)), nulls)
    }
}

//! Byte strings back to back.

/// Many byte strings in one buffer, each possibly null. Appending copies the bytes once and
/// allocates nothing per value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    data: Vec<u8>,
    /// End of each value in `data`; the top bit marks a null.
    ends: Vec<u32>,
}

const NULL: u32 = 1 << 31;

/// The buffer is full: one buffer holds less than 2 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a packed buffer of {held} bytes cannot take {more} more: it holds less than 2 GiB")]
pub struct PackedFull {
    pub held: usize,
    pub more: usize,
}

impl Packed {
    pub fn with_capacity(values: usize, bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), ends: Vec::with_capacity(values) }
    }

    /// Appends a value; `None` is null.
    pub fn push(&mut self, value: Option<&[u8]>) -> Result<(), PackedFull> {
        let bytes = value.unwrap_or_default();
        let end = self.data.len() + bytes.len();
        let mark = u32::try_from(end).ok().filter(|e| e & NULL == 0);
        let mark = mark.ok_or(PackedFull { held: self.data.len(), more: bytes.len() })?;
        self.data.extend_from_slice(bytes);
        self.ends.push(if value.is_some() { mark } else { mark | NULL });
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The value at `index`; `None` when it is null or when there is none.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        if end & NULL != 0 {
            return None;
        }
        self.data.get(self.start(index)..end as usize)
    }

    fn start(&self, index: usize) -> usize {
        match index.checked_sub(1).and_then(|before| self.ends.get(before)) {
            Some(end) => (end & !NULL) as usize,
            None => 0,
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// All values' bytes, back to back.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Where the value at `index` lies in [`Packed::data`]: an empty range for a null.
    pub fn range(&self, index: usize) -> std::ops::Range<usize> {
        let start = self.start(index);
        let end = self.ends.get(index).map_or(start, |end| (end & !NULL) as usize);
        start..end
    }

    pub fn is_null(&self, index: usize) -> bool {
        self.ends.get(index).is_none_or(|end| end & NULL != 0)
    }

    /// Bytes held in memory, for budgets.
    pub fn memory(&self) -> usize {
        self.data.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

impl<'a> FromIterator<Option<&'a [u8]>> for Packed {
    /// Values past the 2 GiB limit are left out; use [`Packed::push`] where that can happen.
    fn from_iter<I: IntoIterator<Item = Option<&'a [u8]>>>(values: I) -> Self {
        let mut packed = Self::default();
        for value in values {
            if packed.push(value).is_err() {
                break;
            }
        }
        packed
    }
}

//! Byte strings back to back.

use crate::bindings::record as contract;

/// Byte strings back to back, read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packed<'a> {
    ends: &'a [u32],
    data: &'a [u8],
    validity: Option<&'a [u8]>,
}

impl<'a> Packed<'a> {
    /// `None` when it does not hold `count` strings.
    pub(crate) fn new(packed: &'a contract::Packed, count: usize) -> Option<Self> {
        let Self { ends, data, validity } =
            Self { ends: &packed.ends, data: &packed.data, validity: packed.validity.as_deref() };
        let rising = ends.windows(2).all(|pair| pair[0] <= pair[1]);
        let inside = ends.last().is_none_or(|end| *end as usize <= data.len());
        let enough = validity.is_none_or(|validity| validity.len() >= count.div_ceil(8));
        (ends.len() == count && rising && inside && enough).then_some(Self { ends, data, validity })
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |start| *start as usize);
        let there = self.validity.is_none_or(|v| v.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1));
        if there { self.data.get(start..end) } else { None }
    }

    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// Byte strings back to back, written.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    ends: Vec<u32>,
    pub(super) data: Vec<u8>,
    /// Absent until the first null.
    validity: Option<Vec<u8>>,
}

impl Packing {
    pub(super) fn with_capacity(strings: usize, bytes: usize) -> Self {
        Self { ends: Vec::with_capacity(strings), data: Vec::with_capacity(bytes), validity: None }
    }

    /// Ends the string whose bytes were appended to `data`; `None` when all together are over 4 GiB.
    #[inline]
    pub(super) fn close(&mut self) -> Option<()> {
        self.ends.push(u32::try_from(self.data.len()).ok()?);
        if self.validity.is_some() {
            self.mark(true);
        }
        Some(())
    }

    pub(crate) fn push(&mut self, string: Option<&[u8]>) -> Option<()> {
        let Some(string) = string else {
            self.ends.push(u32::try_from(self.data.len()).ok()?);
            self.mark(false);
            return Some(());
        };
        self.data.extend_from_slice(string);
        self.close()
    }

    /// Notes whether the last string is there.
    fn mark(&mut self, there: bool) {
        let last = self.ends.len().saturating_sub(1);
        let validity = self.validity.get_or_insert_with(|| {
            let mut ones = vec![0xff; last.div_ceil(8)];
            if let Some(byte) = ones.last_mut().filter(|_| !last.is_multiple_of(8)) {
                *byte = (1 << (last % 8)) - 1;
            }
            ones
        });
        match validity.get_mut(last / 8) {
            Some(byte) => *byte |= u8::from(there) << (last % 8),
            None => validity.push(u8::from(there)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Takes back all strings past the first `strings`.
    pub(super) fn truncate(&mut self, strings: usize) {
        let strings = strings.min(self.len());
        self.ends.truncate(strings);
        self.data.truncate(self.ends.last().map_or(0, |end| *end as usize));
        if let Some(validity) = &mut self.validity {
            validity.truncate(strings.div_ceil(8));
            if let Some(byte) = validity.last_mut().filter(|_| !strings.is_multiple_of(8)) {
                *byte &= (1 << (strings % 8)) - 1;
            }
        }
    }

    pub(crate) fn into_contract(self) -> contract::Packed {
        contract::Packed { ends: self.ends, data: self.data, validity: self.validity }
    }
}

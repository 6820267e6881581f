//! Byte strings of records, as the contract packs them.

use crate::contract::{PackedView, RawPacked};
use crate::error::InputProblem;
use crate::output::OutputError;
use alluvium_core::Packed;
use std::borrow::Cow;
use std::ops::Range;

/// The records handed in, by index.
pub(crate) enum Selection<'a> {
    All(usize),
    These(&'a [u32]),
}

impl Selection<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::These(indexes) => indexes.len(),
        }
    }

    /// The index of the record at a place of the selection.
    pub fn index(&self, at: usize) -> u32 {
        match self {
            Self::All(_) => at as u32,
            Self::These(indexes) => indexes.get(at).copied().unwrap_or(u32::MAX),
        }
    }
}

/// Byte strings of a selection, as the contract packs them.
pub(crate) struct Packing<'a> {
    ends: Vec<u32>,
    data: Cow<'a, [u8]>,
    validity: Option<Vec<u8>>,
}

impl Packing<'_> {
    pub fn view(&self) -> PackedView<'_> {
        PackedView { ends: &self.ends, data: &self.data, validity: self.validity.as_deref() }
    }
}

/// Byte strings as they are collected one by one.
#[derive(Default)]
pub(crate) struct Packer {
    ends: Vec<u32>,
    data: Vec<u8>,
    /// Indexes of nulls.
    nulls: Vec<usize>,
}

impl Packer {
    pub fn push(&mut self, bytes: Option<&[u8]>) -> Result<(), InputProblem> {
        if bytes.is_none() {
            self.nulls.push(self.ends.len());
        }
        self.data.extend_from_slice(bytes.unwrap_or_default());
        self.ends.push(u32::try_from(self.data.len()).map_err(|_| InputProblem::TooMany)?);
        Ok(())
    }

    pub fn finish(self) -> Packing<'static> {
        let validity = bitmap(self.ends.len(), &self.nulls);
        Packing { ends: self.ends, data: Cow::Owned(self.data), validity }
    }
}

/// A validity bitmap with the bits at `nulls` 0; `None` when there are none.
fn bitmap(length: usize, nulls: &[usize]) -> Option<Vec<u8>> {
    if nulls.is_empty() {
        return None;
    }
    let mut bits = vec![0xFF_u8; length.div_ceil(8)];
    if let Some(last) = bits.last_mut().filter(|_| !length.is_multiple_of(8)) {
        *last = (1 << (length % 8)) - 1;
    }
    for null in nulls {
        if let Some(byte) = bits.get_mut(null / 8) {
            *byte &= !(1 << (null % 8));
        }
    }
    Some(bits)
}

/// The strings of a range that is consecutive in `packed`: its bytes are not copied.
pub(crate) fn pack_run(packed: &Packed, run: Range<usize>) -> Packing<'_> {
    let start = packed.range(run.start).start;
    let mut ends = Vec::with_capacity(run.len());
    let mut nulls = Vec::new();
    let mut end = start;
    for (at, index) in run.enumerate() {
        end = packed.range(index).end;
        // `Packed` holds less than 2 GiB.
        ends.push((end - start) as u32);
        if packed.is_null(index) {
            nulls.push(at);
        }
    }
    let validity = bitmap(ends.len(), &nulls);
    Packing { ends, data: Cow::Borrowed(packed.data().get(start..end).unwrap_or_default()), validity }
}

/// Checks packed strings of a plugin: `count` of them, one after the other, up to the last byte.
pub(crate) fn unpack(what: &'static str, raw: RawPacked, count: usize, limit: usize) -> Result<Packed, OutputError> {
    if raw.ends.len() != count {
        return Err(OutputError::PackedLength { what, expected: count, found: raw.ends.len() });
    }
    if let Some(bitmap) = &raw.validity
        && bitmap.len() != count.div_ceil(8)
    {
        let (expected, found) = (count.div_ceil(8), bitmap.len());
        return Err(OutputError::PackedValidity { what, expected, found });
    }
    let mut packed = Packed::with_capacity(count, raw.data.len());
    let mut start = 0;
    for (output, end) in raw.ends.iter().copied().enumerate() {
        let bytes = raw.data.get(start..end as usize);
        let bytes = bytes.ok_or(OutputError::PackedEnd { what, output, end, bytes: raw.data.len() })?;
        let valid = |bitmap: &Vec<u8>| bitmap.get(output / 8).is_some_and(|byte| byte & (1 << (output % 8)) != 0);
        let value = raw.validity.as_ref().is_none_or(valid).then_some(bytes);
        packed.push(value).map_err(|_| OutputError::TooLarge { limit })?;
        start = end as usize;
    }
    if start != raw.data.len() {
        return Err(OutputError::PackedRest { what, end: start, bytes: raw.data.len() });
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn strings() -> impl Strategy<Value = Vec<Option<Vec<u8>>>> {
        prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..4)), 0..30)
    }

    fn raw(packing: &Packing<'_>) -> RawPacked {
        let view = packing.view();
        RawPacked { ends: view.ends.to_vec(), data: view.data.to_vec(), validity: view.validity.map(<[u8]>::to_vec) }
    }

    proptest! {
        #[test]
        fn strings_survive_the_way_through_the_contract(strings in strings(), cut in any::<(prop::sample::Index, prop::sample::Index)>()) {
            let packed: Packed = strings.iter().map(Option::as_deref).collect();
            let (a, b) = (cut.0.index(strings.len() + 1), cut.1.index(strings.len() + 1));
            let run = a.min(b)..a.max(b);
            let expected: Packed = strings[run.clone()].iter().map(Option::as_deref).collect();
            let mut packer = Packer::default();
            for string in &strings[run.clone()] {
                packer.push(string.as_deref()).unwrap();
            }
            for packing in [pack_run(&packed, run.clone()), packer.finish()] {
                prop_assert_eq!(unpack("values", raw(&packing), run.len(), usize::MAX).unwrap(), expected.clone());
            }
        }

        #[test]
        fn no_packed_strings_make_a_panic(
            ends in prop::collection::vec(prop_oneof![0_u32..20, any::<u32>()], 0..8),
            data in prop::collection::vec(any::<u8>(), 0..20),
            validity in prop::option::of(prop::collection::vec(any::<u8>(), 0..3)),
            count in 0_usize..8,
        ) {
            let length = data.len();
            if let Ok(packed) = unpack("values", RawPacked { ends, data, validity }, count, usize::MAX) {
                prop_assert_eq!(packed.len(), count);
                prop_assert!(packed.data().len() <= length);
            }
        }
    }
}

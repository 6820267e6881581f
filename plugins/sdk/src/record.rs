//! Plugins over records' bytes, before decoding: odd formats, envelopes, one record into several.
//!
//! `transform` is called for each [`Record`] and emits any number of outputs: none filters the
//! record, an error sends it to the dead letters with the error as its reason. What it emitted
//! before an error is taken back.
//!
//! ```
//! use alluvium_plugin::record::{Access, NoConfig, Output, Record, Result};
//!
//! fn access(_: &NoConfig, access: &mut Access) -> Result<()> {
//!     access.multiplies();
//!     Ok(())
//! }
//!
//! fn transform(_: &NoConfig, record: &Record, output: &mut Output) -> Result<()> {
//!     for line in std::str::from_utf8(record.value)?.lines() {
//!         output.emit(line.as_bytes());
//!     }
//!     Ok(())
//! }
//!
//! alluvium_plugin::record_plugin! { config: NoConfig, access: access, transform: transform }
//! # fn main() {}
//! ```

mod output;
mod packed;

use crate::bindings::record as contract;
pub use crate::{Error, NoConfig, Result};
pub use output::{Bytes, Output};
use packed::Packed;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use packed::{Packed as PackedStrings, Packing};

/// What a plugin wants to see besides the values, and whether it makes several records of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    keys: bool,
    headers: bool,
    timestamps: bool,
    multiplies: bool,
}

impl Access {
    /// `transform` sees the records' keys.
    pub fn keys(&mut self) -> &mut Self {
        self.keys = true;
        self
    }

    /// `transform` sees the records' headers.
    pub fn headers(&mut self) -> &mut Self {
        self.headers = true;
        self
    }

    /// `transform` sees the records' timestamps.
    pub fn timestamps(&mut self) -> &mut Self {
        self.timestamps = true;
        self
    }

    /// One record can become several.
    pub fn multiplies(&mut self) -> &mut Self {
        self.multiplies = true;
        self
    }

    pub(crate) fn to_contract(self) -> contract::Access {
        contract::Access {
            keys: self.keys,
            headers: self.headers,
            timestamps: self.timestamps,
            multiplies: self.multiplies,
        }
    }

    pub(crate) fn can_multiply(self) -> bool {
        self.multiplies
    }
}

/// A record.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Record<'a> {
    /// The value; records without one do not reach plugins.
    pub value: &'a [u8],
    /// The key; `None` when there is none, or when `access` does not ask for keys.
    pub key: Option<&'a [u8]>,
    /// Milliseconds since the epoch; `None` when there is none, or when `access` does not ask.
    pub timestamp: Option<i64>,
    /// The headers, in order; none when `access` does not ask for them.
    pub headers: Headers<'a>,
}

/// The headers of a record, in order. A name can be there several times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    names: Packed<'a>,
    values: Packed<'a>,
    next: usize,
    end: usize,
}

impl<'a> Headers<'a> {
    /// The value of the first header of this name; `Some(None)` when that is null.
    pub fn get(mut self, name: &str) -> Option<Option<&'a [u8]>> {
        self.find(|(found, _)| *found == name.as_bytes()).map(|(_, value)| value)
    }
}

/// Name and value of each header.
impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next;
        if index >= self.end {
            return None;
        }
        self.next += 1;
        Some((self.names.get(index).unwrap_or_default(), self.values.get(index)))
    }
}

/// The records of a chunk, as `transform` sees them.
pub(crate) struct Records<'a> {
    count: usize,
    values: Packed<'a>,
    keys: Option<Packed<'a>>,
    headers: Option<(&'a [u32], Packed<'a>, Packed<'a>)>,
    timestamps: Option<&'a [i64]>,
}

impl<'a> Records<'a> {
    pub(crate) fn new(chunk: &'a contract::Chunk) -> Result<Self> {
        let wrong = || Error::fault("the host handed a chunk whose parts do not fit together");
        let count = chunk.count as usize;
        let packed = |packed, count| Packed::new(packed, count).ok_or_else(wrong);
        let headers = match &chunk.headers {
            Some(headers) => {
                let total = headers.counts.iter().try_fold(0_usize, |total, count| total.checked_add(*count as usize));
                let total = total.filter(|_| headers.counts.len() == count).ok_or_else(wrong)?;
                Some((headers.counts.as_slice(), packed(&headers.names, total)?, packed(&headers.values, total)?))
            }
            None => None,
        };
        if chunk.timestamps.as_ref().is_some_and(|timestamps| timestamps.len() != count) {
            return Err(wrong());
        }
        Ok(Self {
            count,
            values: packed(&chunk.values, count)?,
            keys: chunk.keys.as_ref().map(|keys| packed(keys, count)).transpose()?,
            headers,
            timestamps: chunk.timestamps.as_deref(),
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Record<'a>)> {
        let mut header = 0;
        (0..self.count).map(move |index| {
            let headers = match self.headers {
                Some((counts, names, values)) => {
                    let end = header + counts.get(index).copied().unwrap_or_default() as usize;
                    Headers { names, values, next: std::mem::replace(&mut header, end), end }
                }
                None => Headers::default(),
            };
            let record = Record {
                value: self.values.get(index).unwrap_or_default(),
                key: self.keys.and_then(|keys| keys.get(index)),
                timestamp: self.timestamps.and_then(|timestamps| timestamps.get(index)).copied().filter(|t| *t >= 0),
                headers,
            };
            (index as u32, record)
        })
    }

    pub(crate) fn output(&self, access: Access) -> Output<'a> {
        Output::new(access, self.keys, self.count, self.values.bytes())
    }
}

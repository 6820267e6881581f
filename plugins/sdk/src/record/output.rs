//! What a plugin answers.

use super::packed::{Packed, Packing};
use super::{Access, Error, Result};
use crate::bindings::record as contract;
use std::io;

/// What becomes of the records.
#[derive(Debug)]
pub struct Output<'a> {
    access: Access,
    /// Keys of the inputs, when the plugin sees them.
    input_keys: Option<Packed<'a>>,
    /// The record at hand.
    input: u32,
    inputs: Vec<u32>,
    values: Packing,
    /// Absent until an output has a key of its own.
    keys: Option<Packing>,
    rejects: Vec<contract::Reject>,
    fault: Option<Error>,
}

/// Bytes being written: they go straight into the output's buffer. It is an [`io::Write`], so
/// `serde_json::to_writer` and `write!` work; writing never fails.
#[derive(Debug)]
pub struct Bytes<'a>(&'a mut Vec<u8>);

impl Bytes<'_> {
    /// Appends bytes.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl io::Write for Bytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> Output<'a> {
    pub(super) fn new(access: Access, input_keys: Option<Packed<'a>>, records: usize, bytes: usize) -> Self {
        Self {
            access,
            input_keys,
            input: 0,
            inputs: Vec::with_capacity(records),
            values: Packing::with_capacity(records, bytes),
            keys: None,
            rejects: Vec::new(),
            fault: None,
        }
    }

    /// Emits a value; the output keeps its record's key.
    #[inline]
    pub fn emit(&mut self, value: &[u8]) {
        self.values.data.extend_from_slice(value);
        self.close();
    }

    /// Emits what `write` writes; the output keeps its record's key.
    pub fn emit_with(&mut self, write: impl FnOnce(&mut Bytes<'_>) -> Result<()>) -> Result<()> {
        if let Err(error) = write(&mut Bytes(&mut self.values.data)) {
            self.values.truncate(self.inputs.len());
            return Err(error);
        }
        self.close();
        Ok(())
    }

    /// Emits a value with a key of its own, which may be null. When other outputs are emitted
    /// without one, `access` must ask for [`keys`](Access::keys).
    pub fn emit_keyed(&mut self, key: Option<&[u8]>, value: &[u8]) {
        let missing = self.inputs.len() - self.keys.as_ref().map_or(0, Packing::len);
        self.fill_keys(missing);
        let keys = self.keys.get_or_insert_default();
        if keys.push(key).is_none() {
            return self.fails("the keys are over 4 GiB");
        }
        self.emit(value);
    }

    fn close(&mut self) {
        if self.values.close().is_none() {
            return self.fails("the outputs are over 4 GiB");
        }
        if self.inputs.last() == Some(&self.input) && !self.access.can_multiply() {
            self.fails("a record is emitted twice, but `access` does not say `multiplies`");
        }
        self.inputs.push(self.input);
    }

    /// Gives the last outputs, `missing` in number, their inputs' keys.
    fn fill_keys(&mut self, missing: usize) {
        if missing == 0 {
            return;
        }
        let Some(input_keys) = self.input_keys else {
            return self.fails("some outputs have keys of their own and others not: then `access` must ask for keys");
        };
        let keys = self.keys.get_or_insert_default();
        for input in self.inputs.iter().skip(self.inputs.len() - missing) {
            if keys.push(input_keys.get(*input as usize)).is_none() {
                return self.fails("the keys are over 4 GiB");
            }
        }
    }

    fn fails(&mut self, message: &str) {
        self.fault.get_or_insert_with(|| Error::fault(message));
    }

    /// Runs `transform` for a record; an error of its takes back what it emitted.
    pub(crate) fn run(&mut self, input: u32, transform: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.input = input;
        let before = self.inputs.len();
        let Err(error) = transform(self) else { return Ok(()) };
        if error.is_fault() {
            return Err(error);
        }
        self.inputs.truncate(before);
        self.values.truncate(before);
        if let Some(keys) = &mut self.keys {
            keys.truncate(before);
        }
        self.rejects.push(contract::Reject { input, reason: error.into_message() });
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<contract::Output> {
        if let Some(keys) = &self.keys {
            let missing = self.inputs.len() - keys.len();
            // Keys that were all taken back again are none.
            if keys.len() == 0 {
                self.keys = None;
            } else {
                self.fill_keys(missing);
            }
        }
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(contract::Output {
                inputs: self.inputs,
                values: self.values.into_contract(),
                keys: self.keys.map(Packing::into_contract),
                rejects: self.rejects,
            }),
        }
    }
}

//! What a plugin may use.

use std::fmt;
use std::time::Duration;
use wasmtime::ResourceLimiter;

/// The bytes that a `describe` or `configure` may return: enough for every honest answer, and small
/// enough to be read without a bound on time.
pub(crate) const ANSWER_BYTES: usize = 1 << 20;

/// The bytes that a `plan` may return: room for ten thousand columns with their comments, whatever
/// the limit on what the calls for each chunk return.
pub(crate) const PLAN_BYTES: usize = 16 << 20;

/// Linear memories of one instance; guests that embed an interpreter have three.
pub(crate) const MEMORIES: u32 = 4;
/// Tables of one instance.
pub(crate) const TABLES: u32 = 8;
/// Elements of one table.
pub(crate) const TABLE_ELEMENTS: usize = 20_000;
/// Core modules of one instance; the largest known guests (CPython) have 38.
pub(crate) const CORE_INSTANCES: u32 = 64;

/// What a plugin may use in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of an instance's linear memories together.
    pub memory: usize,
    /// Wall clock time of one entry into the plugin, accurate to about 20 ms. The one limit whose
    /// outcome depends on the machine: leave honest calls room to be slow.
    pub time: Duration,
    /// Bytes that one call may return.
    pub output: usize,
    /// Rows or records that one call may return. The host widens each row of a column plugin by the
    /// columns that the plugin did not see, so this bounds what a small answer can cost.
    pub rows: usize,
    /// Elements of an instance's tables together.
    pub table_elements: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            time: Duration::from_secs(2),
            output: 64 << 20,
            rows: 1 << 20,
            table_elements: 100_000,
        }
    }
}

/// Charges one instance's memories and tables to its limits, and keeps what was refused, so that
/// the trap that follows can be told as what it is.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory_limit: usize,
    memory: usize,
    /// The growth that was allowed last: given back when it then fails.
    growing: usize,
    /// The total of linear memory that was asked for and refused.
    refused: Option<usize>,
    table_limit: usize,
    table_elements: usize,
    /// The host could not give memory that the limits allow.
    host_failure: Option<String>,
}

impl Limiter {
    pub fn new(limits: &Limits) -> Self {
        Self {
            memory_limit: limits.memory,
            memory: 0,
            growing: 0,
            refused: None,
            table_limit: limits.table_elements,
            table_elements: 0,
            host_failure: None,
        }
    }

    pub fn refused(&self) -> Option<usize> {
        self.refused
    }

    pub fn host_failure(&self) -> Option<&str> {
        self.host_failure.as_deref()
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.growing = 0;
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let more = desired.saturating_sub(current);
        let total = self.memory.saturating_add(more);
        if total > self.memory_limit {
            self.refused = Some(total);
            return Ok(false);
        }
        self.memory = total;
        self.growing = more;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        if self.growing == 0 {
            return Ok(());
        }
        // A failed growth that the plugin could see would make its answer depend on the machine's
        // state: trap instead.
        self.memory -= self.growing;
        self.growing = 0;
        self.host_failure = Some(format!("{error:#}"));
        Err(error)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let total = self.table_elements.saturating_add(desired.saturating_sub(current));
        if total > self.table_limit {
            return Ok(false);
        }
        self.table_elements = total;
        Ok(true)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        TABLES as usize
    }

    fn memories(&self) -> usize {
        MEMORIES as usize
    }
}

/// A number of bytes for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(usize, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let Some((size, unit)) = UNITS.into_iter().find(|(size, _)| self.0 >= *size) else {
            return write!(f, "{} bytes", self.0);
        };
        if self.0.is_multiple_of(size) {
            write!(f, "{} {unit}", self.0 / size)
        } else {
            write!(f, "{:.1} {unit}", self.0 as f64 / size as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn memories_share_one_limit_and_refusals_are_kept() {
        let mut limiter = Limiter::new(&Limits { memory: 3 << 16, ..Limits::default() });
        assert!(limiter.memory_growing(0, 1 << 16, None).unwrap());
        assert!(limiter.memory_growing(0, 2 << 16, None).unwrap());
        assert!(!limiter.memory_growing(1 << 16, 2 << 16, None).unwrap());
        assert_eq!(limiter.refused(), Some(4 << 16));
        assert_eq!(limiter.memory, 3 << 16);
    }

    #[test]
    fn a_module_s_own_maximum_is_not_our_refusal() {
        let mut limiter = Limiter::new(&Limits::default());
        assert!(!limiter.memory_growing(0, 2 << 16, Some(1 << 16)).unwrap());
        assert!(limiter.memory_grow_failed(wasmtime::Error::msg("maximum exceeded")).is_ok());
        assert_eq!((limiter.refused(), limiter.host_failure()), (None, None));
    }

    #[test]
    fn a_growth_that_the_machine_fails_is_given_back_and_traps() {
        let mut limiter = Limiter::new(&Limits::default());
        assert!(limiter.memory_growing(0, 1 << 16, None).unwrap());
        assert!(limiter.memory_grow_failed(wasmtime::Error::msg("out of memory")).is_err());
        assert_eq!(limiter.memory, 0);
        assert!(limiter.host_failure().is_some());
    }

    #[test]
    fn bytes_for_people() {
        assert_eq!(Bytes(64 << 20).to_string(), "64 MiB");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes(7).to_string(), "7 bytes");
    }
}

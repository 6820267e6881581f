//! What a running pipeline has done so far.

use alluvium_core::{Counts, Partition};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Figures of one pipeline, read by progress lines, metrics and tests.
#[derive(Debug, Default)]
pub struct Stats {
    /// Records taken from the source, committed or not.
    pub consumed: AtomicU64,
    /// Bytes held in memory.
    pub memory: AtomicU64,
    /// Records on the broker that are not committed yet; `u64::MAX` while unknown.
    pub lag: AtomicU64,
    state: Mutex<Committed>,
}

/// What has been committed.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    pub counts: Counts,
    pub commits: u64,
    /// Flushes dropped because another process had moved a partition.
    pub fenced: u64,
    pub last_commit: Option<(u64, Instant)>,
    /// The next offset to read, by assigned partition.
    pub positions: BTreeMap<Partition, i64>,
}

impl Stats {
    pub fn committed(&self) -> Committed {
        self.lock().clone()
    }

    pub(crate) fn commit(&self, counts: Counts, version: Option<u64>, at: Instant) {
        let mut state = self.lock();
        state.counts += counts;
        state.commits += 1;
        if let Some(version) = version {
            state.last_commit = Some((version, at));
        }
    }

    pub(crate) fn fence(&self) {
        self.lock().fenced += 1;
    }

    pub(crate) fn positions(&self, positions: impl IntoIterator<Item = (Partition, i64)>) {
        self.lock().positions = positions.into_iter().collect();
    }

    pub(crate) fn consume(&self, records: usize, memory: usize) {
        self.consumed.fetch_add(records as u64, Ordering::Relaxed);
        self.memory.store(memory as u64, Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Committed> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

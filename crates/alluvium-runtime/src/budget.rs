//! The bytes that a pipeline holds in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound on buffered bytes: consumption pauses past it.
#[derive(Clone, Debug)]
pub struct Budget {
    used: Arc<AtomicUsize>,
    limit: usize,
}

impl Budget {
    pub fn new(limit: usize) -> Self {
        Self { used: Arc::default(), limit }
    }

    pub fn charge(&self, bytes: usize) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { used: self.used.clone(), bytes }
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether nothing more should be read for now.
    pub fn is_spent(&self) -> bool {
        self.used() >= self.limit
    }

    /// Whether reading may go on after a pause: some way below the limit, so that it does not flap.
    pub fn has_room(&self) -> bool {
        self.used() < self.limit - self.limit / 4
    }
}

/// Bytes charged to a [`Budget`], given back on drop.
#[derive(Debug)]
pub struct Charge {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Charge {
    /// Changes the bytes charged.
    pub fn resize(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            self.used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.resize(0);
    }
}

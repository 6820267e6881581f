//! Where records went.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Where the records of a span went. Each record is exactly one of kept, filtered or rejected;
/// a kept record made one row or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Records read.
    pub read: u64,
    /// Records that became at least one row.
    pub kept: u64,
    /// Rows written.
    pub rows: u64,
    /// Records dropped on purpose, by a plugin or as tombstones.
    pub filtered: u64,
    /// Records sent to the dead letters.
    pub rejected: u64,
}

impl Counts {
    /// Whether every record read is accounted for once.
    pub fn balance(&self) -> bool {
        let sum = self.kept.checked_add(self.filtered).and_then(|sum| sum.checked_add(self.rejected));
        sum == Some(self.read) && self.rows >= self.kept
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.kept += other.kept;
        self.rows += other.rows;
        self.filtered += other.filtered;
        self.rejected += other.rejected;
    }
}

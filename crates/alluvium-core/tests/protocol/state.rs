//! What the model knows: two logs, the processes that write them, and what is on its way.

use alluvium_core::position::Cursor;
use alluvium_core::seam::Outcome;

/// Partitions, and records of each, at most.
pub const P: usize = 2;
pub const N: usize = 4;

/// A set of offsets of one partition.
pub type Offsets = u8;

/// What a snapshot of the rows' table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    pub version: u8,
    pub at: [Option<i64>; P],
    /// Whether the column is there that some rows need.
    pub wide: bool,
    /// Raised when another engine changes a column so that rows planned before no longer fit.
    pub shape: u8,
    pub named: Option<i64>,
    /// The letters of the newest commit that names some.
    pub letters: [Offsets; P],
}

/// The rows' table, with how often each offset is in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    pub head: Head,
    pub found: [[u8; N]; P],
    pub filtered: [Offsets; P],
}

/// The dead letters' table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Letters {
    pub version: u8,
    pub at: [Option<i64>; P],
    pub written: Option<i64>,
    pub found: [[u8; N]; P],
}

/// One partition's share of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub from: i64,
    pub to: i64,
    pub kept: Offsets,
    pub rejected: Offsets,
    pub filtered: Offsets,
}

impl Part {
    pub fn empty(at: i64) -> Self {
        Self { from: at, to: at, kept: 0, rejected: 0, filtered: 0 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flush {
    pub parts: [Option<Part>; P],
    pub absent: [bool; P],
    /// The shape that its rows were planned for.
    pub shape: u8,
    /// Positions that the start policy chose, without rows.
    pub is_start: bool,
    /// Whether an earlier try ended in an error.
    pub failed: bool,
}

/// An entry of one of the logs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    Rows { parts: [Option<Part>; P], letters: [Offsets; P], mark: Option<i64> },
    Growth,
    Letters { mark: Option<i64>, letters: [Offsets; P], ends: [Option<i64>; P] },
}

/// An entry on its way to one version of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Put {
    pub version: u8,
    pub entry: Entry,
}

/// Where a process is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum At {
    Idle,
    /// About to read the rows' log.
    Looking,
    /// It has read the rows' log, and is about to read the letters'.
    Judging(Head),
    Putting(Put),
    /// It knows what became of its flush.
    Settling(Settled),
}

/// An outcome, without what only people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    Committed,
    AlreadyCommitted,
    Fenced,
    SchemaMoved,
}

impl From<&Outcome> for Settled {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Committed { .. } => Self::Committed,
            Outcome::AlreadyCommitted => Self::AlreadyCommitted,
            Outcome::Fenced { .. } => Self::Fenced,
            Outcome::SchemaMoved { .. } => Self::SchemaMoved,
        }
    }
}

/// A process: what it believes, what it has made, and what it is doing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    pub held: [bool; P],
    pub cursors: [Option<Cursor>; P],
    pub shape: u8,
    /// Partitions whose position it has ever seen.
    pub seen: [bool; P],
    /// Not in a flush yet.
    pub made: [Option<Part>; P],
    pub flush: Option<Flush>,
    /// Whether the flush is awaited only to be dropped.
    pub dropped: bool,
    pub at: At,
}

impl Worker {
    pub const NEW: Self = Self {
        held: [false; P],
        cursors: [None; P],
        shape: 0,
        seen: [false; P],
        made: [None; P],
        flush: None,
        dropped: false,
        at: At::Idle,
    };

    /// Drops all work; reading goes on from the table.
    pub fn reset(&mut self) {
        self.cursors = [None; P];
        self.made = [None; P];
        self.flush = None;
        self.dropped = false;
        self.at = At::Idle;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub rows: Rows,
    pub letters: Letters,
    /// Entries whose writers were told that they failed, and which may still land.
    pub flying: Vec<Put>,
    pub workers: Vec<Worker>,
    /// What the broker holds of each partition.
    pub high: [i64; P],
    /// Where the pipeline began to read each partition.
    pub began: [Option<i64>; P],
    /// The tables as they can be restored.
    pub saved: Option<Box<(Rows, Letters)>>,
    /// What other engines may still do.
    pub others: u8,
    pub restores: u8,
    /// Whether the rows were restored while letters were on their way to their table.
    pub torn: bool,
}

impl State {
    /// Whether letters are named that are not in their table.
    pub fn owes(&self, partition: usize, offset: i64) -> bool {
        let owed = self.letters.written < self.rows.head.named;
        owed && has(self.rows.head.letters[partition], offset)
    }

    pub fn is_letter_present(&self, partition: usize, offset: i64) -> bool {
        self.letters.found[partition][offset as usize] > 0
    }

    /// Writes an entry if its version is the next of its log; whether it is there now.
    pub fn land(&mut self, put: &Put) -> bool {
        let version = match put.entry {
            Entry::Letters { .. } => &mut self.letters.version,
            _ => &mut self.rows.head.version,
        };
        if put.version != *version + 1 {
            return false;
        }
        *version += 1;
        match &put.entry {
            Entry::Growth => self.rows.head.wide = true,
            Entry::Rows { parts, letters, mark } => {
                for (partition, part) in parts.iter().enumerate() {
                    let Some(part) = part else { continue };
                    self.rows.head.at[partition] = Some(part.to);
                    add(&mut self.rows.found[partition], part.kept);
                    self.rows.filtered[partition] |= part.filtered;
                }
                if mark.is_some() {
                    (self.rows.head.named, self.rows.head.letters) = (*mark, *letters);
                }
            }
            Entry::Letters { mark, letters, ends } => {
                if mark.is_some() {
                    self.letters.written = *mark;
                }
                for partition in 0..P {
                    add(&mut self.letters.found[partition], letters[partition]);
                    self.letters.at[partition] = self.letters.at[partition].max(ends[partition]);
                }
            }
        }
        self.forget_taken();
        true
    }

    /// What is on its way to a version that is taken never lands.
    pub fn forget_taken(&mut self) {
        let (rows, letters) = (self.rows.head.version, self.letters.version);
        self.flying.retain(|put| match put.entry {
            Entry::Letters { .. } => put.version > letters,
            _ => put.version > rows,
        });
    }
}

fn add(found: &mut [u8; N], offsets: Offsets) {
    for (offset, times) in found.iter_mut().enumerate() {
        *times += u8::from(has(offsets, offset as i64));
    }
}

pub fn bit(offset: i64) -> Offsets {
    1 << offset
}

pub fn has(offsets: Offsets, offset: i64) -> bool {
    offsets & bit(offset) != 0
}

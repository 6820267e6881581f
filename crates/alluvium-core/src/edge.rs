//! The edges of a record's way, at which tests end the process.
//!
//! Between the two sides of an edge something becomes true outside of this process, or is lost with
//! it. A new edge is one more line here; the tests go through all of them.

use std::fmt;
use std::sync::Arc;

macro_rules! edges {
    ($($(#[$doc:meta])* $edge:ident = $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Edge {
            $($(#[$doc])* $edge,)*
        }

        impl Edge {
            pub const ALL: &[Self] = &[$(Self::$edge),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$edge => $name,)*
                }
            }
        }
    };
}

edges! {
    /// The acknowledgement of an assignment: reading starts.
    Assign = "assign",
    /// The acknowledgement of a revocation: the partitions are another's.
    Revoke = "revoke",
    /// A chunk is taken from the source.
    Poll = "poll",
    /// A chunk goes through a plugin.
    Plugin = "plugin",
    /// The search for the records at which a plugin fails.
    Bisection = "bisection",
    /// The files of a worker's share are finished.
    FileClose = "file-close",
    /// A file is put into a table's store.
    Upload = "upload",
    /// The commit of dead letters.
    DeadLetters = "dead-letters",
    /// The commit of new columns.
    Schema = "schema",
    /// The commit of rows.
    Commit = "commit",
    /// A checkpoint of a table's log, and the cleanup behind it.
    Checkpoint = "checkpoint",
    /// The group's offsets are written.
    Offsets = "offsets",
    /// The marks of a replay's letters are written and uploaded.
    Marks = "marks",
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Before,
    After,
}

/// One side of an edge; written as `upload:before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    pub edge: Edge,
    pub side: Side,
}

impl Point {
    /// Both sides of every edge.
    pub fn all() -> impl Iterator<Item = Self> {
        Edge::ALL.iter().flat_map(|edge| [Side::Before, Side::After].map(|side| Self { edge: *edge, side }))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        write!(f, "{}:{side}", self.edge.name())
    }
}

/// Called with every point that is reached. The product has none.
#[derive(Clone, Default)]
pub struct Hook(Option<Arc<dyn Fn(Point) + Send + Sync>>);

impl Hook {
    pub const NONE: Self = Self(None);

    pub fn new(hook: impl Fn(Point) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub fn before(&self, edge: Edge) {
        self.reach(Point { edge, side: Side::Before });
    }

    pub fn after(&self, edge: Edge) {
        self.reach(Point { edge, side: Side::After });
    }

    fn reach(&self, point: Point) {
        if let Some(hook) = &self.0 {
            hook(point);
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hook").field(&self.0.is_some()).finish()
    }
}

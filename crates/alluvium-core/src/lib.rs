//! The pure core: what a record's way is made of, and every decision about positions.
//!
//! Invariants of this crate: no IO, no clock, no async runtime, no environment. A function's
//! result depends on its arguments alone, so that each rule can be tested by property.
//!
//! - [`Chunk`]: consecutive records of one partition with the [`Span`] of offsets they cover.
//! - [`Counts`]: where the records of a span went; they must balance.
//! - [`position`]: where reading a partition starts, and when it must not.
//! - [`commit`]: the steps of a commit, and what an unknown outcome was.
//! - [`letters`]: how dead letters get into their table exactly once.
//! - [`audit`]: proof from the log alone that no offset is missing or doubled.
//! - [`edge`]: the points at which tests end the process.
//! - [`seam`]: the two places where IO is plugged in, [`seam::Source`] and [`seam::Table`].

pub mod audit;
pub mod chunk;
pub mod commit;
pub mod counts;
pub mod data_type;
pub mod dead_letter;
pub mod edge;
pub mod error;
pub mod ids;
pub mod info;
pub mod letters;
pub mod mapping;
pub mod packed;
pub mod position;
pub mod seam;
pub mod span;

pub use chunk::{Arrival, Chunk, Records};
pub use counts::Counts;
pub use data_type::DataType;
pub use dead_letter::{DeadLetter, Reason, Stage};
pub use edge::{Edge, Hook};
pub use error::{Classified, ErrorClass, Fault};
pub use ids::{AppId, Partition, PipelineId, TopicId};
pub use info::{CommitInfo, CommitKind, PartitionProgress, PluginRef};
pub use letters::{Place, ReplayNumber, Standing};
pub use mapping::{Coercion, Derivation, Evolve, OnConflict};
pub use packed::Packed;
pub use span::Span;

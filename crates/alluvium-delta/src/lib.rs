//! The Delta Lake table behind [`alluvium_core::seam::Table`]: positions, files, fenced commits,
//! schema growth and maintenance.
//!
//! - A commit is one put-if-absent of the log entry that follows the snapshot its positions were
//!   judged on. A writer that loses the race reads the winner's entry and judges again, so a check
//!   can never be separated from the commit it was made for.
//! - An outcome that is not known is settled by reading that one log entry, never by guessing.
//! - Only positions, schema and protocol are kept in memory; the table's files are not.
//!
//! The deltalake crates stay inside this crate: no public item names one of their types.

mod actions;
mod checkpoint;
mod cleanup;
mod commit;
mod config;
mod engine;
mod error;
mod letter_rows;
mod letter_scan;
mod letters;
mod load;
mod local;
mod log;
mod maintain;
mod partition;
mod properties;
mod protocol;
mod reader;
mod replay;
mod scan;
mod schema;
mod sink;
mod stats;
mod store;
mod thread;
mod upload;
mod writer;

pub use config::DeltaConfig;
pub use error::{Error, Refusal, Source};
pub use letter_rows::Letter;
pub use letter_scan::LetterFilter;
pub use reader::{Commit, DeltaReader, TableRole};
pub use replay::Chosen;
pub use scan::{FileFault, KafkaRow, KafkaScan, Scan, TextRow};
pub use sink::DeltaSink;
pub use writer::{DataFile, DeltaFileWriter};

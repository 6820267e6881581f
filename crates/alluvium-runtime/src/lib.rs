//! The loop: from a source's events to committed flushes.
//!
//! - [`stages`]: a chunk's way from bytes to rows, on one thread.
//! - [`planner`]: the mapping plan that all workers of a pipeline share, and how it grows.
//! - [`worker`]: owns chunks from bytes to encoded files.
//! - [`driver`]: the loop; read this first.
//!
//! Invariants: a record's span never leaves its chunk; nothing is committed but through
//! [`alluvium_core::seam::Table::commit`]; no CPU work on the async threads.

pub mod budget;
pub mod driver;
pub mod error;
pub mod frame;
pub mod layout;
mod mapper;
pub mod metadata;
pub mod planner;
pub mod stages;
pub mod stats;
pub mod worker;

pub use driver::{Compute, Driver, PipelineRun, RunOptions, Shutdown};
pub use error::Error;
pub use planner::Planner;
pub use stages::{Plugins, Processed, Stages};
pub use stats::Stats;

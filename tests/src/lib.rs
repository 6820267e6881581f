//! What the end-to-end tests share: a pipeline in a directory of its own, records whose fate is
//! known, processes, and the comparison of a table with what was produced.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_debug_implementations)]

pub mod cases;
pub mod endurance;
pub mod fates;
mod frozen;
pub mod log;
pub mod namespace;
pub mod process;
pub mod proxy;
pub mod readers;
pub mod rivals;
pub mod s3;
pub mod workbench;

pub use fates::{Fate, record};
pub use frozen::frozen_in_a_commit;
pub use log::Log;
pub use process::Process;
pub use workbench::{Options, Workbench};

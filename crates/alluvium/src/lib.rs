//! The command line: wiring of Kafka, plugins and Delta.
//!
//! `main.rs` is `main(Hook::NONE)`; the tests' own binary passes a hook that ends the process at one
//! of its edges.

mod cli;
mod commands;
mod failure;
mod growth;
mod load;
mod local;
pub mod orders;
mod output;
mod progress;
mod proof;
mod replay;
pub mod rows;
mod text;

use alluvium_core::Hook;
use clap::Parser;
use std::process::ExitCode;

/// Runs the command that the process's arguments name. Exit codes: 0 done, 1 the work failed, 2 the
/// input (file, flags) is wrong.
pub fn main(hook: Hook) -> ExitCode {
    let arguments = cli::Arguments::parse();
    output::start_logs(arguments.log_json);
    match commands::run(arguments, hook) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

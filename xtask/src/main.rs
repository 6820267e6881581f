//! Tasks of this repository that cargo alone cannot do: `cargo xtask help`.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool: what it has to say goes to the terminal"
)]

mod plugins;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Plugins(plugins::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Plugins(args) => plugins::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! Tasks of this repository that cargo alone cannot do: `cargo xtask help`.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool: what it has to say goes to the terminal"
)]

mod cargo;
mod fuzz;
mod plugins;
mod setup;

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
    Setup(setup::Args),
    Plugins(plugins::Args),
    Demo(cargo::DemoArgs),
    Test(cargo::TestArgs),
    Torture(cargo::TortureArgs),
    Bench(cargo::BenchArgs),
    Simulate(cargo::SimulateArgs),
    Endurance(cargo::EnduranceArgs),
    Fuzz(fuzz::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Setup(args) => setup::run(&args),
        Task::Plugins(args) => plugins::run(&args),
        Task::Demo(args) => cargo::demo(&args),
        Task::Test(args) => cargo::test(&args),
        Task::Torture(args) => cargo::torture(&args),
        Task::Bench(args) => cargo::bench(&args),
        Task::Simulate(args) => cargo::simulate(&args),
        Task::Endurance(args) => cargo::endurance(&args),
        Task::Fuzz(args) => fuzz::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

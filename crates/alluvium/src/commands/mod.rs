//! One module a command.

mod check;
mod dead_letters;
mod demo;
mod position;
mod run;
mod sandbox;
mod schema;
mod test;
mod try_records;
mod verify;

use crate::cli::{Arguments, Command};
use crate::failure::Failure;
use alluvium_core::Hook;
use std::future::Future;

pub fn run(arguments: Arguments, hook: Hook) -> Result<(), Failure> {
    match arguments.command {
        Command::Check(check) => block_on(check::check(check)),
        Command::Test(test) => test::test(&test),
        Command::Try(records) => block_on(try_records::try_records(records)),
        Command::Run(run) => block_on(run::run(run, hook)),
        Command::Position(position) => block_on(position::position(position)),
        Command::Verify(verify) => block_on(verify::verify(verify)),
        Command::DeadLetters(letters) => block_on(dead_letters::dead_letters(letters, hook)),
        Command::Schema(schema) => block_on(schema::schema(schema)),
        Command::Sandbox(sandbox) => block_on(sandbox::sandbox(sandbox)),
        Command::Demo(demo) => block_on(demo::demo(demo)),
    }
}

/// Runs a command on few threads: they only wait, the CPU work is done on the pipelines' own.
fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::caused("the process cannot start its threads", &error))?;
    let done = runtime.block_on(command);
    // What still runs now (an upload that was given up) must not hold the exit.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    done
}

//! What the command line prints: the one place that writes to the terminal.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is the command line's own output")]

use crate::failure::Failure;
use std::fmt::Display;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// A result, for people or programs: standard output.
pub fn line(text: impl Display) {
    println!("{text}");
}

/// A result as one JSON document.
pub fn json(value: &impl serde::Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => println!("{text}"),
        Err(error) => eprintln!("error: a result cannot be written as JSON: {error}"),
    }
}

/// News on the way: standard error.
pub fn note(text: impl Display) {
    eprintln!("{text}");
}

pub fn failure(failure: &Failure) {
    eprintln!("{failure}");
}

/// Whether a person watches standard error.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Logs go to standard error; `ALLUVIUM_LOG` filters them (as `RUST_LOG` does elsewhere).
pub fn start_logs(json: bool) {
    // A terminal shows a progress line: only what needs attention stands between.
    let default = if is_watched() && !json { "warn" } else { "info" };
    let filter = EnvFilter::try_from_env("ALLUVIUM_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("{default},deltalake=warn,buoyant_kernel=warn,delta_kernel=warn")));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second subscriber can only be asked for by a test that runs two commands.
    let _second = match json {
        true => logs.json().flatten_event(true).try_init().is_err(),
        false => logs.with_target(false).with_ansi(is_watched()).try_init().is_err(),
    };
}

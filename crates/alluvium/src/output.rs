//! What the command line prints: the one place that writes to the terminal.
use crate::failure::Failure;
use crate::text;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use tracing_subscriber::EnvFilter;

/// A result, for people or programs: standard output.
pub fn line(text: impl Display) {
    print(format_args!("{text}\n"));
}

/// A result as one JSON document.
pub fn json(value: &impl serde::Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print(format_args!("{}\n", escape_json(text))),
        Err(error) => note(format_args!("error: a result cannot be written as JSON: {error}")),
    }
}

/// JSON escapes what is below a blank by itself; there is more that can steer a terminal.
fn escape_json(text: String) -> String {
    let is_unsafe = |c: char| c != '\n' && text::is_unsafe(c);
    if !text.contains(is_unsafe) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        let mut units = [0; 2];
        match is_unsafe(c) {
            // Only within strings can such a character stand.
            true => c.encode_utf16(&mut units).iter().for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}"))),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Bytes as they are, for other programs.
pub fn raw(bytes: &[u8]) {
    written(std::io::stdout().lock().write_all(bytes));
}

/// Nobody reads on: that ends a command that prints, in silence. Any other failure is told.
fn print(text: std::fmt::Arguments<'_>) {
    written(std::io::stdout().lock().write_fmt(text));
}

fn written(done: std::io::Result<()>) {
    match done {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            note(format_args!("error: standard output cannot be written: {error}"));
            std::process::exit(1);
        }
    }
}

/// News on the way: standard error.
pub fn note(text: impl Display) {
    // A closed standard error must not end the work.
    let _unread = writeln!(std::io::stderr().lock(), "{text}").is_err();
}

/// An error, which may name what records hold, or show lines of a file, whose tabs stay.
pub fn failure(failure: &Failure) {
    let told = failure.to_string();
    note(told.split('\t').map(text::lines).collect::<Vec<_>>().join("\t"));
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
        .unwrap_or_else(|_| EnvFilter::new(format!("{default},deltalake=warn,buoyant_kernel=off,delta_kernel=off")));
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    // A second subscriber can only be asked for by a test that runs two commands.
    let _second = match json {
        true => logs.json().flatten_event(true).try_init().is_err(),
        false => logs.with_target(false).with_ansi(is_watched()).try_init().is_err(),
    };
}

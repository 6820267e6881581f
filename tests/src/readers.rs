//! Other engines, from Python.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What `cargo xtask test` sets for tests that need Python or Spark.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}

/// Runs a script of `tests/interop`; what it printed last, as JSON.
pub fn python(script: &str, arguments: &[&str], environment: &[(String, String)]) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(script);
    let output = Command::new(variable("ALLUVIUM_PYTHON"))
        .arg(path)
        .args(arguments)
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .env("ALLUVIUM_SPARK_JARS", variable("ALLUVIUM_SPARK_JARS"))
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("python runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script} {arguments:?}: {out}\n{err}");
    let last = out.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{script} {arguments:?}: {out}\n{err}"))
}

/// A table as `reader` reads it; see `read.py`.
pub fn read(reader: &str, table: &str, columns: &[&str], environment: &[(String, String)]) -> Value {
    python("read.py", &[&[reader, table], columns].concat(), environment)
}

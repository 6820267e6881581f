//! Other engines, from Python.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// What `cargo xtask test` sets for tests that need Python or Spark.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}

/// Runs a script of `tests/interop`; what it printed last, as JSON.
pub fn python(script: &str, arguments: &[&str], environment: &[(String, String)]) -> Value {
    let output = command(script)
        .args(arguments)
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .output()
        .expect("python runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script} {arguments:?}: {out}\n{err}");
    let last = out.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{script} {arguments:?}: {out}\n{err}"))
}

fn command(script: &str) -> Command {
    let mut command = Command::new(variable("ALLUVIUM_PYTHON"));
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(script))
        .env("ALLUVIUM_SPARK_JARS", variable("ALLUVIUM_SPARK_JARS"))
        .env("RUST_BACKTRACE", "0");
    command
}

/// A table as `reader` reads it; see `read.py`.
pub fn read(reader: &str, table: &str, columns: &[&str], environment: &[(String, String)]) -> Value {
    python("read.py", &[&[reader, table], columns].concat(), environment)
}

/// The process that answers questions about tables: one for all tests, as Spark takes long to start. It
/// ends when the tests do.
struct Answers {
    _child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    err: std::fs::File,
}

impl Answers {
    fn start() -> Self {
        let err = tempfile::tempfile().expect("a file");
        let mut child = command("agree.py")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(err.try_clone().expect("a file"))
            .spawn()
            .expect("python runs");
        let (questions, answers) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { _child: child, questions, answers: BufReader::new(answers), err }
    }

    fn answer(&mut self, question: &Value) -> Option<Value> {
        writeln!(self.questions, "{question}").ok()?;
        let mut line = String::new();
        self.answers.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}

/// Whether engines find in a table what they should; see `agree.py`.
pub fn agree(question: &Value) -> Value {
    static ANSWERS: Mutex<Option<Answers>> = Mutex::new(None);
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    let answers = answers.get_or_insert_with(Answers::start);
    answers.answer(question).unwrap_or_else(|| {
        let mut err = String::new();
        answers.err.rewind().expect("a file");
        let _read = answers.err.read_to_string(&mut err);
        panic!("no answer to {question}: {err}")
    })
}

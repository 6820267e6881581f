//! A running alluvium.

use nix::sys::signal;
pub use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The binary under test: cargo tells test runners where it is, and puts it beside the tests' own.
pub fn binary() -> PathBuf {
    let told = std::env::var_os("CARGO_BIN_EXE_alluvium-under-test").map(PathBuf::from);
    told.unwrap_or_else(|| {
        let own = std::env::current_exe().expect("the test's own path");
        own.parent().and_then(Path::parent).expect("a target directory").join("alluvium-under-test")
    })
}

/// A child process whose output goes to files; killed when it is dropped.
pub struct Process {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Process {
    /// Starts the binary with these arguments and environment variables, in `dir`.
    pub fn start(dir: &Path, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_behind(dir, name, &[], arguments, environment)
    }

    /// The same behind a command that becomes what is given to it, as `env` does.
    pub fn start_behind(
        dir: &Path,
        name: &str,
        before: &[String],
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let (out, err) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        let file = |path: &Path| Stdio::from(std::fs::File::create(path).expect("an output file"));
        let binary = binary().into_os_string();
        let mut words = before.iter().map(Into::into).chain([binary]);
        let child = Command::new(words.next().expect("the binary at least"))
            .args(words)
            .args(arguments)
            .env_remove("ALLUVIUM_LOG")
            .envs(environment.iter().copied())
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(file(&out))
            .stderr(file(&err))
            .spawn()
            .expect("the binary starts");
        Self { child, out, err }
    }

    /// Waits for its end.
    pub fn wait(&mut self, at_most: Duration) -> ExitStatus {
        let status = self.ended_within(at_most);
        status.unwrap_or_else(|| panic!("still running after {at_most:?}:\n{}", self.err()))
    }

    /// Waits for its end; `None` when it has not come.
    pub fn ended_within(&mut self, at_most: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            let status = self.ended();
            if status.is_some() || begun.elapsed() >= at_most {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child can be waited for")
    }

    /// Whether it is stopped by a signal.
    pub fn is_frozen(&self) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        // The first letter behind the name in parentheses.
        state.is_ok_and(|state| state.contains(") T "))
    }

    /// Waits until it is stopped by a signal, as one that freezes itself is.
    pub fn wait_frozen(&mut self, at_most: Duration) {
        let begun = Instant::now();
        while !self.is_frozen() {
            assert!(self.is_running(), "ended instead of freezing:\n{}", self.err());
            assert!(begun.elapsed() < at_most, "not frozen after {at_most:?}:\n{}", self.err());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.ended().is_none()
    }

    /// Waits for its end, which must be a good one; what it printed as JSON.
    pub fn done(&mut self, at_most: Duration) -> Value {
        let status = self.wait(at_most);
        assert!(status.success(), "{status}:\n{}", self.err());
        serde_json::from_str(&self.out()).unwrap_or(Value::Null)
    }

    /// The most memory that it has held so far, in bytes; `None` once it has ended.
    pub fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(peak.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
    }

    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        signal::kill(id, signal).expect("the signal is sent");
    }

    pub fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    pub fn err(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.signal(Signal::SIGKILL);
            let _status = self.child.wait();
        }
    }
}

//! File systems that are full or read-only, in a mount namespace: no rights are needed for it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that keeps a mount namespace; ended, and the namespace with it, when it is dropped or when
/// nobody holds its standard input any more.
pub struct Namespace(Child);

impl Namespace {
    /// A namespace that `script` (of sh) prepares, in `dir`.
    pub fn new(dir: &Path, script: &str) -> Self {
        let script = format!("set -e; {script}; echo ready; exec cat");
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let mut told = String::new();
        let out = holder.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut told).expect("its output can be read");
        assert_eq!(told.trim(), "ready", "the namespace cannot be made: {script}");
        Self(holder)
    }

    /// What to put before a command so that it runs inside, in the same directory.
    pub fn enter(&self, dir: &Path) -> Vec<String> {
        let (target, dir) = (self.0.id().to_string(), dir.display().to_string());
        let words = ["nsenter", "--target", &target, "--user", "--mount", "--preserve-credentials"];
        let change = ["sh", "-c", "cd \"$0\" && exec \"$@\"", &dir];
        words.into_iter().chain(change).map(str::to_owned).collect()
    }

    /// Runs a script of sh inside.
    pub fn sh(&self, dir: &Path, script: &str) {
        let words = self.enter(dir);
        let status = Command::new(&words[0]).args(&words[1..]).args(["sh", "-c", script]).status().expect("it runs");
        assert!(status.success(), "{script}: {status}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

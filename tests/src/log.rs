//! A table's log on local disk, to be tampered with.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The log of a table.
pub struct Log(PathBuf);

impl Log {
    pub fn of(table: &Path) -> Self {
        Self(table.join("_delta_log"))
    }

    fn entry(&self, version: u64) -> PathBuf {
        self.0.join(format!("{version:020}.json"))
    }

    /// The newest version.
    pub fn newest(&self) -> u64 {
        let names = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_suffix(".json")?.parse().ok()).max().unwrap()
    }

    pub fn text(&self, version: u64) -> String {
        std::fs::read_to_string(self.entry(version)).unwrap()
    }

    pub fn set(&self, version: u64, text: &str) {
        std::fs::write(self.entry(version), text).unwrap();
    }

    pub fn remove(&self, version: u64) {
        std::fs::remove_file(self.entry(version)).unwrap();
    }

    pub fn lines(&self, version: u64) -> Vec<Value> {
        self.text(version).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The newest `add` action of a log.
    pub fn newest_add(&self) -> Value {
        let lines = (0..=self.newest()).rev().flat_map(|version| self.lines(version));
        lines.filter_map(|line| line.get("add").cloned()).next().unwrap()
    }

    /// Commits as another writer would.
    pub fn append(&self, operation: &str, actions: &[Value]) {
        let info = json!({ "commitInfo": { "timestamp": 1, "operation": operation, "operationParameters": {} } });
        let lines: Vec<String> = [&info].into_iter().chain(actions).map(Value::to_string).collect();
        self.set(self.newest() + 1, &format!("{}\n", lines.join("\n")));
    }

    /// Commits the newest file once more, under another name.
    pub fn append_copy(&self) {
        let mut add = self.newest_add();
        let path = add["path"].as_str().unwrap().to_owned();
        let table = self.0.parent().unwrap();
        std::fs::copy(table.join(&path), table.join("copy.parquet")).unwrap();
        add["path"] = "copy.parquet".into();
        self.append("WRITE", &[json!({ "add": add })]);
    }

    /// Removes the newest file, as DELETE does.
    pub fn remove_newest_file(&self) {
        let add = self.newest_add();
        let remove = json!({ "remove": { "path": add["path"], "dataChange": true, "deletionTimestamp": 1 } });
        self.append("DELETE", &[remove]);
    }
}

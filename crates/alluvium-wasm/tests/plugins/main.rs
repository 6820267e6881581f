//! Components on the real engine: the gate, the limits, calls, and the search for records at fault.
//!
//! Most fixtures are core modules in text form, made components here, so that each test shows the
//! instruction that does the harm. The others are the guests under `plugins/`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admit;
mod calls;
mod columns;
mod fixture;
mod guests;
mod hostile;
mod hostile_mapping;
mod isolate;
mod mappings;
mod records;

use alluvium_wasm::{AdmitError, CallError, ColumnPlugin, Host, HostConfig, Limits, RecordPlugin};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// One host for all tests, as for all plugins of a process.
fn host() -> &'static Arc<Host> {
    static HOST: LazyLock<Arc<Host>> = LazyLock::new(|| Host::new(HostConfig::default()).unwrap());
    &HOST
}

/// Limits under which a test of them ends soon.
fn tight() -> Limits {
    Limits { memory: 4 << 20, time: Duration::from_millis(200), output: 1 << 20, ..Limits::default() }
}

fn refusal(component: &[u8]) -> AdmitError {
    host().admit("fixture", component, &tight()).unwrap_err()
}

fn column_plugin(component: &[u8], limits: &Limits) -> ColumnPlugin {
    let plugin = host().admit("fixture", component, limits).unwrap();
    plugin.configure_column(&serde_json::json!({})).unwrap()
}

fn record_plugin(component: &[u8], limits: &Limits) -> RecordPlugin {
    let plugin = host().admit("fixture", component, limits).unwrap();
    plugin.configure_record(&serde_json::json!({})).unwrap()
}

/// The first run's failure.
fn first_run(error: AdmitError) -> CallError {
    match error {
        AdmitError::FirstRun { error } => error,
        other => panic!("{other}"),
    }
}

/// What `work` returns, and that it took less than half a minute: longer than any limit under test,
/// shorter than for ever.
fn soon<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    assert!(start.elapsed() < Duration::from_secs(30), "took {:?}", start.elapsed());
    result
}

//! The pipeline file: TOML text to a checked [`Pipeline`], or every fault in it at once.
//!
//! Pure: no files, environment or clock. References to secrets ([`Setting`]) and paths are kept as
//! written; resolving them is the caller's.
//!
//! ```
//! let text = r#"
//! version = 1
//! tenant  = "acme"
//! name    = "orders"
//! ## generation = 1                # raised to read the topic anew into the same table
//!
//! [source]
//! brokers = ["localhost:9092"]
//! topic   = "orders"
//! ## format     = "json"
//! ## start      = "earliest"       # | "latest" | { timestamp = 2026-03-01T00:00:00Z }
//! ## tombstones = "drop"           # | "dead-letter"
//! ## lost_data  = "stop"           # | "skip"
//! ## group      = "acme-orders"    # the consumer group; default: made of tenant, name and generation
//! kafka = { "security.protocol" = "SASL_SSL", "sasl.password" = { env = "ORDERS_PW" } }
//!
//! [[transform]]                   # any number, in the order in which they run
//! plugin = "./redact.wasm"
//! with   = { fields = ["customer.email"] }
//!
//! [schema]
//! ## mapping     = "infer"         # the default when no columns are declared
//! ## evolve      = "add"           # | "none" | "stop"; default: add when inferred, none when declared
//! ## max_columns = 1000
//!
//! [[schema.column]]               # declared columns, instead of inference
//! name = "price"
//! type = "decimal(10,2)"          # Spark DDL, nested types too
//! from = "amount.price"           # default: the name; dots separate, backticks quote
//! ## on_conflict = "reject"        # | "rescue" | "stop"
//!
//! [sink]
//! table = "s3://lake/acme/orders" # a path (relative to this file) or a URL
//! ## dead_letters = "s3://lake/acme/orders_dead_letters"
//! ## partition_by = ["order_date"]
//! ## metadata = { kafka = "_kafka", key = false, headers = false, rescued = "_rescued" }
//! storage = { AWS_REGION = "eu-central-1", AWS_SECRET_ACCESS_KEY = { file = "/run/secrets/s3" } }
//!
//! [flush]                         # whichever comes first
//! every = "10s"
//! rows  = 500_000
//! size  = "128MiB"
//! ## memory = "512MiB"             # of data not yet committed; reading pauses when it is used up
//! ## grace  = "30s"                # for the last flush at shutdown
//!
//! [limits]                        # per plugin call
//! memory = "64MiB"
//! time   = "2s"
//! ## output         = "64MiB"
//! ## trapping_share = 0.5          # a larger share of a chunk failing in a plugin stops the pipeline
//!
//! [[test]]
//! name   = "a price is read"
//! input  = { amount = { price = "9.99" } }      # or input_text = '{"amount":…}', the exact bytes
//! expect = { price = "9.99" }                   # a row, [rows], "filtered", "rejected", "rejected: conflict"
//! "#;
//! let pipeline = alluvium_config::parse(text, "orders.toml")?;
//! assert_eq!(pipeline.source.topic, "orders");
//! # Ok::<(), alluvium_config::Errors>(())
//! ```
//!
//! Secrets stand in the environment or in files, never in this one: a setting whose key looks secret
//! ([`is_secret`]) is refused when it is written out, and its value is masked in every message.

mod check;
mod column;
mod error;
mod json;
mod kafka;
mod location;
mod pipeline;
mod reader;
mod report;
mod schema;
mod setting;
mod sink;
mod snippet;
mod source;
mod suggest;
mod syntax;
mod tests_table;
mod tuning;
mod units;

pub use alluvium_core::{Coercion, Derivation, Evolve, OnConflict};
pub use error::{Error, ErrorKind, Errors};
pub use pipeline::{
    Column, Expect, Flush, Format, Input, Limits, LostData, Mapping, Metadata, Pipeline, PluginSource, Schema, Sink,
    Source, Test, Tombstones, Transform,
};
pub use setting::{Setting, is_secret};

use alluvium_core::PipelineId;
use reader::{Item, Table};
use report::{Problem, Report};

/// The version of the pipeline file that this crate reads.
pub const VERSION: u64 = 1;

/// The largest pipeline file, in bytes.
pub const MAX_FILE: usize = 1 << 20;

/// Reads a pipeline file. `file_name` is for messages only.
///
/// On failure all faults are told, in the order of the file. A fault of TOML's own grammar comes with
/// the others when it is one of a single value, and alone when what follows it cannot be read with
/// certainty.
pub fn parse(text: &str, file_name: &str) -> Result<Pipeline, Errors> {
    let report = Report::new(text);
    let pipeline = read(text, &report);
    report.finish(file_name, pipeline)
}

/// The pipeline, unless something in it is so wrong that none can be made; faults are in `report`.
fn read(text: &str, report: &Report<'_>) -> Option<Pipeline> {
    if text.len() > MAX_FILE {
        let message = format!("the file has {} bytes", text.len());
        report.add(Problem::new(ErrorKind::Value, 0..0, message).allowed(format!("at most {MAX_FILE} bytes")));
        return None;
    }
    let entries = syntax::read(text, report)?;
    let root = Table::root(&entries, report);
    if let Some(version) = root.required("version", "version = 1") {
        check_version(&version)?;
    }
    let tenant = root.required("tenant", "tenant = \"acme\"").and_then(|item| item.name());
    let name = root.required("name", "name = \"orders\"").and_then(|item| item.name());
    let generation = root.optional("generation").and_then(|item| item.integer(1..=u64::from(u32::MAX)));
    let generation = generation.and_then(|number| u32::try_from(number).ok()).unwrap_or(1);
    let source = source::read(root.required_section("source", "[source]"));
    let transform = root.optional("transform");
    let plugins = transform.is_some();
    let transforms = tuning::transforms(transform);
    let schema = schema::read(root.section("schema", "[schema]"));
    let sink = sink::read(root.required_section("sink", "[sink]"));
    let flush = tuning::flush(root.section("flush", "[flush]"));
    let limits = tuning::limits(root.section("limits", "[limits]"));
    let tests = tests_table::read(root.optional("test"));
    root.finish();
    check::across(report, &source, plugins, &schema, &sink);
    Some(Pipeline {
        id: PipelineId::new(tenant?, name?, generation).ok()?,
        source: source.source,
        transforms,
        schema: schema.schema,
        sink: sink.sink,
        flush,
        limits,
        tests,
    })
}

/// `None` when the file is of another version: nothing else in it can be judged then.
fn check_version(version: &Item<'_>) -> Option<()> {
    match version.number() {
        // A fault of the type has been told; most likely it means 1.
        None | Some(VERSION) => Some(()),
        Some(other) => {
            let problem = version.problem(ErrorKind::Value, format!("`version` is {other}"));
            let problem = problem.allowed(format!("{VERSION}, the only version of the pipeline file so far"));
            version.report().add(if other > VERSION {
                problem.hint("the file was written for a later alluvium; run that one")
            } else {
                problem.hint(format!("write `version = {VERSION}`"))
            });
            None
        }
    }
}

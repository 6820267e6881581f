//! `[[transform]]`, `[flush]` and `[limits]`

use crate::ErrorKind;
use crate::pipeline::{Flush, Limits, PluginSource, Transform};
use crate::reader::{Item, Table};
use crate::snippet::quoted;
use crate::units::{duration, shown_size, size};
use std::time::Duration;
use toml::de::DeValue;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(crate) fn transforms(item: Option<Item<'_>>) -> Vec<Transform> {
    let Some(item) = item else { return Vec::new() };
    item.tables("[[transform]]").into_iter().filter_map(plugin).collect()
}

/// A plugin with its configuration.
pub(crate) fn plugin(table: Table<'_>) -> Option<Transform> {
    let at = table.report().lines().position(table.span().start);
    let plugin = table.required("plugin", "plugin = \"./redact.wasm\"");
    let plugin = plugin.and_then(|item| plugin_source(&item));
    let with = match table.optional("with") {
        Some(with) if matches!(with.value(), DeValue::Table(_)) => with.json(),
        Some(with) => {
            with.report().add(with.wrong_type("a table, handed to the plugin as JSON"));
            None
        }
        None => Some(serde_json::Value::Object(serde_json::Map::new())),
    };
    table.finish();
    Some(Transform { plugin: plugin?, with: with?, at })
}

fn plugin_source(item: &Item<'_>) -> Option<PluginSource> {
    const ALLOWED: &str = "the path of a component, ending in `.wasm`";
    let text = item.word("./redact.wasm")?;
    if text.contains("://") {
        let problem = item.problem(ErrorKind::Value, format!("{} is a URL", item.shown())).allowed(ALLOWED);
        item.report().add(problem.hint("download the component; plugins are read from files"));
        return None;
    }
    if text.ends_with(".wasm") {
        return Some(PluginSource::File(text.to_owned()));
    }
    if let Some(PluginSource::Named { name, version }) = named(text) {
        let message = format!("there is no registry to take version {version} of the plugin {name} from yet");
        item.report().add(item.problem(ErrorKind::Unsupported, message).allowed(ALLOWED));
        return None;
    }
    let problem = item.problem(ErrorKind::Value, format!("{} is {}", item.shown(), quoted(text))).allowed(ALLOWED);
    item.report().add(match text.rsplit_once('.').map(|(_, extension)| extension) {
        Some("wat") => problem.hint("turn the text into a component first"),
        Some("cwasm") => problem.hint("name the component itself; alluvium compiles it"),
        Some("rs" | "c" | "js" | "py") => problem.hint("name the component that is built from the source"),
        _ => problem,
    });
    None
}

fn named(text: &str) -> Option<PluginSource> {
    let (name, version) = text.split_once('@')?;
    let plain = |text: &str, more: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c) || more.contains(c))
    };
    (plain(name, "/") && plain(version, "+"))
        .then(|| PluginSource::Named { name: name.to_owned(), version: version.to_owned() })
}

pub(crate) fn flush(table: Option<Table<'_>>) -> Flush {
    let mut flush = Flush::default();
    let Some(table) = table else { return flush };
    let every = Duration::from_millis(100)..=Duration::from_secs(3600);
    if let Some(every) = table.optional("every").and_then(|item| duration(&item, every)) {
        flush.every = every;
    }
    if let Some(rows) = table.optional("rows").and_then(|item| item.integer(1..=100_000_000)) {
        flush.rows = rows;
    }
    let size_item = table.optional("size");
    if let Some(size) = size_item.as_ref().and_then(|item| size(item, KIB..=16 * GIB)) {
        flush.size = size;
    }
    let memory_item = table.optional("memory");
    if let Some(memory) = memory_item.as_ref().and_then(|item| size(item, 16 * MIB..=1024 * GIB)) {
        flush.memory = memory;
    }
    if let Some(grace) =
        table.optional("grace").and_then(|item| duration(&item, Duration::ZERO..=Duration::from_secs(3600)))
    {
        flush.grace = grace;
    }
    if let Some(item) = memory_item.or(size_item).filter(|_| flush.memory < flush.size) {
        let (memory, size) = (shown_size(flush.memory), shown_size(flush.size));
        let problem = item.problem(ErrorKind::Conflict, format!("`memory` ({memory}) is less than `size` ({size})"));
        item.report().add(problem.hint("reading pauses when `memory` is used up: a flush would never reach its size"));
    }
    table.finish();
    flush
}

pub(crate) fn limits(table: Option<Table<'_>>) -> Limits {
    let mut limits = Limits::default();
    let Some(table) = table else { return limits };
    if let Some(memory) = table.optional("memory").and_then(|item| size(&item, MIB..=4 * GIB)) {
        limits.memory = memory;
    }
    let time = Duration::from_millis(1)..=Duration::from_secs(600);
    if let Some(time) = table.optional("time").and_then(|item| duration(&item, time)) {
        limits.time = time;
    }
    if let Some(output) = table.optional("output").and_then(|item| size(&item, 4 * KIB..=GIB)) {
        limits.output = output;
    }
    if let Some(share) = table.optional("trapping_share").and_then(|item| share(&item)) {
        limits.trapping_share = share;
    }
    table.finish();
    limits
}

/// A number from 0 to 1.
fn share(item: &Item<'_>) -> Option<f64> {
    const ALLOWED: &str = "0 to 1, as in 0.5";
    let text = match item.value() {
        DeValue::Float(float) => float.as_str(),
        DeValue::Integer(integer) => integer.as_str(),
        _ => {
            item.report().add(item.wrong_type(format!("a number from {ALLOWED}")));
            return None;
        }
    };
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    if share.is_none() {
        item.refuse(format!("{} is {}", item.shown(), quoted(text)), ALLOWED);
    }
    share
}

//! A column plugin that misbehaves as its configuration says: see `plugins/hostile/README.md`.

mod nodes;

use hostile_common::{Common, ESCAPES, attack, in_configure, not_utf8, past_memory, read, spin, trap};
use serde::Deserialize;
use std::cell::RefCell;

#[allow(unsafe_code, clippy::all, missing_debug_implementations, reason = "generated from the contract")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit/0.1.0", world: "column-plugin" });
}

pub(crate) use bindings::exports::alluvium::plugin::column_transform::{
    Access, Columns, Description, Edit, Field, Guest, Layout, Node, Reject,
};

#[derive(Clone, Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    common: Common,
    /// Path of a bigint column that `at` is compared with.
    #[serde(default = "id")]
    id: String,
    /// Path of a string column in which the marker is looked for.
    #[serde(default = "text")]
    text: String,
    /// Path of the column that is written.
    #[serde(default = "out")]
    out: String,
    /// Kind of the column that is written: see `nodes::data_type`.
    #[serde(default = "string")]
    kind: String,
    /// Which node of that column's tree is made wrong.
    #[serde(default)]
    node: usize,
}

fn id() -> String {
    "id".to_owned()
}

fn text() -> String {
    "text".to_owned()
}

fn out() -> String {
    "out".to_owned()
}

fn string() -> String {
    "string".to_owned()
}

thread_local! {
    static CONFIG: RefCell<Option<Config>> = const { RefCell::new(None) };
}

struct Hostile;

impl Guest for Hostile {
    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            summary: env!("CARGO_PKG_DESCRIPTION").to_owned(),
            config_schema: String::new(),
        }
    }

    fn configure(config: String) -> Result<Access, String> {
        let config: Config = read(&config)?;
        let access = access(&config)?;
        CONFIG.replace(Some(config));
        Ok(access)
    }

    fn transform(input: Columns) -> Result<Edit, String> {
        let config = CONFIG.with_borrow(Clone::clone).ok_or("transform came before configure")?;
        transform(&config, &input)
    }
}

#[allow(unsafe_code, reason = "the contract's exports")]
const _: () = {
    bindings::export!(Hostile with_types_in bindings);
};

fn field(path: &str, data_type: &str) -> Field {
    Field { path: path.to_owned(), data_type: data_type.to_owned() }
}

fn access(config: &Config) -> Result<Access, String> {
    let mut access = Access {
        reads: vec![field(&config.id, "bigint"), field(&config.text, "string")],
        writes: vec![field(&config.out, nodes::data_type(&config.kind)?)],
        multiplies: config.common.multiplies,
    };
    let Some(mode) = in_configure(&config.common.mode) else { return Ok(access) };
    if attack(mode)? {
        return Ok(access);
    }
    match mode {
        "type-unknown" => access.reads.push(field("x", "strng")),
        "type-empty" => access.reads.push(field("x", "")),
        "type-deep" => {
            let deep = format!("{}int{}", "array<".repeat(100_000), ">".repeat(100_000));
            access.reads.push(field("x", &deep));
        }
        "type-10mb" => access.reads.push(field("x", &"x".repeat(10 << 20))),
        "type-utf8" => access.reads.push(Field { path: "x".to_owned(), data_type: not_utf8() }),
        "path-empty" => access.reads.push(field("", "int")),
        "path-syntax" => access.reads.push(field("a..`b", "int")),
        "path-escapes" => access.writes.push(field(ESCAPES, "int")),
        "path-10mb" => access.writes.push(field(&"x".repeat(10 << 20), "int")),
        "path-deep" => access.writes.push(field(&vec!["a"; 100_000].join("."), "int")),
        "reads-10000" => access.reads.extend((0..10_000).map(|n| field(&format!("c{n}"), "int"))),
        "writes-10000" => access.writes.extend((0..10_000).map(|n| field(&format!("c{n}"), "int"))),
        "reads-twice" => access.reads.push(field(&config.id, "bigint")),
        "writes-twice" => access.writes.push(field(&config.out, "int")),
        "writes-overlap" => access.writes.push(field(&format!("{}.inner", config.out), "int")),
        "writes-kafka" => access.writes.push(field("_kafka", "int")),
        _ => return Err(format!("unknown mode 'configure-{mode}'")),
    }
    Ok(access)
}

/// What the plugin sees of its input.
struct Rows {
    ids: Vec<Option<i64>>,
    texts: Vec<Option<String>>,
}

fn transform(config: &Config, input: &Columns) -> Result<Edit, String> {
    let common = &config.common;
    let rows = Rows { ids: nodes::bigints(input.nodes.first()), texts: nodes::strings(input.nodes.get(1)) };
    let count = input.rows;
    let at_id = rows.ids.contains(&Some(common.at));
    let marked = rows.texts.iter().flatten().any(|text| text.contains(&common.marker));

    let mut edit = honest(config, &rows, (0..count).collect())?;
    if in_configure(&common.mode).is_some() || attack(&common.mode)? {
        return Ok(edit);
    }
    let reject = |input: u32| Reject { input, reason: "rejected".to_owned() };
    match common.mode.as_str() {
        "honest" => edit.rows = None,
        // Where it happens depends on the rows.
        "trap-at" if at_id => trap(),
        "trap-marker" if marked => trap(),
        "loop-at" if at_id => spin(),
        "loop-marker" if marked => spin(),
        "err-marker" if marked => return Err(format!("a row holds '{}'", common.marker)),
        "memory-marker" if marked => return Err(format!("there is no end of memory: {}", attack("memory")?)),
        "trap-at" | "trap-marker" | "loop-at" | "loop-marker" | "err-marker" | "memory-marker" => {}
        "reject-marker" => {
            let is_marked =
                |row: &u32| matches!(rows.texts.get(*row as usize), Some(Some(text)) if text.contains(&common.marker));
            let (rejected, kept) = (0..count).partition(is_marked);
            edit = honest(config, &rows, kept)?;
            edit.rejects = Vec::<u32>::into_iter(rejected).map(reject).collect();
        }
        // Rows.
        "filter-all" => edit = honest(config, &rows, Vec::new())?,
        "reject-all" => {
            edit = honest(config, &rows, Vec::new())?;
            edit.rejects = (0..count).map(reject).collect();
        }
        "rows-twice" => edit = honest(config, &rows, (0..count).flat_map(|row| [row, row]).collect())?,
        "rows-out-of-range" => edit = honest(config, &rows, (0..count).chain([count]).collect())?,
        "rows-max" => edit = honest(config, &rows, (0..count).chain([u32::MAX]).collect())?,
        "rows-falling" => edit = honest(config, &rows, (0..count).rev().collect())?,
        "rows-short" => edit.rows = Some((1..count).collect()),
        "rows-long" => edit.rows = Some((0..count).chain([count.saturating_sub(1)]).collect()),
        "rows-bomb" => {
            // Four bytes for the number of the row, four for the offset, one for validity.
            let rows = common.size / 9;
            edit.rows = Some(vec![0; rows]);
            edit.nodes = nodes::all_null(&config.out, rows);
        }
        "rows-past-memory" => edit.rows = Some(past_memory(0)),
        // Rejects.
        "kept-and-rejected" => edit.rejects = vec![reject(0)],
        "reject-out-of-range" => edit.rejects = vec![reject(count)],
        "reject-max" => edit.rejects = vec![reject(u32::MAX)],
        "reject-twice" => {
            edit = honest(config, &rows, (1..count).collect())?;
            edit.rejects = vec![reject(0), reject(0)];
        }
        "reject-falling" => {
            edit = honest(config, &rows, Vec::new())?;
            edit.rejects = (0..count).rev().map(reject).collect();
        }
        "reject-10mb" | "reject-escapes" | "reject-empty" | "reject-utf8" => {
            edit = honest(config, &rows, (1..count).collect())?;
            let reason = match common.mode.as_str() {
                "reject-10mb" => "x".repeat(10 << 20),
                "reject-escapes" => ESCAPES.to_owned(),
                "reject-empty" => String::new(),
                _ => not_utf8(),
            };
            edit.rejects = vec![Reject { input: 0, reason }];
        }
        "rejects-bomb" => {
            edit = honest(config, &rows, Vec::new())?;
            edit.rejects = (0..1 << 20).map(|n| reject(n % count.max(1))).collect();
        }
        // Everything else makes the column written wrong.
        mode => nodes::corrupt(mode, config.node, common.size, &mut edit.nodes)?,
    }
    Ok(edit)
}

/// Keeps these rows and writes the column as it should be.
fn honest(config: &Config, rows: &Rows, kept: Vec<u32>) -> Result<Edit, String> {
    let texts = kept.iter().map(|row| rows.texts.get(*row as usize).cloned().flatten()).collect();
    let ids = kept.iter().map(|row| rows.ids.get(*row as usize).copied().flatten()).collect();
    let nodes = nodes::column(&config.out, &config.kind, ids, texts)?;
    Ok(Edit { rows: Some(kept), nodes, rejects: Vec::new() })
}

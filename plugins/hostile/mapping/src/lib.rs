//! A mapping plugin that misbehaves as its configuration says: see `plugins/hostile/README.md`.

use hostile_common::{Common, ESCAPES, attack, in_configure, not_utf8, read, spin, trap};
use std::cell::{Cell, RefCell};

#[allow(unsafe_code, clippy::all, missing_debug_implementations, reason = "generated from the contract")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit/0.1.0", world: "mapping-plugin", additional_derives: [Clone] });
}

use bindings::exports::alluvium::plugin::schema_mapping::{
    Coercion, Column, Derivation, Description, Guest, InnerCoercion, Kinds, MappingPlan, OnConflict, Seen, SourceShape,
    TableColumn,
};

thread_local! {
    static CONFIG: RefCell<Option<Common>> = const { RefCell::new(None) };
    /// Calls of `plan` on this instance.
    static CALLS: Cell<u32> = const { Cell::new(0) };
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

    fn configure(config: String) -> Result<(), String> {
        let config: Common = read(&config)?;
        if let Some(mode) = in_configure(&config.mode)
            && !attack(mode)?
        {
            return Err(format!("unknown mode 'configure-{mode}'"));
        }
        CONFIG.replace(Some(config));
        Ok(())
    }

    fn plan(source: SourceShape, table: Option<Vec<TableColumn>>) -> Result<MappingPlan, String> {
        CALLS.set(CALLS.get() + 1);
        let config = CONFIG.with_borrow(Clone::clone).ok_or("plan came before configure")?;
        plan(&config, &source, table.as_deref().unwrap_or_default())
    }
}

#[allow(unsafe_code, reason = "the contract's exports")]
const _: () = {
    bindings::export!(Hostile with_types_in bindings);
};

fn column(name: &str, data_type: &str, path: &str) -> Column {
    Column {
        name: name.to_owned(),
        data_type: data_type.to_owned(),
        path: path.to_owned(),
        coercion: Coercion::None,
        inner_coercions: Vec::new(),
        derivation: None,
        on_conflict: OnConflict::Reject,
        default: None,
        comment: None,
    }
}

/// A field of the records themselves that a column of its name can take whole.
fn is_plain(seen: &&Seen) -> bool {
    !seen.path.contains(['.', '`', '['])
}

/// What inference would do with the fields of the records themselves.
fn honest(source: &SourceShape, table: &[TableColumn]) -> MappingPlan {
    let columns = source.fields.iter().filter(is_plain).filter_map(|seen| {
        let present = table.iter().find(|column| column.name == seen.path).map(|column| &column.data_type);
        Some(column(&seen.path, present.or(seen.inferred.as_ref())?, &seen.path))
    });
    MappingPlan { columns: columns.collect(), drops: Vec::new() }
}

fn plan(config: &Common, source: &SourceShape, table: &[TableColumn]) -> Result<MappingPlan, String> {
    let mut plan = honest(source, table);
    if in_configure(&config.mode).is_some() || attack(&config.mode)? {
        return Ok(plan);
    }
    let first = plan.columns.first().cloned().unwrap_or_else(|| column("x", "string", "x"));
    // One more column, sound but for what the mode does to it.
    let mut odd = column("odd", "string", "odd");
    let is_seen = |path: &str| source.fields.iter().any(|seen| seen.path == path);
    match config.mode.as_str() {
        "honest" => return Ok(plan),
        // Where it happens depends on the shape.
        "trap-marker" | "loop-marker" | "err-marker" if !is_seen(&config.marker) => return Ok(plan),
        "trap-marker" => trap(),
        "loop-marker" => spin(),
        "err-marker" => return Err(format!("a record has the field '{}'", config.marker)),
        // It names that path alone, whatever it named before.
        "forgets-marker" => {
            plan.columns.retain(|column| column.path == config.marker || !is_seen(&config.marker));
            return Ok(plan);
        }
        // What it would remember from call to call.
        "counts-calls" => odd.comment = Some(format!("call {}", CALLS.get())),
        // The input, so that a test sees what arrived.
        "echo" => {
            odd.comment = Some(echo(source, table));
        }
        // Sizes.
        "columns-none" => {
            plan.columns.clear();
            return Ok(plan);
        }
        "columns-10000" | "columns-10001" => {
            let count = if config.mode == "columns-10000" { 10_000 } else { 10_001 };
            plan.columns = (0..count).map(|n| column(&format!("c{n}"), "string", &format!("c{n}"))).collect();
            return Ok(plan);
        }
        "columns-bomb" => plan.columns = vec![odd.clone(); config.size / 320],
        "drops-10001" => plan.drops = (0..10_001).map(|n| format!("d{n}")).collect(),
        "drops-bomb" => plan.drops = vec![String::new(); config.size / 16],
        // Names.
        "name-empty" => odd.name.clear(),
        "name-escapes" => odd.name = ESCAPES.to_owned(),
        "name-10mb" => odd.name = "x".repeat(10 << 20),
        "name-utf8" => odd.name = not_utf8(),
        "name-comma" => odd.name = "a,b;{c}\u{a0}=".to_owned(),
        "name-kafka" => odd.name = "_kafka".to_owned(),
        "name-rescued" => odd.name = "_rescued".to_owned(),
        "name-twice" => odd.name.clone_from(&first.name),
        "name-twice-case" => odd.name = first.name.to_uppercase(),
        // Types.
        "type-unknown" => odd.data_type = "strng".to_owned(),
        "type-empty" => odd.data_type.clear(),
        "type-deep" => odd.data_type = format!("{}int{}", "array<".repeat(9000), ">".repeat(9000)),
        "type-200" => odd.data_type = format!("{}int{}", "array<".repeat(120), ">".repeat(120)),
        "type-10mb" => odd.data_type = "x".repeat(10 << 20),
        "type-utf8" => odd.data_type = not_utf8(),
        "type-escapes" => odd.data_type = "struct<`a\u{202e}\u{1b}`:int>".to_owned(),
        "type-wide" => odd.data_type = wide_struct(5000),
        "type-map-key" => odd.data_type = "map<int,string>".to_owned(),
        "type-change" => return change_first(plan, table),
        // Paths.
        "path-empty" => odd.path.clear(),
        "path-syntax" => odd.path = "a..`b".to_owned(),
        "path-escapes" => odd.path = ESCAPES.to_owned(),
        "path-10mb" => odd.path = "x".repeat(10 << 20),
        "path-utf8" => odd.path = not_utf8(),
        "path-deep" => odd.path = ["a"; 1000].join("."),
        "path-list" => odd.path = "items.[].sku".to_owned(),
        "path-unseen" => odd.path = "nobody.has.this".to_owned(),
        "path-twice" => odd.path.clone_from(&first.path),
        "path-overlap" => odd.path = format!("{}.inner", first.path),
        "path-kafka" => odd.path = "_kafka".to_owned(),
        // Coercions and derivations.
        "coercion-type" => odd.coercion = Coercion::EpochMs,
        "coercion-inner-path" => odd.inner_coercions = vec![inner("a..b")],
        "coercion-inner-unseen" => odd.inner_coercions = vec![inner("element.nobody")],
        "coercion-inner-twice" => odd.inner_coercions = vec![inner("element"), inner("`element`")],
        "coercion-inner-1001" => odd.inner_coercions = (0..1001).map(|n| inner(&format!("f{n}"))).collect(),
        "derivation-date" => odd.derivation = Some(Derivation::Date),
        "derivation-nested" => {
            odd.data_type = "array<int>".to_owned();
            odd.derivation = Some(Derivation::Before("-".to_owned()));
        }
        "separator-empty" => odd.derivation = Some(Derivation::Before(String::new())),
        "separator-long" => odd.derivation = Some(Derivation::After("-".repeat(257))),
        "separator-utf8" => odd.derivation = Some(Derivation::After(not_utf8())),
        // Defaults and comments.
        "default-syntax" => odd.default = Some("{'a': 1}".to_owned()),
        "default-empty" => odd.default = Some(String::new()),
        "default-type" => odd.default = Some("[1, 2]".to_owned()),
        "default-deep" => odd.default = Some(format!("{}{}", "[".repeat(30_000), "]".repeat(30_000))),
        "default-long" => odd.default = Some(format!("\"{}\"", "x".repeat(64 << 10))),
        "default-utf8" => odd.default = Some(not_utf8()),
        "comment-long" => odd.comment = Some("x".repeat(4097)),
        "comment-escapes" => odd.comment = Some(ESCAPES.to_owned()),
        "comment-utf8" => odd.comment = Some(not_utf8()),
        // Drops.
        "drop-syntax" => plan.drops = vec!["`a".to_owned()],
        "drop-list" => plan.drops = vec!["items.[]".to_owned()],
        "drop-unseen" => plan.drops = vec!["nobody.has.this".to_owned()],
        "drop-column" => plan.drops = vec![first.path],
        "drop-all" => {
            plan.columns.clear();
            plan.drops = source.fields.iter().filter(is_plain).map(|seen| seen.path.clone()).collect();
            return Ok(plan);
        }
        "all-wrong" => {
            let wrong = column("", "strng", "a..b");
            plan.columns = vec![Column { default: Some("{".to_owned()), ..wrong }; 1000];
        }
        mode => return Err(format!("unknown mode '{mode}'")),
    }
    plan.columns.push(odd);
    Ok(plan)
}

/// The first column of the table, with another type.
fn change_first(mut plan: MappingPlan, table: &[TableColumn]) -> Result<MappingPlan, String> {
    let first = table.first().ok_or("there is no table whose column could be changed")?;
    let other = if first.data_type == "binary" { "bigint" } else { "binary" };
    plan.columns.retain(|column| column.name != first.name);
    plan.columns.push(column(&first.name, other, &format!("`{}`", first.name.replace('`', "``"))));
    Ok(plan)
}

fn inner(path: &str) -> InnerCoercion {
    InnerCoercion { path: path.to_owned(), coercion: Coercion::ParseString }
}

fn wide_struct(fields: usize) -> String {
    let fields: Vec<_> = (0..fields).map(|n| format!("f{n}:int")).collect();
    format!("struct<{}>", fields.join(","))
}

fn echo(source: &SourceShape, table: &[TableColumn]) -> String {
    let mut text = format!("{} {}", source.format, source.schema_id.as_deref().unwrap_or("-"));
    for seen in &source.fields {
        let all = [
            (Kinds::NULL, 'n'),
            (Kinds::BOOLEAN, 'b'),
            (Kinds::INTEGER, 'i'),
            (Kinds::FRACTION, 'f'),
            (Kinds::STRING, 's'),
            (Kinds::OBJECT, 'o'),
            (Kinds::LIST, 'l'),
        ];
        let kinds: String =
            all.into_iter().filter(|(kind, _)| seen.kinds.contains(*kind)).map(|(_, kind)| kind).collect();
        text += &format!("; {} {kinds} {}", seen.path, seen.inferred.as_deref().unwrap_or("-"));
    }
    for column in table {
        text += &format!("; {}:{}", column.name, column.data_type);
    }
    text
}

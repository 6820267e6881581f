//! Every misbehaviour of the plugins under `plugins/hostile`: contained in bounded time, and told as
//! what it is.

use crate::guests::component;
use crate::{first_run, host, soon};
use alluvium_core::chunk::{Header, Record, encode_headers};
use alluvium_core::{Classified, ErrorClass, Records};
use alluvium_wasm::{AdmitError, CallError, ConfigureError, Edit, Isolation, Limits, Plugin, RecordOutput};
use arrow_array::{Array, ArrayRef, Int64Array, StringArray};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Time enough for what ends, on a machine as busy as it may be.
pub const LIMITS: Limits = Limits {
    memory: 64 << 20,
    time: Duration::from_secs(20),
    output: 16 << 20,
    rows: 1 << 20,
    table_elements: 100_000,
};
/// Time for what does not end.
pub const BRIEF: Limits = Limits { time: Duration::from_millis(300), ..LIMITS };

/// `ok` or what a call's error says of itself; wild characters would be seen here.
fn outcome<T>(mode: &str, result: Result<T, CallError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("hostile") && text.contains("sha256:"), "{mode}: {text}");
            assert!(text.len() < 5000 && !text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{mode}: {text:?}");
            assert!(error.class() == ErrorClass::Plugin && error.hint().is_some(), "{mode}: {error:?}");
            error.code()
        }
    }
}

/// The plugin, with little time when the mode is one that does not end.
fn column(mode: &str) -> &'static Plugin {
    static PLUGINS: LazyLock<[Plugin; 2]> =
        LazyLock::new(|| [LIMITS, BRIEF].map(|limits| guest("hostile-column", &limits).unwrap()));
    &PLUGINS[usize::from(is_endless(mode))]
}

fn record(mode: &str) -> &'static Plugin {
    static PLUGINS: LazyLock<[Plugin; 2]> =
        LazyLock::new(|| [LIMITS, BRIEF].map(|limits| guest("hostile-record", &limits).unwrap()));
    &PLUGINS[usize::from(is_endless(mode))]
}

pub fn is_endless(mode: &str) -> bool {
    mode.contains("loop") || mode.contains("bulk")
}

pub fn guest(name: &str, limits: &Limits) -> Result<Plugin, AdmitError> {
    host().admit(name, &component(name), limits)
}

fn admitted(name: &str) -> Result<Plugin, AdmitError> {
    guest(name, if is_endless(name) { &BRIEF } else { &LIMITS })
}

pub fn mode(config: &Value) -> &str {
    config["mode"].as_str().unwrap()
}

const ROWS: usize = 10;

fn call_column(config: &Value) -> Result<Edit, CallError> {
    let plugin = column(mode(config)).configure_column(config).unwrap_or_else(|error| panic!("{config}: {error:?}"));
    let ids: ArrayRef = Arc::new((0..ROWS as i64).map(Some).collect::<Int64Array>());
    let texts: ArrayRef = Arc::new((0..ROWS).map(|row| Some(format!("text {row}"))).collect::<StringArray>());
    plugin.transform(ROWS, &[ids, texts])
}

/// What is promised of every answer that passes.
fn check_edit(mode: &str, edit: &Edit) {
    let kept = edit.rows.as_ref().map_or(ROWS, Vec::len);
    for column in &edit.columns {
        assert_eq!(column.len(), kept, "{mode}");
        column.to_data().validate_full().unwrap();
    }
    let rejected = edit.rejects.iter().map(|(row, _)| *row);
    for row in rejected {
        assert!(!edit.rows.as_ref().is_none_or(|rows| rows.contains(&row)), "{mode}: row {row} has two fates");
    }
}

#[test]
fn column_modes_end_as_they_should() {
    let modes = [
        ("honest", "ok"),
        ("loop", "plugin-timeout"),
        ("memory", "plugin-memory"),
        ("stack", "plugin-trap"),
        ("bulk", "plugin-timeout"),
        ("trap", "plugin-trap"),
        ("panic-1mb", "plugin-trap"),
        ("err", "plugin-failed"),
        ("err-empty", "plugin-failed"),
        ("err-10mb", "plugin-failed"),
        ("err-escapes", "plugin-failed"),
        ("err-utf8", "plugin-output"),
        // Memory that was refused is no fault of one that can do without.
        ("memory-refused", "ok"),
        ("filter-all", "ok"),
        ("reject-all", "ok"),
        ("rows-twice", "plugin-output"),
        ("rows-out-of-range", "plugin-output"),
        ("rows-max", "plugin-output"),
        ("rows-falling", "plugin-output"),
        ("rows-short", "plugin-output"),
        ("rows-long", "plugin-output"),
        ("rows-bomb", "plugin-output"),
        ("rows-past-memory", "plugin-output"),
        ("kept-and-rejected", "plugin-output"),
        ("reject-out-of-range", "plugin-output"),
        ("reject-max", "plugin-output"),
        ("reject-twice", "plugin-output"),
        ("reject-falling", "ok"),
        ("reject-10mb", "ok"),
        ("reject-escapes", "ok"),
        ("reject-empty", "ok"),
        ("reject-utf8", "plugin-output"),
        ("rejects-bomb", "plugin-output"),
        ("nodes-missing", "plugin-output"),
        ("nodes-none", "plugin-output"),
        ("nodes-extra", "plugin-output"),
        ("nodes-deep", "plugin-output"),
        ("nodes-bomb", "plugin-output"),
        ("layout-boolean", "plugin-output"),
        ("layout-fixed16", "plugin-output"),
        ("layout-bytes", "plugin-output"),
        ("layout-list", "plugin-output"),
        ("layout-struct", "plugin-output"),
        // The name of a column is said by `configure`; the root's own is not looked at.
        ("name-other", "ok"),
        ("name-10mb", "ok"),
        ("name-utf8", "plugin-output"),
        ("children-one-more", "plugin-output"),
        ("children-max", "plugin-output"),
        ("length-short", "plugin-output"),
        ("length-long", "plugin-output"),
        ("length-max", "plugin-output"),
        ("length-zero", "plugin-output"),
        ("validity-short", "plugin-output"),
        ("validity-empty", "plugin-output"),
        ("validity-long", "plugin-output"),
        ("validity-none-there", "ok"),
        ("values-short", "plugin-output"),
        ("values-empty", "plugin-output"),
        // Bytes that no offset reaches are allowed.
        ("values-long", "ok"),
        ("values-bomb", "plugin-output"),
        ("values-past-memory", "plugin-output"),
        ("offsets-missing", "plugin-output"),
        ("offsets-empty", "plugin-output"),
        ("offsets-short", "plugin-output"),
        ("offsets-long", "plugin-output"),
        ("offsets-falling", "plugin-output"),
        ("offsets-dip", "plugin-output"),
        ("offsets-negative", "plugin-output"),
        ("offsets-past", "plugin-output"),
        ("offsets-past-memory", "plugin-output"),
        ("offsets-max", "plugin-output"),
        ("offsets-start", "ok"),
        ("utf8-invalid", "plugin-output"),
        ("utf8-surrogate", "plugin-output"),
        ("utf8-cut", "plugin-output"),
    ];
    for (mode, expected) in modes {
        let result = soon(|| call_column(&json!({ "mode": mode })));
        if let Ok(edit) = &result {
            check_edit(mode, edit);
        }
        let text = result.as_ref().map_or_else(ToString::to_string, |_| String::new());
        assert_eq!(outcome(mode, result), expected, "{mode}: {text}");
    }
}

#[test]
fn every_node_of_every_kind_of_column_can_be_wrong() {
    let kinds = [
        ("boolean", 1),
        ("int", 1),
        ("bigint", 1),
        ("decimal", 1),
        ("string", 1),
        ("binary", 1),
        ("list", 2),
        ("map", 4),
        ("struct", 3),
        ("nested", 5),
    ];
    let modes = [
        "layout-boolean",
        "layout-fixed16",
        "layout-bytes",
        "layout-utf8",
        "layout-list",
        "layout-struct",
        "name-other",
        "children-one-more",
        "children-one-less",
        "children-max",
        "length-short",
        "length-long",
        "length-max",
        "length-zero",
        "validity-short",
        "validity-empty",
        "validity-long",
        "validity-none-there",
        "values-short",
        "values-empty",
        "values-long",
        "offsets-missing",
        "offsets-empty",
        "offsets-short",
        "offsets-long",
        "offsets-falling",
        "offsets-dip",
        "offsets-negative",
        "offsets-past",
        "offsets-max",
        "offsets-start",
        "offsets-unasked",
        "utf8-invalid",
        "decimal-too-large",
        "nodes-missing",
        "nodes-extra",
        "nodes-deep",
    ];
    let mut refused = 0;
    for (kind, nodes) in kinds {
        let honest = call_column(&json!({ "mode": "honest", "kind": kind })).unwrap();
        check_edit(kind, &honest);
        for mode in modes {
            for node in 0..nodes {
                let config = json!({ "mode": mode, "kind": kind, "node": node });
                let name = config.to_string();
                let result = call_column(&config);
                if let Ok(edit) = &result {
                    check_edit(&name, edit);
                }
                match outcome(&name, result) {
                    "ok" => {}
                    // Some of these cannot be done to some nodes.
                    "plugin-output" | "plugin-failed" | "plugin-trap" => refused += 1,
                    other => panic!("{name}: {other}"),
                }
            }
        }
    }
    assert!(refused > 500, "only {refused} were refused");
}

#[test]
fn a_wrong_answer_to_configure_is_refused() {
    let call =
        |mode: &str| match soon(|| column(mode).configure_column(&json!({ "mode": format!("configure-{mode}") }))) {
            Ok(_) => "ok".to_owned(),
            Err(error) => {
                assert!(error.to_string().len() < 6000, "{mode}: {} bytes", error.to_string().len());
                assert!(!error.to_string().chars().any(char::is_control), "{mode}: {error}");
                assert_eq!(error.class(), ErrorClass::User, "{mode}");
                match error {
                    ConfigureError::Access { .. } => "access".to_owned(),
                    ConfigureError::Refused { .. } => "refused".to_owned(),
                    ConfigureError::Call { error } => error.code().to_owned(),
                    ConfigureError::Kind { .. } => "kind".to_owned(),
                }
            }
        };
    let modes = [
        ("loop", "plugin-timeout"),
        ("memory", "plugin-memory"),
        ("stack", "plugin-trap"),
        ("bulk", "plugin-timeout"),
        ("trap", "plugin-trap"),
        ("panic-1mb", "plugin-trap"),
        ("err", "refused"),
        ("err-empty", "refused"),
        ("err-10mb", "plugin-output"),
        ("err-escapes", "refused"),
        ("err-utf8", "plugin-output"),
        ("memory-refused", "ok"),
        ("type-unknown", "access"),
        ("type-empty", "access"),
        ("type-deep", "access"),
        ("type-10mb", "plugin-output"),
        ("type-utf8", "plugin-output"),
        ("path-empty", "access"),
        ("path-syntax", "access"),
        ("path-escapes", "access"),
        ("path-10mb", "plugin-output"),
        ("path-deep", "access"),
        ("reads-10000", "access"),
        ("writes-10000", "access"),
        ("reads-twice", "access"),
        ("writes-twice", "access"),
        ("writes-overlap", "access"),
        // Whose column that is the pipeline knows.
        ("writes-kafka", "ok"),
    ];
    for (mode, expected) in modes {
        assert_eq!(call(mode), expected, "{mode}");
    }
    for (mode, expected) in [("loop", "plugin-timeout"), ("memory", "plugin-memory"), ("trap", "plugin-trap")] {
        let error =
            soon(|| record(mode).configure_record(&json!({ "mode": format!("configure-{mode}") })).unwrap_err());
        assert!(matches!(error, ConfigureError::Call { error } if error.code() == expected), "{mode}");
    }
}

fn records() -> Records {
    let mut records = Records::default();
    for number in 0..ROWS {
        let mut headers = Vec::new();
        encode_headers([Header { key: "n", value: Some(b"v") }, Header { key: "m", value: None }], &mut headers);
        let value = format!("record {number}");
        let record = Record {
            offset: number as i64,
            timestamp: 1000 + number as i64,
            key: (number % 2 == 0).then_some(b"key"),
            value: Some(value.as_bytes()),
            headers: (number == 1).then_some(&headers),
        };
        records.push(record).unwrap();
    }
    records
}

fn call_record(config: &Value) -> Result<RecordOutput, CallError> {
    let plugin = record(mode(config)).configure_record(config).unwrap_or_else(|error| panic!("{config}: {error:?}"));
    plugin.transform(&records(), None)
}

#[test]
fn record_modes_end_as_they_should() {
    let modes = [
        ("honest", "ok"),
        ("loop", "plugin-timeout"),
        ("memory", "plugin-memory"),
        ("stack", "plugin-trap"),
        ("bulk", "plugin-timeout"),
        ("trap", "plugin-trap"),
        ("panic-1mb", "plugin-trap"),
        ("err", "plugin-failed"),
        ("err-empty", "plugin-failed"),
        ("err-10mb", "plugin-failed"),
        ("err-escapes", "plugin-failed"),
        ("err-utf8", "plugin-output"),
        ("memory-refused", "ok"),
        ("filter-all", "ok"),
        ("reject-all", "ok"),
        ("inputs-twice", "plugin-output"),
        ("inputs-out-of-range", "plugin-output"),
        ("inputs-max", "plugin-output"),
        ("inputs-falling", "plugin-output"),
        ("inputs-short", "plugin-output"),
        ("inputs-long", "plugin-output"),
        ("inputs-bomb", "plugin-output"),
        ("inputs-past-memory", "plugin-output"),
        ("kept-and-rejected", "plugin-output"),
        ("reject-out-of-range", "plugin-output"),
        ("reject-max", "plugin-output"),
        ("reject-twice", "plugin-output"),
        ("reject-falling", "ok"),
        ("reject-10mb", "ok"),
        ("reject-escapes", "ok"),
        ("reject-empty", "ok"),
        ("reject-utf8", "plugin-output"),
        ("rejects-bomb", "plugin-output"),
        ("keys-null", "ok"),
        ("keys-new", "ok"),
        ("ends-short", "plugin-output"),
        ("ends-long", "plugin-output"),
        ("ends-empty", "plugin-output"),
        ("ends-falling", "plugin-output"),
        ("ends-past", "plugin-output"),
        ("ends-max", "plugin-output"),
        ("data-short", "plugin-output"),
        ("data-empty", "plugin-output"),
        ("data-long", "plugin-output"),
        ("data-bomb", "plugin-output"),
        ("ends-past-memory", "plugin-output"),
        ("data-past-memory", "plugin-output"),
        ("validity-short", "plugin-output"),
        ("validity-empty", "plugin-output"),
        ("validity-long", "plugin-output"),
        ("validity-null", "plugin-output"),
        // Not among the modes.
        ("juggle", "plugin-failed"),
    ];
    let wrong_packed = |mode: &str| ["ends-", "data-", "validity-"].iter().any(|start| mode.starts_with(start));
    for (mode, expected) in modes.into_iter().filter(|(mode, _)| wrong_packed(mode)) {
        let keys = soon(|| call_record(&json!({ "mode": format!("keys-{mode}") })));
        // Keys may be null.
        let expected = if mode == "validity-null" { "ok" } else { expected };
        assert_eq!(outcome(mode, keys), expected, "keys-{mode}");
    }
    for (mode, expected) in modes {
        let result = soon(|| call_record(&json!({ "mode": mode })));
        let text = result.as_ref().map_or_else(ToString::to_string, |_| String::new());
        assert_eq!(outcome(mode, result), expected, "{mode}: {text}");
    }
    for (input, output) in [("headers-as-values", "n=v;m=-;"), ("timestamps-as-values", "1001")] {
        let config = json!({ "mode": input, "keys": true, "headers": true, "timestamps": true });
        let found = call_record(&config).unwrap();
        assert_eq!(found.values.get(1), Some(output.as_bytes()), "{input}");
    }
    let echoed = call_record(&json!({ "mode": "keys-echo", "keys": true })).unwrap();
    assert_eq!(echoed.keys.as_ref(), Some(records().keys()));
}

#[test]
fn reasons_are_tamed_and_never_empty() {
    for (mode, part) in
        [("reject-empty", "no reason given"), ("reject-escapes", "two\\nlines\\r\\u{1b}[2J"), ("reject-10mb", "xxx…")]
    {
        let rejects = [
            call_column(&json!({ "mode": mode })).unwrap().rejects,
            call_record(&json!({ "mode": mode })).unwrap().rejects,
        ];
        for rejects in rejects {
            assert!(rejects[0].1.contains(part), "{mode}: {rejects:?}");
        }
    }
}

#[test]
fn components_that_are_hostile_from_the_start_are_refused() {
    let kinds = [
        ("both-worlds", "both"),
        ("column-describe-10mb", "plugin-output"),
        ("column-describe-escapes", "description"),
        ("column-describe-loop", "plugin-timeout"),
        ("column-describe-memory", "plugin-memory"),
        ("column-describe-pointer", "plugin-output"),
        ("column-describe-string", "plugin-output"),
        ("column-describe-trap", "plugin-trap"),
        ("column-describe-stack", "plugin-trap"),
        ("column-describe-table", "plugin-trap"),
        ("column-memory-minimum", "memory"),
        ("column-start-loop", "plugin-timeout"),
        ("column-start-trap", "plugin-trap"),
        ("column-table-minimum", "table"),
    ];
    for (name, expected) in kinds {
        let error = soon(|| admitted(&format!("hostile-{name}")).unwrap_err());
        assert_eq!(kind(error), expected, "{name}");
    }
}

fn kind(error: AdmitError) -> &'static str {
    assert!(error.hint().is_some(), "{error}");
    assert!(!error.to_string().chars().any(char::is_control), "{error}");
    match error {
        AdmitError::Both { .. } => "both",
        AdmitError::Description { .. } => "description",
        AdmitError::Memory { .. } => "memory",
        AdmitError::Table { .. } => "table",
        AdmitError::NotComponent { .. } => "not-component",
        AdmitError::Invalid { .. } => "invalid",
        AdmitError::Imports { .. } => "imports",
        AdmitError::World { .. } => "world",
        AdmitError::Version { .. } => "version",
        AdmitError::Contract { .. } => "contract",
        AdmitError::FirstRun { .. } => first_run(error).code(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn components_that_fail_in_a_call_are_contained() {
    let kinds = [
        ("column-plain", "ok"),
        ("column-post-loop", "plugin-timeout"),
        ("column-post-trap", "plugin-trap"),
        ("column-realloc-loop", "plugin-timeout"),
        ("column-realloc-overlap", "ok"),
        ("column-realloc-pointer", "plugin-output"),
        ("column-result-alignment", "plugin-output"),
        ("column-result-discriminant", "plugin-output"),
        ("column-result-layout", "plugin-output"),
    ];
    for (name, expected) in kinds {
        let found = soon(|| {
            let plugin = admitted(&format!("hostile-{name}")).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            match plugin.configure_column(&json!({})) {
                Ok(plugin) => outcome(name, plugin.transform(3, &[])),
                Err(ConfigureError::Call { error }) => outcome::<()>(name, Err(error)),
                Err(error) => panic!("{name}: {error:?}"),
            }
        });
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn components_in_text_form_are_refused_as_what_they_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/hostile/wat");
    let expected = |name: &str| match name {
        "core-module" => "not-component",
        "exports-nothing" | "exports-other" | "many-instances" => "world",
        "exports-newer-version" | "exports-older-version" => "version",
        "exports-missing-functions" | "exports-wrong-type" => "contract",
        _ if name.starts_with("imports-") => "imports",
        _ if name.starts_with("feature-") => "invalid",
        _ => panic!("{name}: say here what is to become of it"),
    };
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let component = wat::parse_file(&path).unwrap();
        let error = soon(|| host().admit(name, &component, &LIMITS).unwrap_err());
        let text = format!("{error:?}");
        assert_eq!(kind(error), expected(name), "{name}: {text}");
        seen += 1;
    }
    assert!(seen >= 18, "only {seen} found");
}

#[test]
fn the_rows_at_fault_are_found() {
    let isolation = Isolation { share: 0.5, time: Duration::from_secs(30), ..Isolation::default() };
    let ids: ArrayRef = Arc::new((0..ROWS as i64).map(Some).collect::<Int64Array>());
    let texts: ArrayRef =
        Arc::new((0..ROWS).map(|row| Some(if row % 4 == 3 { "boom" } else { "fine" })).collect::<StringArray>());
    let columns = [ids, texts];
    let modes = [
        ("trap-marker", "plugin-trap"),
        ("loop-marker", "plugin-timeout"),
        ("err-marker", "plugin-failed"),
        ("memory-marker", "plugin-memory"),
    ];
    for (mode, code) in modes {
        let plugin = column(mode).configure_column(&json!({ "mode": mode })).unwrap();
        let found = soon(|| plugin.transform_isolating(ROWS, &columns, &isolation).unwrap());
        let bad: Vec<_> = found.bad.iter().map(|(row, error)| (*row, error.code())).collect();
        assert_eq!(bad, [(3, code), (7, code)], "{mode}");
        assert_eq!(found.edit.rows.unwrap(), [0, 1, 2, 4, 5, 6, 8, 9], "{mode}");
        assert_eq!(found.edit.columns[0].len(), 8, "{mode}");

        let plugin = record(mode).configure_record(&json!({ "mode": mode, "marker": "record 4" })).unwrap();
        let found = soon(|| plugin.transform_isolating(&records(), None, &isolation).unwrap());
        let bad: Vec<_> = found.bad.iter().map(|(record, error)| (*record, error.code())).collect();
        assert_eq!(bad, [(4, code)], "{mode}");
        assert_eq!(found.output.inputs, [0, 1, 2, 3, 5, 6, 7, 8, 9], "{mode}");
    }
    let plugin = column("reject-marker").configure_column(&json!({ "mode": "reject-marker" })).unwrap();
    let found = plugin.transform_isolating(ROWS, &columns, &isolation).unwrap();
    assert_eq!(found.edit.rejects.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [3, 7]);
    for mode in ["trap-at", "loop-at"] {
        let plugin = column(mode).configure_column(&json!({ "mode": mode, "at": 5 })).unwrap();
        let found = soon(|| plugin.transform_isolating(ROWS, &columns, &isolation).unwrap());
        assert_eq!(found.bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [5], "{mode}");
    }
}

#[test]
fn several_outputs_of_an_input_need_a_word_before() {
    let edit = call_column(&json!({ "mode": "rows-twice", "multiplies": true })).unwrap();
    assert_eq!(edit.rows.unwrap()[..4], [0, 0, 1, 1]);
    let output = call_record(&json!({ "mode": "inputs-twice", "multiplies": true })).unwrap();
    assert_eq!(output.inputs[..4], [0, 0, 1, 1]);
    let bomb = json!({ "multiplies": true, "size": 24 << 20 });
    for (mode, call) in [("rows-bomb", true), ("inputs-bomb", false)] {
        let mut config = bomb.clone();
        config["mode"] = mode.into();
        let text = match call {
            true => soon(|| call_column(&config)).unwrap_err().to_string(),
            false => soon(|| call_record(&config)).unwrap_err().to_string(),
        };
        assert!(
            text.contains("output limit of 16 MiB") || text.contains("at most 1048576 are allowed"),
            "{mode}: {text}"
        );
    }
}

#[test]
fn every_mode_that_is_described_is_tried() {
    let tests = [include_str!("hostile.rs"), include_str!("hostile_mapping.rs")].concat();
    let readme = include_str!("../../../../plugins/hostile/README.md");
    let (_, modes) = readme.split_once("## All, in `transform` or `plan`, and").unwrap();
    let mut tried = 0;
    for line in modes.lines() {
        let names = match line.strip_prefix("| ") {
            Some(row) => row.split(" |").next().unwrap_or_default(),
            None if line.contains("`configure-type") => line,
            None => continue,
        };
        for name in names.split('`').skip(1).step_by(2) {
            if name == "_kafka" {
                // A column's name.
                continue;
            }
            let name = name.trim_start_matches("configure-").trim_start_matches("hostile-");
            let found = match name.split_once('…') {
                // A part of names: `…-twice`, `feature-…`.
                Some((before, after)) => tests.contains(&format!("{before}{after}")),
                None => tests.contains(&format!("\"{}\"", name.trim_start_matches('-'))),
            };
            // Files are all read, and named by what they start with.
            let file = ["imports-", "exports-", "core-module", "many-"].iter().any(|start| name.starts_with(start));
            assert!(found || file, "{name} is described in plugins/hostile/README.md, but not tried here");
            tried += 1;
        }
    }
    assert!(tried > 180, "only {tried} modes are described");
}

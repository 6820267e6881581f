//! Every misbehaviour of `hostile-mapping`: contained in bounded time, and told as what it is.

use crate::hostile::{BRIEF, LIMITS, guest, is_endless, mode};
use crate::soon;
use alluvium_core::{Classified, DataType, ErrorClass};
use alluvium_wasm::{
    ConfigureError, Kinds, MappingAnswer, MappingError, MappingPlace, Plugin, Seen, SourceShape, TableColumn,
};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The plugin, with little time when the mode is one that does not end.
fn plugin(mode: &str) -> &'static Plugin {
    static PLUGINS: LazyLock<[Plugin; 2]> =
        LazyLock::new(|| [LIMITS, BRIEF].map(|limits| guest("hostile-mapping", &limits).unwrap()));
    &PLUGINS[usize::from(is_endless(mode))]
}

fn source() -> SourceShape {
    let seen = |path: &str, kinds: Kinds, inferred: Option<&str>| Seen {
        path: path.to_owned(),
        kinds,
        inferred: inferred.map(str::to_owned),
    };
    let none = Kinds::default();
    let fields = vec![
        seen("id", Kinds { integer: true, ..none }, Some("bigint")),
        seen("text", Kinds { string: true, null: true, ..none }, Some("string")),
        seen("items", Kinds { list: true, ..none }, Some("array<struct<sku:string>>")),
        seen("items.[]", Kinds { object: true, ..none }, Some("struct<sku:string>")),
        seen("items.[].sku", Kinds { string: true, boolean: true, fraction: true, ..none }, Some("string")),
        seen("nothing", Kinds { null: true, ..none }, None),
    ];
    SourceShape { format: "json".to_owned(), schema_id: Some("17".to_owned()), fields }
}

fn table() -> Vec<TableColumn> {
    vec![TableColumn { name: "id".to_owned(), data_type: DataType::Decimal(20, 0) }]
}

fn call(config: &Value) -> Result<MappingAnswer, MappingError> {
    let plugin = plugin(mode(config)).configure_mapping(config).unwrap_or_else(|error| panic!("{config}: {error:?}"));
    plugin.plan(&source(), Some(&table()))
}

/// `ok` or what an error says of itself; wild characters would be seen here.
fn outcome(mode: &str, result: &Result<MappingAnswer, MappingError>) -> String {
    let error = match result {
        Ok(_) => return "ok".to_owned(),
        Err(error) => error,
    };
    let text = format!("{error} {:?}", std::error::Error::source(error).map(ToString::to_string));
    assert!(text.contains("hostile-mapping") && text.contains("sha256:"), "{mode}: {text}");
    assert!(text.len() < 8000 && !text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{mode}: {text:?}");
    assert!(error.class() == ErrorClass::Plugin && error.hint().is_some(), "{mode}: {error:?}");
    match error {
        MappingError::Answer { problems, .. } => problems[0].to_string(),
        _ => error.code().to_owned(),
    }
}

#[test]
fn modes_end_as_they_should() {
    let modes = [
        ("honest", "ok"),
        ("loop", "plugin-timeout"),
        ("bulk", "plugin-timeout"),
        ("memory", "plugin-memory"),
        ("memory-refused", "ok"),
        ("stack", "plugin-trap"),
        ("trap", "plugin-trap"),
        ("panic-1mb", "plugin-trap"),
        ("err", "plugin-failed"),
        ("err-empty", "plugin-failed"),
        ("err-10mb", "plugin-failed"),
        ("err-escapes", "plugin-failed"),
        ("err-utf8", "plugin-output"),
        ("juggle", "plugin-failed"),
        // The marker is not in the shape.
        ("trap-marker", "ok"),
        ("loop-marker", "ok"),
        ("err-marker", "ok"),
        ("columns-none", "ok"),
        ("columns-10000", "ok"),
        ("columns-10001", "it names 10001 columns; at most 10000 are allowed"),
        ("columns-bomb", "plugin-output"),
        ("drops-10001", "it drops 10001 paths; at most 10000 are allowed"),
        ("drops-bomb", "plugin-output"),
        ("name-empty", "column 4, which has no name: its name is empty"),
        ("name-escapes", "its name holds '\\n', which acts on what displays it"),
        ("name-10mb", "its name has 10 MiB; at most 4 KiB are allowed"),
        ("name-utf8", "plugin-output"),
        ("type-unknown", "column \"odd\": its type \"strng\" is not one: unknown type 'strng' at position 0"),
        ("type-empty", "column \"odd\": its type \"\" is not one: expected a type at position 0"),
        ("type-deep", "is not one: nested deeper than 128 levels at position"),
        ("type-10mb", "its type has 10 MiB; at most 64 KiB are allowed"),
        ("type-utf8", "plugin-output"),
        ("type-escapes", "its type holds '\\u{202e}', which acts on what displays it"),
        ("path-empty", "its path \"\" is not one: a part is empty"),
        ("path-syntax", "its path \"a..`b\" is not one: a part is empty"),
        ("path-escapes", "its path holds '\\n', which acts on what displays it"),
        ("path-10mb", "its path has 10 MiB; at most 4 KiB are allowed"),
        ("path-utf8", "plugin-output"),
        ("path-deep", "is not one: it has more than 128 parts"),
        ("path-list", "is not one: it leads into a list; a key of the name [] stands in backticks"),
        ("coercion-inner-path", "its path of a coercion \"a..b\" is not one: a part is empty"),
        ("coercion-inner-twice", "it has a coercion for \"element\" twice"),
        ("coercion-inner-1001", "it has 1001 coercions inside it; at most 1000 are allowed"),
        ("separator-empty", "its separator is empty"),
        ("separator-long", "its separator has 257 bytes; at most 256 bytes are allowed"),
        ("separator-utf8", "plugin-output"),
        ("default-syntax", "its default is not JSON: key must be a string at line 1 column 2"),
        ("default-empty", "its default is not JSON: EOF while parsing a value at line 1 column 0"),
        ("default-long", "its default has 64.0 KiB; at most 64 KiB are allowed"),
        ("default-deep", "ok"),
        ("default-utf8", "plugin-output"),
        ("comment-long", "its comment has 4.0 KiB; at most 4 KiB are allowed"),
        ("comment-escapes", "its comment holds '\\n', which acts on what displays it"),
        ("comment-utf8", "plugin-output"),
        ("drop-syntax", "drop 1: its path \"`a\" is not one: a backtick is not closed"),
        ("drop-list", "drop 1: its path \"items.[]\" is not one: it leads into a list"),
        ("all-wrong", "column 1, which has no name: its name is empty"),
        // Sound, each part for itself.
        ("name-comma", "ok"),
        ("name-kafka", "ok"),
        ("name-rescued", "ok"),
        ("name-twice", "ok"),
        ("name-twice-case", "ok"),
        ("type-200", "ok"),
        ("type-wide", "ok"),
        ("type-map-key", "ok"),
        ("type-change", "ok"),
        ("path-unseen", "ok"),
        ("path-twice", "ok"),
        ("path-overlap", "ok"),
        ("path-kafka", "ok"),
        ("coercion-type", "ok"),
        ("coercion-inner-unseen", "ok"),
        ("derivation-date", "ok"),
        ("derivation-nested", "ok"),
        ("default-type", "ok"),
        ("drop-unseen", "ok"),
        ("drop-column", "ok"),
        ("drop-all", "ok"),
    ];
    let mut wrong = Vec::new();
    for (mode, expected) in modes {
        let result = soon(|| call(&json!({ "mode": mode })));
        let found = outcome(mode, &result);
        if !found.contains(expected) || (found != expected && expected.starts_with("plugin-")) {
            wrong.push(format!("{mode}: {found}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_plugin_can_be_called_again_after_each() {
    let again = plugin("honest").configure_mapping(&json!({ "mode": "err-marker", "marker": "items.[].sku" })).unwrap();
    let error = again.plan(&source(), None).unwrap_err();
    assert!(matches!(&error, MappingError::Refused { message, .. } if message.ends_with("the field 'items.[].sku'")));
    assert_eq!(again.plan(&SourceShape::default(), None).unwrap(), MappingAnswer::default());
    for (mode, code) in [("trap-marker", "plugin-trap"), ("loop-marker", "plugin-timeout")] {
        let plugin = plugin(mode).configure_mapping(&json!({ "mode": mode, "marker": "id" })).unwrap();
        for _ in 0..2 {
            assert_eq!(soon(|| plugin.plan(&source(), None)).unwrap_err().code(), code);
            assert_eq!(plugin.plan(&SourceShape::default(), None).unwrap(), MappingAnswer::default());
        }
    }
}

#[test]
fn nothing_is_remembered_from_call_to_call() {
    let plugin = plugin("counts-calls").configure_mapping(&json!({ "mode": "counts-calls" })).unwrap();
    for _ in 0..3 {
        let answer = plugin.plan(&source(), None).unwrap();
        assert_eq!(answer.columns.last().unwrap().comment.as_deref(), Some("call 1"));
    }
}

#[test]
fn a_plan_can_leave_out_what_another_names() {
    let names = |marker: &str| {
        let config = json!({ "mode": "forgets-marker", "marker": marker });
        let answer = plugin("forgets-marker").configure_mapping(&config).unwrap().plan(&source(), None).unwrap();
        answer.columns.into_iter().map(|column| column.name).collect::<Vec<_>>()
    };
    assert_eq!(names("unseen"), ["id", "text", "items"]);
    assert_eq!(names("text"), ["text"]);
}

#[test]
fn shape_and_table_arrive_as_they_are() {
    let answer = call(&json!({ "mode": "echo" })).unwrap();
    assert_eq!(
        answer.columns.last().unwrap().comment.as_deref().unwrap(),
        "json 17; id i bigint; text ns string; items l array<struct<sku:string>>; items.[] o struct<sku:string>; \
         items.[].sku bfs string; nothing n -; id:decimal(20,0)"
    );
    let changed = call(&json!({ "mode": "type-change" })).unwrap();
    let last = changed.columns.last().unwrap();
    assert_eq!((last.name.as_str(), &last.data_type, &last.path), ("id", &DataType::Binary, &vec!["id".to_owned()]));
}

#[test]
fn of_many_problems_the_first_are_told() {
    let error = call(&json!({ "mode": "all-wrong" })).unwrap_err();
    let MappingError::Answer { problems, more, .. } = &error else { panic!("{error}") };
    assert_eq!((problems.len(), *more), (20, 1000 * 4 - 20));
    assert_eq!(problems[19].place, MappingPlace::Column { number: 5, name: String::new() });
    assert!(error.to_string().ends_with("; and 3980 more"), "{error}");
}

#[test]
fn a_wrong_configure_is_refused() {
    let modes = [
        ("loop", "plugin-timeout"),
        ("bulk", "plugin-timeout"),
        ("memory", "plugin-memory"),
        ("memory-refused", "ok"),
        ("stack", "plugin-trap"),
        ("trap", "plugin-trap"),
        ("panic-1mb", "plugin-trap"),
        ("err", "refused"),
        ("err-empty", "refused"),
        ("err-10mb", "plugin-output"),
        ("err-escapes", "refused"),
        ("err-utf8", "plugin-output"),
        ("juggle", "refused"),
    ];
    for (mode, expected) in modes {
        let config = json!({ "mode": format!("configure-{mode}") });
        let found = match soon(|| plugin(mode).configure_mapping(&config)) {
            Ok(plugin) => outcome(mode, &plugin.plan(&source(), None)),
            Err(error) => {
                assert!(!error.to_string().chars().any(char::is_control), "{mode}: {error}");
                assert_eq!(error.class(), ErrorClass::User, "{mode}");
                match error {
                    ConfigureError::Call { error } => error.code().to_owned(),
                    ConfigureError::Refused { .. } => "refused".to_owned(),
                    other => panic!("{mode}: {other}"),
                }
            }
        };
        assert_eq!(found, expected, "{mode}");
    }
}

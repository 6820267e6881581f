//! The guests under `plugins/`, as `cargo xtask plugins` builds them.

use crate::host;
use alluvium_core::DataType;
use alluvium_core::Records;
use alluvium_core::chunk::Record;
use alluvium_wasm::{
    Coercion, ColumnPlugin, Derivation, Kind, Kinds, Limits, MappingError, OnConflict, Plugin, Seen, SourceShape,
    TableColumn,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, StringArray};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// The folder of the built components.
pub fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("ALLUVIUM_PLUGINS") {
        return folder.into();
    }
    if let Some(target) = std::env::var_os("CARGO_TARGET_DIR") {
        return PathBuf::from(target).join("plugins");
    }
    // This executable lies in <target>/<profile>/deps.
    let executable = std::env::current_exe().unwrap();
    executable.ancestors().nth(3).unwrap().join("plugins")
}

pub fn component(name: &str) -> Vec<u8> {
    let path = folder().join(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; run `cargo xtask plugins` first (or set ALLUVIUM_PLUGINS)", path.display())
    })
}

pub fn guest(name: &str) -> Plugin {
    host().admit(name, &component(name), &Limits::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn redact(config: Value) -> ColumnPlugin {
    guest("redact").configure_column(&config).unwrap()
}

#[test]
fn they_describe_themselves() {
    for (name, kind) in [("redact", Kind::Column), ("unwrap", Kind::Record), ("orders-map", Kind::Mapping)] {
        let plugin = guest(name);
        assert_eq!((plugin.kind(), plugin.description().name.as_str()), (kind, name));
        let schema: Value = serde_json::from_str(&plugin.description().config_schema).unwrap();
        assert!(schema.is_object());
    }
}

#[test]
fn redact_masks_drops_and_derives() {
    let plugin = redact(json!({ "fields": ["customer.email"] }));
    let reads: Vec<_> = plugin.access().reads.iter().map(|field| (field.name(), field.data_type.to_string())).collect();
    let expected = [("test", "boolean"), ("customer.email", "string"), ("event_time", "timestamp")];
    assert_eq!(reads, expected.map(|(name, data_type)| (name.to_owned(), data_type.to_owned())));
    let writes: Vec<_> = plugin.access().writes.iter().map(|field| field.name()).collect();
    assert_eq!(writes, ["customer.email", "order_date"]);

    let test: ArrayRef = Arc::new(BooleanArray::from(vec![None, Some(true), Some(false), None]));
    let email: ArrayRef = Arc::new(StringArray::from(vec![Some("jo@é.org"), Some("b@c"), None, Some("nobody")]));
    let day = 86_400_000_000;
    let times: PrimitiveArray<TimestampMicrosecondType> =
        [Some(0), Some(0), Some(-1), Some(day * 20_000 + 5)].into_iter().collect();
    let times: ArrayRef = Arc::new(times.with_timezone("UTC"));
    let edit = plugin.transform(4, &[test, email, times]).unwrap();
    assert_eq!(edit.rows.unwrap(), [0, 2, 3]);
    let masked: Vec<_> = edit.columns[0].as_string::<i32>().iter().collect();
    assert_eq!(masked, [Some("***@é.org"), None, Some("***")]);
    assert_eq!(edit.columns[1].as_primitive::<Date32Type>().values(), &[0, -1, 20_000]);
    assert!(edit.rejects.is_empty());
}

#[test]
fn a_configuration_that_is_wrong_is_refused_in_the_plugin_s_words() {
    let error = guest("redact").configure_column(&json!({ "feilds": [] })).unwrap_err();
    assert!(error.to_string().contains("refuses its configuration") && error.to_string().contains("feilds"), "{error}");
}

#[test]
fn unwrap_splits_and_rejects() {
    let plugin = guest("unwrap").configure_record(&json!({})).unwrap();
    assert!(plugin.access().multiplies);
    let mut records = Records::default();
    for value in [r#"{"payload":{"a":1}}"#, "not json", r#"{"payload":[1,[2],"3"]}"#, r#"{"payload":[]}"#] {
        let record = Record {
            offset: records.len() as i64,
            timestamp: -1,
            key: None,
            value: Some(value.as_bytes()),
            headers: None,
        };
        records.push(record).unwrap();
    }
    let output = plugin.transform(&records, None).unwrap();
    assert_eq!(output.inputs, [0, 2, 2, 2]);
    let values: Vec<_> = output.values.iter().flatten().map(|value| std::str::from_utf8(value).unwrap()).collect();
    assert_eq!(values, [r#"{"a":1}"#, "1", "[2]", r#""3""#]);
    assert_eq!(output.rejects.len(), 1);
    assert_eq!(output.rejects[0].0, 1);
}

fn seen(path: &str, kinds: Kinds, inferred: Option<&str>) -> Seen {
    Seen { path: path.to_owned(), kinds, inferred: inferred.map(str::to_owned) }
}

/// What orders look like.
fn orders() -> SourceShape {
    let string = Kinds { string: true, ..Kinds::default() };
    let fields = vec![
        seen("id", Kinds { integer: true, ..Kinds::default() }, Some("bigint")),
        seen("amount", Kinds { null: true, ..string }, Some("string")),
        seen("event_time", string, Some("string")),
        seen("items", Kinds { list: true, ..Kinds::default() }, Some("array<struct<sku:string>>")),
        seen("items.[]", Kinds { object: true, ..Kinds::default() }, Some("struct<sku:string>")),
        seen("items.[].sku", string, Some("string")),
        seen("sku", string, Some("string")),
        seen("``", Kinds { null: true, ..Kinds::default() }, None),
    ];
    SourceShape { format: "json".to_owned(), schema_id: Some("7".to_owned()), fields }
}

#[test]
fn orders_map_plans_a_table() {
    let plugin = guest("orders-map").configure_mapping(&json!({})).unwrap();
    assert_eq!(plugin.reference().name, "orders-map");
    let plan = plugin.plan(&orders(), None).unwrap();
    let columns: Vec<_> =
        plan.columns.iter().map(|c| (c.name.as_str(), c.data_type.to_string(), c.path.join("/"))).collect();
    let expected = [
        ("order_id", "bigint", "id"),
        ("amount", "decimal(10,2)", "amount"),
        ("event_time", "timestamp", "event_time"),
        ("order_date", "date", "event_time"),
        ("sku_family", "string", "sku"),
        ("sku_number", "int", "sku"),
    ];
    assert_eq!(columns, expected.map(|(name, ty, path)| (name, ty.to_owned(), path.to_owned())));
    let derived: Vec<_> = plan.columns.iter().filter_map(|c| c.derivation.clone()).collect();
    let hyphen = || "-".to_owned();
    assert_eq!(derived, [Derivation::Date, Derivation::Before(hyphen()), Derivation::After(hyphen())]);
    assert_eq!(plan.columns[0].comment.as_deref(), Some("the records' id"));
    assert_eq!((plan.columns[1].coercion, plan.columns[1].on_conflict), (Coercion::ParseString, OnConflict::Reject));
    assert_eq!(plan.columns[5].on_conflict, OnConflict::Rescue);
    assert_eq!(plan.drops, [["debug"]]);

    let table = [TableColumn { name: "order_id".to_owned(), data_type: DataType::String }];
    let planned = plugin.plan(&orders(), Some(&table)).unwrap();
    assert_eq!(planned.columns[0].data_type, DataType::String);
    assert_eq!(planned.columns[1..], plan.columns[1..]);
    assert_eq!(plugin.plan(&orders(), Some(&[])).unwrap(), plan);
    assert_eq!(plugin.plan(&SourceShape::default(), None).unwrap().columns, []);
}

#[test]
fn a_mapping_that_is_configured_wrongly_has_no_plan() {
    let config = json!({ "decimals": { "amount": "decimal(2,10)" }, "drop": ["a..b"] });
    let plugin = guest("orders-map").configure_mapping(&config).unwrap();
    let error = plugin.plan(&orders(), None).unwrap_err();
    let MappingError::Refused { message, .. } = error else { panic!("{error}") };
    assert!(message.contains("column 'amount'") && message.contains("the path 'a..b'"), "{message}");
}

#[test]
fn a_wide_shape_passes() {
    let mut source = orders();
    let string = Kinds { string: true, ..Kinds::default() };
    source.fields.extend((0..50_000).map(|n| seen(&format!("wide_{n}"), string, Some("string"))));
    let plugin = guest("orders-map").configure_mapping(&json!({})).unwrap();
    assert_eq!(plugin.plan(&source, None).unwrap().columns.len(), 6);
}

#[test]
fn the_same_input_gives_the_same_output() {
    let plugin = redact(json!({ "fields": ["customer.email"] }));
    let rows = 1000;
    let test: ArrayRef = Arc::new((0..rows).map(|row| Some(row % 7 == 0)).collect::<BooleanArray>());
    let email: ArrayRef = Arc::new((0..rows).map(|row| Some(format!("{row}@example.org"))).collect::<StringArray>());
    let times: PrimitiveArray<TimestampMicrosecondType> = (0..rows as i64).map(Some).collect();
    let columns = [test, email, Arc::new(times.with_timezone("UTC")) as ArrayRef];
    let first = plugin.transform(rows, &columns).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(plugin.transform(rows, &columns).unwrap(), first);
                }
            });
        }
    });
}

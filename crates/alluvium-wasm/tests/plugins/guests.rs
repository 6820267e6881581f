//! The guests under `plugins/`, as `cargo xtask plugins` builds them.

use crate::host;
use alluvium_core::Records;
use alluvium_core::chunk::Record;
use alluvium_wasm::{ColumnPlugin, Kind, Limits, Plugin};
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
    for (name, kind) in [("redact", Kind::Column), ("unwrap", Kind::Record)] {
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

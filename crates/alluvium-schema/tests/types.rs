//! `cases/json-types.ndjson`: the exact answer for each type and JSON value, wherever it stands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_core::DataType;
use alluvium_schema::{ColumnSpec, Decoded, Decoder, Evolve, OnConflict, Plan, PlanOptions};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use support::{pack_texts, row};

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "type")]
    data_type: String,
    json: String,
    expect: Expect,
    why: String,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Expect {
    Failure(String),
    Value { value: Value },
}

/// A place for the value: the column's type, the record and the column's value around it.
struct Around {
    name: &'static str,
    data_type: fn(&str) -> String,
    record: fn(&str) -> String,
    value: fn(Value) -> Value,
    /// The rescued column when the value is in conflict.
    rescued: fn(&str) -> String,
    /// The column beside it.
    rescued_value: Value,
}

fn places() -> Vec<Around> {
    vec![
        Around {
            name: "a column",
            data_type: str::to_owned,
            record: |json| format!(r#"{{"x":{json}}}"#),
            value: |value| value,
            rescued: |json| format!(r#"{{"x":{json}}}"#),
            rescued_value: Value::Null,
        },
        Around {
            name: "a column among white space",
            data_type: str::to_owned,
            record: |json| format!("\r\n {{\t\"\\u0078\" : {json} , \"y\" : null}} \n"),
            value: |value| value,
            rescued: |json| format!(r#"{{"x":{json}}}"#),
            rescued_value: Value::Null,
        },
        Around {
            name: "a field of a struct",
            data_type: |data_type| format!("struct<before:string,f:{data_type}>"),
            record: |json| format!(r#"{{"x":{{"f":{json},"before":"b"}}}}"#),
            value: |value| json!({"before": "b", "f": value}),
            rescued: |json| format!(r#"{{"x":{{"f":{json}}}}}"#),
            rescued_value: json!({"before": "b", "f": null}),
        },
        Around {
            name: "an element of a list",
            data_type: |data_type| format!("array<{data_type}>"),
            record: |json| format!(r#"{{"x":[null,{json}, {json}]}}"#),
            value: |value| json!([null, value, value]),
            rescued: |json| format!(r#"{{"x":[null,{json}, {json}]}}"#),
            rescued_value: Value::Null,
        },
        Around {
            name: "a value of a map",
            data_type: |data_type| format!("map<string,{data_type}>"),
            record: |json| format!(r#"{{"x":{{"k":{json},"n":null}}}}"#),
            value: |value| json!([["k", value], ["n", null]]),
            rescued: |json| format!(r#"{{"x":{{"k":{json},"n":null}}}}"#),
            rescued_value: Value::Null,
        },
        Around {
            name: "a field of a struct in a list in a struct",
            data_type: |data_type| format!("struct<l:array<struct<f:{data_type}>>>"),
            record: |json| format!(r#"{{"x":{{"l":[{{}},{{"f":{json}}}]}}}}"#),
            value: |value| json!({"l": [{"f": null}, {"f": value}]}),
            rescued: |json| format!(r#"{{"x":{{"l":[{{}},{{"f":{json}}}]}}}}"#),
            rescued_value: json!({"l": null}),
        },
        Around {
            name: "the last of two values",
            data_type: str::to_owned,
            record: |json| format!(r#"{{"x":["overtaken"],"x":{json}}}"#),
            value: |value| value,
            rescued: |json| format!(r#"{{"x":{json}}}"#),
            rescued_value: Value::Null,
        },
    ]
}

fn cases() -> Vec<Case> {
    let lines = include_str!("cases/json-types.ndjson").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn decode(data_type: &str, from: Option<Vec<String>>, on_conflict: OnConflict, record: &str) -> Decoded {
    let data_type = DataType::parse(data_type).unwrap();
    let column = ColumnSpec { from, on_conflict, ..ColumnSpec::new("x", data_type) };
    let options = PlanOptions { evolve: Evolve::None, ..PlanOptions::default() };
    let plan = Plan::declared(vec![column], options).unwrap();
    let neighbour = r#"{"x":null}"#;
    Decoder::new(Arc::new(plan)).decode(&pack_texts(&[neighbour, record, neighbour])).unwrap()
}

#[test]
fn every_case_holds_in_every_place() {
    let cases = cases();
    assert_eq!(cases.len(), 87);
    for case in &cases {
        for around in places() {
            let what = format!("{} from {} in {} ({})", case.data_type, case.json, around.name, case.why);
            let data_type = (around.data_type)(&case.data_type);
            let record = (around.record)(&case.json);
            check(case, &around, &what, decode(&data_type, None, OnConflict::Reject, &record));
            check_rescued(case, &around, &what, decode(&data_type, None, OnConflict::Rescue, &record));
        }
    }
}

fn check(case: &Case, around: &Around, what: &str, decoded: Decoded) {
    match &case.expect {
        Expect::Value { value } => {
            assert_eq!(decoded.rejects, [], "{what}");
            assert_eq!(decoded.inputs, [0, 1, 2], "{what}");
            assert_eq!(row(&decoded.batch, 1)["x"], (around.value)(value.clone()), "{what}");
        }
        Expect::Failure(code) => {
            assert_eq!(decoded.inputs, [0, 2], "{what}");
            let reject = &decoded.rejects[0];
            assert_eq!((reject.input, reject.reason.code), (1, code.as_str()), "{what}");
            assert!(reject.reason.message.chars().count() < 300, "{what}: {}", reject.reason.message);
        }
    }
}

fn check_rescued(case: &Case, around: &Around, what: &str, decoded: Decoded) {
    match &case.expect {
        Expect::Failure(code) if code == "conflict" => {
            assert_eq!(decoded.rejects, [], "{what}");
            let row = row(&decoded.batch, 1);
            assert_eq!(row["x"], around.rescued_value, "{what}");
            assert_eq!(row["_rescued"], json!((around.rescued)(&case.json)), "{what}");
        }
        _ => check(case, around, what, decoded),
    }
}

#[test]
fn every_case_holds_at_a_path() {
    for case in cases() {
        let what = format!("{} from {} ({})", case.data_type, case.json, case.why);
        let from = Some(vec!["a.b".to_owned(), "c".to_owned()]);
        let record = format!(r#"{{"a":{{"b":{{"c":[]}}}},"a.b":{{"c":{}}}}}"#, case.json);
        let decoded = decode(&case.data_type, from, OnConflict::Reject, &record);
        check(&case, &places()[0], &what, decoded);
    }
}

#[test]
fn a_struct_keeps_what_it_does_not_know() {
    let decoded = decode("struct<a:bigint>", None, OnConflict::Reject, r#"{"x":{"A":1}}"#);
    let row = row(&decoded.batch, 1);
    assert_eq!((&row["x"], &row["_rescued"]), (&json!({"a": null}), &json!(r#"{"x":{"A":1}}"#)));
}

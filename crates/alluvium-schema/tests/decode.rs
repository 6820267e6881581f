//! What becomes of records that do not fit their plan.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_core::{DataType, Packed};
use alluvium_schema::{Coercion, ColumnSpec, Decoded, Decoder, Evolve, OnConflict, Plan, PlanOptions};
use serde_json::{Value, json};
use std::sync::Arc;
use support::{pack, pack_texts, row};

fn column(name: &str, data_type: &str, on_conflict: OnConflict) -> ColumnSpec {
    ColumnSpec { on_conflict, ..ColumnSpec::new(name, DataType::parse(data_type).unwrap()) }
}

fn at(name: &str, data_type: &str, from: &str, on_conflict: OnConflict) -> ColumnSpec {
    let from = Some(alluvium_schema::path::parse(from).unwrap());
    ColumnSpec { from, ..column(name, data_type, on_conflict) }
}

fn plan(evolve: Evolve, columns: Vec<ColumnSpec>) -> Plan {
    Plan::declared(columns, PlanOptions { evolve, ..PlanOptions::default() }).unwrap()
}

fn decode<S: AsRef<str>>(plan: &Plan, records: &[S]) -> Decoded {
    Decoder::new(Arc::new(plan.clone())).decode(&pack_texts(records)).unwrap()
}

/// The column's value and the rescued text of a record's row.
fn one(evolve: Evolve, spec: ColumnSpec, record: &str) -> (Value, Value) {
    let name = spec.name.clone();
    let decoded = decode(&plan(evolve, vec![spec]), &[record]);
    let mut row = row(&decoded.batch, 0);
    (row.remove(&name).unwrap(), row.remove("_rescued").unwrap())
}

#[test]
fn an_unknown_field_inside_a_list_keeps_the_column_and_rescues_the_list() {
    let spec = column("l", "array<struct<a:bigint>>", OnConflict::Reject);
    let (value, rescued) = one(Evolve::None, spec.clone(), r#"{"l":[{"a":1},{"a":2, "z":[]}]}"#);
    assert_eq!(value, json!([{"a": "1"}, {"a": "2"}]));
    assert_eq!(rescued, json!(r#"{"l":[{"a":1},{"a":2, "z":[]}]}"#));

    let (_, rescued) = one(Evolve::None, spec, r#"{"l":[{"a":1,"z":1,"z":null}]}"#);
    assert_eq!(rescued, Value::Null, "the last value is null, and null is nothing to keep");

    let spec = column("m", "map<string,struct<a:bigint>>", OnConflict::Reject);
    let (value, rescued) = one(Evolve::None, spec, r#"{"m":{"k":{"a":1,"z":2}}}"#);
    assert_eq!((value, rescued), (json!([["k", {"a": "1"}]]), json!(r#"{"m":{"k":{"a":1,"z":2}}}"#)));
}

#[test]
fn a_conflict_inside_a_list_rescues_the_outermost_list() {
    let spec = column("s", "struct<l:array<array<bigint>>,a:bigint>", OnConflict::Rescue);
    let (value, rescued) = one(Evolve::None, spec, r#"{"s":{"a":1,"l":[[1],[2,"x"],[3]]}}"#);
    assert_eq!(value, json!({"l": null, "a": "1"}));
    assert_eq!(rescued, json!(r#"{"s":{"l":[[1],[2,"x"],[3]]}}"#));
}

#[test]
fn a_later_value_of_a_key_takes_its_conflict_away() {
    let list = "array<struct<a:bigint>>";
    for (data_type, record, value, rescued) in [
        ("bigint", r#"{"x":"bad","x":1}"#, json!("1"), Value::Null),
        ("bigint", r#"{"x":1,"x":"bad"}"#, Value::Null, json!(r#"{"x":"bad"}"#)),
        ("bigint", r#"{"x":"bad","x":"worse"}"#, Value::Null, json!(r#"{"x":"worse"}"#)),
        ("bigint", r#"{"x":1,"u":1,"u":2}"#, json!("1"), json!(r#"{"u":2}"#)),
        ("bigint", r#"{"x":1,"u":1,"\u0075":{"v":2}}"#, json!("1"), json!(r#"{"u":{"v":2}}"#)),
        ("struct<a:bigint>", r#"{"x":{"a":"bad","u":1},"x":{"a":2}}"#, json!({"a": "2"}), Value::Null),
        ("struct<a:bigint>", r#"{"x":{"a":"bad","u":1},"x":{"u":2},"x":null}"#, Value::Null, Value::Null),
        (list, r#"{"x":[{"a":"bad"}],"x":[{"a":"bad","a":3}]}"#, json!([{"a": "3"}]), Value::Null),
        (list, r#"{"x":[{"a":[1],"a":1},{"u":1}],"x":[]}"#, json!([]), Value::Null),
    ] {
        let spec = column("x", data_type, OnConflict::Rescue);
        assert_eq!(one(Evolve::None, spec.clone(), record), (value.clone(), rescued.clone()), "{record}");
        if rescued.is_null() {
            let spec = ColumnSpec { on_conflict: OnConflict::Reject, ..spec };
            assert_eq!(one(Evolve::None, spec, record), (value, rescued), "{record}");
        }
    }
}

#[test]
fn rescued_values_keep_their_bytes_and_nest_like_the_record() {
    let columns = vec![
        at("p", "bigint", "a.b.p", OnConflict::Rescue),
        at("q", "bigint", "a.q", OnConflict::Rescue),
        column("s", "struct<x:bigint,y:struct<z:bigint>>", OnConflict::Rescue),
    ];
    let record = r#" { "a" : { "b" : { "p" : "1" , "u\u0031" : 1.50 } , "q" : [ 1 ] , "v" : -0 } ,
        "w" : { } , "s" : { "x" : 1.5 , "y" : { "z" : true , "n\n" : "\u00e9" } , "y2" : [ null ] } } "#;
    let decoded = decode(&plan(Evolve::None, columns), &[record]);
    let row = row(&decoded.batch, 0);
    let expected = concat!(
        r#"{"a":{"b":{"p":"1","u\u0031":1.50},"q":[ 1 ],"v":-0},"w":{ },"#,
        r#""s":{"x":1.5,"y":{"z":true,"n\n":"\u00e9"},"y2":[ null ]}}"#
    );
    assert_eq!(row["_rescued"], json!(expected));
    assert_eq!(row["s"], json!({"x": null, "y": {"z": null}}));
}

#[test]
fn a_conflict_of_an_object_that_columns_read_from_is_judged_by_the_strictest() {
    let record = [r#"{"a":5}"#, r#"{"a":null}"#, r#"{"a":{}}"#, "{}"];
    let columns = |one, other| vec![at("p", "bigint", "a.p", one), at("q", "bigint", "a.b.q", other)];
    let decoded = decode(&plan(Evolve::None, columns(OnConflict::Rescue, OnConflict::Rescue)), &record);
    assert_eq!(Value::Object(row(&decoded.batch, 0)), json!({"p": null, "q": null, "_rescued": r#"{"a":5}"#}));
    assert_eq!(decoded.inputs, [0, 1, 2, 3]);
    let decoded = decode(&plan(Evolve::None, columns(OnConflict::Rescue, OnConflict::Reject)), &record);
    assert_eq!(decoded.inputs, [1, 2, 3]);
    assert_eq!(decoded.rejects[0].reason.message, "a: expected an object, found 5");
    let decoded = decode(&plan(Evolve::None, columns(OnConflict::Stop, OnConflict::Reject)), &record);
    assert_eq!(decoded.stop.unwrap().to_string(), "a: expected an object, found 5");
}

#[test]
fn stopping_keeps_the_rows_before() {
    let plan = plan(Evolve::Stop, vec![column("l", "array<struct<n:int>>", OnConflict::Stop)]);
    assert!(!plan.can_rescue());
    let decoded = decode(&plan, &[r#"{"l":[{"n":1}]}"#, "x", r#"{"l":[{"n":2},{"n":"a"}]}"#, r#"{"l":[]}"#]);
    assert_eq!((decoded.inputs.as_slice(), decoded.batch.num_rows(), decoded.rejects.len()), ([0].as_slice(), 1, 1));
    assert_eq!(decoded.batch.num_columns(), 1);
    let stop = decoded.stop.unwrap();
    assert_eq!((stop.input, stop.path.as_str(), stop.value.as_str()), (2, "l[].n", "\"a\""));
    assert_eq!(stop.to_string(), "l[].n: expected int, found \"a\"");
}

#[test]
fn a_stop_outranks_a_reject_and_malformed_outranks_both() {
    let columns = vec![column("r", "int", OnConflict::Reject), column("s", "int", OnConflict::Stop)];
    let plan = plan(Evolve::None, columns);
    let decoded = decode(&plan, &[r#"{"s":"","r":""#, r#"{"r":"","s":1}"#, r#"{"r":"","s":""}"#]);
    let codes = decoded.rejects.iter().map(|reject| reject.reason.code).collect::<Vec<_>>();
    assert_eq!(codes, ["malformed", "conflict"]);
    assert_eq!(decoded.stop.map(|stop| stop.input), Some(2));
}

#[test]
fn reasons_are_told_in_terms_of_the_record() {
    let columns = vec![
        at("price", "decimal(10,2)", "amount.price", OnConflict::Reject),
        column("tags", "map<string,array<date>>", OnConflict::Reject),
    ];
    let plan = plan(Evolve::None, columns);
    let long = format!(r#"{{"amount":{{"price":"{}"}}}}"#, "é".repeat(5000));
    for (record, code, message) in [
        (
            r#"{"amount":{"price":"4 pcs"}}"#,
            "conflict",
            "amount.price: expected decimal(10,2), found \"4 pcs\"".to_owned(),
        ),
        (r#"{"tags":{"a":[1]}}"#, "conflict", "tags{}[]: expected date, found 1".to_owned()),
        (&long, "conflict", format!("amount.price: expected decimal(10,2), found \"{}…", "é".repeat(99))),
        (r#"{"a":01}"#, "malformed", "not a JSON number at byte 5, found 01}".to_owned()),
        (r#"{"a":1"#, "malformed", "expected ',' or '}' in an object at byte 6, found the end".to_owned()),
        (
            r#"{"a":"\ud800"}"#,
            "malformed",
            "a lone surrogate, which has no UTF-8 form at byte 6, found \\ud800\"}".to_owned(),
        ),
        ("[1]", "malformed", "expected a JSON object at byte 0, found [1]".to_owned()),
        ("", "malformed", "expected a JSON object at byte 0, found the end".to_owned()),
        ("{}{}", "malformed", "unexpected text after the object at byte 2, found {}".to_owned()),
    ] {
        let decoded = decode(&plan, &[record]);
        let reason = &decoded.rejects[0].reason;
        assert_eq!((reason.code, &reason.message), (code, &message));
    }
}

#[test]
fn bad_utf_8_spoils_no_other_record() {
    let plan = plan(Evolve::None, vec![column("s", "string", OnConflict::Reject)]);
    let records: [&[u8]; 6] =
        [b"{\"s\":\"\xc3\xa9\"}", b"{\"s\":\"\xc3\"}", b"{\"s\":\"\xc3", b"\xa9\"}", b"{\"s\":\"a\"}\xc3", b"{}"];
    let decoded = Decoder::new(Arc::new(plan.clone())).decode(&pack(records)).unwrap();
    assert_eq!(decoded.inputs, [0, 5]);
    assert_eq!(decoded.rejects[0].reason.message, "not UTF-8 at byte 6");
    // Here the bytes are UTF-8 as a whole, but not record by record.
    let records: [&[u8]; 5] = [b"{}", b"{\"s\":\"\xc3", b"\xa9\"}", b"{\"s\":\"a\"}\xc3", b"\xa9"];
    let decoded = Decoder::new(Arc::new(plan)).decode(&pack(records)).unwrap();
    assert_eq!(decoded.inputs, [0]);
    assert_eq!(decoded.rejects.len(), 4);
}

#[test]
fn a_record_without_a_value_is_malformed() {
    let plan = plan(Evolve::None, vec![column("s", "string", OnConflict::Reject)]);
    let mut values = Packed::default();
    values.push(None).unwrap();
    values.push(Some(b"{}")).unwrap();
    let decoded = Decoder::new(Arc::new(plan)).decode(&values).unwrap();
    assert_eq!((decoded.inputs.as_slice(), decoded.rejects[0].input), ([1].as_slice(), 0));
    assert_eq!(decoded.rejects[0].reason.message, "the record has no value");
}

#[test]
fn few_bytes_cannot_stand_for_very_many_nulls() {
    let fields = (0..500).map(|at| format!("f{at}:struct<a:bigint,b:string>")).collect::<Vec<_>>().join(",");
    let plan = plan(Evolve::None, vec![column("l", &format!("array<struct<{fields}>>"), OnConflict::Rescue)]);
    for element in ["{}", "null", "1"] {
        let bomb = format!("{{\"l\":[{}]}}", vec![element; 300_000].join(","));
        let decoded = decode(&plan, &[bomb.as_str(), "{}", r#"{"l":[{},null,{"f1":{}}]}"#]);
        assert_eq!(decoded.inputs, [1, 2], "{element}");
        assert_eq!(decoded.rejects[0].reason.code, "malformed");
    }

    let fields = (0..5000).map(|at| format!("f{at}:int")).collect::<Vec<_>>().join(",");
    let options = PlanOptions { max_columns: 10_000, ..PlanOptions::default() };
    let plan = Plan::declared(vec![column("s", &format!("struct<{fields}>"), OnConflict::Rescue)], options).unwrap();
    let bomb = format!("{{{}}}", vec![r#""s":{}"#; 300_000].join(","));
    let decoded = decode(&plan, &[bomb.as_str(), r#"{"s":{},"s":{}}"#]);
    assert_eq!(decoded.inputs, [1]);
}

#[test]
fn many_fields_in_any_order() {
    let name = |at: usize| format!("field_{at}");
    let plan = plan(Evolve::None, (0..100).map(|at| column(&name(at), "bigint", OnConflict::Reject)).collect());
    for step in [1, 2, 7, 50, 99] {
        let members = (0..100).step_by(3).map(|at| at * step % 101).filter(|at| *at < 100);
        let members = members.collect::<std::collections::BTreeSet<_>>();
        let text = members.iter().rev().map(|at| format!("\"{}\":{at}", name(*at))).collect::<Vec<_>>().join(",");
        let decoded = decode(&plan, &[format!("{{{text}}}")]);
        let row = row(&decoded.batch, 0);
        for at in 0..100 {
            let value = if members.contains(&at) { json!(at.to_string()) } else { Value::Null };
            assert_eq!(row[&name(at)], value, "{at}");
        }
        assert_eq!(row["_rescued"], Value::Null);
    }
}

#[test]
fn very_many_keys_cost_no_more_than_their_number() {
    let plan = plan(Evolve::Add, vec![column("x", "struct<a:bigint>", OnConflict::Rescue)]);
    let same = r#""x":{"a":"bad","u":1}"#;
    let twice = vec![same; 100_000].join(",");
    let unknown = (0..100_000).map(|at| format!("\"k{}\":[]", at / 2)).collect::<Vec<_>>().join(",");
    let decoded = decode(&plan, &[format!("{{{unknown},{twice}}}")]);
    let row = row(&decoded.batch, 0);
    let rescued: Value = serde_json::from_str(row["_rescued"].as_str().unwrap()).unwrap();
    assert_eq!(rescued.as_object().unwrap().len(), 50_001);
    assert_eq!(rescued["x"], json!({"a": "bad", "u": 1}));
}

#[test]
fn coercions_widen_what_a_column_takes() {
    for (data_type, coercion, json, expected) in [
        ("bigint", Coercion::ParseString, r#""12""#, Some("12")),
        ("bigint", Coercion::ParseString, "12", Some("12")),
        ("bigint", Coercion::ParseString, r#"" 12""#, None),
        ("tinyint", Coercion::ParseString, r#""128""#, None),
        ("double", Coercion::ParseString, r#""NaN""#, None),
        ("double", Coercion::ParseString, r#""\u0031e3""#, Some("1000.0")),
        ("boolean", Coercion::ParseString, r#""false""#, Some("false")),
        ("boolean", Coercion::ParseString, r#""False""#, None),
        ("string", Coercion::JsonText, r#"{ "a" : 1.0 }"#, Some(r#"{ "a" : 1.0 }"#)),
        ("string", Coercion::JsonText, r#""é\n""#, Some(r#""é\n""#)),
        ("timestamp", Coercion::EpochS, "1767323045.1234567", Some("2026-01-02T03:04:05.123456Z")),
        ("timestamp", Coercion::EpochMs, "1767323045123", Some("2026-01-02T03:04:05.123000Z")),
        ("timestamp", Coercion::EpochUs, "-1", Some("1969-12-31T23:59:59.999999Z")),
        ("timestamp", Coercion::EpochNs, "-1", Some("1969-12-31T23:59:59.999999Z")),
        ("timestamp", Coercion::EpochS, "1e999999999", None),
        ("timestamp", Coercion::EpochS, "253402300800", None),
        ("timestamp", Coercion::EpochMs, r#""2026-01-02T03:04:05Z""#, None),
        ("date", Coercion::EpochDays, "19727", Some("2024-01-05")),
        ("date", Coercion::EpochDays, "19727.5", None),
    ] {
        let spec = ColumnSpec { coercion, ..column("x", data_type, OnConflict::Rescue) };
        let (value, rescued) = one(Evolve::None, spec, &format!(r#"{{"x":{json}}}"#));
        assert_eq!(value, json!(expected), "{json} as {data_type}");
        assert_eq!(rescued.is_null(), expected.is_some(), "{json} as {data_type}");
    }
}

#[test]
fn a_plan_without_columns_makes_rows_without_columns() {
    let decoded = decode(&Plan::inferred(PlanOptions::default()), &["{}", "x", "{\"a\":null}"]);
    assert_eq!((decoded.batch.num_rows(), decoded.inputs.as_slice()), (2, [0, 2].as_slice()));
    let decoded = decode(&plan(Evolve::Stop, Vec::new()), &["{}", "{}"]);
    assert_eq!((decoded.batch.num_rows(), decoded.batch.num_columns()), (2, 0));
}

//! Columns made from parts of values, defaults, and fields that are left out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_core::DataType;
use alluvium_schema::{
    Coercion, ColumnSpec, Decoded, Decoder, Derivation, Evolve, OnConflict, Plan, PlanError, PlanOptions, Shape, path,
};
use arrow_schema::{Field, Schema};
use serde_json::{Value, json};
use std::sync::Arc;
use support::{pack_texts, row};

fn column(name: &str, data_type: &str, from: &str) -> ColumnSpec {
    let from = Some(path::parse(from).unwrap());
    ColumnSpec { from, ..ColumnSpec::new(name, DataType::parse(data_type).unwrap()) }
}

fn derived(name: &str, data_type: &str, from: &str, derivation: Derivation) -> ColumnSpec {
    ColumnSpec { derivation: Some(derivation), ..column(name, data_type, from) }
}

fn before(separator: &str) -> Derivation {
    Derivation::Before(separator.to_owned())
}

fn after(separator: &str) -> Derivation {
    Derivation::After(separator.to_owned())
}

fn options(evolve: Evolve, drops: &[&str]) -> PlanOptions {
    let drops = drops.iter().map(|drop| path::parse(drop).unwrap()).collect();
    PlanOptions { evolve, drops, ..PlanOptions::default() }
}

fn decode(plan: &Plan, records: &[&str]) -> Decoded {
    Decoder::new(Arc::new(plan.clone())).decode(&pack_texts(records)).unwrap()
}

fn rows(plan: &Plan, records: &[&str]) -> Vec<Value> {
    let decoded = decode(plan, records);
    (0..decoded.batch.num_rows()).map(|at| Value::Object(row(&decoded.batch, at))).collect()
}

fn observed(records: &[&str]) -> Shape {
    let mut shape = Shape::default();
    records.iter().for_each(|record| shape.observe(record.as_bytes()));
    shape
}

#[test]
fn one_value_makes_several_columns() {
    let columns = vec![
        column("event_time", "timestamp", "event_time"),
        derived("order_date", "date", "event_time", Derivation::Date),
        derived("family", "string", "sku", before("-")),
        derived("number", "int", "sku", after("-")),
    ];
    let plan = Plan::declared(columns, options(Evolve::None, &[])).unwrap();
    let records = [
        r#"{"event_time":"2026-03-01T00:30:00+02:00","sku":"AB-12"}"#,
        r#"{"sku":"\"\u00e9-7","event_time":null}"#,
        r#"{"sku":"AB-12","sku":"X-1-2"}"#,
        r#"{"sku":"none"}"#,
        r#"{"event_time":"2026-03-01T00:30:00","sku":"A-1"}"#,
        r#"{"sku":["A-1"]}"#,
    ];
    let decoded = decode(&plan, &records);
    assert_eq!(
        (0..2).map(|at| Value::Object(row(&decoded.batch, at))).collect::<Vec<_>>(),
        [
            json!({"event_time": "2026-02-28T22:30:00.000000Z", "order_date": "2026-02-28", "family": "AB", "number": "12",
                "_rescued": null}),
            json!({"event_time": null, "order_date": null, "family": "\"é", "number": "7", "_rescued": null}),
        ]
    );
    let told = decoded.rejects.iter().map(|reject| (reject.input, reject.reason.message.as_str())).collect::<Vec<_>>();
    assert_eq!(
        told,
        [
            (2, "sku: expected int (after \"-\"), found \"X-1-2\""),
            (3, "sku: expected string (before \"-\"), found \"none\""),
            (4, "event_time: expected timestamp, found \"2026-03-01T00:30:00\""),
            (5, "sku: expected string (before \"-\"), found [\"A-1\"]"),
        ]
    );
}

#[test]
fn what_fits_none_of_its_columns_is_rescued_once() {
    let rescue = |spec| ColumnSpec { on_conflict: OnConflict::Rescue, ..spec };
    let columns = vec![
        rescue(column("time", "timestamp", "t.at")),
        rescue(ColumnSpec { coercion: Coercion::EpochMs, ..derived("day", "date", "t.at", Derivation::Date) }),
    ];
    let plan = Plan::declared(columns, options(Evolve::None, &[])).unwrap();
    let records = [
        r#"{"t":{"at":"x", "z":1}}"#,
        r#"{"t":{"at":86400000}}"#,
        r#"{"t":{"at":"1970-01-03T00:00:00Z"}}"#,
        r#"{"t":{"at":"x","at":null}}"#,
    ];
    assert_eq!(
        rows(&plan, &records),
        [
            json!({"time": null, "day": null, "_rescued": r#"{"t":{"at":"x","z":1}}"#}),
            json!({"time": null, "day": "1970-01-02", "_rescued": r#"{"t":{"at":86400000}}"#}),
            json!({"time": "1970-01-03T00:00:00.000000Z", "day": null, "_rescued": r#"{"t":{"at":"1970-01-03T00:00:00Z"}}"#}),
            json!({"time": null, "day": null, "_rescued": null}),
        ]
    );
}

#[test]
fn a_default_stands_for_a_field_that_is_not_there() {
    let default = |spec, default: &str| ColumnSpec { default: Some(default.to_owned()), ..spec };
    let columns = vec![
        default(column("n", "decimal(10,2)", "n"), "0.10"),
        default(column("s", "string", "a.s"), r#""\u00e9""#),
        default(column("l", "array<struct<x:int>>", "l"), r#"[{"x":1}]"#),
        column("plain", "string", "a.plain"),
    ];
    let plan = Plan::declared(columns, options(Evolve::None, &[])).unwrap();
    let records = ["{}", r#"{"n":null,"a":null,"l":null}"#, r#"{"n":1,"a":{},"l":[]}"#, r#"{"a":{"s":"x"}}"#];
    let list = json!([{"x": "1"}]);
    assert_eq!(
        rows(&plan, &records),
        [
            json!({"n": "0.10", "s": "é", "l": list, "plain": null, "_rescued": null}),
            json!({"n": null, "s": null, "l": null, "plain": null, "_rescued": null}),
            json!({"n": "1.00", "s": "é", "l": [], "plain": null, "_rescued": null}),
            json!({"n": "0.10", "s": "x", "l": list, "plain": null, "_rescued": null}),
        ]
    );
}

/// However much of what a record may make out of little it has made itself.
#[test]
fn a_default_costs_the_record_nothing() {
    let fields = (0..200).map(|at| format!("f{at}:int")).collect::<Vec<_>>().join(",");
    let list = format!("[{}]", vec!["{}"; 30].join(","));
    let default = ColumnSpec { default: Some(list), ..column("y", "array<struct<a:int,b:int>>", "y") };
    let wide = ColumnSpec { on_conflict: OnConflict::Rescue, ..column("x", &format!("array<struct<{fields}>>"), "x") };
    let plan = Plan::declared(vec![wide, default], options(Evolve::None, &[])).unwrap();
    let spent = format!("{{\"x\":[{}0]}}", "0,".repeat(229));
    let found = rows(&plan, &["{}", &spent]);
    assert_eq!(found[1]["y"], found[0]["y"]);
    assert_eq!(found[0]["y"].as_array().map(Vec::len), Some(30));
    let over = format!("{{\"x\":[{}0]}}", "0,".repeat(230));
    assert_eq!(decode(&plan, &[&over]).rejects.len(), 1);
}

#[test]
fn what_is_dropped_is_neither_a_column_nor_rescued() {
    let drops = ["debug", "user.secret", "a.b.c"];
    let first = r#"{"id":1,"debug":{"x":1},"user":{"name":"n","secret":"s"},"a":{"b":{"c":1}}}"#;
    let plan = Plan::inferred(options(Evolve::Add, &drops));
    let plan = plan.grow(&observed(&[first])).unwrap().unwrap().settle();
    let columns = plan.columns().iter().map(|column| format!("{} {}", column.name, column.data_type));
    assert_eq!(columns.collect::<Vec<_>>(), ["id bigint", "user struct<name:string>"]);
    let records = [
        first,
        r#"{"user":{"secret":1,"secret":[2]},"debug":3,"debug":4}"#,
        r#"{"a":{"b":{"c":{},"d":1},"e":2}}"#,
        r#"{"a":5}"#,
    ];
    let decoded = decode(&plan, &records);
    assert!(decoded.rejects.is_empty());
    let rescued = (0..4).map(|at| row(&decoded.batch, at)["_rescued"].clone()).collect::<Vec<_>>();
    assert_eq!(rescued, [json!(null), json!(null), json!(r#"{"a":{"b":{"d":1},"e":2}}"#), json!(r#"{"a":5}"#)]);
    // What is beside it is news, it is not.
    let grown = plan.grow(&decoded.unknown.unwrap()).unwrap().unwrap();
    let mut columns = grown.columns().iter().map(|column| format!("{} {}", column.name, column.data_type));
    assert_eq!(columns.next_back().unwrap(), "a struct<b:struct<d:bigint>,e:bigint>");
    assert_eq!(rows(&grown, &[records[2]])[0]["a"], json!({"b": {"d": "1"}, "e": "2"}));
}

/// What is around a dropped field is read as an object and no otherwise: as a text or a map it would bring
/// the field in again.
#[test]
fn what_is_dropped_does_not_come_in_with_what_is_around_it() {
    let plan = Plan::inferred(options(Evolve::Add, &["a.b", "s.t.u"]));
    let records = [
        r#"{"a":5,"s":{"n":1}}"#,
        r#"{"a":{"b":"x","c":2},"s":{"t":{"u":"x","v":1}}}"#,
        r#"{"a":[{"b":1}],"s":{"t":7}}"#,
    ];
    let first = plan.grow(&observed(&records[..1])).unwrap().unwrap().settle();
    let all = plan.grow(&observed(&records)).unwrap().unwrap();
    let text = |plan: &Plan| {
        let columns = plan.columns().iter().map(|column| format!("{} {}", column.name, column.data_type));
        columns.collect::<Vec<_>>()
    };
    assert_eq!(text(&first), ["s struct<n:bigint>"]);
    assert_eq!(text(&all), ["a struct<c:bigint>", "s struct<n:bigint,t:struct<v:bigint>>"]);
    let rescued = |plan: &Plan| rows(plan, &records).iter().map(|row| row["_rescued"].clone()).collect::<Vec<_>>();
    let list = r#"{"a":[{"b":1}],"s":{"t":7}}"#;
    assert_eq!(rescued(&first), [json!(r#"{"a":5}"#), json!(r#"{"a":{"c":2},"s":{"t":{"v":1}}}"#), json!(list)]);
    assert_eq!(rescued(&all), [json!(r#"{"a":5}"#), json!(null), json!(list)]);

    // Nobody can ask for it otherwise: neither the owner, nor a table, nor a plugin.
    let told =
        |data_type: &str| format!("a.b is dropped, but column 'a' takes what is around it whole, as {data_type}");
    for data_type in ["string", "map<string,string>", "array<struct<b:int>>"] {
        let errors = Plan::declared(vec![column("a", data_type, "a")], options(Evolve::Add, &["a.b"])).unwrap_err();
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [told(data_type)]);
        let data_type_of = |text: &str| DataType::parse(text).unwrap();
        let table = Schema::new(vec![Field::new("a", data_type_of(data_type).to_arrow(), true)]);
        for plan in [
            Plan::inferred(options(Evolve::Add, &["a.b"])),
            Plan::declared(vec![], options(Evolve::Add, &["a.b"])).unwrap(),
        ] {
            let errors = plan.with_table(&table).unwrap_err();
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [told(data_type)]);
        }
        let mut plan = Plan::inferred(options(Evolve::Add, &["a.b"]));
        let error = plan.require(&["a".to_owned()], &data_type_of(data_type), OnConflict::Rescue).unwrap_err();
        assert_eq!(error.to_string(), told(data_type));
    }
}

#[test]
fn a_field_that_the_table_has_is_null_once_it_is_dropped() {
    let data_type = |text: &str| DataType::parse(text).unwrap().to_arrow();
    let fields = vec![
        Field::new("debug", data_type("string"), true),
        Field::new("user", data_type("struct<name:string,secret:string>"), true),
    ];
    let plan = Plan::inferred(options(Evolve::Add, &["debug", "user.secret"]));
    let plan = plan.with_table(&Schema::new(fields)).unwrap();
    let row = rows(&plan, &[r#"{"debug":"d","user":{"name":"n","secret":"s"}}"#]);
    assert_eq!(row, [json!({"user": {"name": "n", "secret": null}, "_rescued": null})]);
}

#[test]
fn what_is_dropped_may_be_in_the_table_and_the_plan_comes_back() {
    let data_type = |text: &str| DataType::parse(text).unwrap().to_arrow();
    let user = || Field::new("user", data_type("struct<name:string,secret:string>"), true);
    let more = Field::new("more", data_type("struct<secret:string,b:int>"), true);
    let columns = vec![column("user", "struct<name:string>", "user")];
    let plan = Plan::declared(columns, options(Evolve::Add, &["user.secret", "more.secret"])).unwrap();
    let plan = plan.with_table(&Schema::new(vec![user(), more])).unwrap();
    let record = r#"{"user":{"name":"n","secret":"s"},"more":{"secret":"s","b":1}}"#;
    let grown = plan.grow(&observed(&[record])).unwrap().unwrap();
    for plan in [&plan, &grown] {
        let stored = serde_json::to_string(plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), *plan);
    }
    let expected = json!({"user": {"name": "n", "secret": null}, "more": {"secret": null, "b": "1"}, "_rescued": null});
    assert_eq!(rows(&grown, &[record]), [expected]);
}

#[test]
fn with_stop_what_is_dropped_does_not_stop() {
    let plan = Plan::declared(vec![column("id", "int", "id")], options(Evolve::Stop, &["debug"])).unwrap();
    assert!(plan.grow(&observed(&[r#"{"id":1,"debug":{"x":1}}"#])).unwrap().is_none());
    assert!(plan.grow(&observed(&[r#"{"id":1,"other":1}"#])).is_err());
}

#[test]
fn what_is_approved_only_is_held_back() {
    let columns = vec![column("id", "int", "id"), column("new", "int", "new"), column("s", "struct<a:int,b:int>", "s")];
    let plan = Plan::declared(columns, options(Evolve::Approve, &[])).unwrap();
    let record = r#"{"id":1,"new":2,"s":{"a":3,"b":4},"other":5}"#;
    // There is no table yet: the first commit makes it.
    assert_eq!(plan.columns().len(), 3);
    let data_type = |text: &str| DataType::parse(text).unwrap().to_arrow();
    let fields = vec![Field::new("id", data_type("int"), true), Field::new("s", data_type("struct<a:int>"), true)];
    let plan = plan.with_table(&Schema::new(fields)).unwrap();
    let decoded = decode(&plan, &[record]);
    assert!(decoded.unknown.is_none(), "nothing grows");
    let expected = json!({"id": "1", "s": {"a": "3"}, "_rescued": r#"{"new":2,"s":{"b":4},"other":5}"#});
    assert_eq!(Value::Object(row(&decoded.batch, 0)), expected);

    let plan = Plan::inferred(options(Evolve::Approve, &[]));
    let plan = plan.grow(&observed(&[r#"{"id":1}"#])).unwrap().unwrap();
    assert!(plan.grow(&observed(&[record])).unwrap().is_none());
}

#[test]
fn a_default_is_held_back_with_its_field() {
    let list = r#"[{"a":123456789012345678901234567890,"b":[]},null,{"b":null},{}]"#;
    let default = format!("{{\"l\":{list},\"m\":{{\"k\":{{\"a\":1,\"b\":2}}}},\"n\":1}}");
    let of = |element: &str| format!("struct<l:array<{element}>,m:map<string,struct<a:int,b:int>>,n:int>");
    let spec = column("s", &of("struct<a:decimal(38,0),b:array<int>>"), "s");
    let plan = Plan::declared(vec![ColumnSpec { default: Some(default), ..spec }], options(Evolve::Approve, &[]));
    let narrow = DataType::parse("struct<l:array<struct<a:decimal(38,0)>>,m:map<string,struct<b:int>>>").unwrap();
    let table = Schema::new(vec![Field::new("s", narrow.to_arrow(), true)]);
    let plan = plan.unwrap().with_table(&table).unwrap();
    let stored = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), plan);
    let list = json!([{"a": "123456789012345678901234567890"}, null, {"a": null}, {"a": null}]);
    assert_eq!(rows(&plan, &["{}"])[0]["s"], json!({"l": list, "m": [["k", {"b": "2"}]]}));
}

#[test]
fn a_plan_of_a_plugin_tells_of_all_that_is_new() {
    for evolve in [Evolve::Add, Evolve::None, Evolve::Approve] {
        let plan = Plan::mapped(vec![column("n", "int", "a.n")], options(evolve, &["debug"])).unwrap();
        assert!(decode(&plan, &[r#"{"a":{"n":1},"debug":1}"#]).unknown.is_none());
        let decoded = decode(&plan, &[r#"{"a":{"n":"x","m":true}}"#, r#"{"o":[null,1.5]}"#]);
        assert_eq!(decoded.rejects.len(), 1, "a conflict of a rejected record is news too");
        assert_eq!(decoded.unknown, Some(observed(&[r#"{"a":{"n":"x"}}"#, r#"{"o":[null,1.5]}"#])), "{evolve:?}");
    }
}

#[test]
fn what_cannot_be_derived_defaulted_or_dropped_is_told() {
    let default = |spec, default: &str| ColumnSpec { default: Some(default.to_owned()), ..spec };
    let columns = vec![
        column("a", "string", "a"),
        column("a_again", "string", "a"),
        derived("b", "int", "b", Derivation::Date),
        derived("c", "string", "c", before("")),
        derived("d", "array<string>", "d", after("-")),
        default(derived("e", "string", "e", after("-")), "1"),
        default(column("f", "int", "f"), "1.5"),
        default(column("g", "int", "g"), "1,\"g\":2"),
        default(column("h", "struct<x:int>", "h"), "{\"y\":1}"),
        column("i", "array<int>", "i"),
        derived("i_part", "string", "i", before("-")),
        derived("j", "string", "a", before("-")),
        derived("k", "string", "a", before("-")),
        column("l", "struct<x:int>", "l"),
    ];
    let drops = ["a", "l.x", "l.y"];
    let errors = Plan::declared(columns, options(Evolve::None, &drops)).unwrap_err();
    let told = errors.iter().map(PlanError::to_string).collect::<Vec<_>>();
    assert_eq!(
        told,
        [
            "column 'b': a column of type int cannot be made by `date`",
            "column 'c': a column of type string cannot be made by `before`",
            "column 'd': a column of type array<string> cannot be made by `after`",
            "column 'e' takes a part of a value, and has a default",
            "column 'f' cannot take the default 1.5: default: expected int, found 1.5",
            "column 'g' cannot take the default 1,\"g\":2: it is not JSON: trailing characters at line 1 column 2",
            "column 'h' cannot take the default {\"y\":1}: it has fields that the type has not",
            "column 'a_again' reads a, but column 'a' reads a, which is the same value or holds it",
            "column 'k' reads a, but column 'j' reads a, which is the same value or holds it",
            "column 'i_part' reads i, but column 'i' reads i, which is the same value or holds it",
            "a is dropped, but column 'a' reads it",
            "l.x is dropped, but column 'l' reads it",
        ]
    );
}

#[test]
fn a_plan_is_a_text_and_its_stored_form_comes_back() {
    let columns = vec![
        ColumnSpec { comment: Some("in euros".to_owned()), ..column("price", "decimal(10,2)", "amount.price") },
        derived("day", "date", "time", Derivation::Date),
        ColumnSpec { default: Some("0".to_owned()), on_conflict: OnConflict::Stop, ..column("n", "int", "n") },
        derived("family", "string", "sku", before("-")),
    ];
    let plan = Plan::mapped(columns, options(Evolve::Approve, &["debug"])).unwrap();
    assert_eq!(
        plan.to_string(),
        "price   decimal(10,2)  from amount.price, else rejected -- in euros\n\
         day     date           from date of time, else rejected\n\
         n       int            from n, else stop, default 0\n\
         family  string         from sku before \"-\", else rejected\n\
         dropped: debug\n\
         other fields are kept in _rescued until they are approved"
    );
    let stored = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), plan);
    let schema = plan.schema();
    assert_eq!(schema.field(0).metadata().get("comment").map(String::as_str), Some("in euros"));
}

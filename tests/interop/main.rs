//! Other engines read our tables: count, schema and values agree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use alluvium_kafka::Sandbox;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Fate, Options, Process, Workbench};
use serde_json::{Value, json};
use std::path::Path;

mod checkpoints;
mod steps;
mod writers;

const READERS: [&str; 4] = ["deltalake", "duckdb", "polars", "spark"];

fn read(reader: &str, table: &Path, columns: &[&str]) -> Value {
    alluvium_tests::readers::read(reader, &table.display().to_string(), columns, &[])
}

/// Every type, with and without values, written by `alluvium try`.
#[test]
fn every_type_is_read_alike_by_all_engines() {
    let dir = tempfile::tempdir().unwrap();
    let columns = [
        ("id", "bigint"),
        ("a_boolean", "boolean"),
        ("a_tinyint", "tinyint"),
        ("a_smallint", "smallint"),
        ("an_int", "int"),
        ("a_float", "float"),
        ("a_double", "double"),
        ("a_decimal", "decimal(10,2)"),
        ("a_wide_decimal", "decimal(38,18)"),
        ("a_string", "string"),
        ("a_binary", "binary"),
        ("a_date", "date"),
        ("a_timestamp", "timestamp"),
        ("a_list", "array<bigint>"),
        ("a_struct", "struct<a:bigint,b:struct<c:string>>"),
        ("a_map", "map<string,bigint>"),
        ("items", "array<struct<sku:string,price:decimal(10,2)>>"),
    ];
    let table = |(name, kind): &(&str, &str)| format!("[[schema.column]]\nname = \"{name}\"\ntype = \"{kind}\"\n");
    let columns: String = columns.iter().map(table).collect();
    let file = format!(
        "version = 1\ntenant = \"test\"\nname = \"types\"\n[source]\nbrokers = [\"localhost:1\"]\ntopic = \"t\"\n{columns}\n\
         [sink]\ntable = \"unused\"\n[sink.metadata]\nkafka = false\n"
    );
    std::fs::write(dir.path().join("types.toml"), file).unwrap();
    let records = [
        r#"{"id":1,"a_boolean":true,"a_tinyint":-128,"a_smallint":32767,"an_int":-2147483648,"a_float":0.5,"a_double":0.1,"a_decimal":"12345678.90","a_wide_decimal":"0.000000000000000001","a_string":"Straße \"5\" 東京 😀","a_binary":"AAH/","a_date":"1969-12-31","a_timestamp":"1969-12-31T23:59:59.999999Z","a_list":[1,null,3],"a_struct":{"a":1,"b":{"c":"x"}},"a_map":{"x":1,"y":null},"items":[{"sku":"a","price":"1.50"},{"sku":null,"price":null}]}"#,
        r#"{"id":2}"#,
        r#"{"id":3,"a_boolean":false,"a_tinyint":127,"a_smallint":-32768,"an_int":2147483647,"a_float":-1.5,"a_double":1.7976931348623157e308,"a_decimal":"-99999999.99","a_wide_decimal":"-99999999999999999999.999999999999999999","a_string":"","a_binary":"","a_date":"9999-12-31","a_timestamp":"2026-01-02T03:04:05.678901+02:00","a_list":[],"a_struct":{},"a_map":{},"items":[]}"#,
        r#"{"id":9223372036854775807,"a_string":null,"a_struct":{"b":{}},"items":[{}]}"#,
    ];
    std::fs::write(dir.path().join("records.ndjson"), records.join("\n")).unwrap();
    let arguments = ["try", "types.toml", "records.ndjson", "--table", "types", "--json"];
    let summary = Process::start(dir.path(), "try", &arguments, &[]).done(PATIENCE);
    assert_eq!((&summary["rows"], &summary["rejected"]), (&4.into(), &0.into()), "{summary:#}");

    let found: Vec<(&str, Value)> =
        READERS.into_iter().map(|reader| (reader, read(reader, &dir.path().join("types"), &[]))).collect();
    let (_, first) = &found[0];
    assert_eq!(first["count"], 4);
    for (reader, other) in &found[1..] {
        assert_eq!(other["rows"], first["rows"], "{reader} and {} differ", found[0].0);
    }
    let rows = &first["rows"];
    assert_eq!(rows[0]["a_decimal"], "12345678.90");
    assert_eq!(rows[0]["a_wide_decimal"], "0.000000000000000001");
    assert_eq!(rows[0]["a_timestamp"], "1969-12-31T23:59:59.999999");
    assert_eq!(rows[0]["a_binary"], "hex:0001ff");
    assert_eq!(rows[0]["a_map"], json!([["x", 1], ["y", null]]));
    assert_eq!(rows[1]["a_struct"], Value::Null);
    assert_eq!(rows[2]["a_struct"], json!({ "a": null, "b": null }));
    assert_eq!(rows[2]["a_timestamp"], "2026-01-02T01:04:05.678901");
    let spark = &found[3].1["schema"];
    assert_eq!(spark["a_struct"], "struct<a:bigint,b:struct<c:string>>");
    assert_eq!(spark["items"], "array<struct<sku:string,price:decimal(10,2)>>");
    assert_eq!(spark["a_wide_decimal"], "decimal(38,18)");
}

/// A table that was written in many commits, with a schema that grew, after kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grown_table_is_read_alike_by_all_engines() {
    let topic = Workbench::topic_name("interop");
    let options = Options::default();
    let sandbox = Sandbox::start(&[(&topic, options.partitions)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &options);
    bench.produce(3, 0..400, 1_200).await;
    bench.run_to_end("first");
    bench.produce(3, 400..1_200, 1_200).await;
    bench.run("killed", &[], &[("ALLUVIUM_KILL_AT", "upload:after#1")]).wait(PATIENCE);
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
    let wanted = bench.fates.values().filter(|fate| **fate == Fate::Row).count();
    let columns = ["id", "customer", "amount", "order_date", "channel", "_kafka"];
    let found: Vec<Value> =
        READERS.into_iter().map(|reader| read(reader, &bench.dir().join("pipeline"), &columns)).collect();
    for (reader, other) in READERS.iter().zip(&found) {
        assert_eq!(other["count"], wanted, "{reader}");
        assert_eq!(other["rows"], found[0]["rows"], "{reader}");
    }
    let rows = found[0]["rows"].as_array().unwrap();
    assert_eq!(rows[0]["channel"], Value::Null);
    assert_eq!(rows[0]["customer"]["email"], "***@example.com");
    assert_eq!(rows[rows.len() - 1]["channel"], json!({ "name": "web", "code": 7 }));
    let letters = read("spark", &bench.dir().join("pipeline_dead_letters"), &[]);
    assert_eq!(letters["count"], bench.fates.values().filter(|fate| **fate == Fate::DeadLetter).count());
}

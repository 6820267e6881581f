//! Inputs for fuzzing to begin with, made from the case files.

use super::fuzzed::input;
use alluvium_core::DataType;
use alluvium_schema::{Coercion, ColumnSpec, Derivation, Evolve, OnConflict, Plan, PlanOptions, Shape};
use serde_json::Value;

/// For [`super::fuzzed::decode`].
pub fn decode() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for case in lines(include_str!("../cases/json-types.ndjson")) {
        let (data_type, json) = (case["type"].as_str().unwrap(), case["json"].as_str().unwrap());
        seeds.push(input(&declared(data_type, Coercion::None), &[format!(r#"{{"x":{json}}}"#)]));
        for (data_type, record) in [
            (format!("struct<before:string,f:{data_type}>"), format!(r#"{{"x":{{"f":{json},"before":"b","u":1}}}}"#)),
            (format!("array<{data_type}>"), format!(r#"{{"x":[null,{json}, {json}]}}"#)),
            (format!("map<string,{data_type}>"), format!(r#"{{"x":{{"k":{json},"n":null,"k":{json}}}}}"#)),
            (format!("array<struct<f:{data_type}>>"), format!(r#"{{"x":[{{}},{{"f":{json},"f":{json},"u":0}}]}}"#)),
        ] {
            seeds.push(input(&declared(&data_type, Coercion::None), &[record]));
        }
    }
    for (coercion, data_type, json) in [
        (Coercion::ParseString, "bigint", r#""12""#),
        (Coercion::ParseString, "boolean", r#""true""#),
        (Coercion::ParseString, "double", r#""1e5""#),
        (Coercion::JsonText, "string", r#"{"a": [1, "b"]}"#),
        (Coercion::EpochS, "timestamp", "1767323045.123456789"),
        (Coercion::EpochMs, "timestamp", "-1"),
        (Coercion::EpochUs, "timestamp", "1e15"),
        (Coercion::EpochNs, "timestamp", "1767323045123456789"),
        (Coercion::EpochDays, "date", "-719162"),
    ] {
        seeds.push(input(&declared(data_type, coercion), &[format!(r#"{{"x":{json}}}"#)]));
    }
    let escapes = r#"{"x":"\"\\\/\b\f\n\r\t\u00E9\uD83D\uDE00"}"#;
    seeds.push(input(&declared("string", Coercion::None), &[escapes]));
    for (plan, records) in evolution() {
        let mut shape = Shape::default();
        records.iter().for_each(|record| shape.observe(record.as_bytes()));
        seeds.push(input(&plan.grow(&shape).ok().flatten().unwrap_or(plan), &records));
    }
    for evolve in [Evolve::None, Evolve::Add, Evolve::Stop] {
        seeds.push(input(
            &parts(evolve),
            &[r#"{"o":{"p":1,"q":{"r":"a","u":[]}},"b":null}"#, r#"{"o":[],"o":{"p":"x"}}"#],
        ));
    }
    seeds.push(input(
        &derived(),
        &[
            r#"{"t":"2026-01-02T03:04:05Z","p":{"q":"1-a","secret":1},"s":{"a":1,"b":{"c":2,"d":3}},"gone":[1]}"#,
            r#"{"t":null,"p":{"q":"-"},"s":{"b":{}}}"#,
            r#"{"p":5,"t":"2026-01-02","t":1}"#,
            "{}",
        ],
    ));
    seeds.extend(wide());
    seeds.extend(chosen());
    seeds
}

/// For [`super::fuzzed::plan`].
pub fn plan() -> Vec<Vec<u8>> {
    let mut seeds = evolution().into_iter().map(|(plan, records)| input(&plan, &records)).collect::<Vec<_>>();
    let table = serde_json::to_string(&declared("struct<a:bigint,l:array<struct<b:string>>>", Coercion::None)).unwrap();
    for evolve in [Evolve::None, Evolve::Add, Evolve::Stop] {
        seeds.push(input(&parts(evolve), &[table.as_str(), r#"{"x":{"l":[{"c":1}]},"o":{"n":1}}"#]));
        let inferred = Plan::inferred(PlanOptions { evolve, ..PlanOptions::default() });
        seeds.push(input(&inferred, &[table.as_str(), r#"{"x":{"l":[{"c":{"d":[1,"e"]}}]},"Y":1,"y":2}"#]));
    }
    for reads in ["a.b:bigint", "a:struct<b:array<string>,d:date>", "`a.b`.`c d`:map<string,int>", "x.l:string"] {
        seeds.push(format!("\x1e\x03{reads}\x1e{{\"a\":{{\"b\":1,\"c\":2}}}}\x1e\x03{reads}").into_bytes());
    }
    for first in ["", "\0\x04", "\x01\x02"] {
        seeds.push(
            format!("{first}\x1e{{\"a\":{{\"b\":1,\"B\":[null,[]]}}}}\x1e{{\"a\":{{\"c\":1e400}}}}").into_bytes(),
        );
    }
    let narrow = r#"{"origin":"declared","evolve":"add","max_columns":9,"rescued":"_rescued","reserved":[],"settled":true,"columns":[{"name":"s","type":"struct<a:int>","path":["s"],"on_conflict":"rescue"}]}"#;
    for evolve in [Evolve::Add, Evolve::Approve] {
        let mut plan = serde_json::to_value(derived()).unwrap();
        plan["evolve"] = serde_json::to_value(evolve).unwrap();
        let plan = serde_json::from_value(plan).unwrap();
        seeds.push(input(&plan, &[narrow, r#"{"s":{"b":{"d":1,"e":2}},"p":{"r":1},"gone":3}"#, table.as_str()]));
    }
    seeds.extend(wide());
    seeds.extend(chosen());
    seeds
}

fn lines(cases: &str) -> Vec<Value> {
    cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn declared(data_type: &str, coercion: Coercion) -> Plan {
    let data_type = DataType::parse(data_type).unwrap();
    let column = ColumnSpec { coercion, on_conflict: OnConflict::Rescue, ..ColumnSpec::new("x", data_type) };
    Plan::declared(vec![column], PlanOptions::default()).unwrap()
}

/// Columns that read parts of one object.
fn parts(evolve: Evolve) -> Plan {
    let columns = [("a", "bigint", "o.p"), ("b", "string", "o.q.r"), ("c", "struct<d:date>", "o.q.s")];
    let columns = columns.map(|(name, data_type, from)| {
        let from = Some(alluvium_schema::path::parse(from).unwrap());
        ColumnSpec { from, ..ColumnSpec::new(name, DataType::parse(data_type).unwrap()) }
    });
    Plan::declared(columns.to_vec(), PlanOptions { evolve, ..PlanOptions::default() }).unwrap()
}

/// Several columns of one value, defaults, and fields that are left out.
fn derived() -> Plan {
    let column = |name: &str, data_type: &str, from: &str, derivation: Option<Derivation>, default: Option<&str>| {
        let (from, default) = (Some(alluvium_schema::path::parse(from).unwrap()), default.map(str::to_owned));
        let column = ColumnSpec::new(name, DataType::parse(data_type).unwrap());
        ColumnSpec { from, derivation, default, on_conflict: OnConflict::Rescue, ..column }
    };
    let separator = || "-".to_owned();
    let columns = [
        column("t", "timestamp", "t", None, Some("\"1970-01-01T00:00:00Z\"")),
        column("day", "date", "t", Some(Derivation::Date), None),
        column("before", "int", "p.q", Some(Derivation::Before(separator())), None),
        column("after", "string", "p.q", Some(Derivation::After(separator())), None),
        column("s", "struct<a:int,b:struct<c:int>>", "s", None, Some("{\"a\":1}")),
        column("l", "array<struct<a:int,b:int>>", "l", None, Some("[{},{\"a\":1}]")),
    ];
    let drops = [vec!["gone"], vec!["p", "secret"], vec!["s", "b", "d"]];
    let drops = drops.map(|path| path.into_iter().map(str::to_owned).collect()).to_vec();
    Plan::declared(columns.to_vec(), PlanOptions { drops, ..PlanOptions::default() }).unwrap()
}

/// Few bytes of a record that stand for just as many values as they may, and for more.
fn wide() -> [Vec<u8>; 2] {
    let letter = |at: u8| char::from(b'a' + at);
    let fields = (0..200).map(|at| format!("{}{}:int", letter(at / 26), letter(at % 26))).collect::<Vec<_>>().join(",");
    let plan = declared(&format!("array<struct<{fields}>>"), Coercion::None);
    [230, 231].map(|count| input(&plan, &[format!(r#"{{"x":[{}0]}}"#, "0,".repeat(count - 1))]))
}

/// Plans and records of the generator's choice.
fn chosen() -> Vec<Vec<u8>> {
    let mut state = 1u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut bytes = |count: usize| (0..count).map(|_| byte()).filter(|byte| *byte != 0x1e).collect::<Vec<_>>();
    let mut texts = |kind: u8| [vec![0x1e, kind], bytes(60)].concat();
    (0..40).map(|at| [texts(0), texts(1), texts(1), texts(1 + at % 2)].concat()[2..].to_vec()).collect()
}

/// The plans that pipelines begin with, and their records.
fn evolution() -> Vec<(Plan, Vec<String>)> {
    let mut found = Vec::new();
    for case in lines(include_str!("../cases/evolution.ndjson")) {
        let evolve = serde_json::from_value(case["schema"]["evolve"].clone()).unwrap();
        let batches: Vec<Vec<String>> = serde_json::from_value(case["batches"].clone()).unwrap();
        found.push((Plan::inferred(PlanOptions { evolve, ..PlanOptions::default() }), batches.concat()));
    }
    found
}

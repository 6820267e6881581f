//! What reaches a record plugin, and what it returns, true or not.

use crate::fixture::{Core, Packed, record};
use crate::{record_plugin, tight};
use alluvium_core::Records;
use alluvium_core::chunk::{Header, Record, encode_headers};
use alluvium_wasm::{CallError, RecordOutput};

fn records() -> Records {
    let mut records = Records::default();
    for (number, value) in ["zero", "one", "two", "three"].into_iter().enumerate() {
        let mut headers = Vec::new();
        encode_headers([Header { key: "h", value: Some(b"v") }, Header { key: "n", value: None }], &mut headers);
        let record = Record {
            offset: number as i64,
            timestamp: 1000 + number as i64,
            key: (number % 2 == 0).then_some(value.as_bytes()),
            value: Some(value.as_bytes()),
            headers: (number == 2).then_some(&headers),
        };
        records.push(record).unwrap();
    }
    records
}

fn packed(strings: &[&str]) -> Packed {
    let mut packed = Packed::default();
    for text in strings {
        packed.data.extend_from_slice(text.as_bytes());
        packed.ends.push(packed.data.len() as u32);
    }
    packed
}

fn call(build: impl FnOnce(&mut Core)) -> Result<RecordOutput, CallError> {
    record_plugin(&record(build), &tight()).transform(&records(), None)
}

fn problem(build: impl FnOnce(&mut Core)) -> String {
    match call(build) {
        Err(CallError::Output { problem, .. }) => problem.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn outputs_carry_their_records_numbers() {
    let build = |core: &mut Core| {
        core.wants(false, false, false, true);
        let keys = Packed { validity: Some(vec![0b101]), ..packed(&["k", "", "l"]) };
        core.output(&[0, 0, 2], &packed(&["a", "bc", ""]), Some(&keys), &[(1, "no")]);
    };
    let output = call(build).unwrap();
    assert_eq!(output.inputs, [0, 0, 2]);
    assert_eq!(output.values.iter().collect::<Vec<_>>(), [Some(b"a".as_slice()), Some(b"bc"), Some(b"")]);
    assert_eq!(output.keys.unwrap().iter().collect::<Vec<_>>(), [Some(b"k".as_slice()), None, Some(b"l")]);
    assert_eq!(output.rejects, [(1, "no".to_owned())]);
    // With a selection, inputs are named by the records' own indexes.
    let output = record_plugin(&record(build), &tight()).transform(&records(), Some(&[1, 2, 3])).unwrap();
    assert_eq!((output.inputs, output.rejects), (vec![1, 1, 3], vec![(2, "no".to_owned())]));
}

#[test]
fn lies_are_named() {
    let one = packed(&["a"]);
    let with = |change: fn(&mut Packed)| {
        let mut changed = packed(&["a", "b"]);
        change(&mut changed);
        problem(|core| core.output(&[0, 1], &changed, None, &[]))
    };
    let cases = [
        (problem(|core| core.output(&[0, 1], &one, None, &[])), "its values hold 1 byte strings instead of 2"),
        (
            problem(|core| core.output(&[0], &one, Some(&Packed::default()), &[])),
            "its keys hold 0 byte strings instead of 1",
        ),
        (problem(|core| core.output(&[4], &one, None, &[])), "output 0 comes from input 4, but there are 4 inputs"),
        (problem(|core| core.output(&[0], &one, None, &[(0, "")])), "input 0 is both kept and rejected"),
        (
            with(|packed| packed.ends = vec![2, 1]),
            "its values end at 1 at output 1: below the one before or past 2 bytes",
        ),
        (
            with(|packed| packed.ends = vec![1, u32::MAX]),
            "its values end at 4294967295 at output 1: below the one before or past 2 bytes",
        ),
        (with(|packed| packed.ends = vec![0, 1]), "its values hold 2 bytes, but the last ends at 1"),
        (with(|packed| packed.validity = Some(vec![])), "its values have a validity bitmap of 0 bytes instead of 1"),
        (with(|packed| packed.validity = Some(vec![0b01])), "output 1 has no value"),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

/// Traps unless the `words` lie at `offset` of the chunk, or where `pointer` leads to.
fn check(offset: u32, pointer: bool, words: &[u32]) -> String {
    let base = if pointer {
        format!("(i32.load offset={offset} (local.get $chunk))")
    } else {
        format!("(i32.add (local.get $chunk) (i32.const {offset}))")
    };
    let each = |(at, word): (usize, &u32)| {
        format!("(if (i32.ne (i32.load offset={} align=1 {base}) (i32.const {word})) (then unreachable))", at * 4)
    };
    words.iter().enumerate().map(each).collect()
}

#[test]
fn only_what_was_asked_for_is_shown() {
    let component = record(|core| {
        let output = std::mem::take(&mut core.transform);
        // Four records; no validity; no keys, headers, timestamps.
        let none = [check(0, false, &[4]), check(20, false, &[0]), check(32, false, &[0]), check(64, false, &[0])];
        core.transform =
            format!("{} {} {} {output}", none.concat(), check(132, false, &[0]), check(4, true, &[4, 7, 10, 15]));
    });
    record_plugin(&component, &tight()).transform(&records(), None).unwrap();
}

#[test]
fn keys_headers_and_timestamps_arrive() {
    let component = record(|core| {
        core.wants(true, true, true, false);
        let output = std::mem::take(&mut core.transform);
        let parts = [
            check(0, false, &[3]),
            // Values "one", "two", "three".
            check(4, true, &[3, 6, 11]),
            check(12, true, &[u32::from_le_bytes(*b"onet")]),
            // Keys: null, "two", null.
            check(32, false, &[1]),
            check(36, true, &[0, 3, 3]),
            check(52, false, &[1]),
            // Headers: none, two, none; names "h", "n"; values "v", null.
            check(64, false, &[1]),
            check(68, true, &[0, 2, 0]),
            check(76, true, &[1, 2]),
            check(104, true, &[1, 1]),
            check(120, false, &[1]),
            // Timestamps.
            check(132, false, &[1]),
            check(136, true, &[1001, 0, 1002, 0, 1003, 0]),
        ];
        core.transform = format!("{} {output}", parts.concat());
    });
    record_plugin(&component, &tight()).transform(&records(), Some(&[1, 2, 3])).unwrap();
}

#[test]
fn a_selection_with_gaps_is_packed_anew() {
    let component = record(|core| {
        let output = std::mem::take(&mut core.transform);
        let parts = [check(0, false, &[2]), check(4, true, &[4, 7]), check(12, true, &[u32::from_le_bytes(*b"zero")])];
        core.transform = format!("{} {output}", parts.concat());
    });
    record_plugin(&component, &tight()).transform(&records(), Some(&[0, 2])).unwrap();
    record_plugin(&record(|_| {}), &tight()).transform(&records(), Some(&[])).unwrap();
}

#[test]
fn what_the_caller_hands_in_is_checked() {
    let plugin = record_plugin(&record(|_| {}), &tight());
    let says = |records: &Records, select: Option<&[u32]>| match plugin.transform(records, select).unwrap_err() {
        CallError::Input { problem, .. } => problem.to_string(),
        other => panic!("{other}"),
    };
    assert_eq!(says(&records(), Some(&[4])), "record 4 is selected, but there are 4");
    assert_eq!(says(&records(), Some(&[1, 1])), "record 1 follows 1 in the selection");
    let mut tombstone = Records::default();
    tombstone.push(Record { offset: 0, timestamp: -1, key: None, value: None, headers: None }).unwrap();
    assert_eq!(says(&tombstone, None), "record 0 has no value");
    assert!(plugin.transform(&tombstone, Some(&[])).is_ok());
}

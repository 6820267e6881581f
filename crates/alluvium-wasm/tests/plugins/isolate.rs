//! Records at fault, found by calling again with fewer.

use crate::fixture::{HOARD, Packed, SPIN, column, on_thirteen, record};
use crate::{column_plugin, record_plugin, soon, tight};
use alluvium_core::chunk::Record;
use alluvium_core::{Hook, Records};
use alluvium_wasm::{CallError, ColumnPlugin, IsolateError, Isolation, Limits};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HALF: Isolation = Isolation { share: 0.5, at_least: 1, time: Duration::from_secs(60), hook: Hook::NONE };

/// Hands its column back; does `fault` at 13.
fn picky(fault: &str, limits: &Limits) -> ColumnPlugin {
    let component = column(|core| {
        core.columns(&[("a", "bigint")], &[("a", "bigint")], false);
        let edit = core.put(&[0; 32]);
        let rest = format!(
            "(i32.store offset=16 (i32.const {edit}) (local.get $nodes))
             (i32.store offset=20 (i32.const {edit}) (local.get $count)) (i32.const {edit})"
        );
        core.transform = on_thirteen(fault, &rest);
    });
    column_plugin(&component, limits)
}

fn column_of(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Int64Array>())
}

#[test]
fn each_kind_of_failure_is_brought_home_to_its_rows() {
    let quick = Limits { time: Duration::from_millis(50), ..tight() };
    let failures = [
        ("unreachable", "plugin-trap"),
        (SPIN, "plugin-timeout"),
        (HOARD, "plugin-memory"),
        ("(return (i32.const -8))", "plugin-output"),
    ];
    for (fault, code) in failures {
        let plugin = picky(fault, &quick);
        let values = column_of((0..1000).map(|row| if row == 10 || row == 999 { 13 } else { row * 100 }));
        let found = soon(|| plugin.transform_isolating(1000, &[values], &HALF).unwrap());
        let bad: Vec<_> = found.bad.iter().map(|(row, error)| (*row, error.code())).collect();
        assert_eq!(bad, [(10, code), (999, code)]);
        let rows = found.edit.rows.unwrap();
        assert_eq!(rows.len(), 998);
        let column = found.edit.columns[0].as_primitive::<Int64Type>();
        assert!(rows.iter().zip(column.values()).all(|(row, value)| i64::from(*row) * 100 == *value));
    }
}

#[test]
fn without_failures_there_is_one_call() {
    let plugin = picky("unreachable", &tight());
    let found = plugin.transform_isolating(3, &[column_of([1, 2, 3])], &HALF).unwrap();
    assert_eq!((found.edit.rows, found.bad.len()), (None, 0));
}

#[test]
fn when_all_rows_are_bad_nothing_is_left() {
    let plugin = picky("unreachable", &tight());
    let all = Isolation { share: 1.0, ..HALF };
    let found = plugin.transform_isolating(3, &[column_of([13; 3])], &all).unwrap();
    assert_eq!((found.edit.rows.unwrap().len(), found.edit.columns[0].len(), found.bad.len()), (0, 0, 3));
}

#[test]
fn a_plugin_that_always_loops_is_given_up_in_time() {
    let plugin = picky(SPIN, &Limits { time: Duration::from_millis(100), ..tight() });
    let isolation = Isolation { share: 1.0, time: Duration::from_secs(1), ..HALF };
    let start = Instant::now();
    let error = plugin.transform_isolating(1000, &[column_of([13; 1000])], &isolation).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(matches!(error, IsolateError::TooMany { last: CallError::Timeout { .. }, .. }), "{error}");
}

#[test]
fn past_the_share_the_plugin_is_at_fault() {
    let plugin = picky("unreachable", &tight());
    let values = column_of((0..100).map(|row| if row < 11 { 13 } else { 0 }));
    let tenth = Isolation { share: 0.1, ..HALF };
    let error = plugin.transform_isolating(100, &[Arc::clone(&values)], &tenth).unwrap_err();
    assert!(matches!(error, IsolateError::TooMany { inputs: 100, failed: 11, .. }), "{error}");
    assert!(error.to_string().contains("failed on too many of 100 inputs: 11 found at fault"), "{error}");
    assert!(plugin.transform_isolating(100, &[values], &Isolation { share: 0.11, ..HALF }).is_ok());
}

#[test]
fn a_chunk_too_large_for_the_plugin_s_memory_goes_through_in_parts() {
    // 4 MiB are allowed; the column alone has 8.
    let plugin = picky("unreachable", &Limits { output: 64 << 20, ..tight() });
    let values = column_of(1000..1_001_000);
    let found = plugin.transform_isolating(1_000_000, &[Arc::clone(&values)], &HALF).unwrap();
    assert!(found.bad.is_empty());
    assert_eq!(found.edit.columns[0].as_ref(), values.as_ref());
    assert!(found.edit.rows.unwrap().into_iter().eq(0..1_000_000));
}

#[test]
fn records_keep_their_numbers_and_keys() {
    // Fails on chunks with the value "x"; else keeps the first record, as "new".
    let component = record(|core| {
        core.output(&[0], &Packed { ends: vec![3], data: b"new".to_vec(), validity: None }, None, &[]);
        let output = std::mem::take(&mut core.transform);
        core.transform = format!(
            r#"(local $at i32) (local $end i32)
            (local.set $at (i32.load offset=12 (local.get $chunk)))
            (local.set $end (i32.add (local.get $at) (i32.load offset=16 (local.get $chunk))))
            (block $done (loop $next
              (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
              (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 120)) (then unreachable))
              (local.set $at (i32.add (local.get $at) (i32.const 1)))
              (br $next)))
            {output}"#
        );
    });
    let plugin = record_plugin(&component, &tight());
    let mut records = Records::default();
    for (offset, value) in ["a", "b", "c", "x", "e", "f", "g", "h"].into_iter().enumerate() {
        let record = Record {
            offset: offset as i64,
            timestamp: -1,
            key: Some(b"k"),
            value: Some(value.as_bytes()),
            headers: None,
        };
        records.push(record).unwrap();
    }
    // Of [1, 2, 3, 5, 7]: [1, 2] is good, 3 is bad, [5, 7] is good.
    let found = plugin.transform_isolating(&records, Some(&[1, 2, 3, 5, 7]), &HALF).unwrap();
    assert_eq!(found.output.inputs, [1, 5]);
    assert_eq!(found.output.values.iter().collect::<Vec<_>>(), [Some(b"new".as_slice()); 2]);
    assert_eq!((found.output.keys, found.bad.len(), found.bad[0].0), (None, 1, 3));
    let found = plugin.transform_isolating(&records, None, &HALF).unwrap();
    assert_eq!((found.output.inputs, found.bad[0].0), (vec![0, 2, 4], 3));
}

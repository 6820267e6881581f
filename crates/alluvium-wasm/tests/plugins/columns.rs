//! What a column plugin returns, true or not.

use crate::fixture::{Core, Node, column};
use crate::{column_plugin, tight};
use alluvium_wasm::{CallError, Edit, Limits};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int32Array, Int64Array};
use std::sync::Arc;

fn call(build: impl FnOnce(&mut Core)) -> Result<Edit, CallError> {
    let component = column(|core| {
        core.columns(&[], &[("x", "bigint")], false);
        build(core);
    });
    column_plugin(&component, &tight()).transform(4, &[])
}

fn problem(build: impl FnOnce(&mut Core)) -> String {
    match call(build) {
        Err(CallError::Output { problem, .. }) => problem.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_are_kept_filtered_or_rejected() {
    let edit = call(|core| core.edit(Some(&[0, 3]), &[Node::bigint(&[7, 8])], &[(2, "no")])).unwrap();
    assert_eq!(edit.rows.as_deref(), Some([0, 3].as_slice()));
    assert_eq!(edit.columns[0].as_primitive::<Int64Type>().values(), &[7, 8]);
    assert_eq!(edit.rejects, [(2, "no".to_owned())]);
    let edit = call(|core| core.edit(None, &[Node::bigint(&[1, 2, 3, 4])], &[])).unwrap();
    assert_eq!((edit.rows, edit.columns[0].len()), (None, 4));
}

#[test]
fn rows_that_cannot_be_are_refused() {
    let two = [Node::bigint(&[1, 2])];
    let cases = [
        (problem(|core| core.edit(Some(&[0, 4]), &two, &[])), "output 1 comes from input 4, but there are 4 inputs"),
        (
            problem(|core| core.edit(Some(&[2, 1]), &two, &[])),
            "output 1 comes from input 1, after an output from input 2: they must rise",
        ),
        (
            problem(|core| core.edit(Some(&[1, 1]), &two, &[])),
            "input 1 has several outputs, but the plugin did not say in `access` that it multiplies",
        ),
        (problem(|core| core.edit(Some(&[0, 1]), &two, &[(1, "")])), "input 1 is both kept and rejected"),
        (problem(|core| core.edit(Some(&[0, 1]), &two, &[(9, "")])), "input 9 is rejected, but there are 4 inputs"),
        (problem(|core| core.edit(Some(&[0, 1]), &two, &[(2, ""), (2, "")])), "input 2 is rejected twice"),
        (
            problem(|core| core.edit(None, &[Node::bigint(&[1, 2, 3, 4])], &[(0, "")])),
            "input 0 is both kept and rejected",
        ),
        (problem(|core| core.edit(Some(&[0]), &two, &[])), "column x has 2 values instead of 1"),
        (problem(|core| core.edit(Some(&[0]), &[], &[])), "column x is missing: there are too few nodes"),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn one_row_becomes_several_when_the_plugin_said_so() {
    let multiplying = |rows: &[u32]| {
        let component = column(|core| {
            core.columns(&[], &[], true);
            core.edit(Some(rows), &[], &[]);
        });
        column_plugin(&component, &Limits { rows: 1000, ..tight() }).transform(4, &[])
    };
    assert_eq!(multiplying(&[1, 1, 1]).unwrap().rows.unwrap(), [1, 1, 1]);
    assert!(multiplying(&[3; 1000]).is_ok());
    let error = multiplying(&[3; 1001]).unwrap_err();
    assert!(error.to_string().ends_with("it has 1001 outputs; at most 1000 are allowed"), "{error}");
}

#[test]
fn a_column_reaches_the_plugin_and_comes_back() {
    // Hands its one column back as it came.
    let component = column(|core| {
        core.columns(&[("a.b", "bigint")], &[("a.b", "bigint")], false);
        let edit = core.put(&[0; 32]);
        core.transform = format!(
            "(i32.store offset=16 (i32.const {edit}) (local.get $nodes))
             (i32.store offset=20 (i32.const {edit}) (local.get $count)) (i32.const {edit})"
        );
    });
    let plugin = column_plugin(&component, &tight());
    assert_eq!(plugin.access().reads, plugin.access().writes);
    assert_eq!(plugin.access().reads[0].path, ["a", "b"]);
    let whole: ArrayRef = Arc::new((0..100).map(|number| (number % 3 > 0).then_some(number)).collect::<Int64Array>());
    for (offset, length) in [(0, 100), (13, 50), (7, 0)] {
        let slice = whole.slice(offset, length);
        let edit = plugin.transform(length, &[Arc::clone(&slice)]).unwrap();
        assert_eq!(edit.columns[0].as_ref(), slice.as_ref());
    }
}

#[test]
fn what_the_caller_hands_in_is_checked() {
    let component = column(|core| core.columns(&[("a", "bigint")], &[], false));
    let plugin = column_plugin(&component, &tight());
    let bigint: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let int: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let says = |error: CallError| match error {
        CallError::Input { problem, .. } => problem.to_string(),
        other => panic!("{other}"),
    };
    assert_eq!(says(plugin.transform(2, &[]).unwrap_err()), "0 columns instead of 1");
    assert_eq!(says(plugin.transform(3, &[bigint]).unwrap_err()), "column a has 2 values instead of 3");
    assert_eq!(says(plugin.transform(2, &[int]).unwrap_err()), "column a has type Int32 instead of Int64");
}

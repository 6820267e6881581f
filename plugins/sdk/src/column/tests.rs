//! What a batch makes of nodes, right and wrong.

#![allow(clippy::unwrap_used, clippy::panic)]
use super::{Access, Batch, Column, Result};
use crate::bindings::column::{Columns, Layout, Node};
use proptest::prelude::*;

fn node(layout: Layout, length: u32, values: &[u8]) -> Node {
    let name = String::new();
    Node { name, layout, children: 0, length, validity: None, offsets: None, values: values.to_vec() }
}

fn text(length: u32, offsets: &[i32], values: &[u8]) -> Node {
    Node { offsets: Some(offsets.to_vec()), ..node(Layout::Utf8, length, values) }
}

fn reads(data_type: &str) -> Access {
    let mut access = Access::default();
    access.reads("a", data_type);
    access.checked().unwrap()
}

/// What is read as `data_type`, or why it cannot be.
fn read<T>(data_type: &str, nodes: Vec<Node>, get: impl Fn(&Batch<'_>) -> Result<T>) -> std::result::Result<T, String> {
    let rows = nodes.first().map_or(0, |node| node.length);
    let (access, input) = (reads(data_type), Columns { rows, nodes });
    Batch::new(access.read(), &input).and_then(|batch| get(&batch)).map_err(|error| error.message().to_owned())
}

#[test]
fn offsets_need_not_start_at_zero() {
    let texts = |batch: &Batch<'_>| {
        let texts = batch.string("a")?;
        Ok([0, 1, 2].map(|row: usize| texts.get(row).map(str::to_owned)))
    };
    let found = read("string", vec![text(2, &[2, 4, 5], "xxäb".as_bytes())], texts);
    assert_eq!(found.unwrap(), [Some("ä".to_owned()), Some("b".to_owned()), None]);
}

#[test]
fn bits_past_the_end_are_no_rows() {
    let flags = |batch: &Batch<'_>| {
        let flags = batch.boolean("a")?;
        Ok([1, 2, 3, 8].map(|row: usize| flags.get(row)))
    };
    assert_eq!(
        read("boolean", vec![node(Layout::Boolean, 3, &[0xff])], flags).unwrap(),
        [Some(true), Some(true), None, None]
    );
}

#[test]
fn what_the_host_must_not_hand_is_told() {
    let string = |batch: &Batch<'_>| batch.string("a").map(|_| ());
    let cases = [
        (vec![], "column 'a': the host handed no column"),
        (vec![node(Layout::Fixed8, 0, &[])], "column 'a': the host handed Layout::Fixed8 with 0 children for a string"),
        (vec![node(Layout::Utf8, 1, b"x")], "column 'a': the host handed wrong offsets"),
        (vec![text(2, &[0, 1], b"x")], "column 'a': the host handed wrong offsets"),
        (vec![text(1, &[1, 0], b"x")], "column 'a': the host handed wrong offsets"),
        (vec![text(1, &[-1, 0], b"x")], "column 'a': the host handed wrong offsets"),
        (vec![text(1, &[0, 2], b"x")], "column 'a': the host handed wrong offsets"),
        (vec![text(1, &[0, 1], &[0xff])], "column 'a': the host handed bytes that are not UTF-8"),
        (
            vec![Node { validity: Some(vec![]), ..text(1, &[0, 1], b"x") }],
            "column 'a': the host handed too few validity bits",
        ),
        (vec![text(1, &[0, 1], b"x"), text(1, &[0, 1], b"x")], "the host handed more columns than the plugin reads"),
    ];
    for (nodes, message) in cases {
        assert_eq!(read("string", nodes, string).unwrap_err(), message);
    }
}

fn arbitrary_node() -> impl Strategy<Value = Node> {
    use Layout::*;
    let layout = prop::sample::select(vec![Boolean, Fixed1, Fixed4, Fixed8, Fixed16, Bytes, Utf8, List, Map, Struct]);
    let bytes = || prop::collection::vec(prop_oneof![Just(b'a'), any::<u8>()], 0..40);
    let offset = prop_oneof![8 => 0..6_i32, 1 => Just(-1), 1 => Just(i32::MAX)];
    let offsets = prop::option::of(prop::collection::vec(offset, 0..6));
    let length = prop_oneof![20 => 0..5_u32, 1 => Just(u32::MAX)];
    (layout, 0..3_u32, length, prop::option::of(bytes()), offsets, bytes()).prop_map(
        |(layout, children, length, validity, offsets, values)| {
            let offsets = offsets.map(|mut offsets| {
                offsets.sort_unstable();
                offsets
            });
            Node { name: String::new(), layout, children, length, validity, offsets, values }
        },
    )
}

/// Reads all that can be read.
fn read_all(column: &Column<'_>) {
    let rows = 0..column.len().min(8) + 1;
    for row in rows.clone() {
        let _ = column.is_null(row);
        let _ = column.boolean().map(|values| values.get(row));
        let _ = column.bigint().map(|values| values.get(row));
        let _ = column.decimal().map(|values| values.get(row));
        let _ = column.string().map(|values| values.get(row));
        let _ = column.binary().map(|values| values.get(row));
    }
    if let Ok(list) = column.list() {
        rows.clone().for_each(|row| assert!(list.get(row).is_none_or(|range| range.end <= list.elements().len())));
        read_all(list.elements());
    }
    if let Ok(map) = column.map() {
        rows.for_each(|row| assert!(map.get(row).is_none_or(|range| range.end <= map.keys().len())));
        read_all(map.keys());
        read_all(map.values());
    }
    for name in ["x", "y"] {
        if let Ok(field) = column.field(name) {
            read_all(&field);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn no_input_panics(
        nodes in prop::collection::vec(arbitrary_node(), 0..5),
        rows in 0..5_u32,
        data_type in prop::sample::select(vec![
            "boolean", "bigint", "decimal(5,2)", "string", "binary", "array<string>", "array<array<bigint>>",
            "map<string,bigint>", "struct<x:string>", "struct<x:boolean,y:array<string>>",
        ]),
    ) {
        let (access, input) = (reads(data_type), Columns { rows, nodes });
        if let Ok(batch) = Batch::new(access.read(), &input)
            && let Ok(column) = batch.column("a") {
                read_all(&column);
            }
    }
}

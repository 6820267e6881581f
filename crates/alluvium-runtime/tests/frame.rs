//! Rows that are kept, repeated, dropped; columns read and written at paths.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_runtime::frame::Frame;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, StringArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields};
use proptest::prelude::*;
use std::sync::Arc;

fn frame(records: &[u32]) -> Frame {
    let ids: ArrayRef = Arc::new(records.iter().enumerate().map(|(row, _)| Some(row as i64)).collect::<Int64Array>());
    let names: ArrayRef = Arc::new(records.iter().map(|record| Some(format!("r{record}"))).collect::<StringArray>());
    let fields = Fields::from(vec![Field::new("name", DataType::Utf8, true), Field::new("id", DataType::Int64, true)]);
    let nulls = NullBuffer::from(records.iter().map(|record| record % 3 != 0).collect::<Vec<_>>());
    let nested = StructArray::new(fields, vec![names, ids.clone()], Some(nulls));
    Frame::new(vec![("id".to_owned(), ids), ("nested".to_owned(), Arc::new(nested))], records.to_vec())
}

fn ids(frame: &Frame) -> Vec<Option<i64>> {
    frame.column("id").unwrap().as_primitive::<Int64Type>().iter().collect()
}

fn path(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

#[test]
fn a_field_is_null_where_its_struct_is() {
    let frame = frame(&[0, 1, 2, 3]);
    let names = frame.read(&path(&["nested", "name"]), &DataType::Utf8).unwrap();
    let names: Vec<_> = names.as_string::<i32>().iter().collect();
    assert_eq!(names, [None, Some("r1"), Some("r2"), None]);
}

#[test]
fn what_is_not_there_reads_as_null_and_another_type_is_refused() {
    let frame = frame(&[0, 1]);
    for parts in [&["absent"][..], &["nested", "absent"], &["id", "inner"], &[]] {
        let read = frame.read(&path(parts), &DataType::Utf8).unwrap();
        assert_eq!((read.len(), read.null_count()), (2, 2), "{parts:?}");
    }
    assert!(frame.read(&path(&["id"]), &DataType::Utf8).is_err());
}

#[test]
fn a_written_field_leaves_its_siblings_and_its_structs_nulls() {
    let mut frame = frame(&[0, 1, 2]);
    frame.write(&path(&["nested", "name"]), Arc::new(StringArray::from(vec!["a", "b", "c"]))).unwrap();
    frame.write(&path(&["new"]), Arc::new(Int64Array::from(vec![7, 8, 9]))).unwrap();
    let names = frame.read(&path(&["nested", "name"]), &DataType::Utf8).unwrap();
    assert_eq!(names.as_string::<i32>().iter().collect::<Vec<_>>(), [None, Some("b"), Some("c")]);
    let nested_ids = frame.read(&path(&["nested", "id"]), &DataType::Int64).unwrap();
    assert_eq!(nested_ids.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [None, Some(1), Some(2)]);
    assert!(frame.column("new").is_some());
    assert!(frame.write(&path(&["nested", "absent"]), Arc::new(Int64Array::from(vec![1, 2, 3]))).is_err());
    assert!(frame.write(&path(&["absent", "x"]), Arc::new(Int64Array::from(vec![1, 2, 3]))).is_err());
}

proptest! {
    #[test]
    fn rows_are_kept_in_order_and_repeated(
        records in prop::collection::vec(0u32..20, 0..30).prop_map(|mut records| { records.sort_unstable(); records }),
        picks in prop::collection::vec((0usize..30, 1usize..4), 0..30),
    ) {
        let mut kept: Vec<u32> = Vec::new();
        for (row, times) in picks {
            if row < records.len() {
                kept.extend(std::iter::repeat_n(row as u32, times));
            }
        }
        kept.sort_unstable();
        let mut frame = frame(&records);
        frame.keep(&kept).unwrap();
        prop_assert_eq!(ids(&frame), kept.iter().map(|row| Some(i64::from(*row))).collect::<Vec<_>>());
        let wanted: Vec<u32> = kept.iter().map(|row| records[*row as usize]).collect();
        prop_assert_eq!(frame.records(), &wanted);
        frame.drop_records(|record| record % 2 == 0).unwrap();
        prop_assert!(frame.records().iter().all(|record| record % 2 == 1));
        prop_assert_eq!(frame.rows(), wanted.iter().filter(|record| **record % 2 == 1).count());
        prop_assert_eq!(frame.column("nested").unwrap().len(), frame.rows());
    }
}

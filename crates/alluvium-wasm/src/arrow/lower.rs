//! Arrow arrays to nodes.
//!
//! Buffers are handed on without a copy wherever the slice allows it. What a plugin sees depends on
//! the values alone, not on the array they were sliced from: offsets start at 0, and bits past the
//! end are 0.

use super::layout;
use crate::contract::{Layout, Node};
use crate::error::InputProblem;
use alluvium_core::DataType;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrowPrimitiveType};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType as ArrowType;

/// Appends the nodes of a column; `arrow` is the Arrow type of `data_type`, and must be the array's.
pub(crate) fn lower_column<'a>(
    name: &'a str,
    data_type: &'a DataType,
    arrow: &ArrowType,
    array: &dyn Array,
    nodes: &mut Vec<Node<'a>>,
) -> Result<(), InputProblem> {
    // Names of lists' and maps' inner fields may differ, as readers of files make them.
    let same = array.data_type() == arrow || DataType::from_arrow(array.data_type()).as_ref() == Some(data_type);
    if !same {
        return Err(mismatch(name, data_type, array));
    }
    lower(name, data_type, array, nodes)
}

fn mismatch(name: &str, data_type: &DataType, array: &dyn Array) -> InputProblem {
    InputProblem::Type {
        column: name.to_owned(),
        expected: data_type.to_arrow().to_string(),
        found: array.data_type().to_string(),
    }
}

fn lower<'a>(
    name: &'a str,
    data_type: &'a DataType,
    array: &dyn Array,
    nodes: &mut Vec<Node<'a>>,
) -> Result<(), InputProblem> {
    let length = u32::try_from(array.len()).map_err(|_| InputProblem::TooMany)?;
    let wrong = || mismatch(name, data_type, array);
    let mut node = Node {
        name,
        layout: layout(data_type),
        children: 0,
        length,
        validity: array.nulls().and_then(validity),
        offsets: None,
        values: Buffer::default(),
    };
    match data_type {
        DataType::Boolean => node.values = bits(array.as_boolean_opt().ok_or_else(wrong)?.values()),
        DataType::TinyInt => node.values = fixed::<Int8Type>(array).ok_or_else(wrong)?,
        DataType::SmallInt => node.values = fixed::<Int16Type>(array).ok_or_else(wrong)?,
        DataType::Int => node.values = fixed::<Int32Type>(array).ok_or_else(wrong)?,
        DataType::BigInt => node.values = fixed::<Int64Type>(array).ok_or_else(wrong)?,
        DataType::Float => node.values = fixed::<Float32Type>(array).ok_or_else(wrong)?,
        DataType::Double => node.values = fixed::<Float64Type>(array).ok_or_else(wrong)?,
        DataType::Decimal(..) => node.values = fixed::<Decimal128Type>(array).ok_or_else(wrong)?,
        DataType::Date => node.values = fixed::<Date32Type>(array).ok_or_else(wrong)?,
        DataType::Timestamp | DataType::TimestampNtz => {
            node.values = fixed::<TimestampMicrosecondType>(array).ok_or_else(wrong)?;
        }
        DataType::String => {
            let array = array.as_string_opt::<i32>().ok_or_else(wrong)?;
            let (offsets, start, bytes) = rebased(array.offsets());
            node.offsets = Some(offsets);
            node.values = array.values().slice_with_length(start, bytes);
        }
        DataType::Binary => {
            let array = array.as_binary_opt::<i32>().ok_or_else(wrong)?;
            let (offsets, start, bytes) = rebased(array.offsets());
            node.offsets = Some(offsets);
            node.values = array.values().slice_with_length(start, bytes);
        }
        DataType::Array(element) => {
            let array = array.as_list_opt::<i32>().ok_or_else(wrong)?;
            let (offsets, start, values) = rebased(array.offsets());
            node.offsets = Some(offsets);
            node.children = 1;
            nodes.push(node);
            return lower("element", element, &array.values().slice(start, values), nodes);
        }
        DataType::Map(key, value) => {
            let array = array.as_map_opt().ok_or_else(wrong)?;
            let (offsets, start, entries) = rebased(array.offsets());
            node.offsets = Some(offsets);
            node.children = 1;
            let length = u32::try_from(entries).map_err(|_| InputProblem::TooMany)?;
            nodes.push(node);
            nodes.push(Node {
                name: "key_value",
                layout: Layout::Struct,
                children: 2,
                length,
                validity: None,
                offsets: None,
                values: Buffer::default(),
            });
            lower("key", key, &array.keys().slice(start, entries), nodes)?;
            return lower("value", value, &array.values().slice(start, entries), nodes);
        }
        DataType::Struct(fields) => {
            let array = array.as_struct_opt().ok_or_else(wrong)?;
            if array.num_columns() != fields.len() {
                return Err(wrong());
            }
            node.children = u32::try_from(fields.len()).map_err(|_| InputProblem::TooMany)?;
            nodes.push(node);
            for (field, column) in fields.iter().zip(array.columns()) {
                lower(&field.name, &field.data_type, column, nodes)?;
            }
            return Ok(());
        }
    }
    nodes.push(node);
    Ok(())
}

fn fixed<T: ArrowPrimitiveType>(array: &dyn Array) -> Option<Buffer> {
    array.as_primitive_opt::<T>().map(|array| array.values().inner().clone())
}

/// The bitmap of a column that has nulls.
fn validity(nulls: &NullBuffer) -> Option<Buffer> {
    (nulls.null_count() > 0).then(|| bits(nulls.inner()))
}

/// The bits from the start of a byte, in as many bytes as they need, those past the end 0.
fn bits(bits: &BooleanBuffer) -> Buffer {
    let bytes = bits.len().div_ceil(8);
    let buffer = bits.sliced();
    let buffer = if buffer.len() > bytes { buffer.slice_with_length(0, bytes) } else { buffer };
    let used = bits.len() % 8;
    let mask = if used == 0 { 0xFF } else { (1_u8 << used) - 1 };
    if buffer.last().is_none_or(|last| last & !mask == 0) {
        return buffer;
    }
    let mut copy = MutableBuffer::from(buffer.to_vec());
    if let Some(last) = copy.as_slice_mut().last_mut() {
        *last &= mask;
    }
    copy.into()
}

/// Offsets from 0, with the start and length of the window that they had.
fn rebased(offsets: &OffsetBuffer<i32>) -> (ScalarBuffer<i32>, usize, usize) {
    let first = offsets.first().copied().unwrap_or(0);
    let last = offsets.last().copied().unwrap_or(first);
    // An Arrow array's offsets never fall and are never negative.
    let (start, length) = (first as usize, (last - first) as usize);
    let rebased =
        if first == 0 { offsets.inner().clone() } else { offsets.iter().map(|offset| offset - first).collect() };
    (rebased, start, length)
}

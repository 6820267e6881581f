//! Nodes to Arrow arrays. Nothing in a node is trusted: every length, offset, bitmap, text and range
//! is checked before an array is made of it.

use super::layout;
use crate::contract::{Layout, RawNode};
use crate::error::tame;
use crate::output::OutputError;
use alluvium_core::DataType;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, MapArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType as ArrowType, FieldRef};
use std::fmt;
use std::sync::Arc;

/// The days from 0001-01-01 to 9999-12-31: what Delta's readers agree on.
const DAYS: std::ops::RangeInclusive<i32> = -719_162..=2_932_896;
/// The same in microseconds.
const MICROS: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// The nodes that a plugin returned, taken in preorder.
pub(crate) struct Nodes(std::vec::IntoIter<RawNode>);

impl Nodes {
    pub fn new(nodes: Vec<RawNode>) -> Self {
        Self(nodes.into_iter())
    }

    /// Nothing may be left over once all columns are taken.
    pub fn finish(self) -> Result<(), OutputError> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(OutputError::NodesLeft { left }),
        }
    }
}

/// Takes a column of `length` values off the nodes; the array has the type `arrow`, which is the Arrow
/// type of `data_type`.
pub(crate) fn lift_column(
    name: &str,
    data_type: &DataType,
    arrow: &ArrowType,
    length: usize,
    nodes: &mut Nodes,
) -> Result<ArrayRef, OutputError> {
    lift(&Path { parent: None, name }, data_type, arrow, Some(length), nodes)
}

/// Where a node stands, for errors.
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    name: &'a str,
}

impl Path<'_> {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)
    }
}

/// `length` is `None` for the child of a list, whose length is its own.
fn lift(
    at: &Path<'_>,
    data_type: &DataType,
    arrow: &ArrowType,
    length: Option<usize>,
    nodes: &mut Nodes,
) -> Result<ArrayRef, OutputError> {
    let node = take(at, layout(data_type), length, nodes)?;
    let children = match data_type {
        DataType::Array(_) | DataType::Map(..) => 1,
        DataType::Struct(fields) => fields.len(),
        _ => 0,
    };
    check_children(at, &node, children)?;
    let length = node.length as usize;
    let nulls = nulls(at, &node)?;
    match (data_type, arrow) {
        (DataType::Boolean, _) => {
            no_offsets(at, &node)?;
            check_values(at, &node, length.div_ceil(8))?;
            let values = BooleanBuffer::new(Buffer::from_vec(node.values), 0, length);
            Ok(Arc::new(BooleanArray::new(values, nulls)))
        }
        (DataType::TinyInt, _) => fixed::<Int8Type>(at, node, nulls, arrow, |_, _| Ok(())),
        (DataType::SmallInt, _) => fixed::<Int16Type>(at, node, nulls, arrow, |_, _| Ok(())),
        (DataType::Int, _) => fixed::<Int32Type>(at, node, nulls, arrow, |_, _| Ok(())),
        (DataType::BigInt, _) => fixed::<Int64Type>(at, node, nulls, arrow, |_, _| Ok(())),
        (DataType::Float, _) => fixed::<Float32Type>(at, node, nulls, arrow, |_, _| Ok(())),
        (DataType::Double, _) => fixed::<Float64Type>(at, node, nulls, arrow, |_, _| Ok(())),
        (DataType::Decimal(precision, scale), _) => {
            let (precision, scale) = (*precision, *scale);
            let end = 10_u128.checked_pow(u32::from(precision)).unwrap_or(u128::MAX);
            fixed::<Decimal128Type>(at, node, nulls, arrow, |row, value| {
                let fits = value.unsigned_abs() < end;
                fits.then_some(()).ok_or_else(|| OutputError::Decimal { column: at.text(), row, precision, scale })
            })
        }
        (DataType::Date, _) => fixed::<Date32Type>(at, node, nulls, arrow, |row, value| {
            let fits = DAYS.contains(&value);
            fits.then_some(()).ok_or_else(|| OutputError::Range { column: at.text(), row, what: "date" })
        }),
        (DataType::Timestamp | DataType::TimestampNtz, _) => {
            fixed::<TimestampMicrosecondType>(at, node, nulls, arrow, |row, value| {
                let fits = MICROS.contains(&value);
                fits.then_some(()).ok_or_else(|| OutputError::Range { column: at.text(), row, what: "timestamp" })
            })
        }
        (DataType::String, _) => {
            let end = node.values.len();
            let offsets = offsets(at, node.offsets, length, end)?;
            let values = Buffer::from_vec(node.values);
            let array = StringArray::try_new(offsets.clone(), values.clone(), nulls);
            Ok(Arc::new(array.map_err(|error| not_text(at, &offsets, &values, &error))?))
        }
        (DataType::Binary, _) => {
            let end = node.values.len();
            let offsets = offsets(at, node.offsets, length, end)?;
            let array = BinaryArray::try_new(offsets, Buffer::from_vec(node.values), nulls);
            Ok(Arc::new(array.map_err(|error| not_an_array(at, &error))?))
        }
        (DataType::Array(element), ArrowType::List(field)) => {
            check_values(at, &node, 0)?;
            let path = Path { parent: Some(at), name: "element" };
            let values = lift(&path, element, field.data_type(), None, nodes)?;
            let offsets = offsets(at, node.offsets, length, values.len())?;
            let array = ListArray::try_new(FieldRef::clone(field), offsets, values, nulls);
            Ok(Arc::new(array.map_err(|error| not_an_array(at, &error))?))
        }
        (DataType::Map(key, value), ArrowType::Map(field, ordered)) => {
            check_values(at, &node, 0)?;
            let entries = entries(at, key, value, field, nodes)?;
            let offsets = offsets(at, node.offsets, length, entries.len())?;
            let array = MapArray::try_new(FieldRef::clone(field), offsets, entries, nulls, *ordered);
            Ok(Arc::new(array.map_err(|error| not_an_array(at, &error))?))
        }
        (DataType::Struct(fields), ArrowType::Struct(arrow_fields)) => {
            no_offsets(at, &node)?;
            check_values(at, &node, 0)?;
            let mut columns = Vec::with_capacity(fields.len());
            for (field, arrow_field) in fields.iter().zip(arrow_fields) {
                check_name(at, &field.name, nodes)?;
                let path = Path { parent: Some(at), name: &field.name };
                columns.push(lift(&path, &field.data_type, arrow_field.data_type(), Some(length), nodes)?);
            }
            let array = StructArray::try_new_with_length(arrow_fields.clone(), columns, nulls, length);
            Ok(Arc::new(array.map_err(|error| not_an_array(at, &error))?))
        }
        (_, other) => {
            Err(OutputError::Array { column: at.text(), problem: format!("{data_type} is not held by {other}") })
        }
    }
}

/// A map's entries: a struct of key and value without nulls, whose length is its own.
fn entries(
    at: &Path<'_>,
    key: &DataType,
    value: &DataType,
    field: &FieldRef,
    nodes: &mut Nodes,
) -> Result<StructArray, OutputError> {
    let at = Path { parent: Some(at), name: "key_value" };
    let node = take(&at, Layout::Struct, None, nodes)?;
    check_children(&at, &node, 2)?;
    no_offsets(&at, &node)?;
    check_values(&at, &node, 0)?;
    let no_null = |array: Option<&NullBuffer>| match array.and_then(|nulls| nulls.iter().position(|valid| !valid)) {
        Some(row) => Err(OutputError::NullKey { column: at.text(), row }),
        None => Ok(()),
    };
    no_null(nulls(&at, &node)?.as_ref())?;
    let ArrowType::Struct(fields) = field.data_type() else {
        return Err(OutputError::Array { column: at.text(), problem: "its entries are no struct".to_owned() });
    };
    let length = node.length as usize;
    let mut columns = Vec::with_capacity(2);
    for ((name, data_type), arrow_field) in [("key", key), ("value", value)].into_iter().zip(fields) {
        let path = Path { parent: Some(&at), name };
        columns.push(lift(&path, data_type, arrow_field.data_type(), Some(length), nodes)?);
    }
    no_null(columns.first().and_then(|keys| keys.nulls()))?;
    StructArray::try_new_with_length(fields.clone(), columns, None, length).map_err(|error| not_an_array(&at, &error))
}

/// The next node, with the layout and length that the column's type needs.
fn take(at: &Path<'_>, layout: Layout, length: Option<usize>, nodes: &mut Nodes) -> Result<RawNode, OutputError> {
    let node = nodes.0.next().ok_or_else(|| OutputError::NodeMissing { column: at.text() })?;
    if node.layout != layout {
        return Err(OutputError::Layout { column: at.text(), expected: layout, found: node.layout });
    }
    match length {
        Some(expected) if expected != node.length as usize => {
            Err(OutputError::Length { column: at.text(), expected, found: node.length })
        }
        _ => Ok(node),
    }
}

fn check_children(at: &Path<'_>, node: &RawNode, expected: usize) -> Result<(), OutputError> {
    if node.children as usize == expected {
        return Ok(());
    }
    Err(OutputError::Children { column: at.text(), expected, found: node.children })
}

/// A struct's fields come in the order of its type. Taken by place alone, two fields of one type that
/// changed places would pass for each other.
fn check_name(at: &Path<'_>, expected: &str, nodes: &Nodes) -> Result<(), OutputError> {
    match nodes.0.as_slice().first() {
        Some(node) if node.name != expected => {
            Err(OutputError::Name { column: format!("{at}.{}", tame(&node.name)), expected: expected.to_owned() })
        }
        _ => Ok(()),
    }
}

fn check_values(at: &Path<'_>, node: &RawNode, expected: usize) -> Result<(), OutputError> {
    if node.values.len() == expected {
        return Ok(());
    }
    Err(OutputError::Values { column: at.text(), expected, found: node.values.len() })
}

fn no_offsets(at: &Path<'_>, node: &RawNode) -> Result<(), OutputError> {
    match node.offsets {
        None => Ok(()),
        Some(_) => Err(OutputError::OffsetsUnexpected { column: at.text() }),
    }
}

fn nulls(at: &Path<'_>, node: &RawNode) -> Result<Option<NullBuffer>, OutputError> {
    let Some(bitmap) = &node.validity else { return Ok(None) };
    let expected = (node.length as usize).div_ceil(8);
    if bitmap.len() != expected {
        return Err(OutputError::Validity { column: at.text(), expected, found: bitmap.len() });
    }
    let bits = BooleanBuffer::new(Buffer::from(bitmap.as_slice()), 0, node.length as usize);
    Ok(Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0))
}

/// Values of a fixed width; `check` judges those that are there.
fn fixed<T: ArrowPrimitiveType>(
    at: &Path<'_>,
    node: RawNode,
    nulls: Option<NullBuffer>,
    arrow: &ArrowType,
    check: impl Fn(usize, T::Native) -> Result<(), OutputError>,
) -> Result<ArrayRef, OutputError> {
    no_offsets(at, &node)?;
    let expected = (node.length as usize).checked_mul(size_of::<T::Native>());
    check_values(at, &node, expected.unwrap_or(usize::MAX))?;
    let values = ScalarBuffer::<T::Native>::from(aligned::<T::Native>(node.values));
    for (row, value) in values.iter().enumerate() {
        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
            check(row, *value)?;
        }
    }
    let array = PrimitiveArray::<T>::try_new(values, nulls).map_err(|error| not_an_array(at, &error))?;
    // `with_data_type` panics on another type than the values'.
    if std::mem::discriminant(arrow) != std::mem::discriminant(&T::DATA_TYPE) {
        return Err(OutputError::Array { column: at.text(), problem: format!("{arrow} does not hold its values") });
    }
    Ok(Arc::new(array.with_data_type(arrow.clone())))
}

/// Bytes where values of `T` may lie. Bytes from a plugin are aligned to one byte only.
fn aligned<T>(bytes: Vec<u8>) -> Buffer {
    if bytes.as_ptr().align_offset(align_of::<T>()) == 0 {
        return Buffer::from_vec(bytes);
    }
    Buffer::from(bytes.as_slice())
}

/// `length + 1` offsets that rise from 0 or above to `end` or below.
fn offsets(
    at: &Path<'_>,
    offsets: Option<Vec<i32>>,
    length: usize,
    end: usize,
) -> Result<OffsetBuffer<i32>, OutputError> {
    let offsets = offsets.ok_or_else(|| OutputError::OffsetsMissing { column: at.text() })?;
    let expected = length.saturating_add(1);
    if offsets.len() != expected {
        return Err(OutputError::OffsetsLength { column: at.text(), expected, found: offsets.len() });
    }
    let mut before = 0;
    for (row, offset) in offsets.iter().copied().enumerate() {
        if offset < before || offset as usize > end {
            return Err(OutputError::Offset { column: at.text(), row, offset, end });
        }
        before = offset;
    }
    Ok(OffsetBuffer::new(offsets.into()))
}

/// Which value made `StringArray` refuse the bytes.
fn not_text(at: &Path<'_>, offsets: &OffsetBuffer<i32>, values: &[u8], error: &ArrowError) -> OutputError {
    let bad = offsets.windows(2).position(|pair| {
        let value = values.get(pair[0] as usize..pair[1] as usize).unwrap_or_default();
        std::str::from_utf8(value).is_err()
    });
    match bad {
        Some(row) => OutputError::Utf8 { column: at.text(), row },
        None => not_an_array(at, error),
    }
}

fn not_an_array(at: &Path<'_>, error: &ArrowError) -> OutputError {
    OutputError::Array { column: at.text(), problem: error.to_string() }
}

//! Arrow arrays as the contract's nodes, and back.

mod lift;
mod lower;

pub(crate) use lift::{Nodes, lift_column};
pub(crate) use lower::lower_column;

use crate::contract::Layout;
use alluvium_core::DataType;
use arrow_array::ArrayRef;

#[cfg(target_endian = "big")]
compile_error!("plugins' buffers are little endian, as Arrow's are on little-endian machines only");

/// How values of a type lie in a node.
pub(crate) fn layout(data_type: &DataType) -> Layout {
    match data_type {
        DataType::Boolean => Layout::Boolean,
        DataType::TinyInt => Layout::Fixed1,
        DataType::SmallInt => Layout::Fixed2,
        DataType::Int | DataType::Float | DataType::Date => Layout::Fixed4,
        DataType::BigInt | DataType::Double | DataType::Timestamp | DataType::TimestampNtz => Layout::Fixed8,
        DataType::Decimal(..) => Layout::Fixed16,
        DataType::String => Layout::Utf8,
        DataType::Binary => Layout::Bytes,
        DataType::Array(_) => Layout::List,
        DataType::Map(..) => Layout::Map,
        DataType::Struct(_) => Layout::Struct,
    }
}

/// Arrays one after the other; a single one is handed through.
pub(crate) fn concat(arrays: &[ArrayRef]) -> Result<ArrayRef, String> {
    if let [array] = arrays {
        return Ok(ArrayRef::clone(array));
    }
    let arrays: Vec<_> = arrays.iter().map(AsRef::as_ref).collect();
    arrow_select::concat::concat(&arrays).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;

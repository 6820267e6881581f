//! Plugins over columns: the usual kind.
//!
//! `access` says once which columns are read and written; `transform` is called with a batch of
//! rows at a time. What `transform` is given of a batch are the columns read; what it answers goes
//! into the [`Edit`]: which rows stay, which are rejected, and the columns written.

mod access;
mod batch;
mod buffer;
mod edit;
#[cfg(test)]
mod tests;
mod value;
mod views;

pub use crate::{Date, Decimal, Error, NoConfig, Result, Timestamp, Type};
pub use access::Access;
pub use batch::{Batch, Column, Row, Rows};
pub use edit::{Edit, Outcome};
pub use value::{Entries, Fields, Items, Text, Value};
pub use views::{
    BigInts, Binaries, Booleans, Dates, Decimals, Doubles, Fixed, Floats, Ints, Lists, Maps, Primitive, SmallInts,
    Strings, Timestamps, TinyInts,
};

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use access::Declared;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use buffer::Buffer;

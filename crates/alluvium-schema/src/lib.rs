//! From JSON records to typed columns, exactly.
//!
//! - [`Plan`]: a mapping plan: which columns, of which type, from which path, and what to do when a
//!   value does not fit. Plain data: printed, diffed, stored, digested.
//! - [`Shape`]: what was observed of records; [`Plan::grow`] turns it into columns.
//! - [`Decoder`]: runs a plan over the bytes of many records and makes one Arrow batch of them.
//!   Whatever does not fit is rescued beside the row, rejects the record, or stops the pipeline;
//!   nothing is cut, wrapped or nulled in silence.
//!
//! This crate is pure: no clock, files, network, environment. What a record becomes depends on the
//! record and the plan alone.

mod decode;
mod error;
mod infer;
mod json;
pub mod path;
mod plan;
mod rescue;
mod shape;

pub use decode::{Decoded, Decoder, Reject, Stop};
pub use error::{DecodeError, GrowError, PlanError};
pub use plan::{COERCIONS, Coercion, Column, ColumnSpec, Evolve, OnConflict, Plan, PlanOptions};
pub use shape::{Kind, Shape};

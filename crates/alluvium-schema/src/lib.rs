//! From JSON records to typed columns, exactly.
//!
//! - [`Plan`]: a mapping plan: which columns, of which type, from which path, and what to do when a
//!   value does not fit. Plain data: printed, diffed, stored, digested.
//! - [`Shape`]: what was observed of records; [`Plan::grow`] turns it into columns.
//! - [`Decoder`]: runs a plan over the bytes of many records and makes one Arrow batch of them.
//!   Whatever does not fit is rescued beside the row, rejects the record, or stops the pipeline;
//!   nothing is cut, wrapped or nulled in silence.
//!
//! ```
//! use alluvium_core::Packed;
//! use alluvium_schema::{Decoder, Plan, PlanOptions, Shape};
//! use std::sync::Arc;
//!
//! let records: Packed = [br#"{"id":1,"tags":["a"]}"#.as_slice(), br#"{"id":"2"}"#].into_iter().map(Some).collect();
//! let mut shape = Shape::default();
//! shape.observe(br#"{"id":1,"tags":["a"]}"#);
//! let plan = Plan::inferred(PlanOptions::default()).grow(&shape).unwrap().unwrap();
//! let columns = plan.columns().iter().map(|column| column.data_type.to_string()).collect::<Vec<_>>();
//! assert_eq!(columns, ["bigint", "array<string>"]);
//!
//! let decoded = Decoder::new(Arc::new(plan)).decode(&records).unwrap();
//! // The second id is no bigint: it is null there, and kept in the rescued column.
//! assert_eq!((decoded.batch.num_rows(), decoded.batch.num_columns()), (2, 3));
//! ```
//!
//! [`additions`] tells what a plan would add to a table, and [`Rescued`] what is kept in a rescued column and why.
//!
//! This crate is pure: no clock, files, network, environment. What a record becomes depends on the
//! record and the plan alone.

mod additions;
mod decode;
mod error;
mod infer;
mod json;
pub mod path;
mod plan;
mod rescue;
mod rescued;
mod shape;

pub use additions::{Addition, additions, select};
pub use alluvium_core::{Coercion, Derivation, Evolve, OnConflict};
pub use decode::{Decoded, Decoder, Reject, Stop};
pub use error::{DecodeError, GrowError, PlanError};
pub use plan::{COERCIONS, Column, ColumnSpec, Plan, PlanOptions};
pub use rescued::{Reading, Rescued, RescuedField, Target, Why};
pub use shape::{Kind, Shape};

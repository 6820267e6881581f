//! Schema mappings: which columns the table gets, and which fields of the records fill them.
//!
//! `plan` is called when records of a shape appear that was not seen before, not for each batch: what
//! it puts into the [`Plan`] is carried out by the host. Fields that it names neither as columns nor
//! as drops are left to the pipeline's `evolve`.
//!
//! ```
//! use alluvium_plugin::mapping::{Coercion, NoConfig, OnConflict, Plan, Result, Shape, Table};
//!
//! fn plan(_: &NoConfig, shape: &Shape, _: Option<&Table>, plan: &mut Plan) -> Result<()> {
//!     if shape.field("amount.price").is_some() {
//!         let price = plan.column("price", "decimal(10,2)").from("amount.price");
//!         price.coerce(Coercion::ParseString).on_conflict(OnConflict::Rescue).comment("in euros");
//!     }
//!     if shape.field("event_time").is_some() {
//!         plan.column("event_time", "timestamp");
//!         plan.column("day", "date").date_of("event_time");
//!     }
//!     plan.drop("debug");
//!     Ok(())
//! }
//!
//! alluvium_plugin::mapping_plugin! { config: NoConfig, plan: plan }
//!
//! # fn main() {
//! use alluvium_plugin::testing::{json, run_plan};
//! let sample = [json!({ "amount": { "price": "9.90" }, "debug": true })];
//! let outcome = run_plan(&PLUGIN, json!({}), &sample, None).unwrap();
//! assert_eq!(outcome.column("price").unwrap().path, "amount.price");
//! assert!(outcome.column("day").is_none());
//! assert_eq!(outcome.drops, ["debug"]);
//! # }
//! ```

mod plan;
mod shape;

pub use crate::{Error, NoConfig, Result};
pub use plan::{Column, Plan};
pub use serde_json::{Value, json};
pub use shape::{Field, Fields, Kinds, Shape, Table, TableColumn};

/// A wider reading of a value than its type's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coercion {
    /// No wider reading.
    #[default]
    None,
    /// Numbers and booleans may stand in a string, spelled as JSON spells them.
    ParseString,
    /// A string column takes the JSON text of any value.
    JsonText,
    /// A timestamp is a number of seconds since the epoch.
    EpochS,
    /// A timestamp is a number of milliseconds since the epoch.
    EpochMs,
    /// A timestamp is a number of microseconds since the epoch.
    EpochUs,
    /// A timestamp is a number of nanoseconds since the epoch.
    EpochNs,
    /// A date is a whole number of days since the epoch.
    EpochDays,
}

/// What a column takes of a value instead of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// Of a timestamp, the date in UTC.
    Date,
    /// Of a string, what stands before the first occurrence of the separator.
    Before(String),
    /// The same, what stands after it.
    After(String),
}

/// What becomes of a value that does not fit its column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// The record goes to the dead letters.
    #[default]
    Reject,
    /// Null in the column; the value is kept in the rescue column.
    Rescue,
    /// The pipeline stops.
    Stop,
}

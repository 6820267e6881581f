//! Runs a plugin on this machine, in an ordinary `#[test]`: rows and records go in as JSON or
//! text, and come out so. The plugin is the `PLUGIN` that the macro made in the plugin's crate.
//!
//! ```
//! use alluvium_plugin::column::{Access, Batch, Edit, NoConfig, Result};
//! use alluvium_plugin::testing::{self, json};
//!
//! fn access(_: &NoConfig, access: &mut Access) -> Result<()> {
//!     access.reads("price", "decimal(10,2)").writes("free", "boolean");
//!     Ok(())
//! }
//!
//! fn transform(_: &NoConfig, batch: &Batch, edit: &mut Edit) -> Result<()> {
//!     let price = batch.decimal("price")?;
//!     edit.boolean("free", |row| price.get(row).map(|price| price == 0.into()))
//! }
//!
//! alluvium_plugin::column_plugin! { config: NoConfig, access: access, transform: transform }
//!
//! # fn main() {
//! let outcome = testing::run_rows(&PLUGIN, json!({}), &[json!({ "price": 0.00 }), json!({ "price": 1.5 })]).unwrap();
//! assert_eq!(outcome.rows, [json!({ "price": 0.00, "free": true }), json!({ "price": 1.5, "free": false })]);
//! # }
//! ```

mod plans;
mod records;
mod rows;

pub use plans::{PlanOutcome, PlannedColumn, run_plan};
pub use records::{Input, Output, RecordsOutcome, run_records};
pub use rows::{RowsOutcome, run_rows};
pub use serde_json::{Value, json};

/// JSON text as a value: for `config_schema`, or for rows that are at hand as text.
pub fn parse(text: &str) -> crate::Result<Value> {
    Ok(serde_json::from_str(text)?)
}

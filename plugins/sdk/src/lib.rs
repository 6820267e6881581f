//! Write alluvium plugins in Rust: a **column plugin** is one function over named, typed columns
//! ([`mod@column`]), a **record plugin** one function over a record's bytes ([`record`]), a **mapping
//! plugin** one function from what the records are like to the table's columns ([`mapping`]).
//!
//! A plugin is a pure function of its input and its configuration: it has no clock, no randomness,
//! no files and no network. The configuration is the pipeline file's `with = {…}`, read into a type
//! of yours; give that `#[serde(deny_unknown_fields)]`, so that a misspelt key is an error.
//!
//! A column plugin that drops the rows of test orders and upper-cases a country's code:
//!
//! ```
//! use alluvium_plugin::column::{Access, Batch, Edit, Result};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Config {
//!     country: String,
//! }
//!
//! fn access(config: &Config, access: &mut Access) -> Result<()> {
//!     access.reads("test", "boolean").changes(&config.country, "string");
//!     Ok(())
//! }
//!
//! fn transform(config: &Config, batch: &Batch, edit: &mut Edit) -> Result<()> {
//!     let test = batch.boolean("test")?;
//!     edit.keep(|row| test.get(row) != Some(true));
//!     let country = batch.string(&config.country)?;
//!     edit.string(&config.country, |row| country.get(row).map(str::to_uppercase))
//! }
//!
//! alluvium_plugin::column_plugin! { config: Config, access: access, transform: transform }
//! # fn main() {}
//! ```
//!
//! Its name, version and summary are those of its `Cargo.toml`, which needs
//! `[lib] crate-type = ["cdylib"]`. `testing` runs a plugin over rows or records on this
//! machine, in an ordinary `#[test]`.

#[doc(hidden)]
pub mod bindings;
mod decimal;
mod error;
mod path;
mod time;
mod types;

pub mod column;
pub mod mapping;
pub mod record;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

#[doc(hidden)]
pub mod export;

pub use decimal::{Decimal, NotADecimal};
pub use error::{Error, Result};
pub use path::Path;
pub use time::{Date, NotATime, Timestamp};
pub use types::Type;

/// The configuration of a plugin that takes none: anything set is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

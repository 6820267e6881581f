//! Drops test rows, masks the local part of email addresses, derives a date from a timestamp.

use alluvium_plugin::column::{Access, Batch, Edit, Result};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Columns of strings whose local part is masked.
    fields: Vec<String>,
    /// Whether rows whose `test` is true are dropped.
    drop_test: bool,
    /// The timestamp that the date is derived from; null derives none.
    date_from: Option<String>,
    date_column: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            fields: Vec::new(),
            drop_test: true,
            date_from: Some("event_time".to_owned()),
            date_column: "order_date".to_owned(),
        }
    }
}

fn access(config: &Config, access: &mut Access) -> Result<()> {
    if config.drop_test {
        access.reads("test", "boolean");
    }
    for field in &config.fields {
        access.changes(field, "string");
    }
    if let Some(from) = &config.date_from {
        access.reads(from, "timestamp").writes(&config.date_column, "date");
    }
    Ok(())
}

fn transform(config: &Config, batch: &Batch, edit: &mut Edit) -> Result<()> {
    if config.drop_test {
        let test = batch.boolean("test")?;
        edit.keep(|row| test.get(row) != Some(true));
    }
    for field in &config.fields {
        let values = batch.string(field)?;
        edit.string_with(field, |row, masked| {
            let value = values.get(row)?;
            masked.push_str("***");
            masked.push_str(domain(value));
            Some(())
        })?;
    }
    if let Some(from) = &config.date_from {
        let times = batch.timestamp(from)?;
        edit.date(&config.date_column, |row| times.get(row).map(|time| time.date()))?;
    }
    Ok(())
}

/// What follows the local part, the last @ included; empty without one.
fn domain(address: &str) -> &str {
    address.rfind('@').and_then(|at| address.get(at..)).unwrap_or_default()
}

alluvium_plugin::column_plugin! {
    config: Config,
    access: access,
    transform: transform,
    config_schema: include_str!("config.schema.json"),
}

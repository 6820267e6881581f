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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alluvium_plugin::testing::{Value, json, run_rows};

    #[test]
    fn an_order() {
        let rows = [
            json!({ "id": 1, "customer": { "email": "user7@x.com" }, "event_time": "2026-03-01T23:59:59.9Z" }),
            json!({ "id": 2, "customer": { "email": "user8@x.com" }, "test": true }),
            json!({ "id": 3, "customer": { "email": null }, "test": false, "event_time": "1969-12-31T23:59:59Z" }),
            json!({ "id": 4, "test": null }),
        ];
        let outcome = run_rows(&PLUGIN, json!({ "fields": ["customer.email"] }), &rows).unwrap();
        assert_eq!(outcome.inputs, [0, 2, 3]);
        assert_eq!(outcome.rejects, []);
        let seen: Vec<_> = outcome.rows.iter().map(|row| (&row["customer"]["email"], &row["order_date"])).collect();
        let (masked, first, third) = (json!("***@x.com"), json!("2026-03-01"), json!("1969-12-31"));
        assert_eq!(seen, [(&masked, &first), (&Value::Null, &third), (&Value::Null, &Value::Null)]);
        assert_eq!(outcome.rows[0]["id"], 1);
    }

    #[test]
    fn addresses() {
        for (address, masked) in [
            ("user7@x.com", "***@x.com"),
            ("nobody", "***"),
            ("", "***"),
            ("@", "***@"),
            ("\"a@b\"@x.com", "***@x.com"),
            ("jürgen@bücher.de", "***@bücher.de"),
        ] {
            let config = json!({ "fields": ["email"], "date_from": null });
            let outcome = run_rows(&PLUGIN, config, &[json!({ "email": address })]).unwrap();
            assert_eq!(outcome.rows, [json!({ "email": masked })]);
        }
    }

    #[test]
    fn what_is_not_configured_is_left_alone() {
        let rows = [json!({ "test": true, "email": "a@b" })];
        let outcome = run_rows(&PLUGIN, json!({ "drop_test": false, "date_from": null }), &rows).unwrap();
        assert_eq!(outcome.rows, rows);
        let config = json!({ "date_from": "at", "date_column": "day" });
        let outcome = run_rows(&PLUGIN, config, &[json!({ "at": "2026-03-01T00:00:00Z" })]).unwrap();
        assert_eq!(outcome.rows[0]["day"], "2026-03-01");
    }

    #[test]
    fn wrong_configurations() {
        for config in [json!({ "feilds": [] }), json!({ "fields": ["a..b"] }), json!({ "fields": ["a", "a"] })] {
            assert!(run_rows(&PLUGIN, config, &[]).is_err());
        }
    }

    #[test]
    fn the_schema_names_every_setting() {
        let schema: Value = alluvium_plugin::testing::parse(PLUGIN.about.config_schema).unwrap();
        let defaults = Config::default();
        let properties = &schema["properties"];
        assert_eq!(properties["drop_test"]["default"], defaults.drop_test);
        assert_eq!(properties["date_from"]["default"], json!(defaults.date_from));
        assert_eq!(properties["date_column"]["default"], defaults.date_column);
        assert_eq!(properties["fields"]["default"], json!(defaults.fields));
    }
}

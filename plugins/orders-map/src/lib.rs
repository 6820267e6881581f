//! Plans a table of orders. What it does not name becomes what the pipeline's `evolve` makes of it.

use alluvium_plugin::mapping::{Coercion, OnConflict, Plan, Result, Shape, Table, TableColumn};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Columns by the paths of the fields that fill them.
    rename: BTreeMap<String, String>,
    /// Types by the names of the fields that are read as decimals.
    decimals: BTreeMap<String, String>,
    /// The field that is read as a timestamp and whose date is derived.
    time: Option<String>,
    date_column: String,
    /// The field that is split.
    sku: Option<String>,
    /// Paths of fields to leave out.
    drop: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        Self {
            rename: map("id", "order_id"),
            decimals: map("amount", "decimal(10,2)"),
            time: Some("event_time".to_owned()),
            date_column: "order_date".to_owned(),
            sku: Some("sku".to_owned()),
            drop: vec!["debug".to_owned()],
        }
    }
}

fn plan(config: &Config, shape: &Shape, table: Option<&Table>, plan: &mut Plan) -> Result<()> {
    for (path, name) in &config.rename {
        let Some(field) = shape.field(path) else { continue };
        // A column that the table has keeps its type, whatever records hold now. Where nothing but
        // nulls was seen, there is no type yet: the field comes again in another shape.
        let present = table.and_then(|table| table.column(name)).map(TableColumn::data_type);
        if let Some(data_type) = present.or(field.inferred()) {
            let column = plan.column(name, data_type).from(path).comment(&format!("the records' {path}"));
            if data_type == "string" && field.is_json_text() {
                column.coerce(Coercion::JsonText);
            }
        }
    }
    for (field, data_type) in &config.decimals {
        if shape.field(field).is_some() {
            plan.column(field, data_type).from(field).coerce(Coercion::ParseString);
        }
    }
    if let Some(time) = config.time.as_deref().filter(|time| shape.field(time).is_some()) {
        plan.column(time, "timestamp").from(time);
        plan.column(&config.date_column, "date").date_of(time).comment("in UTC");
    }
    if let Some(sku) = config.sku.as_deref().filter(|sku| shape.field(sku).is_some()) {
        plan.column("sku_family", "string").before(sku, "-").on_conflict(OnConflict::Rescue);
        plan.column("sku_number", "int").after(sku, "-").on_conflict(OnConflict::Rescue);
    }
    for path in &config.drop {
        plan.drop(path);
    }
    Ok(())
}

alluvium_plugin::mapping_plugin! {
    config: Config,
    plan: plan,
    config_schema: include_str!("config.schema.json"),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alluvium_plugin::mapping::Derivation;
    use alluvium_plugin::testing::{PlanOutcome, Value, json, run_plan};

    fn planned(config: Value, table: Option<&[(&str, &str)]>) -> PlanOutcome {
        let order = json!({
            "id": 7, "amount": "19.90", "event_time": "2026-03-01T23:59:59Z", "sku": "AB-123",
            "customer": { "email": "user7@x.com" }, "debug": { "trace": true },
        });
        run_plan(&PLUGIN, config, &[order], table).unwrap()
    }

    fn columns(plan: &PlanOutcome) -> Vec<(&str, &str, &str)> {
        plan.columns.iter().map(|c| (c.name.as_str(), c.data_type.as_str(), c.path.as_str())).collect()
    }

    #[test]
    fn an_order() {
        let plan = planned(json!({}), None);
        let expected = [
            ("order_id", "bigint", "id"),
            ("amount", "decimal(10,2)", "amount"),
            ("event_time", "timestamp", "event_time"),
            ("order_date", "date", "event_time"),
            ("sku_family", "string", "sku"),
            ("sku_number", "int", "sku"),
        ];
        assert_eq!(columns(&plan), expected);
        assert_eq!(plan.drops, ["debug"]);
        assert_eq!(plan.column("order_id").unwrap().comment.as_deref(), Some("the records' id"));
        assert_eq!(plan.column("amount").unwrap().coercion, Coercion::ParseString);
        assert_eq!(plan.column("event_time").unwrap().derivation, None);
        assert_eq!(plan.column("order_date").unwrap().derivation, Some(Derivation::Date));
        let number = plan.column("sku_number").unwrap();
        assert_eq!(number.derivation, Some(Derivation::After("-".to_owned())));
        assert_eq!(number.on_conflict, OnConflict::Rescue);
    }

    #[test]
    fn a_column_of_the_table_keeps_its_type() {
        let plan = planned(json!({}), Some(&[("order_id", "string"), ("amount", "decimal(10,2)")]));
        assert_eq!(columns(&plan)[0], ("order_id", "string", "id"));
    }

    #[test]
    fn what_was_not_seen_is_not_planned() {
        let plan = run_plan(&PLUGIN, json!({}), &[json!({ "id": null, "other": 1 })], None).unwrap();
        assert_eq!(plan.columns, []);
        assert_eq!(plan.drops, ["debug"]);
        let plan = run_plan(&PLUGIN, json!({}), &[json!({ "id": null })], Some(&[("order_id", "bigint")])).unwrap();
        assert_eq!(columns(&plan), [("order_id", "bigint", "id")]);
    }

    #[test]
    fn kinds_that_do_not_meet_are_json_text() {
        let orders = [json!({ "id": 1 }), json!({ "id": "test" })];
        for table in [None, Some([("order_id", "string")].as_slice())] {
            let plan = run_plan(&PLUGIN, json!({}), &orders, table).unwrap();
            assert_eq!(plan.column("order_id").unwrap().coercion, Coercion::JsonText);
        }
        let plan = run_plan(&PLUGIN, json!({}), &orders, Some(&[("order_id", "bigint")])).unwrap();
        assert_eq!(plan.column("order_id").unwrap().coercion, Coercion::None);
        let plan = run_plan(&PLUGIN, json!({}), &orders[1..], None).unwrap();
        assert_eq!(plan.column("order_id").unwrap().coercion, Coercion::None);
    }

    #[test]
    fn names_are_configured() {
        let config = json!({
            "rename": { "customer.email": "email", "id": "number" }, "decimals": {}, "time": "event_time",
            "date_column": "day", "sku": null, "drop": ["debug.trace", "customer"],
        });
        let plan = planned(config, None);
        let expected = [
            ("email", "string", "customer.email"),
            ("number", "bigint", "id"),
            ("event_time", "timestamp", "event_time"),
            ("day", "date", "event_time"),
        ];
        assert_eq!(columns(&plan), expected);
        assert_eq!(plan.drops, ["debug.trace", "customer"]);
        assert_eq!(planned(json!({ "rename": {}, "decimals": {}, "time": null, "sku": null }), None).columns, []);
    }

    #[test]
    fn wrong_configurations() {
        let order = [json!({ "id": 1, "amount": "1" })];
        let refused = |config: Value| run_plan(&PLUGIN, config, &order, None).unwrap_err().message().to_owned();
        assert!(refused(json!({ "renames": {} })).starts_with("configuration: unknown field `renames`"));
        let said = refused(json!({ "decimals": { "amount": "decimal(2,10)" }, "drop": ["a..b"] }));
        assert_eq!(
            said,
            "column 'amount': 'decimal(2,10)': a decimal's precision is 1 to 38 and its scale 0 to the precision; the path 'a..b' has an empty part"
        );
        assert!(refused(json!({ "rename": { "id": "amount" } })).contains("column 'amount': it is there twice"));
    }

    #[test]
    fn the_schema_names_every_setting() {
        let schema: Value = alluvium_plugin::testing::parse(PLUGIN.about.config_schema).unwrap();
        let defaults = Config::default();
        let properties = &schema["properties"];
        assert_eq!(properties["rename"]["default"], json!(defaults.rename));
        assert_eq!(properties["decimals"]["default"], json!(defaults.decimals));
        assert_eq!(properties["time"]["default"], json!(defaults.time));
        assert_eq!(properties["date_column"]["default"], defaults.date_column);
        assert_eq!(properties["sku"]["default"], json!(defaults.sku));
        assert_eq!(properties["drop"]["default"], json!(defaults.drop));
    }
}

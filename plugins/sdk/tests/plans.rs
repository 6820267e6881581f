//! Mapping plugins as their authors write them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_plugin::export::{About, MappingPlugin};
use alluvium_plugin::mapping::{Coercion, Derivation, Field, Kinds, NoConfig, OnConflict, Plan, Result, Shape, Table};
use alluvium_plugin::testing::{PlanOutcome, Value, json, run_plan};

type PlanOf = fn(&NoConfig, &Shape, Option<&Table>, &mut Plan) -> Result<()>;

const ABOUT: About = About { name: "test", version: "0", summary: "", config_schema: "" };

fn run(plan: PlanOf, records: &[Value], table: Option<&[(&str, &str)]>) -> Result<PlanOutcome> {
    run_plan(&MappingPlugin { about: ABOUT, plan }, json!({}), records, table)
}

#[test]
fn everything_asked_for_is_in_the_plan() {
    fn plan(_: &NoConfig, _: &Shape, _: Option<&Table>, plan: &mut Plan) -> Result<()> {
        plan.column("price", "decimal(10,2)")
            .from("amount.price")
            .coerce(Coercion::ParseString)
            .on_conflict(OnConflict::Rescue)
            .default(json!(0))
            .comment("in euros");
        plan.column("a.b", "array<struct<n:bigint>>").coerce_inner("element.n", Coercion::ParseString);
        plan.column("day", "date").date_of("event_time").on_conflict(OnConflict::Stop);
        plan.column("family", "string").before("sku", "-").default("none");
        plan.column("number", "int").after("sku", "-");
        plan.drop("debug").drop("meta.`x.y`");
        Ok(())
    }
    let outcome = run(plan, &[], None).unwrap();
    let price = outcome.column("price").unwrap();
    assert_eq!((price.data_type.as_str(), price.path.as_str()), ("decimal(10,2)", "amount.price"));
    assert_eq!((price.coercion, price.on_conflict), (Coercion::ParseString, OnConflict::Rescue));
    assert_eq!((&price.default, price.comment.as_deref()), (&Some(json!(0)), Some("in euros")));
    let dotted = outcome.column("a.b").unwrap();
    assert_eq!(dotted.path, "`a.b`");
    assert_eq!(dotted.inner_coercions, [("element.n".to_owned(), Coercion::ParseString)]);
    let derived: Vec<_> = outcome.columns[2..].iter().map(|c| (c.path.as_str(), c.derivation.clone())).collect();
    let expected = [
        ("event_time", Some(Derivation::Date)),
        ("sku", Some(Derivation::Before("-".to_owned()))),
        ("sku", Some(Derivation::After("-".to_owned()))),
    ];
    assert_eq!(derived, expected);
    assert_eq!(outcome.columns[3].default, Some(json!("none")));
    assert_eq!(outcome.drops, ["debug", "meta.`x.y`"]);
}

#[test]
fn a_shape_is_a_tree() {
    fn plan(_: &NoConfig, shape: &Shape, table: Option<&Table>, plan: &mut Plan) -> Result<()> {
        assert_eq!((shape.format(), shape.schema_id(), table), ("json", None, None));
        fn walk(field: Field<'_>, depth: usize, plan: &mut Plan) {
            let name = format!("{depth} {} {}", field.name(), field.path());
            plan.column(&name, "string").comment(field.inferred().unwrap_or("?"));
            field.fields().chain(field.element()).for_each(|field| walk(field, depth + 1, plan));
        }
        shape.fields().for_each(|field| walk(field, 0, plan));
        Ok(())
    }
    let records = [
        json!({ "a": { "x": 1, "dotted.key": null }, "list": [{ "sku": "s" }, { "qty": 2 }], "n": null }),
        json!({ "a": { "x": 1.5 }, "": true, "[]": [], "mixed": 1, "big": u64::MAX }),
        json!({ "mixed": "one", "a": null, "deep": [[1], []] }),
    ];
    let outcome = run(plan, &records, None).unwrap();
    let seen: Vec<_> = outcome.columns.iter().map(|c| (c.name.as_str(), c.comment.as_deref().unwrap())).collect();
    let expected = [
        ("0 a a", "struct<x:double>"),
        ("1 dotted.key a.`dotted.key`", "?"),
        ("1 x a.x", "double"),
        ("0 list list", "array<struct<sku:string,qty:bigint>>"),
        ("1 [] list.[]", "struct<sku:string,qty:bigint>"),
        ("2 sku list.[].sku", "string"),
        ("2 qty list.[].qty", "bigint"),
        ("0 n n", "?"),
        ("0  ``", "boolean"),
        ("0 [] `[]`", "?"),
        ("0 big big", "decimal(20,0)"),
        ("0 mixed mixed", "string"),
        ("0 deep deep", "array<array<bigint>>"),
        ("1 [] deep.[]", "array<bigint>"),
        ("2 [] deep.[].[]", "bigint"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn fields_are_found_by_any_spelling() {
    fn plan(_: &NoConfig, shape: &Shape, _: Option<&Table>, _: &mut Plan) -> Result<()> {
        let kinds = |path: &str| shape.field(path).map(|field| field.kinds());
        let found = Kinds { null: true, integer: true, ..Kinds::default() };
        for path in ["a.b", "`a`.`b`", "a.`b`"] {
            assert_eq!(kinds(path), Some(found), "{path}");
        }
        assert!(found.is_number() && !found.is_null() && !found.is_string());
        assert!(kinds("a").unwrap().is_object() && kinds("s").unwrap().is_string());
        assert!(kinds("l").unwrap().is_list() && kinds("l.[]").unwrap().is_boolean());
        assert!(kinds("n").unwrap().is_null() && !kinds("m").unwrap().is_string());
        for path in ["", "a..b", "a.c", "A", "`a.b`", "l.`[]`", "a.[]"] {
            assert!(kinds(path).is_none(), "{path}");
        }
        Ok(())
    }
    let records = [
        json!({ "a": { "b": 1 }, "s": "x", "l": [true], "n": null, "m": 1.5 }),
        json!({ "a": { "b": null }, "s": null, "m": "x" }),
    ];
    run(plan, &records, None).unwrap();
}

#[test]
fn a_table_is_told() {
    fn plan(_: &NoConfig, _: &Shape, table: Option<&Table>, plan: &mut Plan) -> Result<()> {
        let table = table.ok_or("no table")?;
        let total = table.column("total").ok_or("no total")?;
        assert!(table.column("Total").is_none() && table.columns().len() == 2);
        plan.column(total.name(), total.data_type());
        Ok(())
    }
    let table = [("id", "bigint"), ("total", "Decimal( 12, 2 )")];
    assert_eq!(run(plan, &[], Some(&table)).unwrap().column("total").unwrap().data_type, "decimal(12,2)");
    assert_eq!(run(plan, &[], None).unwrap_err().message(), "no table");
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    fn plan(_: &NoConfig, _: &Shape, _: Option<&Table>, plan: &mut Plan) -> Result<()> {
        plan.column("a", "strng").from("a..b");
        plan.column("A", "int").from("x.[].y").coerce_inner("", Coercion::None);
        plan.column("", "int").after("sku", "");
        plan.drop("`").drop("list.[]");
        Ok(())
    }
    let message = run(plan, &[], None).unwrap_err();
    let expected = [
        "column 'a': unknown type 'strng' in 'strng'",
        "column 'a': the path 'a..b' has an empty part",
        "column 'A': it is there twice (names are not case-sensitive)",
        "column 'A': the path 'x.[].y' leads into a list",
        "column 'A': the path '' has an empty part",
        "column '': its name is empty",
        "column '': its separator is empty",
        "the path '`' has a backtick that is not closed",
        "the path 'list.[]' leads into a list",
    ];
    assert_eq!(message.message().split("; ").collect::<Vec<_>>(), expected);
}

//! Column plugins as their authors write them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_plugin::column::{Access, Batch, Column, Date, Decimal, Edit, Error, NoConfig, Result, Timestamp, Value};
use alluvium_plugin::export::{About, ColumnPlugin};
use alluvium_plugin::testing::{self, RowsOutcome, json};
use proptest::prelude::*;
use std::cell::RefCell;

type AccessOf = fn(&NoConfig, &mut Access) -> Result<()>;
type TransformOf = fn(&NoConfig, &Batch<'_>, &mut Edit<'_>) -> Result<()>;

const ABOUT: About = About { name: "test", version: "0", summary: "", config_schema: "" };

fn plugin(access: AccessOf, transform: TransformOf) -> ColumnPlugin<NoConfig> {
    ColumnPlugin { about: ABOUT, access, transform }
}

fn run(access: AccessOf, transform: TransformOf, rows: &[testing::Value]) -> Result<RowsOutcome> {
    testing::run_rows(&plugin(access, transform), json!({}), rows)
}

/// The message of a plugin that is wrong, whatever the rows.
fn fault(access: AccessOf, transform: TransformOf) -> String {
    run(access, transform, &[json!({ "a": 1, "s": "x" }), json!({})]).unwrap_err().message().to_owned()
}

fn ids(_: &NoConfig, access: &mut Access) -> Result<()> {
    access.reads("id", "bigint").writes("out", "string");
    Ok(())
}

fn numbered(count: i64) -> Vec<testing::Value> {
    (0..count).map(|id| json!({ "id": id })).collect()
}

#[test]
fn every_flat_type_is_read_and_written() {
    const COLUMNS: [(&str, &str); 13] = [
        ("boolean", "boolean"),
        ("tinyint", "tinyint"),
        ("smallint", "smallint"),
        ("int", "int"),
        ("bigint", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("decimal", "decimal(38,2)"),
        ("date", "date"),
        ("timestamp", "timestamp"),
        ("wall", "timestamp_ntz"),
        ("string", "string"),
        ("binary", "binary"),
    ];
    fn access(_: &NoConfig, access: &mut Access) -> Result<()> {
        for (path, data_type) in COLUMNS {
            access.changes(path, data_type);
        }
        Ok(())
    }
    fn transform(_: &NoConfig, batch: &Batch, edit: &mut Edit) -> Result<()> {
        let column = batch.boolean("boolean")?;
        edit.boolean("boolean", |row| column.get(row).map(|value| !value))?;
        let column = batch.tinyint("tinyint")?;
        edit.tinyint("tinyint", |row| column.get(row).map(|value| -value))?;
        let column = batch.smallint("smallint")?;
        edit.smallint("smallint", |row| column.get(row).map(|value| -value))?;
        let column = batch.int("int")?;
        edit.int("int", |row| column.get(row).map(|value| -value))?;
        let column = batch.bigint("bigint")?;
        edit.bigint("bigint", |row| column.get(row).map(|value| -value))?;
        let column = batch.float("float")?;
        edit.float("float", |row| column.get(row).map(|value| -value))?;
        let column = batch.double("double")?;
        edit.double("double", |row| column.get(row).map(|value| -value))?;
        let column = batch.decimal("decimal")?;
        edit.decimal("decimal", |row| column.get(row).and_then(|value| value.checked_mul(Decimal::from(-1))))?;
        let column = batch.date("date")?;
        edit.date("date", |row| column.get(row).map(|value| Date::from_days(-value.days())))?;
        let column = batch.timestamp("timestamp")?;
        edit.timestamp("timestamp", |row| column.get(row).map(|value| Timestamp::from_micros(-value.micros())))?;
        let column = batch.timestamp("wall")?;
        edit.timestamp("wall", |row| column.get(row))?;
        let column = batch.string("string")?;
        edit.string("string", |row| column.get(row).map(str::to_uppercase))?;
        let column = batch.binary("binary")?;
        edit.binary("binary", |row| column.get(row).map(|value| value.iter().rev().copied().collect::<Vec<_>>()))
    }
    let full = json!({
        "boolean": true, "tinyint": 127, "smallint": 32767, "int": 2147483647, "bigint": 9223372036854775807_i64,
        "float": 1.5, "double": 2.25, "decimal": "123456789012345678901234567890123456.78", "date": "1970-01-11",
        "timestamp": "1970-01-01T00:00:01.5Z", "wall": "2026-03-01T12:00:00Z", "string": "äb", "binary": [1, 2, 255],
        "other": [1],
    });
    let changed = json!({
        "boolean": false, "tinyint": -127, "smallint": -32767, "int": -2147483647, "bigint": -9223372036854775807_i64,
        "float": -1.5, "double": -2.25, "decimal": "-123456789012345678901234567890123456.78", "date": "1969-12-22",
        "timestamp": "1969-12-31T23:59:58.5Z", "wall": "2026-03-01T12:00:00Z", "string": "ÄB", "binary": [255, 2, 1],
        "other": [1],
    });
    let null: testing::Value = COLUMNS.iter().map(|(path, _)| ((*path).to_owned(), testing::Value::Null)).collect();
    // More than eight rows, so that bitmaps have several bytes.
    let (mut rows, mut expected) = (Vec::new(), Vec::new());
    for at in 0..21 {
        rows.push(if at % 3 == 0 { json!({}) } else { full.clone() });
        expected.push(if at % 3 == 0 { null.clone() } else { changed.clone() });
    }
    let outcome = run(access, transform, &rows).unwrap();
    assert_eq!(outcome.rows, expected);
    assert_eq!(outcome.inputs, (0..21).collect::<Vec<_>>());
    assert_eq!(run(access, transform, &[]).unwrap().rows, [] as [testing::Value; 0]);
}

/// Writes what is read, whatever its type.
fn echo(column: &Column<'_>, at: usize, place: Value<'_>) -> Result<()> {
    use alluvium_plugin::Type;
    if column.is_null(at) {
        return place.null();
    }
    match column.data_type() {
        Type::BigInt => place.bigint(column.bigint()?.get(at).ok_or("null")?),
        Type::String => place.string(column.string()?.get(at).ok_or("null")?),
        Type::Boolean => place.boolean(column.boolean()?.get(at).ok_or("null")?),
        Type::Array(_) => {
            let list = column.list()?;
            place.list(|items| {
                list.get(at).ok_or("null")?.try_for_each(|element| echo(list.elements(), element, items.item()))
            })
        }
        Type::Map(..) => {
            let map = column.map()?;
            place.map(|entries| {
                map.get(at).ok_or("null")?.try_for_each(|at| {
                    entries.entry(|place| echo(map.keys(), at, place), |place| echo(map.values(), at, place))
                })
            })
        }
        Type::Struct(fields) => place.fields(|places| {
            // In the reverse order, which must not matter.
            fields.iter().rev().try_for_each(|(name, _)| echo(&column.field(name)?, at, places.field(name)?))
        }),
        other => Err(Error::new(format!("no echo of {other}"))),
    }
}

fn nested(_: &NoConfig, access: &mut Access) -> Result<()> {
    access
        .changes("tree.list", "array<array<string>>")
        .changes("tree.map", "map<string,struct<n:bigint,flags:array<boolean>>>")
        .changes("items", "array<struct<sku:string,qty:bigint>>");
    Ok(())
}

fn copy_nested(_: &NoConfig, batch: &Batch, edit: &mut Edit) -> Result<()> {
    for path in ["tree.list", "tree.map", "items"] {
        let column = batch.column(path)?;
        edit.value(path, |row, place| echo(&column, row.index(), place))?;
    }
    Ok(())
}

fn arbitrary_row() -> impl Strategy<Value = testing::Value> {
    let maybe = |value: BoxedStrategy<testing::Value>| prop_oneof![1 => Just(testing::Value::Null), 4 => value].boxed();
    let text = maybe("[a-zä]{0,4}".prop_map(|text| json!(text)).boxed());
    let number = maybe(any::<i64>().prop_map(|number| json!(number)).boxed());
    let flag = maybe(any::<bool>().prop_map(|flag| json!(flag)).boxed());
    let list =
        move |of: BoxedStrategy<testing::Value>| maybe(prop::collection::vec(of, 0..4).prop_map(|v| json!(v)).boxed());
    let flags = list(flag);
    let entry = maybe((number.clone(), flags).prop_map(|(n, flags)| json!({ "n": n, "flags": flags })).boxed());
    let map = maybe(prop::collection::btree_map("[a-c]{0,2}", entry, 0..4).prop_map(|map| json!(map)).boxed());
    let item = maybe((text.clone(), number).prop_map(|(sku, qty)| json!({ "sku": sku, "qty": qty })).boxed());
    (list(list(text)), map, list(item))
        .prop_map(|(list, map, items)| json!({ "tree": { "list": list, "map": map }, "items": items }))
}

proptest! {
    #[test]
    fn nested_values_survive(rows in prop::collection::vec(arbitrary_row(), 0..20)) {
        let outcome = run(nested, copy_nested, &rows).unwrap();
        prop_assert_eq!(outcome.rows, rows);
    }
}

#[test]
fn a_list_s_elements_have_columns_of_their_own() {
    fn access(_: &NoConfig, access: &mut Access) -> Result<()> {
        access.reads("items", "array<struct<sku:string,qty:bigint>>").writes("sku", "string").writes("qty", "bigint");
        access.multiplies();
        Ok(())
    }
    fn transform(_: &NoConfig, batch: &Batch, edit: &mut Edit) -> Result<()> {
        let items = batch.list("items")?;
        let sku = items.elements().field("sku")?.string()?;
        let qty = items.elements().field("qty")?.bigint()?;
        edit.repeat(|row| items.get(row).map_or(0, |items| items.len()));
        edit.string("sku", |row| sku.get(items.get(row)?.nth(row.copy())?))?;
        edit.keep(|row| items.get(row).and_then(|mut items| qty.get(items.nth(row.copy())?)) != Some(0));
        edit.bigint("qty", |row| qty.get(items.get(row)?.nth(row.copy())?))
    }
    let rows = [
        json!({ "items": [{ "sku": "a", "qty": 1 }, { "sku": "b", "qty": 0 }, { "sku": "c", "qty": 3 }] }),
        json!({ "items": [] }),
        json!({}),
        json!({ "items": [null, { "sku": "d" }] }),
    ];
    let outcome = run(access, transform, &rows).unwrap();
    assert_eq!(outcome.inputs, [0, 0, 3, 3]);
    let pairs: Vec<_> = outcome.rows.iter().map(|row| (row["sku"].clone(), row["qty"].clone())).collect();
    let null = testing::Value::Null;
    assert_eq!(
        pairs,
        [(json!("a"), json!(1)), (json!("c"), json!(3)), (null.clone(), null.clone()), (json!("d"), null)]
    );
}

#[test]
fn a_null_struct_has_null_fields() {
    fn access(_: &NoConfig, access: &mut Access) -> Result<()> {
        access.reads("s", "struct<inner:struct<n:bigint>>").writes("n", "bigint");
        Ok(())
    }
    fn transform(_: &NoConfig, batch: &Batch, edit: &mut Edit) -> Result<()> {
        let n = batch.column("s")?.field("inner")?.field("n")?.bigint()?;
        edit.bigint("n", |row| n.get(row))
    }
    let rows = [json!({ "s": { "inner": { "n": 1 } } }), json!({ "s": null }), json!({ "s": { "inner": null } })];
    let outcome = run(access, transform, &rows).unwrap();
    assert_eq!(
        outcome.rows.iter().map(|row| row["n"].clone()).collect::<Vec<_>>(),
        [json!(1), json!(null), json!(null)]
    );
}

#[test]
fn a_row_whose_value_cannot_be_written_is_rejected() {
    fn access(_: &NoConfig, access: &mut Access) -> Result<()> {
        access.reads("text", "string").writes("first", "string").writes("price", "decimal(4,2)");
        access.writes("day", "date").writes("at", "timestamp").writes("list", "array<decimal(4,2)>");
        Ok(())
    }
    fn transform(_: &NoConfig, batch: &Batch, edit: &mut Edit) -> Result<()> {
        let text = batch.string("text")?;
        edit.string_with("first", |row, first| {
            let text = text.get(row)?;
            first.push_str("written before it fails: ");
            first.push(text.chars().next()?);
            Some(())
        })?;
        edit.decimal("price", |row| text.get(row).map(str::parse).transpose().map_err(Error::from))?;
        edit.date("day", |row| (text.get(row) == Some("2")).then(|| Date::from_days(i32::MAX)))?;
        edit.timestamp("at", |row| (text.get(row) == Some("3")).then(|| Timestamp::from_micros(i64::MIN)))?;
        edit.value("list", |row, place| {
            place.list(|items| {
                items.item().decimal(Decimal::from(1))?;
                items
                    .item()
                    .decimal(text.get(row).unwrap_or("0").parse::<Decimal>()?.checked_mul(10.into()).ok_or("huge")?)
            })
        })
    }
    let rows: Vec<_> = ["1.5", "x", "1.555", "100", "", "2", "3", "4", "50"].map(|text| json!({ "text": text })).into();
    let outcome = run(access, transform, &rows).unwrap();
    assert_eq!(outcome.inputs, [0, 7]);
    assert_eq!(outcome.rows[0]["first"], "written before it fails: 1");
    assert_eq!(outcome.rows[1]["price"], "4.00");
    assert_eq!(outcome.rows[1]["list"], json!(["1.00", "40.00"]));
    let rejects: Vec<_> = outcome.rejects.iter().map(|(row, reason)| (*row, reason.as_str())).collect();
    assert_eq!(
        rejects,
        [
            (1, "not a decimal number of at most 38 digits"),
            (2, "column 'price': 1.555 does not fit into a decimal(4,2)"),
            (3, "column 'price': 100 does not fit into a decimal(4,2)"),
            (4, "not a decimal number of at most 38 digits"),
            (5, "column 'day': 5881580-07-11 is not within the years 1 to 9999"),
            (6, "column 'at': -290308-12-21T19:59:05.224192Z is not within the years 1 to 9999"),
            (8, "column 'list': 500 does not fit into a decimal(4,2)"),
        ]
    );
}

#[test]
fn a_row_has_one_fate() {
    fn transform(_: &NoConfig, batch: &Batch, edit: &mut Edit) -> Result<()> {
        let id = batch.bigint("id")?;
        edit.reject(1_usize, "first");
        edit.reject(1_usize, "second");
        edit.keep(|row| id.get(row) != Some(2));
        edit.string("out", |row| id.get(row).map(|id| id.to_string()))?;
        edit.reject(2_usize, "filtered before");
        edit.reject_where(|row| (id.get(row) == Some(3)).then(|| format!("it is {}", row.index())));
        for row in batch.rows().filter(|row| row.index() == 4) {
            edit.reject(row, "by its row");
        }
        Ok(())
    }
    let outcome = run(ids, transform, &numbered(7)).unwrap();
    assert_eq!(outcome.inputs, [0, 5, 6]);
    assert_eq!(outcome.rows[1], json!({ "id": 5, "out": "5" }));
    let expected = [(1, "first"), (2, "filtered before"), (3, "it is 3"), (4, "by its row")];
    assert_eq!(outcome.rejects, expected.map(|(row, reason)| (row, reason.to_owned())));
}

#[test]
fn without_any_call_every_row_stays() {
    fn access(_: &NoConfig, access: &mut Access) -> Result<()> {
        access.reads("id", "bigint");
        Ok(())
    }
    let outcome = run(access, |_, _, _| Ok(()), &numbered(3)).unwrap();
    assert_eq!((outcome.rows, outcome.inputs), (numbered(3), vec![0, 1, 2]));
}

#[test]
fn what_a_plugin_does_wrong_is_told() {
    fn both(_: &NoConfig, access: &mut Access) -> Result<()> {
        access.reads("a", "bigint").reads("s", "string").writes("o", "string").writes("p", "struct<x:int>");
        Ok(())
    }
    let ok: TransformOf = |_, _, edit| {
        edit.string("o", |_| Some("x"))?;
        edit.value("p", |_, place| place.null())
    };
    assert!(run(both, ok, &[json!({})]).is_ok());
    let cases: [(&str, TransformOf); 13] = [
        ("column 'b' is not among those that `access` reads", |_, batch, _| batch.string("b").map(|_| ())),
        ("column 'a' is declared as bigint: `string` cannot read it", |_, batch, _| batch.string("a").map(|_| ())),
        ("column 'a' is declared as bigint: `list` cannot read it", |_, batch, _| batch.list("a").map(|_| ())),
        ("column 'a' is declared as bigint: `field` cannot read it", |_, batch, _| {
            batch.column("a")?.field("x").map(|_| ())
        }),
        ("column 'q' is not among those that `access` writes", |_, _, edit| edit.string("q", |_| Some(""))),
        ("column 'o' is declared as string: `bigint` cannot write it", |_, _, edit| edit.bigint("o", |_| Some(1))),
        ("column 'o' is written twice", |_, _, edit| {
            edit.string("o", |_| Some(""))?;
            edit.string("o", |_| Some(""))
        }),
        ("column 'o' is declared as written, but is not", |_, _, _| Ok(())),
        ("row 2 is rejected, but the batch has 2 rows", |_, _, edit| {
            edit.reject(2_usize, "");
            Ok(())
        }),
        ("`repeat` is called, but `access` does not say `multiplies`", |_, _, edit| {
            edit.repeat(|_| 1);
            Ok(())
        }),
        ("column 'p': `int` cannot write a struct<x:int>", |_, _, edit| edit.value("p", |_, place| place.int(1))),
        ("column 'p' has no field 'y'", |_, _, edit| {
            edit.value("p", |_, place| place.fields(|fields| fields.field("y")?.int(1)))
        }),
        ("column 'p': field 'x' is written twice", |_, _, edit| {
            edit.value("p", |_, place| {
                place.fields(|fields| {
                    fields.field("x")?.int(1)?;
                    fields.field("x")?.int(2)
                })
            })
        }),
    ];
    for (message, transform) in cases {
        assert_eq!(fault(both, transform), message);
    }
}

#[test]
fn what_access_says_wrong_is_told() {
    let cases: [(&str, AccessOf); 6] = [
        ("column 'a': unknown type 'strng' in 'strng'", |_, access| {
            access.reads("a", "strng").reads("a..", "int");
            Ok(())
        }),
        ("the path 'a..b' has an empty part", |_, access| {
            access.writes("a..b", "int");
            Ok(())
        }),
        ("column 'a' is written twice", |_, access| {
            access.changes("a", "int").writes("a", "int");
            Ok(())
        }),
        ("column 'a' is read as int and as bigint", |_, access| {
            access.reads("a", "int").reads("a", "integer").reads("a", "bigint");
            Ok(())
        }),
        ("as the plugin says", |_, _| Err("as the plugin says".into())),
        ("column 'a': expected a type at position 6 of type 'array<'", |_, access| {
            access.reads("a", "array<");
            Ok(())
        }),
    ];
    for (message, access) in cases {
        assert_eq!(fault(access, |_, _, _| Ok(())), message);
    }
}

#[test]
fn a_wrong_configuration_is_told() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        _fields: Vec<String>,
    }
    let plugin = ColumnPlugin::<Config> { about: ABOUT, access: |_, _| Ok(()), transform: |_, _, _| Ok(()) };
    let error = testing::run_rows(&plugin, json!({ "fields": [] }), &[]).unwrap_err();
    assert!(error.message().starts_with("configuration: unknown field `fields`, expected `_fields`"), "{error:?}");
    assert!(plugin.configure("").unwrap_err().message().starts_with("configuration: missing field"));
    let no_config = self::plugin(|_, _| Ok(()), |_, _, _| Ok(()));
    for config in ["", "null", " {} "] {
        assert!(no_config.configure(config).is_ok(), "{config}");
    }
    assert!(no_config.configure(r#"{"a":1}"#).is_err());
}

/// What a plugin does to its rows, one step after the other.
#[derive(Clone, Debug)]
enum Step {
    Keep(Vec<bool>),
    Reject(Vec<bool>),
    RejectWhileWriting(Vec<bool>),
    Repeat(Vec<usize>),
    Write,
}

thread_local! {
    static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
}

const WRITES: [&str; 8] = ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"];

fn steps_access(_: &NoConfig, access: &mut Access) -> Result<()> {
    access.reads("id", "bigint").multiplies();
    for path in WRITES {
        // Columns of several layouts, since each is gathered in its own way.
        access.writes(path, if path < "w4" { "string" } else { "array<struct<b:boolean,n:int>>" });
    }
    Ok(())
}

fn write_all(edit: &mut Edit, path: &str, mut fails: impl FnMut(usize) -> bool) -> Result<()> {
    if path < "w4" {
        return edit.string(path, |row| {
            if fails(row.index()) {
                Err("while writing".into())
            } else {
                Ok(Some(format!("{}/{}", row.index(), row.copy())))
            }
        });
    }
    edit.value(path, |row, place| {
        place.list(|items| {
            for n in 0..=row.copy() {
                items.item().fields(|fields| {
                    fields.field("n")?.int(row.index() as i32)?;
                    if fails(row.index()) {
                        Err("while writing".into())
                    } else {
                        fields.field("b")?.boolean(n % 2 == 0)
                    }
                })?;
            }
            Ok(())
        })
    })
}

fn steps_transform(_: &NoConfig, _: &Batch, edit: &mut Edit) -> Result<()> {
    let mut left = WRITES.into_iter();
    for step in STEPS.take() {
        match step {
            Step::Keep(mask) => edit.keep(|row| mask[row.index()]),
            Step::Reject(mask) => edit.reject_where(|row| mask[row.index()].then_some("rejected")),
            Step::Repeat(counts) => edit.repeat(|row| counts[row.index()]),
            Step::RejectWhileWriting(mask) => {
                if let Some(path) = left.next() {
                    write_all(edit, path, |row| mask[row])?
                }
            }
            Step::Write => {
                if let Some(path) = left.next() {
                    write_all(edit, path, |_| false)?
                }
            }
        }
    }
    left.try_for_each(|path| write_all(edit, path, |_| false))
}

const ROWS: usize = 19;

fn arbitrary_steps() -> impl Strategy<Value = (Vec<Step>, Option<(usize, Vec<usize>)>)> {
    let mask = || prop::collection::vec(prop::bool::weighted(0.7), ROWS);
    let few = || prop::collection::vec(prop::bool::weighted(0.1), ROWS);
    let step = prop_oneof![
        mask().prop_map(Step::Keep),
        few().prop_map(Step::Reject),
        few().prop_map(Step::RejectWhileWriting),
        Just(Step::Write),
    ];
    let repeat = prop::option::of((0..8_usize, prop::collection::vec(0..4_usize, ROWS)));
    (prop::collection::vec(step, 0..8), repeat)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn the_order_of_calls_does_not_matter((mut steps, repeat) in arbitrary_steps()) {
        if let Some((at, counts)) = repeat {
            steps.insert(at.min(steps.len()), Step::Repeat(counts));
        }
        // The model: each step on a list of (row, copy).
        let mut kept: Vec<(usize, usize)> = (0..ROWS).map(|row| (row, 0)).collect();
        let mut rejected = std::collections::BTreeSet::new();
        let mut writes = WRITES.len();
        for step in &steps {
            match step {
                Step::Keep(mask) => kept.retain(|(row, _)| mask[*row]),
                Step::Repeat(counts) => kept = kept.iter().flat_map(|(row, _)| (0..counts[*row]).map(|copy| (*row, copy))).collect(),
                Step::Write => writes = writes.saturating_sub(1),
                Step::RejectWhileWriting(_) if writes == 0 => {}
                Step::Reject(mask) | Step::RejectWhileWriting(mask) => {
                    if matches!(step, Step::RejectWhileWriting(_)) {
                        writes -= 1;
                    }
                    rejected.extend(kept.iter().map(|(row, _)| *row).filter(|row| mask[*row]));
                    kept.retain(|(row, _)| !mask[*row]);
                }
            }
        }
        STEPS.replace(steps.clone());
        let outcome = testing::run_rows(&plugin(steps_access, steps_transform), json!({}), &numbered(ROWS as i64)).unwrap();

        let rejects: Vec<usize> = outcome.rejects.iter().map(|(row, _)| *row).collect();
        prop_assert_eq!(rejects, rejected.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(&outcome.inputs, &kept.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        let repeat_at = steps.iter().position(|step| matches!(step, Step::Repeat(_)));
        for (row, (index, copy)) in outcome.rows.iter().zip(&kept) {
            let mut written = WRITES.into_iter();
            let check = |before_repeat: bool, path: &str| -> std::result::Result<(), TestCaseError> {
                let copy = if before_repeat { 0 } else { *copy };
                let expected = if path < "w4" {
                    json!(format!("{index}/{copy}"))
                } else {
                    (0..=copy).map(|n| json!({ "b": n % 2 == 0, "n": index })).collect()
                };
                prop_assert_eq!(&row[path], &expected);
                Ok(())
            };
            for (at, step) in steps.iter().enumerate() {
                if matches!(step, Step::Write | Step::RejectWhileWriting(_))
                    && let Some(path) = written.next() {
                        check(repeat_at.is_some_and(|repeat| at < repeat), path)?;
                    }
            }
            for path in written {
                check(false, path)?;
            }
        }
    }
}

//! Plans: what is refused, what a table and plugins make of them, their stored form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use alluvium_core::{Classified, DataType};
use alluvium_schema::{
    COERCIONS, Coercion, ColumnSpec, Decoder, Evolve, GrowError, OnConflict, Plan, PlanError, PlanOptions, Shape,
};
use arrow_schema::{DataType as ArrowType, Field, Schema};
use serde_json::{Value, json};
use std::sync::Arc;
use support::{pack_texts, row};

fn parse(data_type: &str) -> DataType {
    DataType::parse(data_type).unwrap()
}

fn column(name: &str, data_type: &str) -> ColumnSpec {
    ColumnSpec::new(name, parse(data_type))
}

fn declared(columns: Vec<ColumnSpec>) -> Result<Plan, Vec<PlanError>> {
    let reserved = vec!["_kafka".to_owned()];
    Plan::declared(columns, PlanOptions { reserved, ..PlanOptions::default() })
}

fn inferred() -> Plan {
    Plan::inferred(PlanOptions { reserved: vec!["_kafka".to_owned()], ..PlanOptions::default() })
}

fn table(columns: &[(&str, &str)]) -> Schema {
    let fields = columns.iter().map(|(name, data_type)| Field::new(*name, parse(data_type).to_arrow(), true));
    Schema::new(fields.collect::<Vec<_>>())
}

fn text(plan: &Plan) -> String {
    let columns = plan.columns().iter().map(|column| format!("{} {}", column.name, column.data_type));
    columns.collect::<Vec<_>>().join(", ")
}

fn path(text: &str) -> Vec<String> {
    alluvium_schema::path::parse(text).unwrap()
}

fn observed(records: &[&str]) -> Shape {
    let mut shape = Shape::default();
    records.iter().for_each(|record| shape.observe(record.as_bytes()));
    shape
}

fn grown(records: &[&str]) -> Plan {
    inferred().grow(&observed(records)).unwrap().unwrap()
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let from = |column: ColumnSpec, from: &str| ColumnSpec { from: Some(path(from)), ..column };
    let errors = declared(vec![
        column("a b", "int"),
        column("", "int"),
        column("x", "int"),
        column("X", "int"),
        column("_Kafka", "int"),
        column("_rescued", "int"),
        ColumnSpec { from: Some(Vec::new()), ..column("empty", "int") },
        from(column("whole", "struct<p:int>"), "o"),
        from(column("part", "int"), "o.p"),
        from(column("again", "int"), "o"),
        column("m", "map<int,string>"),
        column("s", "struct<`a;b`:int>"),
        ColumnSpec { data_type: DataType::Decimal(39, 0), ..column("d", "int") },
        ColumnSpec { coercion: Coercion::JsonText, ..column("c", "int") },
    ])
    .unwrap_err();
    let told = errors.iter().map(PlanError::to_string).collect::<Vec<_>>();
    assert_eq!(
        told,
        [
            "column 'a b': Delta cannot hold a name with ' '",
            "a column's name is empty",
            "column 'X' is there twice, as 'x' (names are not case-sensitive)",
            "column '_Kafka' has the name of the pipeline's own column '_kafka'",
            "column '_rescued' has the name of the pipeline's own column '_rescued'",
            "column 'empty' reads an empty path",
            "column 'm' is a map with keys of type int, but keys of JSON objects are strings",
            "column 's.a;b': Delta cannot hold a name with ';'",
            "column 'd' has the type decimal(39,0), which is not one: a decimal's precision is 1 to 38 and its scale 0 to the precision",
            "column 'c': json-text does not apply to the type int",
            "column 'again' reads o, but column 'whole' reads o, which is the same value or holds it",
            "column 'part' reads o.p, but column 'whole' reads o, which is the same value or holds it",
        ]
    );
    assert!(errors.iter().all(|error| error.hint().is_some_and(|hint| !hint.is_empty())));
    assert!(declared(vec![column("a.b", "int"), from(column("b", "int"), "a.b"), column("ab", "int")]).is_ok());
    let options = PlanOptions { max_columns: 2, ..PlanOptions::default() };
    let errors = Plan::declared(vec![column("s", "struct<a:int,b:map<string,int>>")], options).unwrap_err();
    assert_eq!(errors, [PlanError::TooMany { columns: 3, max: 2 }]);
    let mut deep = DataType::Int;
    for _ in 0..124 {
        deep = DataType::Array(Box::new(deep));
    }
    assert!(matches!(declared(vec![ColumnSpec::new("deep", deep)]).unwrap_err()[..], [PlanError::TypeDepth { .. }]));
}

/// The JSON text that a table's schema is stored as.
fn stored_schema(plan: &Plan) -> String {
    fn stored(data_type: &DataType) -> Value {
        match data_type {
            DataType::Array(element) => json!({"type": "array", "elementType": stored(element), "containsNull": true}),
            DataType::Struct(fields) => {
                let field = |field: &alluvium_core::data_type::Field| json!({"name": field.name, "type": stored(&field.data_type), "nullable": true, "metadata": {}});
                json!({"type": "struct", "fields": fields.iter().map(field).collect::<Vec<_>>()})
            }
            other => json!(other.to_string()),
        }
    }
    let field = |column: &alluvium_schema::Column| alluvium_core::data_type::Field {
        name: column.name.clone(),
        data_type: column.data_type.clone(),
    };
    stored(&DataType::Struct(plan.columns().iter().map(field).collect())).to_string()
}

#[test]
fn the_deepest_record_makes_a_table_that_can_be_read() {
    for (open, close, levels) in
        [("[", "]", [123, 124, 127]), ("{\"a\":", "}", [41, 42, 127]), ("[{\"a\":", "}]", [30, 31, 63])]
    {
        for (at, levels) in levels.into_iter().enumerate() {
            let nested = format!("{}1{}", open.repeat(levels), close.repeat(levels));
            let record = format!("{{\"x\":{nested}}}");
            let plan = grown(&[&record]);
            // As deep as a schema goes all levels are columns; what lies below is JSON text.
            assert_eq!(at == 0, text(&plan).contains("bigint"), "{}", text(&plan));
            serde_json::from_str::<Value>(&stored_schema(&plan)).unwrap();
            let back: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
            assert_eq!(back, plan);
            assert_eq!(inferred().with_table(&plan.schema()).unwrap(), plan);
            let decoded = Decoder::new(Arc::new(plan)).decode(&pack_texts(&[&record])).unwrap();
            assert!(decoded.unknown.is_none());
            assert_eq!(row(&decoded.batch, 0)["_rescued"], Value::Null);
        }
    }
}

#[test]
fn growth_of_a_deep_column_stops_where_a_schema_does() {
    let nested =
        |levels: usize, inner: &str| format!("{{\"x\":{}{inner}{}}}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let plan = grown(&[&nested(41, "1")]);
    let mut shape = Shape::default();
    shape.observe(nested(40, r#"{"b":{"c":[1]},"d":2}"#).as_bytes());
    let plan = plan.grow(&shape).unwrap().unwrap();
    assert!(text(&plan).contains("struct<a:bigint,b:string,d:bigint>"), "{}", text(&plan));
    serde_json::from_str::<Value>(&stored_schema(&plan)).unwrap();
    assert_eq!(inferred().with_table(&plan.schema()).unwrap(), plan);
}

#[test]
fn a_column_of_the_table_grows_as_it_is_taken_up() {
    let plan = declared(vec![column("id", "bigint")]).unwrap();
    let plan = plan.with_table(&table(&[("id", "bigint"), ("o", "struct<a:bigint>")])).unwrap();
    let mut shape = Shape::default();
    shape.observe(br#"{"id":1,"o":{"a":1,"b":"new"}}"#);
    let plan = plan.grow(&shape).unwrap().unwrap();
    assert_eq!(text(&plan), "id bigint, o struct<a:bigint,b:string>");
    assert_eq!(plan.grow(&shape), Ok(None));
}

#[test]
fn an_inferred_plan_takes_the_columns_of_its_table() {
    let metadata = Field::new("_kafka", parse("struct<offset:bigint>").to_arrow(), true);
    let mut fields = table(&[("b", "bigint"), ("_Rescued", "string"), ("a", "decimal(9,2)")]).fields().to_vec();
    fields.insert(1, Arc::new(metadata));
    let plan = inferred().with_table(&Schema::new(fields)).unwrap();
    assert_eq!(text(&plan), "b bigint, a decimal(9,2)");
    assert_eq!(plan.rescued(), "_Rescued");
    assert_eq!(plan.schema().fields().last().unwrap().name(), "_Rescued");
    assert!(plan.is_settled() && plan.columns().iter().all(|column| column.on_conflict == OnConflict::Rescue));

    let only_metadata = table(&[("_kafka", "struct<offset:bigint>"), ("_rescued", "string")]);
    assert!(!inferred().with_table(&only_metadata).unwrap().is_settled(), "the first fields can still come");

    let mut plan = inferred();
    plan.require(&path("x"), &DataType::Int, OnConflict::Reject).unwrap();
    plan.require(&path("a"), &parse("decimal(9,2)"), OnConflict::Reject).unwrap();
    let plan = plan.with_table(&table(&[("b", "bigint"), ("a", "decimal(9,2)")])).unwrap();
    assert_eq!(text(&plan), "b bigint, a decimal(9,2), x int");

    let wrong = Schema::new(vec![
        Field::new("u", ArrowType::UInt8, true),
        Field::new("_rescued", ArrowType::Int64, true),
        Field::new("fine", ArrowType::Int64, true),
    ]);
    assert_eq!(
        inferred().with_table(&wrong).unwrap_err(),
        [
            PlanError::TableColumn { column: "u".to_owned(), found: "UInt8".to_owned() },
            PlanError::TableType { column: "_rescued".to_owned(), planned: DataType::String, table: DataType::BigInt },
        ]
    );
}

#[test]
fn a_declared_plan_must_agree_with_its_table() {
    let from = Some(path("o.p"));
    let plan =
        declared(vec![ColumnSpec { from, ..column("id", "bigint") }, column("s", "struct<b:int,c:string>")]).unwrap();
    let over =
        plan.clone().with_table(&table(&[("s", "struct<a:int,b:int>"), ("ID", "bigint"), ("other", "date")])).unwrap();
    assert_eq!(text(&over), "ID bigint, s struct<a:int,b:int,c:string>");
    assert_eq!(over.columns()[0].path, ["o", "p"]);
    for (wrong, data_type) in [("id", "int"), ("s", "struct<B:int>"), ("s", "struct<b:bigint>"), ("s", "string")] {
        let errors = plan.clone().with_table(&table(&[(wrong, data_type)])).unwrap_err();
        let [PlanError::TableType { column, table, .. }] = &errors[..] else { panic!("{errors:?}") };
        assert_eq!((column.as_str(), table), (wrong, &parse(data_type)));
    }

    // A field that only the table has becomes its column, with its type.
    let grown = over.grow(&observed(&[r#"{"other":7,"OTHER":1,"new":2}"#])).unwrap().unwrap();
    assert_eq!(text(&grown), "ID bigint, s struct<a:int,b:int,c:string>, other date, new bigint");
    assert_eq!(grown.grow(&observed(&[r#"{"other":7,"OTHER":1}"#])).unwrap(), None);
    assert_eq!(over.grow(&observed(&[r#"{"other":null}"#])).unwrap(), None);
    assert_eq!(grown.columns()[2].on_conflict, OnConflict::Rescue);
}

/// With `evolve = "approve"` whoever adds a column to the table approves it, for declared columns too.
#[test]
fn a_column_of_the_table_is_approved() {
    let columns = || vec![ColumnSpec { from: Some(path("id")), ..column("order_id", "bigint") }, column("held", "int")];
    let table = table(&[("order_id", "bigint"), ("id", "string"), ("note", "string"), ("gone", "int")]);
    let over = |evolve| {
        let options = PlanOptions { evolve, drops: vec![path("gone")], ..PlanOptions::default() };
        Plan::declared(columns(), options).unwrap().with_table(&table).unwrap()
    };
    // What is approved is read from the field of its name, unless another column reads that or it is dropped.
    assert_eq!(text(&over(Evolve::Approve)), "order_id bigint, note string");
    assert_eq!(text(&over(Evolve::Add)), "order_id bigint, held int");
    let grown = over(Evolve::Add).grow(&observed(&[r#"{"note":"n","id":1}"#])).unwrap().unwrap();
    assert_eq!(text(&grown), "order_id bigint, held int, note string");
}

#[test]
fn growth_beside_picked_fields_is_rescued() {
    let columns = vec![ColumnSpec { from: Some(path("o.p")), ..column("p", "bigint") }];
    let record = r#"{"o":{"p":1,"q":2},"p":3}"#;
    let plan = declared(columns.clone()).unwrap();
    assert_eq!(plan.grow(&observed(&[record])).unwrap(), None);
    let decoded = Decoder::new(Arc::new(plan)).decode(&pack_texts(&[record])).unwrap();
    assert!(decoded.unknown.is_none());
    assert_eq!(row(&decoded.batch, 0)["_rescued"], json!(r#"{"o":{"q":2},"p":3}"#));

    let options = PlanOptions { evolve: Evolve::Stop, ..PlanOptions::default() };
    let plan = Plan::declared(columns, options).unwrap();
    let decoded = Decoder::new(Arc::new(plan.clone())).decode(&pack_texts(&[record])).unwrap();
    let fields = vec!["o.q".to_owned(), "p".to_owned()];
    assert_eq!(plan.grow(&decoded.unknown.unwrap()), Err(GrowError::Unknown { fields }));
}

#[test]
fn plugins_declare_what_they_read() {
    let mut plan = inferred();
    let string = DataType::String;
    plan.require(&path("customer.address.city"), &string, OnConflict::Reject).unwrap();
    plan.require(&path("customer.email"), &string, OnConflict::Rescue).unwrap();
    plan.require(&path("customer.email"), &string, OnConflict::Rescue).unwrap();
    assert_eq!(text(&plan), "customer struct<address:struct<city:string>,email:string>");
    assert_eq!(plan.data_type_of(&path("customer.address.city")), Some(DataType::String));
    assert_eq!(plan.data_type_of(&path("customer.Email")), None);
    assert!(!plan.is_settled());
    let grown = plan.grow(&observed(&[r#"{"id":1,"customer":{"email":1,"vip":true}}"#])).unwrap().unwrap();
    assert_eq!(text(&grown), "customer struct<address:struct<city:string>,email:string,vip:boolean>, id bigint");

    let error = |plan: &Plan, at: &str, data_type: &str| {
        let before = plan.clone();
        let mut plan = plan.clone();
        let error = plan.require(&path(at), &parse(data_type), OnConflict::Reject).unwrap_err();
        assert_eq!(plan, before);
        error.to_string()
    };
    assert_eq!(error(&plan, "customer.email", "int"), "a plugin reads customer.email as int, but it is string");
    assert_eq!(
        error(&plan, "customer.email.host", "string"),
        "a plugin reads customer.email.host as string, but it is string"
    );
    assert_eq!(
        error(&plan, "Customer", "int"),
        "a plugin reads Customer, but the plan has 'customer' (keys of records are case-sensitive, columns are not)"
    );
    assert_eq!(error(&plan, "_kafka", "int"), "column '_kafka' has the name of the pipeline's own column '_kafka'");
    assert_eq!(error(&plan, "customer.a b", "int"), "column 'customer.a b': Delta cannot hold a name with ' '");
    assert_eq!(
        error(&plan, "m", "map<int,int>"),
        "column 'm' is a map with keys of type int, but keys of JSON objects are strings"
    );

    let plan = declared(vec![column("a", "struct<b:int>")]).unwrap();
    assert!(plan.clone().require(&path("a.b"), &DataType::Int, OnConflict::Reject).is_ok());
    assert_eq!(error(&plan, "a.c", "int"), "a plugin reads a.c as int, but no such column is declared");
    assert_eq!(error(&plan, "c", "int"), "a plugin reads c as int, but no such column is declared");
}

#[test]
fn types_are_inferred_exactly() {
    for (values, data_type) in [
        (&["1", "-9223372036854775808"][..], "bigint"),
        (&["1", "9223372036854775808"], "decimal(20,0)"),
        (&["18446744073709551615"], "decimal(20,0)"),
        (&["-99999999999999999999"], "decimal(20,0)"),
        (&["100000000000000000000"], "decimal(38,0)"),
        (&["99999999999999999999999999999999999999", "1"], "decimal(38,0)"),
        (&["1", "1.5"], "double"),
        (&["1.0"], "double"),
        (&["1e3"], "double"),
        (&["100000000000000000000", "1.5"], "double"),
        (&["true", "null", "false"], "boolean"),
        (&["\"2026-01-01\""], "string"),
        (&["[]", "[null]", "[[]]", "[[1]]"], "array<array<bigint>>"),
        (&["[]", "{\"a\":1}", "{}"], "struct<a:bigint>"),
        (&["{\"a\":{}}", "{\"b\":{\"c\":[1]}}", "{\"a\":null}"], "struct<b:struct<c:array<bigint>>>"),
        (&["{\"a b\":1,\"x\":1,\"X\":\"\",\"\":1}"], "struct<x:bigint>"),
    ] {
        let records = values.iter().map(|value| format!("{{\"x\":{value}}}")).collect::<Vec<_>>();
        let plan = grown(&records.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(text(&plan), format!("x {data_type}"), "{values:?}");
        let decoded = Decoder::new(Arc::new(plan)).decode(&pack_texts(&records)).unwrap();
        assert_eq!(decoded.rejects, []);
    }
    let long = format!("{{\"{}\":1,\"{}\":1}}", "n".repeat(256), "n".repeat(255));
    assert_eq!(text(&grown(&[&long])), format!("{} bigint", "n".repeat(255)));
    for nothing in ["null", "[]", "{}", "[null]", "[[],{}]", "{\"a\":[]}", "{\"a b\":1}"] {
        let record = format!("{{\"x\":{nothing}}}");
        assert_eq!(inferred().grow(&observed(&[&record])).unwrap(), None, "{nothing}");
    }
}

#[test]
fn kinds_that_do_not_meet_keep_their_json_text() {
    for (values, data_type, at, rows) in [
        (&["1", "\"a\""][..], "string", "", json!(["1", "\"a\""])),
        (&["true", "{ }", "{ \"a\":1}"], "string", "", json!(["true", "{ }", "{ \"a\":1}"])),
        (&["1e400"], "string", "", json!(["1e400"])),
        (
            &["123456789012345678901234567890123456789"],
            "string",
            "",
            json!(["123456789012345678901234567890123456789"]),
        ),
        (&["[1,\"a\",null]"], "array<string>", "element", json!([["1", "\"a\"", null]])),
        (
            &["{\"k.1\":[{\"v\":1},{\"v\":[1]}]}"],
            "struct<`k.1`:array<struct<v:string>>>",
            "`k.1`.element.v",
            json!([{"k.1": [{"v": "1"}, {"v": "[1]"}]}]),
        ),
    ] {
        let records = values.iter().map(|value| format!("{{\"x\":{value}}}")).collect::<Vec<_>>();
        let plan = grown(&records.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(text(&plan), format!("x {data_type}"), "{values:?}");
        assert_eq!(plan.columns()[0].coercions.get(at), Some(&Coercion::JsonText), "{values:?}");
        // The table remembers it: a plan made anew from it goes on the same way.
        let stored = plan.schema();
        assert!(stored.field(0).metadata().contains_key(COERCIONS));
        assert_eq!(stored.field(0).data_type(), &plan.columns()[0].data_type.to_arrow());
        let again = inferred().with_table(&stored).unwrap();
        assert_eq!(again, plan);
        let decoded = Decoder::new(Arc::new(again)).decode(&pack_texts(&records)).unwrap();
        let found = (0..records.len()).map(|at| row(&decoded.batch, at)["x"].clone()).collect::<Vec<_>>();
        assert_eq!(json!(found), rows);
    }
}

#[test]
fn the_stored_form_stays_as_it_is() {
    let email =
        ColumnSpec { on_conflict: OnConflict::Rescue, coercion: Coercion::JsonText, ..column("email", "string") };
    let from = Some(path("customer.email"));
    let plan = declared(vec![column("id", "bigint"), ColumnSpec { from, ..email }]).unwrap();
    let plan = plan.with_table(&table(&[("old", "array<int>")])).unwrap();
    let stored = json!({
        "origin": "declared",
        "evolve": "add",
        "max_columns": 1000,
        "rescued": "_rescued",
        "reserved": ["_kafka"],
        "settled": true,
        "columns": [
            {"name": "id", "type": "bigint", "path": ["id"], "on_conflict": "reject"},
            {"name": "email", "type": "string", "path": ["customer", "email"], "on_conflict": "rescue", "coercions": {"": "json-text"}},
        ],
        "undeclared": [{"name": "old", "type": "array<int>", "path": ["old"], "on_conflict": "rescue"}],
    });
    assert_eq!(serde_json::to_value(&plan).unwrap(), stored);
    assert_eq!(plan.digest(), "sha256:06d95fb2ceed8a3a5354dd6d93e4b17a39ebcda923c3474889bfbc976a313326");
}

#[test]
fn a_stored_plan_that_cannot_run_is_refused() {
    let plan = serde_json::to_value(declared(vec![column("x", "decimal(9,2)")]).unwrap()).unwrap();
    for (pointer, wrong) in [
        ("/columns/0/path", json!([])),
        ("/columns/0/type", json!("decimal(39,2)")),
        ("/columns/0/name", json!(1)),
        ("/columns/0", json!({"name": "x"})),
        ("/evolve", json!("sometimes")),
    ] {
        let mut plan = plan.clone();
        *plan.pointer_mut(pointer).unwrap() = wrong;
        assert!(serde_json::from_value::<Plan>(plan).is_err(), "{pointer}");
    }
    let foreign = json!([{"name": "y", "type": "int", "path": ["z"], "on_conflict": "rescue"}]);
    for (key, wrong) in [("more", json!(1)), ("undeclared", foreign)] {
        let mut more = plan.clone();
        more[key] = wrong;
        assert!(serde_json::from_value::<Plan>(more).is_err(), "{key}");
    }
    let plan = grown(&[r#"{"x":1}"#]).with_table(&table(&[("X", "bigint")])).unwrap();
    assert_eq!((plan.columns()[0].name.as_str(), plan.columns()[0].path[0].as_str()), ("X", "x"));
    assert_eq!(serde_json::from_value::<Plan>(serde_json::to_value(&plan).unwrap()).unwrap(), plan);
    let mut inferred = serde_json::to_value(grown(&[r#"{"x":1}"#])).unwrap();
    inferred["columns"][0]["path"] = json!(["y"]);
    assert!(serde_json::from_value::<Plan>(inferred).is_err());
}

/// A plugin is told the types of the table, not how its columns are read.
#[test]
fn a_column_of_json_text_stays_one_under_a_plugin() {
    let mut mixed = Shape::default();
    [r#"{"id":1,"s":{"x":1}}"#, r#"{"id":"a","s":{"x":[]}}"#, r#"{"s":{"x":"b"}}"#]
        .iter()
        .for_each(|json| mixed.observe(json.as_bytes()));
    let table = Plan::inferred(PlanOptions::default()).grow(&mixed).unwrap().unwrap().schema();
    let columns = || vec![column("id", "string"), column("s", "struct<x:string>")];
    let coercions = |plan: &Plan| plan.columns().iter().map(|column| column.coercions.clone()).collect::<Vec<_>>();
    let mapped = Plan::mapped(columns(), PlanOptions::default()).unwrap().with_table(&table).unwrap();
    let json_text = |inner: &str| [(inner.to_owned(), Coercion::JsonText)].into();
    assert_eq!(coercions(&mapped), [json_text(""), json_text("x")]);
    // What the owner declares stands.
    let declared = Plan::declared(columns(), PlanOptions::default()).unwrap().with_table(&table).unwrap();
    assert_eq!(coercions(&declared), [[].into(), [].into()]);
}

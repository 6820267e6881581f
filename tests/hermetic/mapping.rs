//! Schema-mapping plugins, and tables whose growth the owner approves.

use alluvium_delta::TableRole;
use alluvium_kafka::{NewRecord, Producer, Sandbox};
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::{PATIENCE, plugin};
use alluvium_tests::{Options, Workbench};
use serde_json::{Value, json};

/// A topic of one partition, and a pipeline with this `[schema]`.
pub fn workbench(schema: &str) -> (Sandbox, Workbench) {
    let topic = Workbench::topic_name("mapping");
    let sandbox = Sandbox::start(&[(&topic, 1)]).unwrap();
    let bench = Workbench::new(sandbox.brokers(), &topic, &options(schema));
    (sandbox, bench)
}

pub fn options(schema: &str) -> Options {
    Options { schema: schema.to_owned(), transforms: String::new(), ..Options::default() }
}

pub fn mapped(with: &str, more: &str) -> String {
    format!("mapping = {{ plugin = {:?}, with = {with} }}\n{more}", plugin("orders-map"))
}

pub async fn send(bench: &Workbench, records: &[Value]) {
    let producer = Producer::connect(bench.brokers(), &[]).unwrap();
    for record in records {
        let value = record.to_string();
        let record = NewRecord {
            topic: bench.topic(),
            partition: Some(0),
            value: Some(value.as_bytes()),
            ..NewRecord::default()
        };
        drop(producer.enqueue(record).await.unwrap());
    }
    producer.flush().await.unwrap();
}

pub async fn columns(bench: &Workbench) -> Vec<String> {
    let schema = bench.tables("pipeline").state().await.unwrap().schema.unwrap();
    let kind = |field: &arrow_schema::Field| alluvium_core::DataType::from_arrow(field.data_type()).unwrap();
    schema.fields().iter().map(|field| format!("{} {}", field.name(), kind(field))).collect()
}

/// The rows of some columns, in the order of their offsets.
pub async fn rows(bench: &Workbench, names: &[&str]) -> Vec<Vec<Value>> {
    let mut all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    all.push("_kafka".to_owned());
    let batch = bench.tables("pipeline").first_rows(TableRole::Rows, Some(&all), 100).await.unwrap();
    let mut rows: Vec<Value> = (0..batch.num_rows()).map(|row| alluvium::rows::row(&batch, row)).collect();
    rows.sort_by_key(|row| row["_kafka"]["offset"].as_i64());
    rows.iter().map(|row| names.iter().map(|name| row[*name].clone()).collect()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_decides_on_the_columns_and_is_asked_again_when_the_records_change() {
    let (_sandbox, bench) = workbench(&mapped("{}", ""));
    let first = json!({
        "id": 1, "amount": "19.90", "event_time": "2026-03-01T00:30:00+02:00", "sku": "AB-12",
        "debug": {"trace": 1}, "customer": {"email": "a@b.c"},
    });
    let no_sku = json!({"id": 2, "amount": 7, "event_time": "2026-03-01T12:00:00Z", "sku": "none"});
    let wrong = json!({"id": 3, "amount": "x"});
    send(&bench, &[first, no_sku, wrong]).await;
    let summary = bench.run_to_end("first");
    assert_eq!((&summary[0]["rows"], &summary[0]["rejected"]), (&json!(2), &json!(1)), "{summary:#}");
    let expected = [
        "order_id bigint",
        "amount decimal(10,2)",
        "event_time timestamp",
        "order_date date",
        "sku_family string",
        "sku_number int",
        // What the plugin leaves to `evolve`.
        "customer struct<email:string>",
        "_rescued string",
        "_kafka struct<partition:int,offset:bigint,timestamp:timestamp>",
    ];
    assert_eq!(columns(&bench).await, expected);
    let names = ["order_id", "amount", "order_date", "sku_family", "sku_number", "_rescued"];
    assert_eq!(
        rows(&bench, &names).await,
        [
            vec![json!(1), json!("19.90"), json!("2026-02-28"), json!("AB"), json!(12), json!(null)],
            vec![json!(2), json!("7.00"), json!("2026-03-01"), json!(null), json!(null), json!(r#"{"sku":"none"}"#)],
        ]
    );
    // Another process does not know what the first has seen; its records have other fields.
    send(&bench, &[json!({"id": 4, "note": "n"}), json!({"id": 5, "note": "m", "amount": "0.01"})]).await;
    let summary = bench.run_to_end("second");
    assert_eq!(summary[0]["rows"], 2, "{summary:#}");
    assert_eq!(columns(&bench).await.len(), expected.len() + 1);
    assert_eq!(
        rows(&bench, &["order_id", "amount", "note", "_rescued"]).await[2..],
        [vec![json!(4), json!(null), json!("n"), json!(null)], vec![json!(5), json!("0.01"), json!("m"), json!(null)],]
    );
    // Every commit of rows tells which plugin and which plan.
    let log = bench.dir().join("pipeline/_delta_log");
    let entries = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| path.extension().is_some_and(|ext| ext == "json"));
    let lines = entries.flat_map(|path| {
        std::fs::read_to_string(path)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect::<Vec<_>>()
    });
    let infos: Vec<Value> = lines.map(|line: Value| line["commitInfo"]["alluvium"].clone()).collect();
    let infos: Vec<_> = infos.iter().filter(|info| info["partitions"][0]["read"].as_u64() > Some(0)).collect();
    assert_eq!(infos.len(), 2, "{infos:#?}");
    let digest = alluvium_wasm::digest(&std::fs::read(plugin("orders-map")).unwrap());
    for info in &infos {
        assert_eq!(info["plugins"].as_array().unwrap().len(), 1, "{info:#}");
        assert_eq!(
            (&info["plugins"][0]["name"], &info["plugins"][0]["digest"]),
            (&json!("orders-map"), &json!(digest)),
            "{info:#}"
        );
    }
    // The second plan has a column that the first has not.
    assert_ne!(infos[0]["plan"], infos[1]["plan"]);
    assert!(infos.iter().all(|info| info["plan"].as_str().is_some_and(|plan| plan.starts_with("sha256:"))));
    let letters = bench.dead_letters("pipeline").await;
    assert_eq!(letters.into_iter().collect::<Vec<_>>(), [((0, 2), 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_changes_a_type_of_the_table_stops_the_pipeline() {
    let (_sandbox, mut bench) = workbench(&mapped("{}", ""));
    send(&bench, &[json!({"id": 1, "amount": "1.00"})]).await;
    bench.run_to_end("first");
    bench.rewrite(&options(&mapped(r#"{ decimals = { amount = "decimal(20,4)" } }"#, "")));
    send(&bench, &[json!({"id": 2, "amount": "1.0001"})]).await;
    let mut process = bench.run("second", &["--until-end"], &[]);
    assert_eq!(process.wait(PATIENCE).code(), Some(1), "{}", process.err());
    let told = process.err();
    assert!(told.contains("the plan of plugin orders-map cannot be carried out"), "{told}");
    assert!(told.contains("'amount' has the type decimal(20,4) in the plan, but decimal(10,2) in the table"), "{told}");
    let hostile =
        format!("mapping = {{ plugin = {:?}, with = {{ mode = \"type-change\" }} }}", plugin("hostile-mapping"));
    bench.rewrite(&options(&hostile));
    let mut process = bench.run("hostile", &["--until-end"], &[]);
    assert_eq!(process.wait(PATIENCE).code(), Some(1), "{}", process.err());
    assert!(process.err().contains("has the type binary in the plan, but bigint in the table"), "{}", process.err());
    // Nothing was lost: the plugin mended, the record lands.
    bench.rewrite(&options(&mapped("{}", "")));
    let summary = bench.run_to_end("third");
    assert_eq!((&summary[0]["read"], &summary[0]["rejected"]), (&json!(1), &json!(1)), "{summary:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_in_the_wrong_place_and_bad_configurations_are_told_by_check() {
    let (_sandbox, mut bench) = workbench(&mapped(r#"{ nonsense = 1 }"#, ""));
    let mut check = bench.alluvium("check", &["check", "pipeline.toml"], &[]);
    assert_eq!(check.wait(PATIENCE).code(), Some(2));
    assert!(check.err().contains("pipeline.toml:15:11") && check.err().contains("nonsense"), "{}", check.err());
    bench.rewrite(&options(&format!("mapping = {{ plugin = {:?} }}", plugin("redact"))));
    let mut check = bench.alluvium("transform", &["check", "pipeline.toml"], &[]);
    assert_eq!(check.wait(PATIENCE).code(), Some(2));
    assert!(check.err().contains("hint: name it in a [[transform]] table"), "{}", check.err());
    let transforms = format!("[[transform]]\nplugin = {:?}\n", plugin("orders-map"));
    bench.rewrite(&Options { transforms, ..options("") });
    let mut check = bench.alluvium("mapping", &["check", "pipeline.toml"], &[]);
    assert_eq!(check.wait(PATIENCE).code(), Some(2));
    assert!(check.err().contains("hint: name it as `mapping = { plugin = … }` in [schema]"), "{}", check.err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_approved_is_kept_in_the_rescue_column() {
    let (_sandbox, mut bench) = workbench("evolve = \"approve\"\n");
    send(&bench, &[json!({"id": 1})]).await;
    bench.run_to_end("first");
    let before = columns(&bench).await;
    send(&bench, &[json!({"id": 2, "note": {"x": 1}}), json!({"id": 3, "s": 1})]).await;
    bench.run_to_end("second");
    assert_eq!(columns(&bench).await, before, "nothing grows");
    assert_eq!(
        rows(&bench, &["id", "_rescued"]).await[1..],
        [vec![json!(2), json!(r#"{"note":{"x":1}}"#)], vec![json!(3), json!(r#"{"s":1}"#)]]
    );
    // A plugin would write a column that the table does not have.
    let transforms = alluvium_tests::workbench::transform("redact", r#"{ fields = [] }"#);
    bench.rewrite(&Options { transforms, ..options("evolve = \"approve\"\n") });
    let mut process = bench.run("third", &["--until-end"], &[]);
    assert_eq!(process.wait(PATIENCE).code(), Some(2), "{}", process.err());
    assert!(process.err().contains("nobody has approved them: test, event_time, order_date"), "{}", process.err());
}

/// A first commit without a column of the records, as `start = "latest"` makes one too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_approve_the_first_typed_batch_makes_the_columns() {
    let (_sandbox, bench) = workbench("evolve = \"approve\"\n");
    send(&bench, &[json!({"a b": 1}), json!({"id": null})]).await;
    bench.run_to_end("first");
    assert_eq!(columns(&bench).await.len(), 2, "the rescue column and _kafka");
    send(&bench, &[json!({"id": 1})]).await;
    bench.run_to_end("second");
    send(&bench, &[json!({"id": 2, "note": "n"})]).await;
    bench.run_to_end("third");
    let (null, rescued) = (Value::Null, |text: &str| json!(text));
    assert_eq!(
        rows(&bench, &["id", "_rescued"]).await,
        [
            vec![null.clone(), rescued(r#"{"a b":1}"#)],
            vec![null.clone(), null.clone()],
            vec![json!(1), null],
            vec![json!(2), rescued(r#"{"note":"n"}"#)],
        ]
    );
}

/// What docs/schema.md says under "To change a column's type".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_columns_type_is_changed_as_the_docs_say() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schema.md")).unwrap();
    let (_, section) = text.split_once("## To change a column's type").unwrap();
    let (_, toml) = section.split_once("```toml\n[schema]\n").unwrap();
    let (schema, _) = toml.split_once("```").unwrap();
    let (_sandbox, mut bench) = workbench("");
    send(&bench, &[json!({"id": 1, "price": 1.5, "name": "a"})]).await;
    bench.run_to_end("first");
    bench.rewrite(&options(schema));
    send(&bench, &[json!({"id": 2, "price": 2.25, "name": "b"}), json!({"id": 3, "price": "x"})]).await;
    let mut process = bench.run("second", &["--until-end"], &[]);
    assert!(process.wait(PATIENCE).success(), "{}", process.err());
    let warned = "columns of the table that the pipeline does not declare are null in its rows: price";
    assert_eq!(process.err().matches(warned).count(), 1, "{}", process.err());
    // What a command tells itself it does not warn of.
    let mut show = bench.alluvium("show", &["schema", "show", "pipeline.toml"], &[]);
    assert!(show.wait(PATIENCE).success() && show.out().contains("price"), "{}", show.err());
    assert!(!show.err().contains(warned), "{}", show.err());
    let null = Value::Null;
    assert_eq!(
        rows(&bench, &["id", "name", "price", "price_v2", "_rescued"]).await,
        [
            vec![json!(1), json!("a"), json!(1.5), null.clone(), null.clone()],
            vec![json!(2), json!("b"), null.clone(), json!("2.2500"), null.clone()],
            vec![json!(3), null.clone(), null.clone(), null, json!(r#"{"price":"x"}"#)],
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_field_stops_the_pipeline_that_asks_for_it_and_says_where() {
    let (_sandbox, bench) = workbench("evolve = \"stop\"\n");
    send(&bench, &[json!({"id": 1})]).await;
    bench.run_to_end("first");
    send(&bench, &[json!({"id": 2}), json!({"id": 3, "note": {"x": 1}}), json!({"id": 4})]).await;
    for name in ["second", "third"] {
        let told = bench.run_refused(name);
        assert!(told.contains("partition 0, offsets [1, 4)"), "{told}");
        assert!(told.contains("the records have fields that the table has not: note"), "{told}");
        assert!(
            told.contains("hint: declare the new fields, or add them with `alluvium schema approve FILE`"),
            "{told}"
        );
        assert_eq!(rows(&bench, &["id"]).await, [[json!(1)]], "nothing past the last commit");
    }
    let mut approve = bench.alluvium("approve", &["schema", "approve", "pipeline.toml"], &[]);
    assert!(approve.wait(PATIENCE).success(), "{}", approve.err());
    bench.run_to_end("fourth");
    let found = rows(&bench, &["id", "note"]).await;
    assert_eq!(found[1..], [[json!(2), Value::Null], [json!(3), json!({"x": 1})], [json!(4), Value::Null]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_that_stops_the_pipeline_steers_no_terminal() {
    let (_sandbox, bench) = workbench("evolve = \"stop\"\n");
    send(&bench, &[json!({"id": 1})]).await;
    bench.run_to_end("first");
    send(&bench, &[json!({"x\u{1b}[2J\u{202e}\nerror: no": 1})]).await;
    let told = bench.run_refused("second");
    assert!(told.contains(r"x\u{1b}[2J\u{202e}\u{a}error: no"), "{told}");
    assert!(!told.contains(['\u{1b}', '\u{202e}']), "{told}");
}

/// Planning anew does not help where it comes to the same: a plugin's column differs from the table's in case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_never_takes_the_rows_stops_the_pipeline() {
    let (_sandbox, mut bench) = workbench("");
    send(&bench, &[json!({"id": 1, "ORDER_DATE": "x"})]).await;
    bench.run_to_end("first");
    let transforms = alluvium_tests::workbench::transform("redact", "{ fields = [] }");
    bench.rewrite(&Options { transforms, ..options("") });
    send(&bench, &[json!({"id": 2})]).await;
    let told = bench.run_refused("second");
    assert!(
        told.contains("column order_date of the table does not take the rows, although they were planned anew"),
        "{told}"
    );
    assert_eq!(rows(&bench, &["id"]).await, [[json!(1)]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_without_a_plan_says_for_which_records() {
    let with = r#"{ mode = "err-marker", marker = "odd" }"#;
    let (_sandbox, bench) =
        workbench(&format!("mapping = {{ plugin = {:?}, with = {with} }}", plugin("hostile-mapping")));
    send(&bench, &[json!({"id": 1, "odd": 1})]).await;
    let mut process = bench.run("first", &["--until-end"], &[]);
    assert_eq!(process.wait(PATIENCE).code(), Some(1), "{}", process.err());
    assert!(process.err().contains("partition 0, offsets [0, 1)"), "a first batch: {}", process.err());
    let (_sandbox, bench) =
        workbench(&format!("mapping = {{ plugin = {:?}, with = {with} }}", plugin("hostile-mapping")));
    send(&bench, &[json!({"id": 1})]).await;
    bench.run_to_end("first");
    send(&bench, &[json!({"id": 2}), json!({"id": 3, "odd": 1})]).await;
    let mut process = bench.run("second", &["--until-end"], &[]);
    assert_eq!(process.wait(PATIENCE).code(), Some(1), "{}", process.err());
    assert!(process.err().contains("partition 0, offsets [1, 3)"), "{}", process.err());
    assert!(process.err().contains("a record has the field 'odd'"), "{}", process.err());
    assert_eq!(rows(&bench, &["id"]).await, [[json!(1)]]);
}

/// What a plugin can get wrong about a plan as a whole, and how it can misbehave: the pipeline stops before
/// anything is written, and says which column is at fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_plan_stops_its_pipeline_and_nothing_is_written() {
    let (_sandbox, mut bench) = workbench("");
    let records = bench.dir().join("records.ndjson");
    std::fs::write(&records, "{\"id\":1,\"tags\":[\"a\"]}\n").unwrap();
    let modes = [
        ("loop", "time"),
        ("memory", "memory"),
        ("trap", "unreachable"),
        ("err", "has no plan for the records"),
        ("type-unknown", "unknown type 'strng'"),
        ("columns-10000", "the plan has 10000 columns, counting the fields of structs, but at most 1000 are allowed"),
        ("columns-10001", "it names 10001 columns"),
        ("name-twice-case", "is there twice"),
        ("name-kafka", "has the name of the pipeline's own column '_kafka'"),
        ("name-comma", "Delta cannot hold a name with"),
        ("path-overlap", "which is the same value or holds it"),
        ("coercion-type", "does not apply to the type"),
        ("derivation-nested", "cannot be made by"),
        ("default-type", "cannot take the default"),
        ("default-syntax", "its default is not JSON"),
        ("drop-column", "is dropped, but column"),
        ("type-map-key", "keys of JSON objects are strings"),
    ];
    for (mode, expected) in modes {
        let schema = format!("mapping = {{ plugin = {:?}, with = {{ mode = {mode:?} }} }}", plugin("hostile-mapping"));
        bench.rewrite(&Options { limits: "time = \"200ms\"\nmemory = \"16MiB\"".to_owned(), ..options(&schema) });
        let table = bench.dir().join(mode);
        let arguments = ["try", "pipeline.toml", "records.ndjson", "--table", table.to_str().unwrap()];
        let mut process = bench.alluvium(mode, &arguments, &[]);
        assert_ne!(process.wait(PATIENCE).code(), Some(0), "{mode}: {}", process.err());
        assert!(process.err().contains(expected), "{mode}: {}", process.err());
        assert!(!process.err().contains("panicked"), "{mode}: {}", process.err());
        assert!(!table.join("_delta_log/00000000000000000000.json").exists(), "{mode}");
    }
    // A path that no record has, and a plan without columns, are sound.
    for mode in ["path-unseen", "columns-none", "drop-unseen", "honest"] {
        let schema = format!("mapping = {{ plugin = {:?}, with = {{ mode = {mode:?} }} }}", plugin("hostile-mapping"));
        bench.rewrite(&options(&schema));
        let mut process = bench.alluvium(mode, &["try", "pipeline.toml", "records.ndjson"], &[]);
        assert!(process.wait(PATIENCE).success(), "{mode}: {}", process.err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_most_columns_new_fields_are_rescued_and_it_is_told_once() {
    let (_sandbox, bench) = workbench("max_columns = 2\n");
    let mut process = bench.run("run", &[], &[]);
    for at in 1..=4 {
        let record = json!({"a": at, "b": "x", format!("c{at}"): at, format!("s{at}"): {"x": [1]}});
        send(&bench, &[record]).await;
        bench.wait_for("pipeline", at).await;
    }
    process.signal(Signal::SIGTERM);
    assert!(process.wait(PATIENCE).success(), "{}", process.err());
    assert_eq!(columns(&bench).await.len(), 4, "two of the records, the rescue column and _kafka");
    assert_eq!(rows(&bench, &["_rescued"]).await[3], [json!(r#"{"c4":4,"s4":{"x":[1]}}"#)]);
    assert_eq!(process.err().matches("as many as `max_columns` allows").count(), 1, "{}", process.err());
    // So does a process that finds the table full.
    let mut process = bench.run("again", &["--until-end"], &[]);
    assert!(process.wait(PATIENCE).success(), "{}", process.err());
    assert_eq!(process.err().matches("as many as `max_columns` allows").count(), 1, "{}", process.err());
}

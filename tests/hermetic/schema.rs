//! `alluvium schema`: what is planned, what would grow, what was rescued, and approval.

use crate::mapping::{columns, mapped, options, rows, send, workbench};
use alluvium_kafka::Sandbox;
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Options, Workbench};
use serde_json::{Value, json};

/// What a command prints as JSON.
fn told(bench: &Workbench, arguments: &[&str]) -> Value {
    let all = [&["schema"], arguments, &["--json"]].concat();
    bench.alluvium("schema", &all, &[]).done(PATIENCE)
}

/// What a command prints for people.
fn printed(bench: &Workbench, arguments: &[&str]) -> String {
    let mut process = bench.alluvium("schema", &[&["schema"], arguments].concat(), &[]);
    assert!(process.wait(PATIENCE).success(), "{}", process.err());
    process.out()
}

fn refused(bench: &Workbench, arguments: &[&str]) -> String {
    let mut process = bench.alluvium("schema", &[&["schema"], arguments].concat(), &[]);
    assert_eq!(process.wait(PATIENCE).code(), Some(2), "{}", process.err());
    process.err()
}

fn entries(bench: &Workbench) -> usize {
    let log = std::fs::read_dir(bench.dir().join("pipeline/_delta_log"));
    log.map_or(0, |log| {
        log.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "json")).count()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_next_commit_adds_is_told_before_it_does() {
    let (_sandbox, bench) = workbench("");
    send(&bench, &[json!({"id": 1, "customer": {"email": "a@b.c"}})]).await;
    let before = told(&bench, &["diff", "pipeline.toml"]);
    let kafka = json!({"path": "_kafka", "type": "struct<partition:int,offset:bigint,timestamp:timestamp>"});
    let rescued = json!({"path": "_rescued", "type": "string"});
    let first = [json!({"path": "customer", "type": "struct<email:string>"}), json!({"path": "id", "type": "bigint"})];
    let all = [first.as_slice(), &[rescued, kafka]].concat();
    assert_eq!((&before["records"], &before["adds"]), (&json!(1), &json!(all)), "{before:#}");
    assert_eq!(entries(&bench), 0, "a diff makes no table");
    bench.run_to_end("first");
    let added: Vec<Value> =
        all.iter().map(|c| json!(format!("{} {}", c["path"].as_str().unwrap(), c["type"].as_str().unwrap()))).collect();
    assert_eq!(json!(columns(&bench).await), json!(added), "the first commit did what was told");
    send(&bench, &[json!({"id": 2, "customer": {"tier": 1}, "note": "n"})]).await;
    let text = printed(&bench, &["diff", "pipeline.toml"]);
    assert_eq!(text, "the next commit adds\n  + customer.tier bigint\n  + note string\n");
    assert_eq!(told(&bench, &["diff", "pipeline.toml", "--sample", "0"])["adds"], json!([]));
    let file = bench.dir().join("records.ndjson");
    std::fs::write(&file, "{\"other\":true}\n").unwrap();
    let other = told(&bench, &["diff", "pipeline.toml", "--records", file.to_str().unwrap()]);
    assert_eq!(other["adds"], json!([{"path": "other", "type": "boolean"}]));
    // The records are still there for the run, which does as it was told.
    bench.run_to_end("second");
    assert!(columns(&bench).await.contains(&"customer struct<email:string,tier:bigint>".to_owned()));
    assert_eq!(printed(&bench, &["diff", "pipeline.toml"]), "the next commit adds no columns\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_approved_becomes_a_column_of_a_running_pipeline() {
    let (_sandbox, bench) = workbench("evolve = \"approve\"\n");
    send(&bench, &[json!({"id": 1, "customer": {"email": "a"}})]).await;
    let mut process = bench.run("run", &[], &[]);
    bench.wait_for("pipeline", 1).await;
    let before = columns(&bench).await;
    send(&bench, &[json!({"id": 2, "note": "n", "customer": {"tier": 1}, "x y": 1})]).await;
    bench.wait_for("pipeline", 2).await;
    let held = json!([{"path": "customer.tier", "type": "bigint"}, {"path": "note", "type": "string"}]);
    let diff = told(&bench, &["diff", "pipeline.toml"]);
    assert_eq!((&diff["adds"], &diff["held"]), (&json!([]), &held), "{diff:#}");
    let text = printed(&bench, &["diff", "pipeline.toml"]);
    assert!(
        text.contains("held back; `alluvium schema approve pipeline.toml` adds\n  + customer.tier bigint\n"),
        "{text}"
    );
    let error = refused(&bench, &["approve", "pipeline.toml", "notes"]);
    assert!(error.contains("notes does not wait for approval") && error.contains("customer.tier, note"), "{error}");
    assert_eq!(columns(&bench).await, before);

    // One of the two, then the other.
    let approved = told(&bench, &["approve", "pipeline.toml", "note"]);
    assert_eq!(approved["added"], json!([{"path": "note", "type": "string"}]), "{approved:#}");
    let version = approved["version"].as_u64().unwrap();
    let entry = bench.dir().join(format!("pipeline/_delta_log/{version:020}.json"));
    let entry = std::fs::read_to_string(entry).unwrap();
    assert!(entry.contains("\"operation\":\"ADD COLUMNS\"") && entry.contains("\"kind\":\"schema\""), "{entry}");
    let mut next = 2;
    for at in 0..20 {
        // The process finds out with its next commit, and fills the column from then on.
        send(&bench, &[json!({"id": 10 + at, "note": "filled"})]).await;
        next += 1;
        bench.wait_for("pipeline", next).await;
        if rows(&bench, &["note"]).await.last().unwrap()[0] == "filled" {
            break;
        }
    }
    assert_eq!(rows(&bench, &["note", "_rescued"]).await.last().unwrap(), &[json!("filled"), json!(null)]);
    assert!(process.err().contains("the table has new columns"), "{}", process.err());
    let approved = told(&bench, &["approve", "pipeline.toml"]);
    assert_eq!(approved["added"], json!([{"path": "customer.tier", "type": "bigint"}]), "{approved:#}");
    assert_eq!(told(&bench, &["approve", "pipeline.toml"])["version"], json!(null), "twice changes nothing");
    for _ in 0..2 {
        send(&bench, &[json!({"id": 99, "customer": {"tier": 7}, "new": 1})]).await;
        next += 1;
        bench.wait_for("pipeline", next).await;
    }
    let last = rows(&bench, &["customer", "_rescued"]).await.pop().unwrap();
    assert_eq!(last, [json!({"email": null, "tier": 7}), json!(r#"{"new":1}"#)]);
    process.signal(Signal::SIGTERM);
    assert!(process.wait(PATIENCE).success(), "{}", process.err());
    let proof = bench.alluvium("verify", &["verify", "--scan", "--json", "pipeline.toml"], &[]).done(PATIENCE);
    assert_eq!(proof["log"]["partitions"][0]["read"], json!(next), "{proof:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_rescued_is_explained() {
    let (_sandbox, mut bench) = workbench("evolve = \"none\"\n");
    send(&bench, &[json!({"id": 1, "price": 1.5, "s": {"x": 1}})]).await;
    bench.run_to_end("first");
    let second = [
        json!({"id": "x\u{1b}[31m", "price": 2.5}),
        json!({"id": 3, "price": "n/a", "s": {"y": [1], "\u{1b}[2J": 1}, "ID": 4}),
        json!({"id": 4, "price": "none", "note": "n"}),
    ];
    send(&bench, &second).await;
    bench.run_to_end("second");
    let explained = told(&bench, &["explain", "pipeline.toml"]);
    let fields = explained["fields"].as_array().unwrap();
    let short = |field: &Value| (field["path"].clone(), field["rows"].clone(), field["why"].clone());
    let found: Vec<_> = fields.iter().map(short).collect();
    let expected = [
        ("price", 2, "type"),
        ("ID", 1, "case"),
        ("id", 1, "type"),
        ("note", 1, "not-added"),
        ("s.\u{1b}[2J", 1, "name"),
        ("s.y", 1, "not-added"),
    ];
    assert_eq!(found, expected.map(|(path, rows, why)| (json!(path), json!(rows), json!(why))), "{explained:#}");
    assert_eq!((&explained["rows"], &fields[0]["kinds"]), (&json!(3), &json!({"string": 2})));
    assert_eq!((&fields[0]["example"], &fields[0]["offset"]), (&json!("\"n/a\""), &json!(2)));
    let text = printed(&bench, &["explain", "pipeline.toml"]);
    assert!(text.contains("_rescued has values of 3 rows") && text.contains("(0:2)"), "{text}");
    assert!(text.contains("`alluvium schema approve pipeline.toml s.y` adds s.y array<bigint>"), "{text}");
    assert!(!text.contains('\u{1b}'), "records do not steer the terminal: {text:?}");
    // With a declared column beside it, the old values have a place, and that is told.
    bench.rewrite(&options("evolve = \"add\"\n"));
    let diff = told(&bench, &["diff", "pipeline.toml"]);
    let held = json!([{"path": "note", "type": "string"}, {"path": "s.y", "type": "array<bigint>"}]);
    assert_eq!((&diff["adds"], diff["held"].as_array().map(Vec::len)), (&json!([]), Some(2)), "{diff:#}");
    assert!(held.as_array().unwrap().iter().all(|held| diff["held"].as_array().unwrap().contains(held)), "{diff:#}");
    told(&bench, &["approve", "pipeline.toml", "note"]);
    let explained = told(&bench, &["explain", "pipeline.toml"]);
    let note = explained["fields"].as_array().unwrap().iter().find(|field| field["path"] == "note").unwrap().clone();
    assert_eq!((&note["why"], &note["older"]), (&json!("older"), &json!(1)), "{note:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_shown_with_all_that_is_written_besides() {
    let (_sandbox, mut bench) = workbench("");
    let text = printed(&bench, &["show", "pipeline.toml"]);
    assert!(text.starts_with("the columns come with the first records"), "{text}");
    send(&bench, &[json!({"id": 1, "amount": "19.90", "event_time": "2026-03-01T00:30:00Z", "debug": 1})]).await;
    let text = printed(&bench, &["show", "pipeline.toml", "--sample", "10"]);
    assert!(text.contains("amount      string  from amount, else rescued"), "{text}");
    let end = "besides: _kafka struct<partition:int,offset:bigint,timestamp:timestamp>\nother fields become columns, 1000 at most\n";
    assert!(text.ends_with(end), "{text}");
    // A plugin is asked about the topic's records.
    bench.rewrite(&options(&mapped("{}", "evolve = \"approve\"\n")));
    let shown = told(&bench, &["show", "pipeline.toml"]);
    let columns: Vec<_> = shown["columns"].as_array().unwrap().iter().map(|column| column["path"].clone()).collect();
    assert_eq!(columns, ["order_id", "amount", "event_time", "order_date", "_rescued", "_kafka"], "{shown:#}");
    assert_eq!(
        (&shown["plan"]["origin"], &shown["plan"]["drops"]),
        (&json!("mapped"), &json!([["debug"]])),
        "{shown:#}"
    );
    // Without a record it has nothing to decide on.
    let error = refused(&bench, &["diff", "pipeline.toml", "--sample", "0"]);
    assert!(error.contains("a plugin decides on the columns") && error.contains("--records"), "{error}");
    // Nothing can be approved of a table that is not there.
    let error = refused(&bench, &["approve", "pipeline.toml"]);
    assert!(error.contains("there is no table in"), "{error}");
    // Where all is read, the plugin is asked about the last records.
    bench.run_to_end("run");
    assert_eq!(told(&bench, &["diff", "pipeline.toml"])["adds"], json!([]));
    assert_eq!(told(&bench, &["explain", "pipeline.toml"])["rows"], json!(0));
}

/// A pipeline that declares a column which the table has not, and whose owner approves of growth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declared_columns_wait_for_approval_too() {
    let declared = |more: &str| {
        format!(
            "evolve = \"approve\"\n[[schema.column]]\nname = \"order_id\"\ntype = \"bigint\"\nfrom = \"id\"\n{more}"
        )
    };
    let (_sandbox, mut bench) = workbench(&declared(""));
    send(&bench, &[json!({"id": 1})]).await;
    bench.run_to_end("first");
    bench.rewrite(&options(&declared(
        "[[schema.column]]\nname = \"total\"\ntype = \"decimal(10,2)\"\nfrom = \"amount\"\n",
    )));
    send(&bench, &[json!({"id": 2, "amount": 1.25, "note": "n"})]).await;
    bench.run_to_end("second");
    assert_eq!(rows(&bench, &["order_id", "_rescued"]).await[1], [json!(2), json!(r#"{"amount":1.25,"note":"n"}"#)]);
    let diff = told(&bench, &["diff", "pipeline.toml"]);
    let held = json!([{"path": "total", "type": "decimal(10,2)"}, {"path": "note", "type": "string"}]);
    assert_eq!(diff["held"], held, "{diff:#}");
    told(&bench, &["approve", "pipeline.toml"]);
    send(&bench, &[json!({"id": 3, "amount": 2.5, "note": "m"})]).await;
    bench.run_to_end("third");
    assert_eq!(
        rows(&bench, &["order_id", "total", "note", "_rescued"]).await[2],
        [json!(3), json!("2.50"), json!("m"), json!(null)]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_shown_is_what_is_approved() {
    let (sandbox, bench) = workbench("evolve = \"approve\"\n");
    send(&bench, &[json!({"id": 1})]).await;
    bench.run_to_end("first");
    // Nothing of it was rescued yet.
    send(&bench, &[json!({"id": 2, "note": "n", "other": 1})]).await;
    let held = told(&bench, &["diff", "pipeline.toml"])["held"].clone();
    assert_eq!(held, json!([{"path": "note", "type": "string"}, {"path": "other", "type": "bigint"}]));
    assert_eq!(told(&bench, &["approve", "pipeline.toml", "--sample", "0"])["added"], json!([]));
    assert_eq!(told(&bench, &["approve", "pipeline.toml", "other"])["added"], json!([held[1]]));
    assert_eq!(told(&bench, &["approve", "pipeline.toml"])["added"], json!([held[0]]));
    bench.run_to_end("second");
    assert_eq!(rows(&bench, &["note", "other"]).await[1], [json!("n"), json!(1)]);
    drop(sandbox);
    let mut process = bench.alluvium("schema", &["schema", "approve", "pipeline.toml"], &[]);
    assert_eq!(process.wait(PATIENCE).code(), Some(1), "{}", process.err());
    assert!(process.err().contains("--sample 0 looks at the table alone"), "{}", process.err());
    assert_eq!(told(&bench, &["approve", "pipeline.toml", "--sample", "0"])["version"], json!(null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugins_plan_is_shown_where_a_field_stops_the_pipeline() {
    let (_sandbox, bench) = workbench(&mapped("{}", "evolve = \"stop\"\n"));
    send(&bench, &[json!({"id": 1, "sku": "AB-x"}), json!({"id": 2, "sku": "none"})]).await;
    bench.run_to_end("first");
    send(&bench, &[json!({"id": 3, "sku": "AB-1", "new": 1})]).await;
    let text = printed(&bench, &["show", "pipeline.toml"]);
    assert!(text.contains("with evolve = \"stop\" these fields stop the pipeline: new"), "{text}");
    assert!(text.contains("sku_number  int     from sku after \"-\", else rescued"), "{text}");
    assert!(text.ends_with("other fields stop the pipeline\n"), "{text}");
    let explained = told(&bench, &["explain", "pipeline.toml"]);
    let sku = &explained["fields"][0];
    assert_eq!((&sku["path"], &sku["rows"], &sku["why"]), (&json!("sku"), &json!(2), &json!("type")), "{sku:#}");
    let message = "does not fit: column sku_family reads what is before \"-\" as string, \
                   column sku_number reads what is after \"-\" as int";
    assert_eq!(sku["message"], message);
    assert!(sku["hint"].as_str().unwrap().contains("let the mapping plugin"), "{sku:#}");
    let diff = told(&bench, &["diff", "pipeline.toml"]);
    assert_eq!((&diff["stops"], &diff["adds"]), (&json!(["new"]), &json!([])), "{diff:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_wait_are_shown_and_do_not_hide_the_rest() {
    for schema in [mapped("{}", "evolve = \"approve\"\n"), "evolve = \"approve\"\n".to_owned()] {
        let (_sandbox, mut bench) = workbench(&schema);
        send(&bench, &[json!({"id": 1})]).await;
        bench.run_to_end("first");
        let transforms = alluvium_tests::workbench::transform("redact", "{ fields = [] }");
        bench.rewrite(&Options { transforms, ..options(&schema) });
        send(&bench, &[json!({"id": 2, "note": "n"})]).await;
        let diff = told(&bench, &["diff", "pipeline.toml"]);
        let waits = diff["waits"].as_array().unwrap();
        assert!(waits.contains(&json!("event_time")) && diff["adds"] == json!([]), "{diff:#}");
        let text = printed(&bench, &["diff", "pipeline.toml"]);
        assert!(text.contains("the pipeline does not start before these columns are approved"), "{text}");
        let text = printed(&bench, &["show", "pipeline.toml"]);
        assert!(text.contains("does not start before") && text.contains("from id, "), "{text}");
        let explained = told(&bench, &["explain", "pipeline.toml"]);
        assert_eq!((&explained["rows"], &explained["waits"]), (&json!(0), &diff["waits"]), "{explained:#}");
        assert_eq!(told(&bench, &["approve", "pipeline.toml"])["added"], diff["held"]);
        assert_eq!(told(&bench, &["diff", "pipeline.toml"])["waits"], json!([]));
        bench.run_to_end("second");
        assert_eq!(rows(&bench, &["note"]).await[1], [json!("n")]);
    }
}

/// Declarations over a table that others, or the pipeline before them, made wider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_are_not_filled_are_told_and_the_advice_fills_them() {
    let (_sandbox, mut bench) = workbench("");
    send(&bench, &[json!({"id": 1, "c": "x", "d": 1})]).await;
    bench.run_to_end("first");
    let id = "[[schema.column]]\nname = \"id\"\ntype = \"bigint\"\n";
    bench.rewrite(&options(id));
    send(&bench, &[json!({"id": 2, "c": "y"})]).await;
    bench.run_to_end("second");
    let line = "the table's columns c, d are not filled by this pipeline: they are null in new rows\n";
    for action in ["show", "diff"] {
        let text = printed(&bench, &[action, "pipeline.toml"]);
        assert!(text.contains(line), "{text}");
        let unfilled = told(&bench, &[action, "pipeline.toml"])["unfilled"].clone();
        assert_eq!(unfilled, json!([{"path": "c", "type": "string"}, {"path": "d", "type": "bigint"}]));
    }
    let field = told(&bench, &["explain", "pipeline.toml"])["fields"][0].clone();
    assert_eq!(field["message"], "the table has the column, but the pipeline does not fill it", "{field:#}");
    let hint =
        "declare it ([[schema.column]] with name = \"c\", type = \"string\"), or set evolve = \"add\" in [schema]";
    assert_eq!(field["hint"], hint);
    // What stands beside a declared field, or differs in case, as advised.
    let city = "[[schema.column]]\nname = \"city\"\ntype = \"string\"\nfrom = \"address.city\"\n";
    bench.rewrite(&options(&format!("{id}{city}")));
    send(&bench, &[json!({"ID": 7, "address": {"city": "x", "zip": "1"}})]).await;
    bench.run_to_end("beside");
    let fields = told(&bench, &["explain", "pipeline.toml"])["fields"].clone();
    let hint = |path: &str| {
        let field = fields.as_array().unwrap().iter().find(|field| field["path"] == path).unwrap();
        (field["why"].as_str().unwrap().to_owned(), field["hint"].as_str().unwrap().to_owned())
    };
    let mut advised = format!("{id}{city}");
    for (at, (path, why)) in [("ID", "case"), ("address.zip", "beside")].into_iter().enumerate() {
        let (found, hint) = hint(path);
        let from = format!("[[schema.column]] with from = {path:?}");
        assert!(found == why && hint.ends_with(&from), "{path} {found} {hint}");
        advised.push_str(&format!("[[schema.column]]\nname = \"n{at}\"\ntype = \"string\"\nfrom = {path:?}\n"));
    }
    bench.rewrite(&options(&advised));
    let mut check = bench.alluvium("check", &["check", "pipeline.toml"], &[]);
    assert!(check.wait(PATIENCE).success(), "{}", check.err());
    // Either way.
    bench.rewrite(&options(&format!("{id}[[schema.column]]\nname = \"c\"\ntype = \"string\"\n")));
    send(&bench, &[json!({"id": 3, "c": "z"})]).await;
    bench.run_to_end("third");
    bench.rewrite(&options(&format!("evolve = \"add\"\n{id}")));
    let text = printed(&bench, &["show", "pipeline.toml"]);
    assert!(
        text.contains("the table's columns c, d, city are filled once a record has a field of that name\n"),
        "{text}"
    );
    send(&bench, &[json!({"id": 4, "c": "z", "d": 4})]).await;
    bench.run_to_end("fourth");
    assert_eq!(rows(&bench, &["c", "d"]).await[3..], [[json!("z"), json!(null)], [json!("z"), json!(4)]]);
}

/// Whoever does as `explain` says has a pipeline that runs, and fills what it filled before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_is_read_anew_as_advised() {
    let (_sandbox, mut bench) = workbench("");
    send(&bench, &[json!({"id": 1, "price": 1.5}), json!({"id": 2, "price": "n/a"})]).await;
    bench.run_to_end("first");
    let advice = |bench: &Workbench| told(bench, &["explain", "pipeline.toml"])["fields"][0]["hint"].clone();
    // Both in one batch make one column of JSON text.
    assert_eq!(advice(&bench), json!(null));
    send(&bench, &[json!({"id": 3, "n": 1})]).await;
    bench.run_to_end("second");
    send(&bench, &[json!({"id": 4, "n": "n/a"})]).await;
    bench.run_to_end("third");
    assert_eq!(
        advice(&bench),
        "declare a column of another name: [[schema.column]] with from = \"n\", and no mapping in [schema]; set \
         evolve = \"add\" there as well, or declare the other columns too: else they are null in new rows"
    );
    let again =
        |name: &str| format!("evolve = \"add\"\n[[schema.column]]\nname = {name:?}\ntype = \"string\"\nfrom = \"n\"\n");
    bench.rewrite(&options(&again("m")));
    send(&bench, &[json!({"id": 5, "n": "x", "price": 2})]).await;
    bench.run_to_end("fourth");
    assert_eq!(rows(&bench, &["id", "n", "m", "price"]).await[4], [json!(5), json!(null), json!("x"), json!("2")]);
    send(&bench, &[json!({"id": 6, "n": 6})]).await;
    bench.rewrite(&options(&again("m").replace("type", "on_conflict = \"rescue\"\ntype")));
    bench.run_to_end("fifth");
    let fields = told(&bench, &["explain", "pipeline.toml"])["fields"].clone();
    assert!(fields[0]["hint"].as_str().unwrap().starts_with("change the declaration"), "{fields:#}");
    let declared = again("l").replace("string", "bigint");
    bench.rewrite(&options(&declared));
    let mut check = bench.alluvium("check", &["check", "pipeline.toml"], &[]);
    assert!(check.wait(PATIENCE).success(), "{}", check.err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_another_one_is_told() {
    let topic = Workbench::topic_name("schema");
    let sandbox = Sandbox::start(&[(&topic, 1)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &options(""));
    send(&bench, &[json!({"id": 1}), json!({"id": 2})]).await;
    bench.run_to_end("first");
    drop(sandbox);
    let sandbox = Sandbox::start(&[(&topic, 1)]).unwrap();
    bench.move_to(sandbox.brokers());
    bench.rewrite(&options(""));
    send(&bench, &[json!({"id": 3, "new": 1})]).await;
    let diff = told(&bench, &["diff", "pipeline.toml"]);
    assert!(diff["lost"].as_str().unwrap().contains("was created anew"), "{diff:#}");
    assert_eq!((&diff["adds"], &diff["records"]), (&json!([]), &json!(1)), "{diff:#}");
    let text = printed(&bench, &["diff", "pipeline.toml"]);
    assert!(text.contains("the next commit is not made: topic") && text.contains("raise `generation`"), "{text}");
    assert!(!text.contains("adds no columns"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_type_does_not_move_the_others() {
    let (_sandbox, bench) = workbench("");
    let wide = json!({"a_name_of_some_length": 1, "another_name_of_some_length": 2});
    let record = json!({"id": 1, "wide": wide}).to_string();
    std::fs::write(bench.dir().join("records.ndjson"), record).unwrap();
    let text = printed(&bench, &["show", "pipeline.toml", "--records", "records.ndjson"]);
    let expected = "id    bigint  from id, else rescued\n\
                    wide  struct<a_name_of_some_length:bigint,another_name_of_some_length:bigint>\n              \
                    from wide, else rescued\n";
    assert!(text.starts_with(expected), "{text}");
    let mut process = bench.alluvium("diff", &["schema", "diff", "pipeline.toml", "--records", "records.ndjson"], &[]);
    assert!(process.wait(PATIENCE).success(), "{}", process.err());
    assert!(process.err().contains("looked at 1 record of records.ndjson\n"), "{}", process.err());
}

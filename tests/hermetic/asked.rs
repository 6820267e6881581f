//! What a schema-mapping plugin is asked, how often, and what becomes of its earlier plans.

use crate::mapping::{columns, mapped, options, rows, send, workbench};
use alluvium_core::seam::TableState;
use alluvium_runtime::{Planner, Plugins};
use alluvium_schema::Shape;
use alluvium_tests::Options;
use alluvium_tests::process::{Process, Signal};
use alluvium_tests::workbench::{PATIENCE, plugin};
use alluvium_wasm::{Host, HostConfig, Limits};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const ASKED: &str = "the plugin has decided on the columns";

fn asked(process: &Process) -> usize {
    process.err().matches(ASKED).count()
}

fn hostile(mode: &str, more: &str) -> String {
    let with = format!("{{ mode = {mode:?}, marker = \"odd\" }}");
    format!("mapping = {{ plugin = {:?}, with = {with} }}\n{more}", plugin("hostile-mapping"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_is_asked_once_about_what_the_records_look_like() {
    let (_sandbox, bench) = workbench(&mapped("{}", ""));
    let mut process = bench.run("run", &[], &[]);
    for id in 1..=4 {
        send(&bench, &[json!({"id": id, "amount": "1.00"}), json!({"id": -id, "amount": null})]).await;
        bench.wait_for("pipeline", 2 * id).await;
    }
    assert_eq!(asked(&process), 1, "{}", process.err());
    send(&bench, &[json!({"id": 5, "note": "n"})]).await;
    bench.wait_for("pipeline", 9).await;
    send(&bench, &[json!({"id": 6, "note": "m"}), json!({"note": "o"})]).await;
    bench.wait_for("pipeline", 11).await;
    process.signal(Signal::SIGTERM);
    assert!(process.wait(PATIENCE).success(), "{}", process.err());
    assert_eq!(asked(&process), 2, "{}", process.err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_kept_for_the_same_shape_over_the_same_table() {
    let (_sandbox, bench) = workbench(&mapped("{}", ""));
    let text = std::fs::read_to_string(bench.dir().join("pipeline.toml")).unwrap();
    let pipeline = alluvium_config::parse(&text, "pipeline.toml").unwrap();
    let component = std::fs::read(plugin("orders-map")).unwrap();
    let admitted =
        Host::new(HostConfig::default()).unwrap().admit("orders-map", &component, &Limits::default()).unwrap();
    let mapping = Arc::new(admitted.configure_mapping(&json!({})).unwrap());
    let plugins = Plugins::default().with_mapping(mapping);
    let mut table = TableState::default();
    let planner = Planner::new(&pipeline, &plugins, &table).unwrap();
    let mut shape = Shape::default();
    shape.observe(br#"{"id":1,"amount":"1.00"}"#);
    planner.learn(&shape).unwrap();
    let first = planner.layout();
    assert_eq!(first.plan_digest(), alluvium_wasm::digest(&serde_json::to_vec(first.plan().as_ref()).unwrap()));
    planner.grow(&shape).unwrap();
    assert_eq!(planner.questions(), 1);
    // Partitions came or went: planned anew, over what is the same.
    planner.reload(&table).unwrap();
    planner.learn(&shape).unwrap();
    assert_eq!((planner.questions(), planner.layout().plan_digest()), (1, first.plan_digest()));
    table.schema = Some(first.schema().clone());
    planner.reload(&table).unwrap();
    planner.learn(&shape).unwrap();
    assert_eq!(planner.questions(), 2, "there is a table now");
    planner.reload(&table).unwrap();
    planner.learn(&shape).unwrap();
    assert_eq!(planner.questions(), 2);
}

/// A plugin keeps the types of the table's columns: also of those that this process has added itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_is_told_the_columns_that_are_on_their_way() {
    for first in [json!({"id": 1}), json!({"id": 1, "amount": "1.00"})] {
        let (_sandbox, bench) = workbench(&mapped("{}", ""));
        let mut process = bench.run("run", &[], &[]);
        send(&bench, &[first]).await;
        bench.wait_for("pipeline", 1).await;
        send(&bench, &[json!({"id": "A7"}), json!({"id": 2})]).await;
        bench.wait_for("pipeline", 2).await;
        process.signal(Signal::SIGTERM);
        assert!(process.wait(PATIENCE).success(), "{}", process.err());
        assert_eq!(rows(&bench, &["order_id"]).await, [[json!(1)], [json!(2)]]);
        assert_eq!(bench.dead_letters("pipeline").await.into_iter().collect::<Vec<_>>(), [((0, 1), 1)]);
    }
}

/// A plan that names fewer columns than one before it, whose rows are not committed yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_later_plan_leaves_out_lands_all_the_same() {
    let (_sandbox, mut bench) = workbench("");
    let flush = "rows = 1_000\nevery = \"6s\"".to_owned();
    bench.rewrite(&Options { flush, ..options(&hostile("forgets-marker", "evolve = \"none\"\n")) });
    let mut process = bench.run("run", &[], &[]);
    send(&bench, &[json!({"id": 1})]).await;
    bench.wait_for("pipeline", 1).await;
    for (record, questions) in [(json!({"id": 2, "price": 5, "s": {"x": 1}}), 2), (json!({"id": 3, "odd": "o"}), 3)] {
        send(&bench, &[record]).await;
        let began = std::time::Instant::now();
        while asked(&process) < questions {
            assert!(began.elapsed() < PATIENCE, "{}", process.err());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(process.err().matches("committed pipeline").count(), 1, "both in one flush: {}", process.err());
    bench.wait_for("pipeline", 3).await;
    process.signal(Signal::SIGTERM);
    assert!(process.wait(PATIENCE).success(), "{}", process.err());
    let found = columns(&bench).await;
    for column in ["id bigint", "price bigint", "s struct<x:bigint>", "odd string"] {
        assert!(found.iter().any(|found| found == column), "{column}: {found:?}");
    }
    let null = Value::Null;
    assert_eq!(
        rows(&bench, &["id", "price", "s", "odd", "_rescued"]).await,
        [
            vec![json!(1), null.clone(), null.clone(), null.clone(), null.clone()],
            vec![json!(2), json!(5), json!({"x": 1}), null.clone(), null.clone()],
            vec![null.clone(), null.clone(), null, json!("o"), json!(r#"{"id":3}"#)],
        ]
    );
}

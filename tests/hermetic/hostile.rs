//! Plugins that misbehave: contained, named, and nobody else's trouble.

use alluvium_kafka::{NewRecord, Producer, Sandbox};
use alluvium_tests::workbench::{PATIENCE, transform};
use alluvium_tests::{Options, Workbench};
use serde_json::Value;
use std::time::{Duration, Instant};

const LIMITS: &str = "time = \"100ms\"\nmemory = \"16MiB\"";

/// A pipeline with a hostile plugin beside a healthy one, in one process.
struct Neighbours {
    hostile: Value,
    healthy: Value,
    err: String,
    took: Duration,
}

async fn side_by_side(name: &str, plugin: &str, with: &str, values: &[&str]) -> Neighbours {
    let healthy = Workbench::topic_name("healthy");
    let hostile = Workbench::topic_name("hostile");
    let sandbox = Sandbox::start(&[(&healthy, 3), (&hostile, 1)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &healthy, &Options::default());
    let schema =
        "[[schema.column]]\nname = \"id\"\ntype = \"bigint\"\n[[schema.column]]\nname = \"text\"\ntype = \"string\"\n";
    let options = Options {
        transforms: transform(plugin, with),
        schema: schema.to_owned(),
        limits: LIMITS.to_owned(),
        ..Options::default()
    };
    bench.write("hostile.toml", &hostile, &options);
    let producer = Producer::connect(sandbox.brokers(), &[]).unwrap();
    for value in values {
        let record =
            NewRecord { topic: &hostile, partition: Some(0), value: Some(value.as_bytes()), ..NewRecord::default() };
        producer.produce(record).await.unwrap();
    }
    bench.produce(3, 0..3_000, 3_000).await;
    let begun = Instant::now();
    let files = ["run", "--json", "--until-end", "pipeline.toml", "hostile.toml"];
    let mut process = bench.alluvium(name, &files, &[]);
    process.wait(PATIENCE);
    let took = begun.elapsed();
    let summary: Value = serde_json::from_str(&process.out()).unwrap_or_else(|_| panic!("{}", process.err()));
    bench.assert_exactly_once().await;
    Neighbours { healthy: summary[0].clone(), hostile: summary[1].clone(), err: process.err(), took }
}

fn texts(count: usize, boom: &[usize]) -> Vec<String> {
    let text = |index| if boom.contains(&index) { "boom" } else { "calm" };
    (0..count).map(|index| format!(r#"{{"id":{index},"text":"{}"}}"#, text(index))).collect()
}

/// A plugin that fails on single records: they are the dead letters, the rest are rows.
async fn fails_on_single_records(name: &str, plugin: &str, mode: &str) {
    let values = texts(300, &[7, 150]);
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let with = format!(r#"{{ mode = "{mode}" }}"#);
    let found = side_by_side(name, plugin, &with, &values).await;
    assert_eq!(found.hostile["ok"], true, "{mode}: {:#}\n{}", found.hostile, found.err);
    assert_eq!((&found.hostile["rejected"], &found.hostile["rows"]), (&2.into(), &298.into()), "{mode}");
    assert_eq!(found.healthy["ok"], true, "{mode}: {:#}", found.healthy);
}

/// A plugin that fails on everything: its pipeline stops and says why; nothing of it is committed.
async fn stops_its_pipeline(name: &str, plugin: &str, mode: &str, said: &str) {
    let values = texts(300, &[]);
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let with = format!(r#"{{ mode = "{mode}" }}"#);
    let found = side_by_side(name, plugin, &with, &values).await;
    assert_eq!(found.hostile["ok"], false, "{mode}: {:#}", found.hostile);
    assert_eq!(found.hostile["read"], 0, "{mode}");
    let error = found.hostile["error"].as_str().unwrap();
    assert!(error.contains(plugin) && error.contains(said), "{mode}: {error}");
    assert_eq!(found.healthy["ok"], true, "{mode}: {:#}", found.healthy);
    assert!(found.took < Duration::from_secs(45), "{mode}: the healthy pipeline was done after {:?}", found.took);
}

/// A plugin whose answers are wrong for many records, but right for one: called with one at a time,
/// it loses nothing.
async fn goes_on(name: &str, plugin: &str, mode: &str) {
    let values = texts(300, &[]);
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let found = side_by_side(name, plugin, &format!(r#"{{ mode = "{mode}" }}"#), &values).await;
    assert_eq!((&found.hostile["ok"], &found.hostile["rows"]), (&true.into(), &300.into()), "{:#}", found.hostile);
    assert_eq!(found.healthy["ok"], true, "{mode}: {:#}", found.healthy);
}

macro_rules! hostile {
    ($($name:ident: $how:ident($($argument:literal),*);)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $how(stringify!($name), $($argument),*).await;
        }
    )*};
}

hostile! {
    column_traps_on_a_record: fails_on_single_records("hostile-column", "trap-marker");
    column_loops_on_a_record: fails_on_single_records("hostile-column", "loop-marker");
    column_hoards_on_a_record: fails_on_single_records("hostile-column", "memory-marker");
    column_errs_on_a_record: fails_on_single_records("hostile-column", "err-marker");
    record_traps_on_a_record: fails_on_single_records("hostile-record", "trap-marker");
    record_loops_on_a_record: fails_on_single_records("hostile-record", "loop-marker");
    column_always_loops: stops_its_pipeline("hostile-column", "loop", "time");
    column_always_hoards: stops_its_pipeline("hostile-column", "memory", "memory");
    column_gives_rows_out_of_range: stops_its_pipeline("hostile-column", "rows-out-of-range", "comes from input 1");
    column_gives_falling_rows: goes_on("hostile-column", "rows-falling");
    column_gives_short_bitmaps: stops_its_pipeline("hostile-column", "validity-short", "validity");
    column_gives_offsets_beyond_the_data: stops_its_pipeline("hostile-column", "offsets-past", "offset");
    column_gives_text_that_is_not_utf8: stops_its_pipeline("hostile-column", "utf8-invalid", "UTF-8");
    column_gives_too_much: stops_its_pipeline("hostile-column", "values-bomb", "");
    record_always_loops: stops_its_pipeline("hostile-record", "loop", "time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_component_are_refused_before_anything_is_read() {
    let topic = Workbench::topic_name("garbage");
    let sandbox = Sandbox::start(&[(&topic, 1)]).unwrap();
    let bench = Workbench::new(sandbox.brokers(), &topic, &Options::default());
    let text = std::fs::read_to_string(bench.dir().join("pipeline.toml")).unwrap();
    std::fs::write(bench.dir().join("garbage.wasm"), b"not a component").unwrap();
    let (before, after) = text.split_once("plugin = \"").unwrap();
    let (_, after) = after.split_once('"').unwrap();
    std::fs::write(bench.dir().join("pipeline.toml"), format!("{before}plugin = \"garbage.wasm\"{after}")).unwrap();
    let mut process = bench.run("garbage", &["--until-end"], &[]);
    assert_eq!(process.wait(PATIENCE).code(), Some(2), "{}", process.err());
    assert!(process.err().contains("garbage") && process.err().contains("pipeline.toml:"), "{}", process.err());
}

//! Plugins that misbehave: contained, named, and nobody else's trouble.

use alluvium_delta::TableRole;
use alluvium_kafka::{NewRecord, Producer, Sandbox};
use alluvium_tests::workbench::{self, PATIENCE, transform};
use alluvium_tests::{Options, Workbench};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use serde_json::Value;
use std::time::{Duration, Instant};

const LIMITS: &str = "time = \"100ms\"\nmemory = \"16MiB\"";

/// A pipeline with a hostile plugin beside a healthy one, in one process.
struct Neighbours {
    hostile: Value,
    healthy: Value,
    err: String,
    /// Of each dead letter its offset, reason, stage, and whether it names the plugin's own bytes.
    letters: Vec<(i64, String, String, bool)>,
}

async fn side_by_side(name: &str, plugin: &str, with: &str, values: &[&str]) -> Neighbours {
    let healthy = Workbench::topic_name("healthy");
    let hostile = Workbench::topic_name("hostile");
    let sandbox = Sandbox::start(&[(&healthy, 3), (&hostile, 1)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &healthy, &Options::default());
    let schema =
        "[[schema.column]]\nname = \"id\"\ntype = \"bigint\"\n[[schema.column]]\nname = \"text\"\ntype = \"string\"\n";
    let (transforms, schema) = match plugin {
        "hostile-mapping" => {
            (String::new(), format!("mapping = {{ plugin = {:?}, with = {with} }}\n", workbench::plugin(plugin)))
        }
        _ => (transform(plugin, with), schema.to_owned()),
    };
    let options = Options { transforms, schema, limits: LIMITS.to_owned(), ..Options::default() };
    bench.write("hostile.toml", &hostile, &options);
    let producer = Producer::connect(sandbox.brokers(), &[]).unwrap();
    for value in values {
        let record =
            NewRecord { topic: &hostile, partition: Some(0), value: Some(value.as_bytes()), ..NewRecord::default() };
        producer.produce(record).await.unwrap();
    }
    bench.produce(3, 0..3_000, 3_000).await;
    let files = ["run", "--json", "--until-end", "pipeline.toml", "hostile.toml"];
    let mut process = bench.alluvium(name, &files, &[]);
    process.wait(PATIENCE);
    let summary: Value = serde_json::from_str(&process.out()).unwrap_or_else(|_| panic!("{}", process.err()));
    bench.assert_exactly_once().await;
    let letters = letters(&bench, plugin).await;
    Neighbours { healthy: summary[0].clone(), hostile: summary[1].clone(), err: process.err(), letters }
}

async fn letters(bench: &Workbench, plugin: &str) -> Vec<(i64, String, String, bool)> {
    let digest = alluvium_wasm::digest(&std::fs::read(workbench::plugin(plugin)).unwrap());
    let columns = ["offset", "reason", "stage", "plugin"].map(str::to_owned);
    let sink = bench.sink("hostile").await;
    let letters = sink.reader().first_rows(TableRole::DeadLetters, Some(&columns), usize::MAX).await.unwrap();
    if letters.num_rows() == 0 {
        return Vec::new();
    }
    let text = |column: usize, row| letters.column(column).as_string::<i32>().value(row).to_owned();
    let offsets = letters.column(0).as_primitive::<Int64Type>();
    let letter = |row| (offsets.value(row), text(1, row), text(2, row), text(3, row) == digest);
    let mut letters: Vec<_> = (0..letters.num_rows()).map(letter).collect();
    letters.sort_unstable();
    letters
}

fn texts(count: usize, boom: &[usize]) -> Vec<String> {
    let text = |index| if boom.contains(&index) { "boom" } else { "calm" };
    (0..count).map(|index| format!(r#"{{"id":{index},"text":"{}"}}"#, text(index))).collect()
}

/// A plugin that fails on single records: they are the dead letters, with the reason and the plugin that
/// it was; the rest are rows.
async fn fails_on_single_records(name: &str, plugin: &str, mode: &str, reason: &str) {
    let values = texts(300, &[7, 150]);
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let with = format!(r#"{{ mode = "{mode}" }}"#);
    let found = side_by_side(name, plugin, &with, &values).await;
    assert_eq!(found.hostile["ok"], true, "{mode}: {:#}\n{}", found.hostile, found.err);
    assert_eq!((&found.hostile["rejected"], &found.hostile["rows"]), (&2.into(), &298.into()), "{mode}");
    let stage = plugin.replace("hostile-", "") + "-plugin";
    assert_eq!(found.letters, [7, 150].map(|offset| (offset, reason.to_owned(), stage.clone(), true)), "{mode}");
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
    assert_eq!(found.letters, [], "{mode}");
}

/// A plugin whose answers are wrong for many records, but right for one: called with one at a time,
/// it loses nothing.
async fn goes_on(name: &str, plugin: &str, mode: &str) {
    let values = texts(300, &[]);
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let found = side_by_side(name, plugin, &format!(r#"{{ mode = "{mode}" }}"#), &values).await;
    assert_eq!((&found.hostile["ok"], &found.hostile["rows"]), (&true.into(), &300.into()), "{:#}", found.hostile);
    assert_eq!(found.letters, [], "{mode}");
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
    column_traps_on_a_record: fails_on_single_records("hostile-column", "trap-marker", "plugin-trap");
    column_loops_on_a_record: fails_on_single_records("hostile-column", "loop-marker", "plugin-timeout");
    column_hoards_on_a_record: fails_on_single_records("hostile-column", "memory-marker", "plugin-memory");
    column_errs_on_a_record: fails_on_single_records("hostile-column", "err-marker", "plugin-failed");
    record_traps_on_a_record: fails_on_single_records("hostile-record", "trap-marker", "plugin-trap");
    column_rejects_a_record: fails_on_single_records("hostile-column", "reject-marker", "plugin-reject");
    record_rejects_a_record: fails_on_single_records("hostile-record", "reject-marker", "plugin-reject");
    record_loops_on_a_record: fails_on_single_records("hostile-record", "loop-marker", "plugin-timeout");
    column_always_loops: stops_its_pipeline("hostile-column", "loop", "time");
    column_always_hoards: stops_its_pipeline("hostile-column", "memory", "memory");
    column_gives_rows_out_of_range: stops_its_pipeline("hostile-column", "rows-out-of-range", "comes from input 1");
    column_gives_falling_rows: goes_on("hostile-column", "rows-falling");
    column_gives_short_bitmaps: stops_its_pipeline("hostile-column", "validity-short", "validity");
    column_gives_offsets_beyond_the_data: stops_its_pipeline("hostile-column", "offsets-past", "offset");
    column_gives_text_that_is_not_utf8: stops_its_pipeline("hostile-column", "utf8-invalid", "UTF-8");
    column_gives_too_much: stops_its_pipeline("hostile-column", "values-bomb", "");
    record_always_loops: stops_its_pipeline("hostile-record", "loop", "time");
    mapping_always_loops: stops_its_pipeline("hostile-mapping", "loop", "time");
    mapping_always_hoards: stops_its_pipeline("hostile-mapping", "memory", "memory");
    mapping_always_traps: stops_its_pipeline("hostile-mapping", "trap", "unreachable");
    mapping_gives_nonsense: stops_its_pipeline("hostile-mapping", "type-unknown", "unknown type 'strng'");
}

/// Of two pipelines in one process, one has a plugin that loops on a record now and then, so that its
/// threads are always busy searching. Each has as many threads as there are cores: the other's fair
/// share is half of them, which is what it may cost, and as much again for the noise of a busy machine.
/// Were it to wait for the other, it would take the minute that the other's searches take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_pipeline_keeps_its_pace_beside_one_that_always_loops() {
    // Seconds of work, in what a sandbox can hold of a partition.
    const PARTITIONS: i32 = 12;
    const COUNT: u64 = 15_000;
    let healthy = Workbench::topic_name("pace");
    let hostile = Workbench::topic_name("looping");
    let sandbox = Sandbox::start(&[(&healthy, PARTITIONS), (&hostile, 2)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &healthy, &Options::default());
    bench.produce(PARTITIONS, 0..COUNT, COUNT).await;
    let looping = Options {
        transforms: transform("hostile-record", r#"{ mode = "loop-marker" }"#),
        limits: LIMITS.to_owned(),
        ..Options::default()
    };
    bench.write("hostile.toml", &hostile, &looping);
    let producer = Producer::connect(sandbox.brokers(), &[]).unwrap();
    for index in 0..20_000 {
        let text = if index % 400 < 2 { "boom" } else { "calm" };
        let value = format!(r#"{{"id":{index},"text":"{text}"}}"#);
        let record = NewRecord {
            topic: &hostile,
            partition: Some(index % 2),
            value: Some(value.as_bytes()),
            ..NewRecord::default()
        };
        drop(producer.enqueue(record).await.unwrap());
    }
    producer.flush().await.unwrap();
    // Of the same topic into three tables: alone, beside the other, and alone again.
    let mut took = Vec::new();
    for (name, beside) in [("alone", false), ("beside", true), ("again", false)] {
        let own = Options { flush: "rows = 5_000\nevery = \"200ms\"".to_owned(), ..Options::default() };
        bench.write(&format!("{name}.toml"), &healthy, &own);
        let file = format!("{name}.toml");
        let files = if beside { vec!["run", "--json", "hostile.toml", &file] } else { vec!["run", "--json", &file] };
        let process = bench.alluvium(name, &files, &[]);
        // The clock starts when reading does: plugins are compiled by then.
        while !process.err().contains(&format!("assigned pipeline=test/{name}")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let begun = Instant::now();
        bench.wait_for(name, i64::from(PARTITIONS) * i64::try_from(COUNT).unwrap()).await;
        took.push(begun.elapsed());
        if beside {
            assert!(process.err().contains("hostile"), "{}", process.err());
            assert!(bench.dead_letters("hostile").await.len() < 100, "it was done before: this shows nothing");
        }
        drop(process);
    }
    println!("alone {:?}, beside a looping plugin {:?}, alone again {:?}", took[0], took[1], took[2]);
    let alone = took[0].max(took[2]);
    assert!(took[1] < alone * 4 + Duration::from_secs(5), "{took:?}");
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

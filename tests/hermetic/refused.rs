//! Tables that must not be written are refused by name, before a broker is asked for anything.

use alluvium_kafka::Sandbox;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Log, Options, Workbench};
use serde_json::{Value, json};
use std::time::Duration;

fn protocol(features: &[&str]) -> Value {
    json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features } })
}

/// The table's metadata with one property more.
fn property(log: &Log, key: &str, value: &str) -> Value {
    let lines = (0..=log.newest()).rev().flat_map(|version| log.lines(version));
    let mut metadata = lines.filter_map(|line| line.get("metaData").cloned()).next().unwrap();
    metadata["configuration"][key] = value.into();
    json!({ "metaData": metadata })
}

/// What another engine may make of the table, and the words that tell of it.
fn refusals(log: &Log) -> Vec<(Value, &'static str)> {
    vec![
        (property(log, "delta.setTransactionRetentionDuration", "interval 7 days"), "stored positions would expire"),
        (property(log, "delta.constraints.positive", "id > 0"), "CHECK constraint positive"),
        (property(log, "delta.columnMapping.mode", "name"), "maps columns by name"),
        (property(log, "delta.enableInCommitTimestamps", "true"), "in-commit timestamps"),
        (protocol(&["rowTracking", "domainMetadata"]), "the feature rowTracking"),
        (protocol(&["icebergCompatV2"]), "the feature icebergCompatV2"),
        (protocol(&["clustering", "domainMetadata"]), "the feature clustering"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_written_is_refused_by_name_before_reading() {
    let topic = Workbench::topic_name("refused");
    let sandbox = Sandbox::start(&[(&topic, 3)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &Options::default());
    bench.produce(3, 0..50, 100).await;
    bench.run_to_end("first");
    drop(sandbox);
    for table in ["pipeline", "pipeline_dead_letters"] {
        let log = Log::of(&bench.dir().join(table));
        for (action, words) in refusals(&log) {
            let version = log.newest() + 1;
            log.append("SET TBLPROPERTIES", &[action]);
            // The broker is gone: whoever asks it first waits for long.
            let mut run = bench.run("refused", &["--until-end"], &[]);
            let status = run.wait(Duration::from_secs(20));
            assert_eq!(status.code(), Some(2), "{words}: {}", run.err());
            assert!(run.err().contains(words) && run.err().contains("hint: "), "{words} is not in\n{}", run.err());
            log.remove(version);
        }
    }
    // Proof needs no writing: the table is still what it was.
    let log = Log::of(&bench.dir().join("pipeline"));
    log.append("SET TBLPROPERTIES", &[protocol(&["rowTracking", "domainMetadata"])]);
    bench.assert_exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_made_unwritable_stops_its_pipeline_which_goes_on_afterwards() {
    let topic = Workbench::topic_name("refused");
    let sandbox = Sandbox::start(&[(&topic, 3)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &Options::default());
    bench.produce(3, 0..100, 300).await;
    let mut run = bench.run("run", &[], &[]);
    bench.wait_for("pipeline", 300).await;
    let log = Log::of(&bench.dir().join("pipeline"));
    let before = property(&log, "unrelated", "value");
    log.append("SET TBLPROPERTIES", &[property(&log, "delta.setTransactionRetentionDuration", "interval 7 days")]);
    bench.produce(3, 100..200, 300).await;
    assert_eq!(run.wait(PATIENCE).code(), Some(2), "{}", run.err());
    assert!(run.err().contains("stored positions would expire") && run.err().contains("UNSET"), "{}", run.err());
    log.append("UNSET TBLPROPERTIES", &[before]);
    bench.produce(3, 200..300, 300).await;
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
}

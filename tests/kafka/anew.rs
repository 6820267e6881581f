//! A topic that was deleted and made anew under the same name, with fewer records than were read, as
//! many, or more.

use crate::{server, workbench};
use alluvium_testkit::kafka_server::KafkaServer;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Fate, Options, Workbench};
use std::time::{Duration, Instant};

/// Records read of the old topic, and what the new one has.
const READ: u64 = 100;
const RECORDS: [u64; 3] = [60, 100, 140];

async fn make_anew(server: &KafkaServer, topic: &str) {
    server.delete_topic(topic).await.unwrap();
    let begun = Instant::now();
    // Deleting goes on for a moment after it was answered.
    while let Err(error) = server.create_topic(topic, 1, &[]).await {
        assert!(begun.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn id_of(server: &KafkaServer, topic: &str) -> String {
    let metadata = std::fs::read_to_string(server.data().join(format!("{topic}-0/partition.metadata"))).unwrap();
    metadata.split_once("topic_id: ").unwrap().1.trim().to_owned()
}

/// The pipeline stops and says why; nothing of the new topic is in the table under the old positions,
/// and a new generation reads it from its start.
async fn refused_and_then_read(server: &KafkaServer, bench: &mut Workbench, options: &Options, records: u64) {
    let rows = bench.rows("pipeline").await;
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), kept(&bench.fates));
    // The fates of the new topic's records, which are in it already.
    bench.fates.clear();
    for index in 0..records {
        bench.fates.insert((0, index as i64), alluvium_tests::record(0, index, 1_000).1);
    }
    let told = bench.run_refused("refused");
    let id = id_of(server, bench.topic());
    assert!(told.contains("was created anew") && told.contains(&format!("has id {id}")), "{told}");
    assert!(told.contains("raise `generation`"), "{told}");
    assert_eq!(bench.rows("pipeline").await, rows);
    assert_eq!(bench.positions("pipeline").await, [(alluvium_core::Partition(0), READ as i64)]);
    bench.write("pipeline.toml", bench.topic(), &Options { generation: 2, ..options.clone() });
    assert_eq!(bench.run_to_end("generation-2")[0]["read"], records);
    let mut wanted = rows;
    for place in kept(&bench.fates) {
        *wanted.entry(place).or_default() += 1;
    }
    assert_eq!(bench.rows("pipeline").await, wanted);
    bench.alluvium("verify", &["verify", "--json", "pipeline.toml"], &[]).done(PATIENCE);
}

fn kept(fates: &std::collections::BTreeMap<(i32, i64), Fate>) -> Vec<(i32, i64)> {
    fates.iter().filter(|(_, fate)| **fate == Fate::Row).map(|(place, _)| *place).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_stopped() {
    let (server, _alone) = server().await;
    for records in RECORDS {
        let options = Options { partitions: 1, ..Options::default() };
        let mut bench = workbench(server, &options).await;
        bench.produce(1, 0..READ, 1_000).await;
        bench.run_to_end("first");
        make_anew(server, bench.topic()).await;
        let old = bench.fates.clone();
        bench.produce(1, 0..records, 1_000).await;
        bench.fates = old;
        refused_and_then_read(server, &mut bench, &options, records).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_running() {
    let (server, _alone) = server().await;
    for records in RECORDS {
        let options = Options { partitions: 1, ..Options::default() };
        let mut bench = workbench(server, &options).await;
        bench.produce(1, 0..READ, 1_000).await;
        let mut process = bench.run("run", &[], &[]);
        bench.wait_for("pipeline", READ as i64).await;
        make_anew(server, bench.topic()).await;
        let old = bench.fates.clone();
        bench.produce(1, 0..records, 1_000).await;
        bench.fates = old;
        assert_eq!(process.wait(PATIENCE).code(), Some(2), "{}", process.err());
        // It may have looked between the two.
        let told = process.err();
        assert!(told.contains("was created anew") || told.contains("does not exist"), "{told}");
        refused_and_then_read(server, &mut bench, &options, records).await;
    }
}

/// Read, but not yet flushed: what comes of the new topic meanwhile is not committed with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn between_two_flushes() {
    let (server, _alone) = server().await;
    let options = Options { partitions: 1, flush: "every = \"30s\"".to_owned(), ..Options::default() };
    let mut bench = workbench(server, &options).await;
    bench.produce(1, 0..READ, 1_000).await;
    bench.run_to_end("first");
    let mut process = bench.run("run", &[], &[]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Read at once, and to be flushed three seconds later.
    let old = bench.fates.clone();
    bench.produce(1, READ..READ + 20, 1_000).await;
    make_anew(server, bench.topic()).await;
    bench.produce(1, 0..140, 1_000).await;
    bench.fates = old;
    assert_eq!(process.wait(PATIENCE).code(), Some(2), "{}", process.err());
    let rows = bench.rows("pipeline").await;
    assert!(rows.keys().all(|(_, offset)| *offset < READ as i64 + 20), "{rows:?}");
    let told = bench.run_refused("refused");
    assert!(told.contains("was created anew"), "{told}");
    assert_eq!(bench.rows("pipeline").await, rows);
}

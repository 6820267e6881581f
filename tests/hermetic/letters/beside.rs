//! Replays of a pipeline that reads a topic.

use super::case::{BAD, BROKEN, FIXED, GOOD, HOPELESS};
use alluvium_core::chunk::Header;
use alluvium_delta::TableRole;
use alluvium_kafka::{NewRecord, Producer, Sandbox};
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Fate, Options, Workbench};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use std::os::unix::process::ExitStatusExt;

fn options(schema: &str) -> Options {
    Options {
        partitions: 2,
        transforms: String::new(),
        schema: schema.to_owned(),
        sink: "[sink.metadata]\nkey = \"_key\"\nheaders = \"_headers\"".to_owned(),
        flush: "every = \"100ms\"".to_owned(),
        ..Options::default()
    }
}

async fn bench() -> (Sandbox, Workbench) {
    let topic = Workbench::topic_name("letters");
    let sandbox = Sandbox::start(&[(&topic, 2)]).unwrap();
    let bench = Workbench::new(sandbox.brokers(), &topic, &options(BROKEN));
    (sandbox, bench)
}

/// Produces each value into both partitions; what it becomes in the end.
async fn produce(bench: &mut Workbench, values: &[(&str, Fate)]) {
    let producer = Producer::connect(bench.brokers(), &[]).unwrap();
    let topic = bench.topic().to_owned();
    let headers = [Header { key: "source", value: Some(b"\x00\xff".as_slice()) }, Header { key: "empty", value: None }];
    for (value, fate) in values {
        for partition in 0..2 {
            let record = NewRecord {
                topic: &topic,
                partition: Some(partition),
                key: Some(b"key"),
                value: Some(value.as_bytes()),
                timestamp: Some(1_700_000_000_123),
                headers: &headers,
            };
            let delivered = producer.produce(record).await.unwrap();
            bench.fates.insert((delivered.partition, delivered.offset), *fate);
        }
    }
}

fn fix(bench: &Workbench) {
    bench.write("pipeline.toml", bench.topic(), &options(FIXED));
}

/// Rows and open letters are what they must be, each once, and the table proves it.
async fn check(bench: &Workbench) {
    let wanted = |fate: Fate| {
        let of = bench.fates.iter().filter(move |(_, found)| **found == fate);
        of.map(|(place, _)| (*place, 1)).collect::<std::collections::BTreeMap<_, u32>>()
    };
    assert_eq!(bench.rows("pipeline").await, wanted(Fate::Row));
    let list = bench.alluvium("list", &["dead-letters", "pipeline.toml", "list", "--json", "--limit", "100000"], &[]);
    let mut list = list;
    let list = list.done(PATIENCE);
    let place = |letter: &serde_json::Value| {
        let partition = i32::try_from(letter["partition"].as_i64().unwrap()).unwrap();
        ((partition, letter["offset"].as_i64().unwrap()), 1)
    };
    let open: std::collections::BTreeMap<_, u32> = list["letters"].as_array().unwrap().iter().map(place).collect();
    assert_eq!(open, wanted(Fate::DeadLetter), "{list:#}");
    assert_eq!(list["count"], open.len() as u64);
    let mut verify = bench.alluvium("verify", &["verify", "--scan", "pipeline.toml"], &[]);
    assert!(verify.wait(PATIENCE).success(), "{}{}", verify.out(), verify.err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replayed_rows_carry_where_they_came_from() {
    let (_sandbox, mut bench) = bench().await;
    produce(&mut bench, &[(GOOD, Fate::Row), (BAD, Fate::Row), (HOPELESS, Fate::DeadLetter)]).await;
    bench.run_to_end("run");
    let mut show = bench.alluvium("show", &["dead-letters", "pipeline.toml", "show", "1:1"], &[]);
    show.done(PATIENCE);
    for told in ["2023-11-14T22:13:20.123Z", "key        key", "source = \\u{0}\\xff", "empty = none"] {
        assert!(show.out().contains(told), "{told} is not in\n{}", show.out());
    }
    fix(&bench);
    let replay = bench.alluvium("replay", &["dead-letters", "pipeline.toml", "replay", "--json"], &[]).done(PATIENCE);
    assert_eq!((&replay["read"], &replay["rows"]), (&4.into(), &2.into()), "{replay:#}");
    check(&bench).await;
    // All rows say the same of themselves, whichever way they came.
    let columns = ["_kafka", "_key", "_headers", "id"].map(str::to_owned);
    let rows = bench.sink("pipeline").await.reader().first_rows(TableRole::Rows, Some(&columns), 10).await.unwrap();
    assert_eq!(rows.num_rows(), 4);
    let kafka = rows.column(0).as_struct();
    let timestamps = kafka.column_by_name("timestamp").unwrap().as_primitive::<TimestampMicrosecondType>();
    let headers = rows.column(2).as_list::<i32>();
    for row in 0..4 {
        assert_eq!(timestamps.value(row), 1_700_000_000_123_000);
        assert_eq!(rows.column(1).as_binary::<i32>().value(row), b"key");
        assert_eq!(&headers.value(row), &headers.value(0));
        assert_eq!(headers.value(row).len(), 2);
    }
    // The pipeline goes on from where it was.
    produce(&mut bench, &[(GOOD, Fate::Row), (BAD, Fate::Row)]).await;
    assert_eq!(bench.run_to_end("more")[0]["read"], 4);
    check(&bench).await;
}

/// Both commit to the same two tables all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_beside_a_running_pipeline() {
    let (_sandbox, mut bench) = bench().await;
    let mut run = bench.run("run", &[], &[]);
    let broken = std::fs::read_to_string(bench.dir().join("pipeline.toml")).unwrap();
    for round in 0..5 {
        produce(&mut bench, &[(GOOD, Fate::Row), (BAD, Fate::Row), (HOPELESS, Fate::DeadLetter)]).await;
        fix(&bench);
        let name = format!("replay-{round}");
        let mut replay = bench.alluvium(&name, &["dead-letters", "pipeline.toml", "replay"], &[]);
        produce(&mut bench, &[(BAD, Fate::Row), (GOOD, Fate::Row)]).await;
        assert!(replay.wait(PATIENCE).success(), "{}", replay.err());
        std::fs::write(bench.dir().join("pipeline.toml"), &broken).unwrap();
    }
    let all = i64::try_from(bench.fates.len()).unwrap();
    bench.wait_for("pipeline", all).await;
    run.signal(Signal::SIGTERM);
    assert!(run.wait(PATIENCE).success(), "{}", run.err());
    fix(&bench);
    bench.alluvium("last", &["dead-letters", "pipeline.toml", "replay"], &[]).done(PATIENCE);
    check(&bench).await;
}

/// Ended between the rows and their letters: the replay writes those first, and takes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_a_killed_run_owes_are_written_and_replayed() {
    let (_sandbox, mut bench) = bench().await;
    let at_once = |schema| Options { flush: "every = \"1h\"".to_owned(), ..options(schema) };
    bench.write("pipeline.toml", bench.topic(), &at_once(BROKEN));
    produce(&mut bench, &[(GOOD, Fate::Row), (BAD, Fate::Row), (HOPELESS, Fate::DeadLetter)]).await;
    let mut killed = bench.run("killed", &["--until-end"], &[("ALLUVIUM_KILL_AT", "commit:after#1")]);
    assert_eq!(killed.wait(PATIENCE).signal(), Some(9), "{}", killed.err());
    let list = bench.alluvium("list", &["dead-letters", "pipeline.toml", "list", "--json"], &[]).done(PATIENCE);
    assert_eq!((&list["count"], &list["owed"]), (&0.into(), &true.into()), "{list:#}");
    bench.write("pipeline.toml", bench.topic(), &at_once(FIXED));
    let replay = bench.alluvium("replay", &["dead-letters", "pipeline.toml", "replay", "--json"], &[]).done(PATIENCE);
    assert_eq!((&replay["read"], &replay["rows"]), (&4.into(), &2.into()), "{replay:#}");
    check(&bench).await;
    assert_eq!(bench.run_to_end("again")[0]["read"], 0);
    check(&bench).await;
}

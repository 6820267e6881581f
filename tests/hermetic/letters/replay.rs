//! Replays: once, whatever ends them and whoever runs beside.

use super::case::{BAD, BROKEN, Case, FIXED, GOOD, HOPELESS, file, offsets};
use alluvium_core::seam::{Flush, Outcome, Table};
use alluvium_core::{CommitInfo, Counts, DeadLetter, Partition, PartitionProgress, Reason, Span, Stage};
use alluvium_delta::TableRole;
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::{PATIENCE, transform};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use std::os::unix::process::ExitStatusExt;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_become_rows_once_and_those_that_fail_again_stay() {
    let case = Case::usual();
    case.check("before", &[0, 4], &[1, 2, 3, 5]).await;
    case.write(&file(FIXED, ""));
    let first = case.replay(&[]);
    let replay = &first;
    assert_eq!((&replay["number"], &replay["read"], &replay["rows"]), (&1.into(), &4.into(), &3.into()), "{first:#}");
    assert_eq!(replay["rejected"], 1, "{first:#}");
    case.check("once", &[0, 1, 3, 4, 5], &[2]).await;
    let again = case.list(&[])["letters"][0].clone();
    assert_eq!((&again["rejected_by_replay"], &again["reason"]), (&1.into(), &"malformed".into()), "{again:#}");

    // Only what failed again is taken anew.
    let second = case.replay(&[]);
    assert_eq!((&second["read"], &second["rows"]), (&1.into(), &0.into()), "{second:#}");
    case.check("twice", &[0, 1, 3, 4, 5], &[2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_replay_changes_nothing() {
    let case = Case::new(&file(BROKEN, ""), [GOOD, BAD, BAD]);
    case.write(&file(FIXED, ""));
    case.replay(&[]);
    let versions = case.versions().await;
    let second = case.replay(&[]);
    assert_eq!((&second["number"], &second["read"]), (&serde_json::Value::Null, &0.into()), "{second:#}");
    assert_eq!(case.versions().await, versions);
    case.check("twice", &[0, 1, 2], &[]).await;
}

/// What each of these does is undone by nobody: the next replay ends right from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_point_it_ends_right_the_next_time() {
    let usual = Case::usual();
    usual.write(&file(FIXED, ""));
    let points = [
        "upload:before",
        "upload:after",
        "marks:before",
        "marks:after",
        "schema:before",
        "schema:after",
        "commit:before",
        "commit:after",
        "dead-letters:before",
        "dead-letters:after",
    ];
    for point in points {
        let case = usual.copy();
        let at = format!("{point}#1");
        let mut killed = case.letters_with(&["replay"], &[("ALLUVIUM_KILL_AT", &at)]);
        let status = killed.wait(PATIENCE);
        assert_eq!(status.signal(), Some(9), "{at} was not reached: {status}\n{}", killed.err());
        // Proven between the two commits too: nothing is wrong.
        let mut verify = case.run("between", &["verify", "--scan", "pipeline.toml"]);
        assert!(verify.wait(PATIENCE).success(), "{at}: {}", verify.out());
        // Before the entry nothing has happened; after it, whoever comes next writes what it owes.
        let landed = matches!(point, "commit:after" | "dead-letters:before" | "dead-letters:after");
        let again = case.replay(if landed { &["--reason", "none"] } else { &[] });
        assert_eq!(again["number"].is_null(), landed, "{at}: {again:#}");
        case.check(&at, &[0, 1, 3, 4, 5], &[2]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replays_at_once_take_each_letter_once() {
    let usual = Case::new(&file(BROKEN, ""), std::iter::once(GOOD).chain(std::iter::repeat_n(BAD, 200)));
    usual.write(&file(FIXED, ""));
    let all: Vec<i64> = (0..201).collect();
    for round in 0..3 {
        let case = usual.copy();
        let mut replays: Vec<_> = (0..3)
            .map(|n| {
                // One of them wants only a part.
                let offsets = if n == 0 { "50..120" } else { "0.." };
                let name = format!("at-once-{n}");
                case.run(&name, &["dead-letters", "pipeline.toml", "replay", "--json", "--offset", offsets])
            })
            .collect();
        for replay in &mut replays {
            assert!(replay.wait(PATIENCE).success(), "{}", replay.err());
        }
        case.check(&format!("round {round}"), &all, &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_chosen_is_replayed() {
    let case = Case::new(&file(BROKEN, ""), [BAD, HOPELESS, BAD, BAD, GOOD]);
    case.write(&file(FIXED, ""));
    assert_eq!(offsets(&case.list(&["--reason", "malformed"])), [1]);
    assert_eq!(offsets(&case.list(&["--offset", "1..3"])), [1, 2]);
    assert_eq!(offsets(&case.list(&["--partition", "1"])), [] as [i64; 0]);
    case.replay(&["--offset", "2..3"]);
    case.check("one", &[2, 4], &[0, 1, 3]).await;
    case.replay(&["--reason", "conflict"]);
    case.check("a reason's", &[0, 2, 3, 4], &[1]).await;
    assert_eq!(offsets(&case.list(&["--all"])), [0, 1, 2, 3]);
}

/// The plugin fails on every one of the letters, which says nothing: they are all the bad ones there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_trap_again_stay_and_are_rows_once_the_plugin_is_fixed() {
    let schema =
        "[[schema.column]]\nname = \"id\"\ntype = \"bigint\"\n[[schema.column]]\nname = \"text\"\ntype = \"string\"\n";
    let with_plugin = |mode: &str| {
        let plugin = transform("hostile-column", &format!("{{ mode = \"{mode}\" }}"));
        file(schema, &format!("{plugin}\n[limits]\ntime = \"300ms\"\n"))
    };
    let text = |id: usize| format!(r#"{{"id":{id},"text":"{}"}}"#, if id.is_multiple_of(50) { "boom" } else { "calm" });
    for mode in ["trap-marker", "loop-marker"] {
        let case = Case::new(&with_plugin(mode), (0..200).map(text));
        let letters = case.list(&[]);
        let digest = letters["letters"][0]["plugin"].as_str().unwrap().to_owned();
        let prefix = digest.strip_prefix("sha256:").unwrap().get(..10).unwrap();
        assert_eq!(offsets(&case.list(&["--plugin", prefix])), [0, 50, 100, 150], "{mode}");
        let rows: Vec<i64> = (0..200).filter(|id| id % 50 != 0).collect();
        let again = case.replay(&["--plugin", prefix]);
        assert_eq!((&again["rejected"], &again["rows"]), (&4.into(), &0.into()), "{mode}");
        case.check(mode, &rows, &[0, 50, 100, 150]).await;
        let mut show = case.letters(&["show", "0:50"]);
        show.done(PATIENCE);
        assert!(show.out().contains("(hostile-column)") && show.out().contains(&digest), "{}", show.out());
        case.write(&with_plugin("honest"));
        case.replay(&[]);
        case.check(mode, &(0..200).collect::<Vec<_>>(), &[]).await;
    }
}

/// One record makes several rows: none before, all after, each with its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_of_a_multiplying_plugin() {
    let unwrap = transform("unwrap", "{}");
    let envelope = |elements: &[&str]| format!(r#"{{"payload":[{}]}}"#, elements.join(","));
    let records = [envelope(&[GOOD, GOOD]), envelope(&[GOOD, BAD, GOOD]), "no envelope".to_owned()];
    let case = Case::new(&file(BROKEN, &unwrap), records);
    let rows = async |case: &Case| {
        let sink = case.sink().await;
        let mut scan = sink.reader().scan_rows("_kafka", None).await.unwrap();
        let mut rows = Vec::new();
        while let Some(batch) = scan.next().await {
            rows.extend(batch.unwrap().iter().map(|row| (row.offset, row.row)));
        }
        rows.sort_unstable();
        rows
    };
    assert_eq!(rows(&case).await, [(0, Some(0)), (0, Some(1))]);
    case.write(&file(FIXED, &unwrap));
    let replays = case.replay(&[]);
    assert_eq!((&replays["kept"], &replays["rows"]), (&1.into(), &3.into()), "{replays:#}");
    assert_eq!(rows(&case).await, [(0, Some(0)), (0, Some(1)), (1, Some(0)), (1, Some(1)), (1, Some(2))]);
    assert_eq!(offsets(&case.list(&[])), [2]);
    case.run("verify", &["verify", "--scan", "pipeline.toml"]).done(PATIENCE);
}

/// A flush without rows: its records are letters, or are still to be kept.
async fn flush(
    case: &Case,
    pipeline: &str,
    generation: u32,
    (from, to): (i64, i64),
    letters: &[i64],
) -> Flush<alluvium_delta::DataFile> {
    let sink = case.sink().await;
    let info = sink.reader().history(TableRole::Rows).await.unwrap()[0].entry.info.clone().unwrap();
    let (read, rejected) = ((to - from) as u64, letters.len() as u64);
    let kept = read - rejected;
    let progress = PartitionProgress {
        partition: Partition(0),
        span: Span::new(from, to).unwrap(),
        counts: Counts { read, kept, rows: kept, rejected, filtered: 0 },
    };
    Flush {
        info: CommitInfo { pipeline: format!("test/{pipeline}"), generation, partitions: vec![progress], ..info },
        schema: sink.load().await.unwrap().schema.unwrap(),
        files: Vec::new(),
        dead_letters: letters.iter().map(|offset| letter(*offset)).collect(),
        absent: std::collections::BTreeSet::from([Partition(0)]),
    }
}

fn letter(offset: i64) -> DeadLetter {
    DeadLetter {
        partition: Partition(0),
        offset,
        timestamp: 0,
        key: None,
        value: Some(BAD.as_bytes().to_vec()),
        headers: None,
        stage: Stage::Mapping,
        reason: Reason { code: "conflict", message: "late".to_owned() },
        plugin: None,
    }
}

/// Letters of another pipeline and of another generation in the same table are nobody's business.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_of_others_are_left_alone() {
    let case = Case::usual();
    for (pipeline, generation) in [("another", 1), ("pipeline", 2)] {
        let sink = case.sink_of(pipeline, generation, Vec::new()).await;
        let mut flush = flush(&case, pipeline, generation, (0, 2), &[0, 1]).await;
        assert!(matches!(sink.commit(&mut flush).await.unwrap(), Outcome::Committed { .. }));
    }
    case.write(&file(FIXED, ""));
    case.replay(&[]);
    let columns = ["pipeline", "generation"].map(str::to_owned);
    let sink = case.sink().await;
    let batch = sink.reader().first_rows(TableRole::DeadLetters, Some(&columns), usize::MAX).await.unwrap();
    let (pipelines, generations) = (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int32Type>());
    let of = |pipeline: &str, generation| {
        (0..batch.num_rows())
            .filter(|row| pipelines.value(*row) == pipeline && generations.value(*row) == generation)
            .count()
    };
    assert_eq!((of("test/another", 1), of("test/pipeline", 2)), (2, 2));
    // Four letters, four marks, one letter again.
    assert_eq!(of("test/pipeline", 1), 9);
    case.check("own", &[0, 1, 3, 4, 5], &[2]).await;
}

/// Nothing was a row so far: the letters are the first batch, all of them together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_columns_are_inferred_from_letters() {
    let number = |id: usize| format!(r#"{{"id":{id},"amount":{}}}"#, if id == 1_500 { "1.5" } else { "1" });
    let case = Case::new(&file("mapping = \"infer\"", &transform("unwrap", "{}")), (0..1_501).map(number));
    assert_eq!(case.list(&[])["count"], 1_501);
    case.write(&file("mapping = \"infer\"", ""));
    assert_eq!(case.replay(&[])["rows"], 1_501);
    let columns = ["amount".to_owned()];
    let sink = case.sink().await;
    let rows = sink.reader().first_rows(TableRole::Rows, Some(&columns), usize::MAX).await.unwrap();
    let amounts = rows.column(0).as_primitive::<Float64Type>();
    assert_eq!(amounts.iter().flatten().sum::<f64>(), 1_501.5);
    case.check("inferred", &(0..1_501).collect::<Vec<_>>(), &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_larger_than_a_chunk_and_partition_columns() {
    let divided = |schema: &str| file(schema, "") + "partition_by = [\"id\"]\n";
    let large = |id: usize| format!(r#"{{"id":{id},"amount":"{}"}}"#, "x".repeat(5 << 20));
    let case = Case::new(&divided(BROKEN), (0..4).map(large).chain([GOOD.to_owned()]));
    case.write(&divided(FIXED));
    let replays = case.replay(&[]);
    assert_eq!(replays["rows"], 4, "{replays:#}");
    let sink = case.sink_of("pipeline", 1, vec!["id".to_owned()]).await;
    let rows = sink.reader().first_rows(TableRole::Rows, Some(&["_rescued".to_owned()]), 10).await.unwrap();
    let rescued = rows.column(0).as_string::<i32>();
    assert_eq!(rescued.iter().flatten().filter(|text| text.len() > 5 << 20).count(), 4);
    let files = sink.reader().history(TableRole::Rows).await.unwrap();
    assert!(files.iter().flat_map(|commit| &commit.entry.adds).all(|file| file.path.starts_with("id=")));
    case.run("verify", &["verify", "--scan", "pipeline.toml"]).done(PATIENCE);
}

/// 100,000 letters of 1 KiB: their values are never in memory together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_replay_stays_within_its_memory() {
    const LETTERS: usize = 100_000;
    let noise = |id: usize| {
        let mut seed = id as u64 + 1;
        let mut text = String::with_capacity(1024);
        while text.len() < 1000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(&format!("{seed:016x}"));
        }
        text
    };
    let bad = |id: usize| format!(r#"{{"id":{id},"amount":"{}"}}"#, noise(id));
    let case = Case::new(&file(BROKEN, ""), (0..LETTERS).map(bad).chain([GOOD.to_owned()]));
    case.write(&file(FIXED, ""));
    let begun = std::time::Instant::now();
    let mut replay = case.letters(&["replay", "--json"]);
    let mut peak = 0;
    while replay.is_running() {
        peak = replay.peak_memory().unwrap_or(0).max(peak);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(replay.wait(PATIENCE).success(), "{}", replay.err());
    println!("{LETTERS} letters in {:?}, at most {} MiB", begun.elapsed(), peak >> 20);
    assert!(peak < 400 << 20, "{} MiB", peak >> 20);
    assert_eq!(case.list(&[])["count"], 0);
    let proof = case.run("verify", &["verify", "--scan", "--json", "pipeline.toml"]).done(PATIENCE);
    assert_eq!(proof["scan"]["rows"], LETTERS as u64 + 1, "{proof:#}");
    assert_eq!(proof["log"]["partitions"][0]["replayed"], LETTERS as u64, "{proof:#}");
}

/// Ended by a signal in the middle of its work, any number of times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_at_any_time_do_no_harm() {
    let case = Case::new(&file(BROKEN, ""), std::iter::repeat_n(BAD, 3_000).chain([GOOD]));
    case.write(&file(FIXED, ""));
    for delay in [5, 50, 100, 150, 200, 300] {
        let mut replay = case.letters(&["replay"]);
        std::thread::sleep(std::time::Duration::from_millis(delay));
        if replay.is_running() {
            replay.signal(if delay % 100 == 0 { Signal::SIGKILL } else { Signal::SIGTERM });
        }
        replay.wait(PATIENCE);
    }
    case.replay(&[]);
    case.check("after signals", &(0..3_001).collect::<Vec<_>>(), &[]).await;
}

//! Two writers that grow one table at once: with different fields, with the same, and with the same under
//! two types. All rows land, and who loses a version of the log judges or plans anew.

use alluvium_tests::Log;
use alluvium_tests::process::Signal;
use alluvium_tests::rivals::{self, Growth, LOST, MOVED, Rivals};
use std::sync::Mutex;

/// The first is frozen at one point of its commit while the other grows the table, and then goes on.
async fn held(growth: Growth, point: &str, two_pipelines: bool) {
    let what = format!("{growth:?}, {point}, two pipelines: {two_pipelines}");
    let mut rivals = Rivals::start(two_pipelines, Some(&format!("{point}#1"))).await;
    rivals.send(0, growth.record(0, 10, "new")).await;
    rivals.wait_frozen();
    rivals.send(1, growth.record(1, 11, "new")).await;
    rivals.settled(1).await;
    rivals.process(0).signal(Signal::SIGCONT);
    rivals.settled(0).await;
    // Then each takes what the other has.
    for at in [0, 1] {
        rivals.send(at, growth.record(1 - at, 12 + at as i64, "new")).await;
        rivals.settled(at).await;
    }
    rivals.finish().await;

    let [first, second] = [0, 1].map(|at| rivals.process(at).err());
    // Before the upload nothing was judged yet, and nothing can be lost.
    assert_eq!(first.contains(LOST), point != "upload:before", "{what}: {first}");
    let loser = match (growth, point) {
        (Growth::TwoTypes, "commit:before") => Some(&second),
        (Growth::TwoTypes, _) => Some(&first),
        _ => None,
    };
    for err in [&first, &second] {
        let is_loser = loser.is_some_and(|loser| std::ptr::eq(loser, err));
        assert_eq!(err.contains(MOVED), is_loser, "{what}:\nfirst: {first}\nsecond: {second}");
    }
    // One of them has added each column, behind all that was there.
    let columns = rivals.columns().await;
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let added: &[&str] = match (growth, point) {
        (Growth::Different, "commit:before") => &["new_0", "new_1"],
        (Growth::Different, _) => &["new_1", "new_0"],
        _ => &["new"],
    };
    assert_eq!(names, [&["id", "u", "_rescued", "_kafka"], added].concat(), "{what}");
    let log = Log::of(&rivals.bench.dir().join("pipeline"));
    let growths = (0..=log.newest()).filter(|version| log.text(*version).contains("\"ADD COLUMNS\""));
    assert_eq!(growths.count(), added.len(), "{what}");
}

const POINTS: [&str; 3] = ["upload:before", "schema:before", "commit:before"];
/// Cases at the same time: most of one is waiting.
const AT_ONCE: usize = 5;

fn all_held(two_pipelines: bool) {
    let cases = POINTS.into_iter().flat_map(|point| Growth::ALL.map(|growth| (growth, point)));
    let cases = Mutex::new(cases.collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
                while let Some((growth, point)) = { cases.lock().unwrap().pop() } {
                    runtime.block_on(held(growth, point, two_pipelines));
                }
            });
        }
    });
}

#[test]
fn processes_of_one_pipeline_grow_its_table_at_once() {
    all_held(false);
}

#[test]
fn two_pipelines_grow_one_table_at_once() {
    all_held(true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pipelines_processes_grow_its_table_again_and_again() {
    rivals::rounds(false, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pipelines_grow_one_table_again_and_again() {
    rivals::rounds(true, 10).await;
}

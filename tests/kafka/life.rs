//! Starts, stops, takeovers, and what only a real broker's topics can show.

use crate::{server, workbench};
use alluvium_tests::Options;
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::PATIENCE;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_every_step() {
    let (server, _alone) = server().await;
    let options = Options::default();
    let mut bench = workbench(server, &options).await;
    let points = [
        "plugin:before#1",
        "plugin:after#3",
        "upload:before#1",
        "upload:after#1",
        "dead-letters:before#1",
        "dead-letters:after#1",
        "commit:before#1",
        "commit:after#1",
        "offsets:before#1",
        "offsets:after#1",
    ];
    let count = 4_000;
    for (number, point) in (0u64..).zip(points) {
        bench.produce(3, number * 300..(number + 1) * 300, count).await;
        let mut killed = bench.run("killed", &[], &[("ALLUVIUM_KILL_AT", point)]);
        let status = killed.wait(PATIENCE);
        assert_eq!(status.signal(), Some(9), "{point} was not reached: {status}\n{}", killed.err());
    }
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_from_a_frozen_process() {
    let (server, _alone) = server().await;
    let options = Options { flush: "every = \"1s\"".to_owned(), ..Options::default() };
    let mut bench = workbench(server, &options).await;
    bench.produce(3, 0..1_000, 6_000).await;
    let mut first = bench.run("first", &[], &[]);
    bench.wait_for("pipeline", 3_000).await;
    bench.produce(3, 1_000..3_000, 6_000).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.signal(Signal::SIGSTOP);
    let mut second = bench.run("second", &[], &[]);
    bench.wait_for("pipeline", 9_000).await;
    first.signal(Signal::SIGCONT);
    bench.produce(3, 3_000..6_000, 6_000).await;
    bench.wait_for("pipeline", 18_000).await;
    first.signal(Signal::SIGTERM);
    second.signal(Signal::SIGTERM);
    first.done(PATIENCE);
    second.done(PATIENCE);
    bench.assert_exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_state_deleted() {
    let (server, _alone) = server().await;
    let options = Options::default();
    let mut bench = workbench(server, &options).await;
    for (number, half) in [0..1_000, 1_000..2_000].into_iter().enumerate() {
        bench.produce(3, half, 2_000).await;
        let home = tempfile::tempdir().unwrap();
        let environment = [("HOME", home.path().to_str().unwrap())];
        bench.run(&format!("run-{number}"), &["--until-end"], &environment).done(PATIENCE);
    }
    bench.assert_exactly_once().await;
}

//! Starts, stops, takeovers, and what only a real broker's topics can show.

use crate::{server, workbench};
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Options, frozen_in_a_commit};
use std::os::unix::process::ExitStatusExt;

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
async fn a_frozen_process_is_fenced() {
    let (server, _alone) = server().await;
    let mut bench = workbench(server, &Options::default()).await;
    frozen_in_a_commit(&mut bench, "pipeline.toml").await;
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

//! Killed before and after each step; the table says afterwards that nothing happened.

use alluvium_kafka::Sandbox;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Options, Workbench};
use std::os::unix::process::ExitStatusExt;

const COUNT: u64 = 1_500;

/// Reaches `point` for the `times`-th time, is killed there, and goes on in a new process.
async fn killed_at(point: &str, times: u32) {
    let topic = Workbench::topic_name("crash");
    let options = Options::default();
    let sandbox = Sandbox::start(&[(&topic, options.partitions)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &options);
    bench.produce(options.partitions, 0..COUNT / 2, COUNT).await;
    let at = format!("{point}#{times}");
    let mut killed = bench.run("killed", &[], &[("ALLUVIUM_KILL_AT", &at)]);
    // The second half, with a new field, comes after a first commit, if it lives to make one.
    let half = i64::try_from(COUNT / 2).unwrap() * i64::from(options.partitions);
    while killed.is_running() && bench.committed("pipeline").await < half {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    bench.produce(options.partitions, COUNT / 2..COUNT, COUNT).await;
    let status = killed.wait(PATIENCE);
    assert_eq!(status.signal(), Some(9), "{at} was not reached: {status}\n{}", killed.err());
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
}

macro_rules! killed {
    ($($name:ident: $point:literal, $times:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            killed_at($point, $times).await;
        }
    )*};
}

killed! {
    before_the_first_plugin_call: "plugin:before", 1;
    after_the_first_plugin_call: "plugin:after", 1;
    after_a_later_plugin_call: "plugin:after", 4;
    before_the_first_upload: "upload:before", 1;
    after_the_first_upload: "upload:after", 1;
    after_the_second_upload: "upload:after", 2;
    before_the_first_dead_letters: "dead-letters:before", 1;
    after_the_first_dead_letters: "dead-letters:after", 1;
    after_the_second_dead_letters: "dead-letters:after", 2;
    before_the_first_commit: "commit:before", 1;
    after_the_first_commit: "commit:after", 1;
    before_the_second_commit: "commit:before", 2;
    after_the_second_commit: "commit:after", 2;
    before_a_schema_commit: "schema:before", 1;
    after_a_schema_commit: "schema:after", 1;
    before_the_offsets_are_published: "offsets:before", 1;
    after_the_offsets_are_published: "offsets:after", 1;
}

//! A disk that is full or read-only stops the pipeline with the cause; it goes on when that is gone.

use alluvium_kafka::Sandbox;
use alluvium_tests::namespace::Namespace;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Options, Workbench};
use std::time::{Duration, Instant};

/// The tables are in a directory of their own, on which a file system can be mounted.
fn options() -> Options {
    Options { tables: "disk/".to_owned(), ..Options::default() }
}

/// Starts a pipeline inside, lets `break_it` do its work after the first commit, and awaits the end.
async fn stops(bench: &mut Workbench, namespace: &Namespace, break_it: &str, cause: &str) {
    let inside = namespace.enter(bench.dir());
    let mut run = bench.run_inside("run", &inside, &[]);
    let begun = Instant::now();
    while !run.err().contains("committed") {
        assert!(begun.elapsed() < PATIENCE && run.is_running(), "{}", run.err());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    namespace.sh(bench.dir(), break_it);
    bench.produce(3, 300..600, 900).await;
    let status = run.wait(Duration::from_secs(30));
    assert_eq!(status.code(), Some(2), "{}", run.err());
    assert!(run.err().contains(cause), "{cause:?} is not in\n{}", run.err());
    assert!(run.err().contains("hint: "), "{}", run.err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_the_pipeline_which_goes_on_when_there_is_room() {
    let topic = Workbench::topic_name("disk");
    let sandbox = Sandbox::start(&[(&topic, 3)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &options());
    std::fs::create_dir(bench.dir().join("disk")).unwrap();
    let namespace = Namespace::new(bench.dir(), "mount -t tmpfs -o size=4m tmpfs disk");
    bench.produce(3, 0..300, 900).await;
    let fill = "dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null || true";
    stops(&mut bench, &namespace, fill, "No space left on device").await;
    // Room again.
    namespace.sh(bench.dir(), "rm disk/filler");
    bench.produce(3, 600..900, 900).await;
    let inside = namespace.enter(bench.dir());
    let status = bench.run_inside("again", &inside, &["--until-end"]).wait(PATIENCE);
    assert!(status.success(), "{status}");
    // The namespace ends with the test: what it holds is looked at from outside.
    namespace.sh(bench.dir(), "cp -a disk kept");
    drop(namespace);
    std::fs::remove_dir(bench.dir().join("disk")).unwrap();
    std::fs::rename(bench.dir().join("kept"), bench.dir().join("disk")).unwrap();
    bench.assert_exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_directory_stops_the_pipeline_which_goes_on_when_it_may_write() {
    let topic = Workbench::topic_name("disk");
    let sandbox = Sandbox::start(&[(&topic, 3)]).unwrap();
    let mut bench = Workbench::new(sandbox.brokers(), &topic, &options());
    std::fs::create_dir(bench.dir().join("disk")).unwrap();
    let namespace = Namespace::new(bench.dir(), "mount --bind disk disk");
    bench.produce(3, 0..300, 900).await;
    stops(&mut bench, &namespace, "mount -o remount,bind,ro disk", "Read-only file system").await;
    // A start finds the same, in time and with the cause.
    let inside = namespace.enter(bench.dir());
    let mut run = bench.run_inside("still", &inside, &["--until-end"]);
    assert_eq!(run.wait(PATIENCE).code(), Some(2), "{}", run.err());
    assert!(run.err().contains("Read-only file system"), "{}", run.err());
    // Reading needs no writing.
    let mut verify = bench.inside("verify", &inside, &["verify", "--scan", "pipeline.toml"]);
    assert!(verify.wait(PATIENCE).success(), "{}{}", verify.out(), verify.err());
    drop(namespace);
    bench.produce(3, 600..900, 900).await;
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
}

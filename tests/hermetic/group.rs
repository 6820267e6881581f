//! Cases that hold on every kind of broker, here on the sandbox.

use alluvium_kafka::Sandbox;
use alluvium_tests::process::Signal;
use alluvium_tests::workbench::PATIENCE;
use alluvium_tests::{Options, Workbench, cases};
use std::time::{Duration, Instant};

fn workbench(options: &Options) -> (Sandbox, Workbench) {
    let topic = Workbench::topic_name("group");
    let sandbox = Sandbox::start(&[(&topic, options.partitions)]).unwrap();
    let bench = Workbench::new(sandbox.brokers(), &topic, options);
    (sandbox, bench)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_without_partitions() {
    let (_sandbox, bench) = workbench(&Options { partitions: 1, ..Options::default() });
    cases::processes_without_partitions(bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_the_end_beside_others() {
    let (_sandbox, bench) = workbench(&Options { flush: "every = \"4s\"".to_owned(), ..Options::default() });
    cases::until_the_end_beside_others(bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_the_end_while_more_arrives() {
    let (_sandbox, bench) = workbench(&Options::default());
    cases::until_the_end_while_more_arrives(bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_comes_later() {
    let options = Options::default();
    let sandbox = Sandbox::start(&[]).unwrap();
    let bench = Workbench::new(sandbox.brokers(), "later", &options);
    cases::a_topic_that_comes_later(bench, async || sandbox.create_topic("later", 3).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latest_survives_a_kill_before_the_first_flush() {
    let source = "start = \"latest\"\ntombstones = \"dead-letter\"".to_owned();
    let (_sandbox, bench) = workbench(&Options { source, flush: "every = \"1h\"".to_owned(), ..Options::default() });
    cases::latest_survives_a_kill_before_the_first_flush(bench).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_go_and_come_back() {
    let (sandbox, bench) = workbench(&Options { flush: "every = \"1s\"".to_owned(), ..Options::default() });
    let (go, come) = (async || sandbox.go_down().await.unwrap(), async || sandbox.come_up().await.unwrap());
    cases::brokers_that_go_and_come_back(bench, go, come).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load() {
    let flush = "every = \"2s\"\ngrace = \"10s\"".to_owned();
    let (_sandbox, bench) = workbench(&Options { flush, ..Options::default() });
    cases::sigterm_under_load(bench, Duration::from_secs(10)).await;
}

/// Without any time to flush, what was read is dropped, and read again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grace_time_that_is_over_is_told() {
    let flush = "every = \"1h\"\ngrace = \"0s\"".to_owned();
    let (_sandbox, mut bench) = workbench(&Options { flush, ..Options::default() });
    bench.produce(3, 0..1_000, 1_000).await;
    let mut process = bench.run("run", &[], &[]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    process.signal(Signal::SIGTERM);
    let begun = Instant::now();
    assert_eq!(process.wait(PATIENCE).code(), Some(1), "{}", process.err());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(process.err().contains("could not be committed within the grace time"), "{}", process.err());
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
}

/// The sandbox always takes two sessions to forget a member; the settings are those that it prints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_after_a_kill() {
    for standby in [false, true] {
        let options = Options { flush: String::new(), ..Options::default() };
        let (_sandbox, bench) = workbench(&options);
        let took = cases::recovery(bench, &format!("sandbox, standby {standby}"), standby).await;
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

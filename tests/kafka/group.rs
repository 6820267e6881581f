//! Cases that hold on every kind of broker, here on a real one.

use crate::{server, workbench};
use alluvium_testkit::kafka_server::KafkaServer;
use alluvium_tests::{Options, Workbench, cases};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_without_partitions() {
    let (server, _alone) = server().await;
    let options = Options { partitions: 1, ..Options::default() };
    cases::processes_without_partitions(workbench(server, &options).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_the_end_beside_others() {
    let (server, _alone) = server().await;
    let options = Options { flush: "every = \"4s\"".to_owned(), ..Options::default() };
    cases::until_the_end_beside_others(workbench(server, &options).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_the_end_while_more_arrives() {
    let (server, _alone) = server().await;
    cases::until_the_end_while_more_arrives(workbench(server, &Options::default()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_comes_later() {
    let (server, _alone) = server().await;
    let topic = Workbench::topic_name("later");
    let bench = Workbench::new(server.brokers(), &topic, &Options::default());
    cases::a_topic_that_comes_later(bench, async || server.create_topic(&topic, 3, &[]).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latest_survives_a_kill_before_the_first_flush() {
    let (server, _alone) = server().await;
    let source = "start = \"latest\"\ntombstones = \"dead-letter\"".to_owned();
    let options = Options { source, flush: "every = \"1h\"".to_owned(), ..Options::default() };
    cases::latest_survives_a_kill_before_the_first_flush(workbench(server, &options).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_go_and_come_back() {
    let (server, _alone) = server().await;
    let options = Options { flush: "every = \"1s\"".to_owned(), ..Options::default() };
    let bench = workbench(server, &options).await;
    let come = async || come_back(server).await;
    cases::brokers_that_go_and_come_back(bench, async || server.kill(), come).await;
}

async fn come_back(server: &'static KafkaServer) {
    tokio::task::spawn_blocking(|| server.start_again().unwrap()).await.unwrap();
}

/// In order this time, so that leaders are handed over before the port closes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_restarts_under_load() {
    let (server, _alone) = server().await;
    let options = Options { flush: "every = \"500ms\"".to_owned(), ..Options::default() };
    let mut bench = workbench(server, &options).await;
    let flow = bench.flow(3, 0, 1_000_000, 5);
    let mut process = bench.run("run", &[], &[]);
    for _ in 0..2 {
        let before = bench.committed("pipeline").await;
        bench.wait_for("pipeline", before + 1_000).await;
        tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
        come_back(server).await;
    }
    let before = bench.committed("pipeline").await;
    bench.wait_for("pipeline", before + 1_000).await;
    bench.end_flow(flow).await;
    process.signal(alluvium_tests::process::Signal::SIGTERM);
    process.done(alluvium_tests::workbench::PATIENCE);
    bench.run_to_end("rest");
    bench.assert_exactly_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load() {
    let (server, _alone) = server().await;
    let flush = "every = \"2s\"\ngrace = \"10s\"".to_owned();
    let bench = workbench(server, &Options { flush, ..Options::default() }).await;
    cases::sigterm_under_load(bench, Duration::from_secs(10)).await;
}

//! How soon a killed process's work goes on, with nothing set but what is set by default.

use crate::server;
use alluvium_testkit::kafka_server::KafkaServer;
use alluvium_tests::{Options, Workbench, cases};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_after_a_kill() {
    let (_server, _alone) = server().await;
    // What the other tests shorten is as in a new cluster.
    let usual = [("group.initial.rebalance.delay.ms", "3000")];
    let server = tokio::task::spawn_blocking(move || KafkaServer::start_with(&usual)).await.unwrap().unwrap();
    for standby in [false, true] {
        let options = Options { kafka: String::new(), flush: String::new(), ..Options::default() };
        let topic = Workbench::topic_name("recovery");
        server.create_topic(&topic, 3, &[]).await.unwrap();
        let bench = Workbench::new(server.brokers(), &topic, &options);
        let took = cases::recovery(bench, &format!("real broker, standby {standby}"), standby).await;
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

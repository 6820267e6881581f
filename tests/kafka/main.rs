//! End to end on a real Apache Kafka broker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod anew;
mod faults;
mod group;
mod life;
mod recovery;
mod transactions;

use alluvium_testkit::kafka_server::KafkaServer;
use alluvium_tests::{Options, Workbench};
use std::sync::OnceLock;
use tokio::sync::{Mutex, MutexGuard};

/// A session timeout as short as the sandbox's, so that a killed process's partitions are free soon.
const BROKER: &[(&str, &str)] = &[("group.min.session.timeout.ms", "500"), ("group.initial.rebalance.delay.ms", "0")];

/// One broker for all tests, since a start takes seconds; and one test at a time, since some stop the
/// broker, and some measure.
async fn server() -> (&'static KafkaServer, MutexGuard<'static, ()>) {
    static SERVER: OnceLock<KafkaServer> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::const_new(());
    let alone = ALONE.lock().await;
    let start = || SERVER.get_or_init(|| KafkaServer::start_with(BROKER).unwrap());
    (tokio::task::spawn_blocking(start).await.unwrap(), alone)
}

async fn workbench(server: &KafkaServer, options: &Options) -> Workbench {
    let topic = Workbench::topic_name("real");
    server.create_topic(&topic, options.partitions, &[]).await.unwrap();
    Workbench::new(server.brokers(), &topic, options)
}

use crate::suite;
use alluvium_kafka::Sandbox;

#[tokio::test(flavor = "multi_thread")]
async fn reads_all_from_the_positions_given() {
    let sandbox = Sandbox::start(&[("orders", 3)]).unwrap();
    suite::reads_all_from_the_positions_given(sandbox.brokers(), "orders").await;
}

//! What only a sandbox can show: failing requests.

use crate::{
    broker::{Broker, fill},
    reading::Reading,
};
use alluvium_core::{Classified, ErrorClass, seam::Source};
use alluvium_kafka::{Error, Fault, KafkaConfig, KafkaSource, KafkaTopic, Producer, Request, Sandbox};
use rdkafka::mocking::MockCluster;
use std::time::{Duration, Instant};

fn sandbox_of(broker: &Broker) -> &Sandbox {
    match broker {
        Broker::Sandbox(sandbox) => sandbox,
        Broker::Real(_) | Broker::Own(_) => panic!("not a sandbox"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_that_pass_are_not_told() {
    let broker = Broker::sandbox();
    let sandbox = sandbox_of(&broker);
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..1000).await;
    let passing = [
        (Request::Metadata, Fault::Disconnect),
        (Request::FindCoordinator, Fault::CoordinatorLoading),
        (Request::JoinGroup, Fault::CoordinatorLoading),
        (Request::SyncGroup, Fault::RebalanceInProgress),
        (Request::Fetch, Fault::Disconnect),
        (Request::Fetch, Fault::NotLeader),
        (Request::Heartbeat, Fault::CoordinatorLoading),
        (Request::OffsetCommit, Fault::CoordinatorLoading),
    ];
    for (request, fault) in passing {
        sandbox.fail(request, &[fault]).await.unwrap();
    }
    let mut reading = Reading::new(broker.source(&topic));
    reading.until_at(&[(0, 1000)]).await;
    reading.source.publish(&[(alluvium_core::Partition(0), 1000)]);
    sandbox.fail(Request::Fetch, &[Fault::Disconnect, Fault::NotLeader, Fault::Disconnect]).await.unwrap();
    broker.fill(&topic, 0, 1000..1100).await;
    reading.until_at(&[(0, 1100)]).await;
    assert_eq!(reading.offsets(0), (0..1100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_forgotten_loses_its_partitions_and_comes_back() {
    let broker = Broker::sandbox();
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..100).await;
    let mut reading = Reading::new(broker.source(&topic));
    reading.until_at(&[(0, 100)]).await;
    sandbox_of(&broker).fail(Request::Heartbeat, &[Fault::UnknownMember]).await.unwrap();
    reading.until("losing partitions", |reading| !reading.revoked.is_empty()).await;
    assert!(reading.revoked[0].1, "not marked as lost");
    broker.fill(&topic, 0, 100..200).await;
    reading.until_at(&[(0, 200)]).await;
    assert_eq!(reading.offsets(0), (0..200).collect::<Vec<_>>());
    assert_eq!(reading.assigned.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_that_stay_are_told_with_a_hint() {
    let broker = Broker::sandbox();
    let topic = broker.topic(1).await;
    let staying = [
        (Request::JoinGroup, Fault::InconsistentGroupProtocol, "group of its own"),
        (Request::JoinGroup, Fault::InvalidSessionTimeout, "session.timeout.ms"),
        (Request::JoinGroup, Fault::GroupAuthorization, "owner"),
        (Request::FindCoordinator, Fault::GroupAuthorization, "owner"),
    ];
    for (request, fault, hint) in staying {
        sandbox_of(&broker).fail(request, &[fault; 50]).await.unwrap();
        let mut source = broker.source(&topic);
        let error = tokio::time::timeout(Duration::from_secs(20), source.next()).await;
        let error = error.unwrap_or_else(|_| panic!("{fault:?} was not told")).unwrap_err();
        assert_eq!(error.class(), ErrorClass::User, "{error:?}");
        assert!(error.hint().unwrap().contains(hint), "{error:?}: {:?}", error.hint());
        sandbox_of(&broker).heal(request).await.unwrap();
        source.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_partition_is_read_again_from_where_it_failed() {
    let broker = Broker::sandbox();
    let topic = broker.topic(1).await;
    broker.fill(&topic, 0, 0..100).await;
    sandbox_of(&broker).fail(Request::Fetch, &[Fault::UnknownServerError]).await.unwrap();
    let mut reading = Reading::new(broker.source(&topic));
    let limit = Instant::now() + Duration::from_secs(30);
    let mut errors = Vec::new();
    while reading.positions.values().all(|position| *position < 100) {
        assert!(Instant::now() < limit, "{errors:?}");
        if let Err(error) = reading.step().await {
            errors.push(error);
        }
    }
    assert_eq!(reading.offsets(0), (0..100).collect::<Vec<_>>());
    for error in &errors {
        assert!(matches!(error, Error::Fetch { position: 0, .. }), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_go_and_come_back_are_read_on() {
    let broker = Broker::sandbox();
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..100).await;
    let mut reading = Reading::new(broker.source(&topic));
    reading.until_at(&[(0, 100)]).await;
    sandbox_of(&broker).go_down().await.unwrap();
    reading.for_a_while(Duration::from_secs(3)).await;
    sandbox_of(&broker).come_up().await.unwrap();
    broker.fill(&topic, 0, 100..200).await;
    reading.until_at(&[(0, 200)]).await;
    assert_eq!(reading.offsets(0), (0..200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_brokers_are_read_all_the_same() {
    let broker = Broker::sandbox();
    let topic = broker.topic(1).await;
    broker.fill(&topic, 0, 0..100).await;
    sandbox_of(&broker).set_round_trip(Duration::from_millis(300)).await.unwrap();
    let mut reading = Reading::new(broker.source(&topic));
    reading.until_at(&[(0, 100)]).await;
    // Questions do not wait behind the reader's long poll.
    let started = Instant::now();
    reading.source.watermarks(alluvium_core::Partition(0)).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    reading.source.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_has_the_topics_it_was_started_with_and_forgets_the_oldest_records() {
    let sandbox = Sandbox::start(&[("a", 1), ("b", 7)]).unwrap();
    let broker = Broker::Sandbox(sandbox);
    for (topic, partitions) in [("a", 1), ("b", 7)] {
        let topic = KafkaTopic::connect(&broker.config(topic, &[])).unwrap();
        assert_eq!(topic.partitions().await.unwrap().len(), partitions);
    }
    let value = "x".repeat(100_000);
    let producer = alluvium_kafka::Producer::connect(broker.brokers(), &[("compression.type".into(), "none".into())]);
    let producer = producer.unwrap();
    for _ in 0..80 {
        producer.produce(crate::broker::record("a", 0, &value)).await.unwrap();
    }
    let topic = KafkaTopic::connect(&broker.config("a", &[])).unwrap();
    let watermarks = topic.watermarks(alluvium_core::Partition(0)).await.unwrap();
    assert!(watermarks.low > 0 && watermarks.high == 80, "{watermarks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_too_old_for_topic_ids_tell_none() {
    let broker = Broker::sandbox();
    let topic = broker.topic(1).await;
    // Ids came with version 10.
    sandbox_of(&broker).limit_version(Request::Metadata, 9).await.unwrap();
    let asked = KafkaTopic::connect(&broker.config(&topic, &[])).unwrap();
    assert_eq!(asked.id().await.unwrap(), None);
    assert_eq!(asked.partitions().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_that_change_are_followed() {
    let cluster = MockCluster::new(3).unwrap();
    cluster.create_topic("orders", 2, 3).unwrap();
    let lead = |partition, broker| cluster.partition_leader("orders", partition, Some(broker)).unwrap();
    let brokers = cluster.bootstrap_servers();
    let producer = Producer::connect(&brokers, &[]).unwrap();
    let mut reading = Reading::new(KafkaSource::connect(KafkaConfig::new(&brokers, "orders", "readers")).unwrap());
    for round in 0..6_i64 {
        let (one, other) = (round as i32 % 3 + 1, (round as i32 + 1) % 3 + 1);
        lead(0, one);
        lead(1, other);
        // Records that are fetched while their leader changes once more.
        let produced = async {
            for partition in 0..2 {
                fill(&producer, "orders", partition, round * 500..(round + 1) * 500).await;
                lead(partition, other);
            }
        };
        let ends = [(0, (round + 1) * 500), (1, (round + 1) * 500)];
        tokio::join!(produced, reading.until_at(&ends));
        // A leader that is gone altogether comes back as another.
        cluster.broker_down(one).unwrap();
        cluster.broker_up(one).unwrap();
    }
    for partition in 0..2 {
        assert_eq!(reading.offsets(partition), (0..3_000).collect::<Vec<_>>());
    }
    reading.source.close().await;
}

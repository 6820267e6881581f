//! What only a real broker can show: transactions, compaction, deletion, restarts.

use crate::{
    broker::{Broker, record},
    reading::{LIMIT, Reading},
};
use alluvium_core::{Classified, ErrorClass, Partition, position::Watermarks, seam::Source};
use alluvium_kafka::{Error, KafkaConfig, KafkaSource, KafkaTopic, NewRecord, Producer, admin};
use alluvium_testkit::kafka_server::KafkaServer;
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication},
    consumer::{BaseConsumer, Consumer},
};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_read_once_committed_and_positions_pass_their_markers() {
    let broker = Broker::real();
    let topic = broker.topic(1).await;
    let producer = Producer::transactional(broker.brokers(), &topic, &[]).await.unwrap();
    let put = async |value: &str| producer.produce(record(&topic, 0, value)).await.unwrap().offset;
    let mut reading = Reading::new(broker.source(&topic));
    reading.until("an assignment", |reading| !reading.assigned.is_empty()).await;

    producer.begin().await.unwrap();
    assert_eq!((put("a").await, put("b").await), (0, 1));
    // Open: not to be seen, and not below the stable end.
    assert_eq!(reading.source.watermarks(Partition(0)).await.unwrap(), Watermarks { low: 0, high: 0 });
    assert_eq!(reading.for_a_while(Duration::from_millis(500)).await, []);
    producer.commit().await.unwrap();
    // The marker at offset 2 is passed although nothing follows it.
    reading.until_at(&[(0, 3)]).await;

    producer.begin().await.unwrap();
    put("aborted").await;
    put("aborted too").await;
    producer.abort().await.unwrap();
    reading.until_at(&[(0, 6)]).await;
    assert_eq!(reading.source.watermarks(Partition(0)).await.unwrap(), Watermarks { low: 0, high: 6 });

    producer.begin().await.unwrap();
    put("c").await;
    producer.commit().await.unwrap();
    // Another's open transaction hides what is committed behind it.
    let other = Producer::transactional(broker.brokers(), &format!("{topic}-other"), &[]).await.unwrap();
    other.begin().await.unwrap();
    other.produce(record(&topic, 0, "open")).await.unwrap();
    broker.producer().produce(record(&topic, 0, "behind")).await.unwrap();
    reading.until_at(&[(0, 8)]).await;
    assert_eq!(reading.for_a_while(Duration::from_millis(500)).await, []);
    assert_eq!(reading.source.watermarks(Partition(0)).await.unwrap(), Watermarks { low: 0, high: 8 });
    other.abort().await.unwrap();
    reading.until_at(&[(0, 11)]).await;
    assert_eq!(reading.values(0), ["a", "b", "c", "behind"]);

    // From any position within, the same.
    for start in 0..=11 {
        reading.source.seek(&[(Partition(0), start)]).unwrap();
        reading.assigned.insert(Partition(0), start);
        reading.records.clear();
        reading.until("reading again", |reading| reading.assigned[&Partition(0)] == 11).await;
        let offsets: Vec<_> = [0, 1, 6, 9].into_iter().filter(|offset| *offset >= start).collect();
        assert_eq!(reading.offsets(0), offsets, "from {start}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_join_over_aborted_and_committed_transactions_while_they_come() {
    let broker = Broker::real();
    let topic = broker.topic(2).await;
    let mut reading = Reading::new(broker.source(&topic));
    let brokers = broker.brokers().to_owned();
    let written = {
        let topic = topic.clone();
        tokio::spawn(async move {
            let producer = Producer::transactional(&brokers, &topic, &[]).await.unwrap();
            let mut kept = [Vec::new(), Vec::new()];
            for round in 0..40_i32 {
                producer.begin().await.unwrap();
                let mut values = Vec::new();
                for index in 0..50 {
                    let (partition, value) = ((round + index) % 2, format!("{round}-{index}"));
                    producer.enqueue(record(&topic, partition, &value)).await.unwrap();
                    values.push((partition, value));
                }
                if round % 3 == 1 {
                    // Written before they are aborted.
                    producer.flush().await.unwrap();
                    producer.abort().await.unwrap();
                } else {
                    producer.commit().await.unwrap();
                    values.into_iter().for_each(|(partition, value)| kept[partition as usize].push(value));
                }
            }
            kept
        })
    };
    // The reader asserts that spans join, whatever is between.
    while !written.is_finished() {
        reading.for_a_while(Duration::from_millis(100)).await;
    }
    let kept = written.await.unwrap();
    for partition in 0..2 {
        let high = reading.source.watermarks(Partition(partition)).await.unwrap().high;
        reading.until_at(&[(partition, high)]).await;
        assert_eq!(reading.values(partition), kept[partition as usize]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gaps_of_compaction_lie_inside_spans() {
    let broker = Broker::real();
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("delete.retention.ms", "0"),
    ];
    let topic = broker.topic_with(1, &settings).await;
    let producer = broker.producer();
    let put = async |key: &str, value: &str| {
        let record = NewRecord { key: Some(key.as_bytes()), ..record(&topic, 0, value) };
        producer.produce(record).await.unwrap().offset
    };
    for round in 0..20 {
        for key in ["a", "b"] {
            put(key, &format!("{key}{round}")).await;
        }
    }
    let limit = Instant::now() + Duration::from_secs(60);
    let (mut end, offsets) = (
        0,
        loop {
            // Only segments that were closed are compacted.
            tokio::time::sleep(Duration::from_millis(300)).await;
            put("open", "x").await;
            let mut reading = Reading::new(broker.source(&topic));
            let high = reading.source.watermarks(Partition(0)).await.unwrap().high;
            reading.until_at(&[(0, high)]).await;
            reading.source.close().await;
            if reading.records.len() < 10 {
                break reading.offsets(0);
            }
            assert!(Instant::now() < limit, "nothing was compacted: {}", reading.records.len());
        },
    );
    assert!(offsets.windows(2).any(|pair| pair[1] - pair[0] > 1) || offsets[0] > 0, "{offsets:?}");
    // Positions within a gap are as good as others.
    end = end.max(*offsets.last().unwrap());
    for start in [1, 5, 20, 39] {
        let mut reading = Reading::new(broker.source(&topic));
        reading.positions.insert(Partition(0), start);
        reading.until_at(&[(0, end)]).await;
        assert!(reading.offsets(0).iter().all(|offset| *offset >= start));
        reading.source.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_retention_took_are_missed_with_their_offsets() {
    let broker = Broker::real();
    let topic = broker.topic(1).await;
    broker.fill(&topic, 0, 0..100).await;
    admin::delete_records(broker.brokers(), &topic, 0, 60).await.unwrap();
    let mut reading = Reading::new(broker.source(&topic));
    reading.positions.insert(Partition(0), 50);
    assert_eq!(reading.source.watermarks(Partition(0)).await.unwrap(), Watermarks { low: 60, high: 100 });
    reading.step().await.unwrap();
    let error = reading.step().await.unwrap_err();
    assert!(matches!(error, Error::PositionGone { partition: Partition(0), position: 50, .. }), "{error:?}");
    assert_eq!(reading.for_a_while(Duration::from_secs(2)).await, []);
    reading.source.seek(&[(Partition(0), 60)]).unwrap();
    reading.assigned.insert(Partition(0), 60);
    reading.until_at(&[(0, 100)]).await;
    assert_eq!(reading.offsets(0), (60..100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_deleted_is_told() {
    let broker = Broker::real();
    let topic = broker.topic(1).await;
    broker.fill(&topic, 0, 0..10).await;
    let settings = [("topic.metadata.refresh.interval.ms", "1000")];
    let mut reading = Reading::new(KafkaSource::connect(broker.config(&topic, &settings)).unwrap());
    reading.until_at(&[(0, 10)]).await;
    broker.server().delete_topic(&topic).await.unwrap();
    let limit = Instant::now() + LIMIT;
    let error = loop {
        assert!(Instant::now() < limit);
        if let Err(error) = reading.step().await {
            break error;
        }
    };
    assert!(matches!(error, Error::TopicMissing { .. }), "{error:?}");
    assert_eq!(error.class(), ErrorClass::User);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_added_later_is_assigned() {
    let broker = Broker::real();
    let topic = broker.topic(1).await;
    let settings = [("topic.metadata.refresh.interval.ms", "500")];
    let mut reading = Reading::new(KafkaSource::connect(broker.config(&topic, &settings)).unwrap());
    reading.until("an assignment", |reading| reading.assigned.len() == 1).await;
    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", broker.brokers()).create().unwrap();
    let grown = admin.create_partitions([&NewPartitions::new(&topic, 3)], &AdminOptions::new()).await.unwrap();
    assert!(grown[0].is_ok());
    reading.until("the new partitions", |reading| reading.assigned.len() == 3).await;
    broker.fill(&topic, 2, 0..10).await;
    reading.until_at(&[(2, 10)]).await;
    assert!(reading.revoked.is_empty(), "{:?}", reading.revoked);
    assert_eq!(reading.source.partitions().await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_kind_of_consumer_in_the_group_is_told() {
    let broker = Broker::real();
    let topic = broker.topic(1).await;
    let other: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker.brokers())
        .set("group.id", &topic)
        .set("partition.assignment.strategy", "range")
        .create()
        .unwrap();
    other.subscribe(&[&topic]).unwrap();
    let limit = Instant::now() + LIMIT;
    while other.assignment().unwrap().count() == 0 {
        assert!(Instant::now() < limit);
        drop(other.poll(Duration::from_millis(100)));
    }
    let mut source = broker.source(&topic);
    let error = tokio::time::timeout(LIMIT, source.next()).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Group { group, .. } if *group == topic), "{error:?}");
    assert!(error.hint().unwrap().contains("group of its own"));
    source.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_and_comes_back_is_read_on() {
    let broker = Broker::Own(KafkaServer::start().unwrap());
    let server = broker.server();
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..1000).await;
    broker.fill(&topic, 1, 0..1000).await;
    let mut reading = Reading::new(broker.source(&topic));
    reading.until_at(&[(0, 1000)]).await;
    for (round, orderly) in [true, false].into_iter().enumerate() {
        if orderly {
            server.stop();
        } else {
            server.kill();
        }
        reading.for_a_while(Duration::from_secs(2)).await;
        if !orderly {
            let error = reading.source.watermarks(Partition(0)).await.unwrap_err();
            assert_eq!(error.class(), ErrorClass::External, "{error:?}");
        }
        server.start_again().unwrap();
        let from = 1000 + 100 * round as i64;
        broker.fill(&topic, 0, from..from + 100).await;
        reading.until_at(&[(0, from + 100)]).await;
    }
    assert_eq!(reading.offsets(0), (0..1200).collect::<Vec<_>>());
    assert_eq!(reading.offsets(1), (0..1000).collect::<Vec<_>>());
    reading.source.close().await;
}

/// librdkafka tells of a damaged batch, and then goes on behind it as if it had not been there.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_behind_damaged_records_is_read() {
    let broker = Broker::Own(KafkaServer::start().unwrap());
    let server = broker.server();
    let topic = broker.topic(2).await;
    // Three batches a partition.
    for from in [0, 10, 20] {
        broker.fill(&topic, 0, from..from + 10).await;
        broker.fill(&topic, 1, from..from + 10).await;
    }
    server.stop();
    let segment = server.data().join(format!("{topic}-0/00000000000000000000.log"));
    let mut bytes = std::fs::read(&segment).unwrap();
    // The length of a batch lies behind its first offset, and does not count what is before it.
    let length = |at: usize| 12 + u32::from_be_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let second = length(0);
    let damaged = second + length(second) - 3;
    bytes[damaged] ^= 0xff;
    std::fs::write(&segment, bytes).unwrap();
    server.start_again().unwrap();
    let mut reading = Reading::new(broker.source(&topic));
    let mut errors = Vec::new();
    while errors.len() < 3 || reading.positions.get(&Partition(1)) != Some(&30) {
        if let Err(error) = tokio::time::timeout(LIMIT, reading.step()).await.unwrap() {
            errors.push(error);
        }
    }
    for error in &errors {
        assert!(matches!(error, Error::Fetch { partition: Partition(0), position: 10, .. }), "{error:?}");
        assert!(error.hint().unwrap().contains("damaged"), "{error:?}");
    }
    assert_eq!(reading.offsets(0), (0..10).collect::<Vec<_>>());
    assert_eq!(reading.offsets(1), (0..30).collect::<Vec<_>>());
    reading.source.close().await;
}

/// A broker with passwords and permissions: `admin` may do everything, `reader` nothing.
fn guarded_server() -> KafkaServer {
    let users = "org.apache.kafka.common.security.plain.PlainLoginModule required \
        username=\"admin\" password=\"admin-pw\" user_admin=\"admin-pw\" user_reader=\"reader-pw\";";
    let settings = [
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", users),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users", "User:admin;User:ANONYMOUS"),
    ];
    KafkaServer::start_with(&settings).unwrap()
}

fn with_password(broker: &Broker, topic: &str, user: &str, password: &str) -> KafkaConfig {
    let settings = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", user),
        ("sasl.password", password),
    ];
    broker.config(topic, &settings)
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_and_missing_permissions_are_told() {
    let broker = Broker::Own(guarded_server());
    let owner = with_password(&broker, "orders", "admin", "admin-pw");
    let mut config = ClientConfig::new();
    config.extend(owner.settings.iter().cloned());
    let admin: AdminClient<_> = config.set("bootstrap.servers", broker.brokers()).create().unwrap();
    let new = NewTopic::new("orders", 1, TopicReplication::Fixed(1));
    admin.create_topics([&new], &AdminOptions::new()).await.unwrap()[0].as_ref().unwrap();

    let wrong = with_password(&broker, "orders", "reader", "wr0ng");
    let started = Instant::now();
    let asked = KafkaTopic::connect(&wrong).unwrap().check().await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let read = KafkaSource::connect(wrong).unwrap().next().await.unwrap_err();
    for error in [asked, read] {
        assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
        assert_eq!(error.class(), ErrorClass::User);
        assert!(!format!("{error} {error:?}").contains("wr0ng"));
    }
    // No protocol for passwords at all.
    let error = KafkaTopic::connect(&broker.config("orders", &[])).unwrap().check().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. } | Error::Authentication { .. }), "{error:?}");

    let stranger = with_password(&broker, "orders", "reader", "reader-pw");
    let asked = KafkaTopic::connect(&stranger).unwrap().check().await.unwrap_err();
    let read = KafkaSource::connect(stranger).unwrap().next().await.unwrap_err();
    for error in [asked, read] {
        assert!(matches!(error, Error::Authorization { .. }), "{error:?}");
        assert_eq!(error.class(), ErrorClass::User);
    }

    let producer = Producer::connect(broker.brokers(), &owner.settings).unwrap();
    producer.produce(record("orders", 0, "x")).await.unwrap();
    let mut reading = Reading::new(KafkaSource::connect(owner).unwrap());
    reading.until_at(&[(0, 1)]).await;
    reading.source.close().await;
}

//! One member reading.

use crate::{
    broker::{Broker, header, record},
    reading::{Reading, Seen},
};
use alluvium_core::{
    Classified, ErrorClass, Partition,
    chunk::decode_headers,
    position::Watermarks,
    seam::{Event, Source},
};
use alluvium_kafka::{Error, KafkaConfig, KafkaSource, KafkaTopic, NewRecord};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    bindings::{RD_KAFKA_MSG_F_COPY, rd_kafka_producev, rd_kafka_vtype_t as Type},
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::RDKafkaErrorCode,
    producer::{BaseProducer, Producer as _},
};
use std::{
    ffi::CString,
    time::{Duration, Instant},
};

pub async fn reads_all_from_the_positions_given(broker: &Broker) {
    let topic = broker.topic(3).await;
    for partition in 0..3 {
        broker.fill(&topic, partition, 0..5000).await;
    }
    let mut reading = Reading::new(broker.source(&topic));
    reading.positions = [(Partition(1), 1234), (Partition(2), 5000)].into();
    assert_eq!(reading.step().await.unwrap(), Seen::Assigned(vec![Partition(0), Partition(1), Partition(2)]));
    reading.until_at(&[(0, 5000), (1, 5000)]).await;
    assert_eq!(reading.offsets(0), (0..5000).collect::<Vec<_>>());
    assert_eq!(reading.offsets(1), (1234..5000).collect::<Vec<_>>());
    assert_eq!(reading.values(1).first().unwrap(), "1234");
    assert!(reading.chunks < 40, "{} chunks", reading.chunks);
    // What comes later comes soon.
    let started = Instant::now();
    broker.fill(&topic, 2, 5000..5001).await;
    reading.until_at(&[(2, 5001)]).await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(reading.offsets(2), [5000]);
    assert_eq!(reading.source.partitions().await.unwrap(), [Partition(0), Partition(1), Partition(2)]);
    reading.source.close().await;
    assert!(matches!(reading.source.next().await, Err(Error::Closed { .. })));
}

pub async fn records_arrive_whole(broker: &Broker) {
    let topic = broker.topic(1).await;
    let producer = broker.producer();
    let headers = [header("a", Some(b"1")), header("a", None), header("", Some(b"")), header("ü", Some(&[0, 255]))];
    let base =
        NewRecord { topic: &topic, partition: Some(0), timestamp: Some(1_700_000_000_123), ..NewRecord::default() };
    let records = [
        NewRecord { key: Some(b"k\0\xff"), value: Some(b"v\0\xff"), headers: &headers, ..base },
        NewRecord { key: Some(b"deleted"), value: None, timestamp: Some(2), ..base },
        NewRecord { key: Some(b""), value: Some(b""), timestamp: Some(1), ..base },
        NewRecord { key: None, value: Some(b"plain"), timestamp: Some(1_000_000_000_000), ..base },
    ];
    for (index, record) in records.iter().enumerate() {
        let delivered = producer.produce(*record).await.unwrap();
        assert_eq!((delivered.partition, delivered.offset), (0, index as i64));
    }
    let mut source = broker.source(&topic);
    let mut found = Vec::new();
    while found.len() < records.len() {
        match source.next().await.unwrap() {
            Event::Assigned { ack, .. } => ack.send(vec![(Partition(0), 0)]),
            Event::Chunk(chunk) => {
                for index in 0..chunk.records().len() {
                    let record = chunk.records().get(index).unwrap();
                    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                    let headers = decode_headers(record.headers.unwrap_or_default())
                        .iter()
                        .map(|header| (header.key.to_owned(), owned(header.value)))
                        .collect::<Vec<_>>();
                    let has_headers = record.headers.is_some();
                    found.push((owned(record.key), owned(record.value), record.timestamp, headers, has_headers));
                }
            }
            other @ Event::Revoked { .. } => panic!("{other:?}"),
        }
    }
    for (record, found) in records.iter().zip(&found) {
        assert_eq!(found.0.as_deref(), record.key);
        assert_eq!(found.1.as_deref(), record.value);
        assert_eq!(Some(found.2), record.timestamp);
        assert_eq!(found.4, !record.headers.is_empty());
        let headers: Vec<_> = found.3.iter().map(|(key, value)| header(key, value.as_deref())).collect();
        assert_eq!(headers, record.headers);
    }
}

/// Brokers and most clients take any bytes for a header's name.
pub async fn header_names_that_are_no_text(broker: &Broker) {
    let topic = broker.topic(1).await;
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", broker.brokers()).create().unwrap();
    let (name, value) = (c"\xff\xfe", b"v");
    let topic_name = CString::new(topic.as_str()).unwrap();
    #[expect(unsafe_code, reason = "the safe wrapper cannot write such a header")]
    // SAFETY: the client is alive; each type is followed by the arguments that it stands for, whose
    // pointers belong to strings that are alive.
    let code = unsafe {
        rd_kafka_producev(
            producer.client().native_ptr(),
            Type::RD_KAFKA_VTYPE_TOPIC,
            topic_name.as_ptr(),
            Type::RD_KAFKA_VTYPE_PARTITION,
            0_i32,
            Type::RD_KAFKA_VTYPE_MSGFLAGS,
            RD_KAFKA_MSG_F_COPY,
            Type::RD_KAFKA_VTYPE_VALUE,
            value.as_ptr(),
            value.len(),
            Type::RD_KAFKA_VTYPE_HEADER,
            name.as_ptr(),
            value.as_ptr(),
            value.len(),
            Type::RD_KAFKA_VTYPE_END,
        )
    };
    assert_eq!(RDKafkaErrorCode::from(code), RDKafkaErrorCode::NoError);
    producer.flush(Duration::from_secs(20)).unwrap();
    let mut source = broker.source(&topic);
    let headers = loop {
        match source.next().await.unwrap() {
            Event::Assigned { ack, .. } => ack.send(vec![(Partition(0), 0)]),
            Event::Chunk(chunk) => break chunk.records().get(0).unwrap().headers.unwrap().to_vec(),
            other @ Event::Revoked { .. } => panic!("{other:?}"),
        }
    };
    assert_eq!(decode_headers(&headers), [header("\u{fffd}\u{fffd}", Some(b"v"))]);
}

pub async fn seeks_reread_exactly(broker: &Broker) {
    const RECORDS: i64 = 20_000;
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..RECORDS).await;
    broker.fill(&topic, 1, 0..RECORDS).await;
    let mut reading = Reading::new(broker.source(&topic));
    // Positions of all kinds, while chunks of the time before are on their way: they must not show,
    // and from the position on nothing may be missing.
    let mut state = 42_u64;
    for round in 0..40_i32 {
        let mut random = |below: i64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i64 % below
        };
        for _ in 0..random(12) {
            // At the ends nothing comes.
            let step = tokio::time::timeout(Duration::from_millis(500), reading.step()).await;
            drop(step.map(Result::unwrap));
        }
        if reading.assigned.is_empty() {
            reading.until("an assignment", |reading| !reading.assigned.is_empty()).await;
        }
        let mut positions = vec![(Partition(round % 2), random(RECORDS + 1))];
        if round % 5 == 0 {
            positions.push((Partition(1 - round % 2), random(RECORDS + 1)));
        }
        if round % 7 == 0 {
            // Two seeks in a row: the later counts.
            reading.source.seek(&[(positions[0].0, random(RECORDS))]).unwrap();
        }
        reading.source.seek(&positions).unwrap();
        for (partition, position) in positions {
            reading.assigned.insert(partition, position);
            reading.positions.insert(partition, position);
            reading.records.retain(|(of, _, _)| *of != partition);
        }
    }
    let starts = reading.assigned.clone();
    reading.until_at(&[(0, RECORDS), (1, RECORDS)]).await;
    for partition in 0..2 {
        let offsets = reading.offsets(partition);
        let last = offsets.first().copied().unwrap_or(RECORDS);
        assert_eq!(offsets, (last..RECORDS).collect::<Vec<_>>());
        assert!(last <= starts[&Partition(partition)]);
        let values: Vec<_> = offsets.iter().map(i64::to_string).collect();
        assert_eq!(reading.values(partition), values);
    }
}

pub async fn a_paused_source_stays_in_its_group(broker: &Broker) {
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..100).await;
    let settings = [("max.poll.interval.ms", "6000")];
    let mut reading = Reading::new(KafkaSource::connect(broker.config(&topic, &settings)).unwrap());
    reading.until_at(&[(0, 100)]).await;
    reading.source.pause();
    tokio::time::sleep(Duration::from_millis(100)).await;
    reading.for_a_while(Duration::from_millis(100)).await;
    broker.fill(&topic, 0, 100..200).await;
    // Longer than a silent member is kept.
    assert_eq!(reading.for_a_while(Duration::from_secs(9)).await, []);
    // A paused source still answers.
    assert_eq!(reading.source.watermarks(Partition(0)).await.unwrap(), Watermarks { low: 0, high: 200 });
    reading.source.seek(&[(Partition(0), 50)]).unwrap();
    reading.assigned.insert(Partition(0), 50);
    reading.source.resume();
    reading.until("reading on", |reading| reading.assigned[&Partition(0)] == 200).await;
    assert_eq!(reading.offsets(0), (0..100).chain(50..200).collect::<Vec<_>>());
    assert!(reading.revoked.is_empty());
}

pub async fn a_slow_owner_keeps_its_partitions_and_memory_stays_bounded(broker: &Broker) {
    let topic = broker.topic(4).await;
    let producer = broker.producer();
    let value = "x".repeat(1000);
    // On a real broker more than fits into all queues.
    let records = if broker.is_real() { 30_000 } else { 4000 };
    for index in 0..records {
        producer.enqueue(record(&topic, index % 4, &value)).await.unwrap();
    }
    producer.flush().await.unwrap();
    let settings = [("max.poll.interval.ms", "6000"), ("queued.max.messages.kbytes", "1024")];
    let mut reading = Reading::new(KafkaSource::connect(broker.config(&topic, &settings)).unwrap());
    reading.step().await.unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    let each = i64::from(records / 4);
    reading.until_at(&[(0, each), (1, each), (2, each), (3, each)]).await;
    assert_eq!(reading.records.len(), records as usize);
    assert!(reading.revoked.is_empty());
}

pub async fn large_records(broker: &Broker) {
    let topic = broker.topic_with(1, &[("max.message.bytes", "10000000")]).await;
    let settings = [("message.max.bytes", "10000000")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let producer = alluvium_kafka::Producer::connect(broker.brokers(), &settings).unwrap();
    let sizes = [10, 1_000_000, 10, 3_000_000, 2_000_000, 10];
    for (index, size) in sizes.iter().enumerate() {
        let value = index.to_string().repeat(*size);
        // The sandbox keeps 5 MiB.
        if !broker.is_real() && *size > 1_000_000 {
            producer.produce(record(&topic, 0, &value[..1_000_000])).await.unwrap();
        } else {
            producer.produce(record(&topic, 0, &value)).await.unwrap();
        }
    }
    // Fetches of less than a record.
    let settings = [("fetch.message.max.bytes", "1000")];
    let mut reading = Reading::new(KafkaSource::connect(broker.config(&topic, &settings)).unwrap());
    reading.until_at(&[(0, sizes.len() as i64)]).await;
    let firsts: String = reading.values(0).iter().map(|value| value.chars().next().unwrap()).collect();
    assert_eq!(firsts, "012345");
}

pub async fn watermarks_and_offsets_by_time(broker: &Broker) {
    let topic = broker.topic(2).await;
    let producer = broker.producer();
    for timestamp in [1000, 2000, 2000, 5000] {
        let record = NewRecord { timestamp: Some(timestamp), ..record(&topic, 0, "x") };
        producer.produce(record).await.unwrap();
    }
    let source = KafkaTopic::connect(&broker.config(&topic, &[])).unwrap();
    assert_eq!(source.watermarks(Partition(0)).await.unwrap(), Watermarks { low: 0, high: 4 });
    assert_eq!(source.watermarks(Partition(1)).await.unwrap(), Watermarks { low: 0, high: 0 });
    let missing = source.watermarks(Partition(2)).await.unwrap_err();
    assert!(matches!(missing, Error::PartitionMissing { partition: Partition(2), .. }), "{missing:?}");
    // The sandbox keeps no index of timestamps: it answers that there is none.
    if broker.is_real() {
        for (timestamp, offset) in [(-5, 0), (0, 0), (1000, 0), (1001, 1), (2000, 1), (2001, 3), (5000, 3), (5001, 4)] {
            assert_eq!(source.offset_at(Partition(0), timestamp).await.unwrap(), offset, "at {timestamp}");
        }
    }
    assert_eq!(source.offset_at(Partition(0), i64::from(i32::MAX) * 1000).await.unwrap(), 4);
    assert_eq!(source.offset_at(Partition(1), 1).await.unwrap(), 0);
    let missing = source.offset_at(Partition(7), 1).await.unwrap_err();
    assert!(matches!(missing, Error::PartitionMissing { partition: Partition(7), .. }), "{missing:?}");
    let info = source.check().await.unwrap();
    assert_eq!(info.partitions, [Partition(0), Partition(1)]);
    assert_eq!(info.brokers, [broker.brokers()]);
}

pub async fn a_topic_has_an_id_of_its_own(broker: &Broker) {
    let ids = async |topic: &str| {
        let asked = KafkaTopic::connect(&broker.config(topic, &[])).unwrap();
        let source = broker.source(topic);
        let (one, two) = (asked.id().await.unwrap(), source.topic_id().await.unwrap());
        assert_eq!(one, two);
        one.unwrap()
    };
    let (one, two) = (broker.topic(1).await, broker.topic(2).await);
    let (first, second) = (ids(&one).await, ids(&two).await);
    assert_ne!(first, second);
    broker.fill(&one, 0, 0..10).await;
    assert_eq!(ids(&one).await, first);
    let missing = KafkaTopic::connect(&broker.config("nowhere", &[])).unwrap().id().await.unwrap_err();
    assert!(matches!(missing, Error::TopicMissing { .. }), "{missing:?}");
    if broker.is_real() {
        // Spelled as Kafka does.
        let file = broker.server().data().join(format!("{one}-0/partition.metadata"));
        let metadata = std::fs::read_to_string(file).unwrap();
        assert!(metadata.contains(&format!("topic_id: {first}")), "{metadata}");
        broker.server().delete_topic(&one).await.unwrap();
        while broker.server().create_topic(&one, 1, &[]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_ne!(ids(&one).await, first);
    }
}

pub async fn positions_outside_the_log_are_told(broker: &Broker) {
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..100).await;
    broker.fill(&topic, 1, 0..100).await;
    let mut reading = Reading::new(broker.source(&topic));
    reading.positions = [(Partition(0), 101), (Partition(1), 0)].into();
    let error = loop {
        match reading.step().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let Error::PositionGone { partition: Partition(0), position: 101, .. } = &error else { panic!("{error:?}") };
    assert_eq!(error.class(), ErrorClass::User);
    assert!(error.to_string().contains("partition 0") && error.to_string().contains("101"), "{error}");
    assert!(error.hint().is_some());
    // The other partition is read, and a seek brings this one back.
    reading.until_at(&[(1, 100)]).await;
    reading.source.seek(&[(Partition(0), 90)]).unwrap();
    reading.assigned.insert(Partition(0), 90);
    reading.until("reading on", |reading| reading.assigned[&Partition(0)] == 100).await;
    assert_eq!(reading.offsets(0), (90..100).collect::<Vec<_>>());
}

/// An error that nobody has taken yet when its partition is sought elsewhere would end a sound pipeline.
pub async fn an_error_about_a_position_left_since_is_not_told(broker: &Broker) {
    let topic = broker.topic(1).await;
    broker.fill(&topic, 0, 0..100).await;
    let mut reading = Reading::new(broker.source(&topic));
    reading.positions = [(Partition(0), 101)].into();
    reading.step().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    reading.source.seek(&[(Partition(0), 10)]).unwrap();
    reading.assigned.insert(Partition(0), 10);
    reading.positions.insert(Partition(0), 10);
    reading.until_at(&[(0, 100)]).await;
    assert_eq!(reading.offsets(0), (10..100).collect::<Vec<_>>());
}

pub async fn missing_topics_and_partitions_are_named(broker: &Broker) {
    let topic = KafkaTopic::connect(&broker.config("nowhere", &[])).unwrap();
    for _ in 0..2 {
        let error = topic.partitions().await.unwrap_err();
        assert!(matches!(&error, Error::TopicMissing { topic, .. } if topic == "nowhere"), "{error:?}");
        assert_eq!(error.class(), ErrorClass::User);
    }
    let mut source = broker.source("nowhere");
    let error = tokio::time::timeout(Duration::from_secs(60), source.next()).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::TopicMissing { topic, .. } if topic == "nowhere"), "{error:?}");
    // Asking has not made it.
    let error = topic.partitions().await.unwrap_err();
    assert!(matches!(error, Error::TopicMissing { .. }), "{error:?}");
}

pub async fn unreachable_brokers_are_named(broker: &Broker) {
    // A port that nobody listens on, and a name that nobody has.
    let named = async |address: &str| {
        let config = KafkaConfig { brokers: vec![address.to_owned()], ..broker.config("orders", &[]) };
        let topic = KafkaTopic::connect(&config).unwrap();
        let started = Instant::now();
        let (partitions, watermarks) = tokio::join!(topic.partitions(), topic.watermarks(Partition(0)));
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        let error = partitions.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert_eq!(error.class(), ErrorClass::External);
        let said = error.to_string();
        assert!(said.contains(address) && (said.contains("refused") || address.starts_with("nobody")), "{said}");
        assert!(matches!(watermarks, Err(Error::Unreachable { .. })), "{watermarks:?}");
    };
    tokio::join!(named("127.0.0.1:1"), named("nobody.invalid:9092"));
}

pub async fn group_offsets_are_written_and_never_read(broker: &Broker) {
    let topic = broker.topic(1).await;
    broker.fill(&topic, 0, 0..100).await;
    let other: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker.brokers())
        .set("group.id", &topic)
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    // Somebody wrote nonsense into the group.
    let list = |offset| {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&topic, 0, offset).unwrap();
        list
    };
    other.commit(&list(Offset::Offset(1_000_000)), CommitMode::Sync).unwrap();
    let mut reading = Reading::new(broker.source(&topic));
    reading.until_at(&[(0, 100)]).await;
    assert_eq!(reading.offsets(0), (0..100).collect::<Vec<_>>());
    reading.source.publish(&[(Partition(0), 77)]);
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let found = other.committed_offsets(list(Offset::Invalid), Duration::from_secs(5)).unwrap();
        if found.find_partition(&topic, 0).unwrap().offset() == Offset::Offset(77) {
            break;
        }
        assert!(Instant::now() < until, "{found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Ours neither.
    reading.source.close().await;
    let mut reading = Reading::new(broker.source(&topic));
    reading.until_at(&[(0, 100)]).await;
    assert_eq!(reading.offsets(0), (0..100).collect::<Vec<_>>());
}

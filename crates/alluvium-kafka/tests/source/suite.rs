use crate::reading::{Reading, Seen};
use alluvium_core::Partition;
use alluvium_core::seam::Source;
use alluvium_kafka::{KafkaConfig, KafkaSource, NewRecord, Producer};

pub async fn fill(brokers: &str, topic: &str, partition: i32, values: std::ops::Range<i64>) {
    let producer = Producer::connect(brokers, &[]).unwrap();
    for value in values {
        let value = value.to_string();
        let record =
            NewRecord { topic, partition: Some(partition), value: Some(value.as_bytes()), ..NewRecord::default() };
        producer.enqueue(record).await.unwrap();
    }
    producer.flush().await.unwrap();
}

pub async fn reads_all_from_the_positions_given(brokers: &str, topic: &str) {
    for partition in 0..3 {
        fill(brokers, topic, partition, 0..5000).await;
    }
    let mut reading = Reading::new(KafkaSource::connect(KafkaConfig::new(brokers, topic, topic)).unwrap());
    reading.positions = [(Partition(1), 1234), (Partition(2), 5000)].into();
    assert_eq!(reading.step().await.unwrap(), Seen::Assigned(vec![Partition(0), Partition(1), Partition(2)]));
    reading.until_at(&[(0, 5000), (1, 5000)]).await;
    assert_eq!(reading.offsets(0), (0..5000).collect::<Vec<_>>());
    assert_eq!(reading.offsets(1), (1234..5000).collect::<Vec<_>>());
    assert_eq!(reading.values(1).first().unwrap(), "1234");
    fill(brokers, topic, 2, 5000..5010).await;
    reading.until_at(&[(2, 5010)]).await;
    assert_eq!(reading.offsets(2), (5000..5010).collect::<Vec<_>>());
    reading.source.close().await;
}

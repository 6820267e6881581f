//! A look at a topic's records that changes nothing: no group is joined, no position kept.

use crate::{
    Error, KafkaConfig,
    native::MessageQueue,
    pack::{Limits, Packed, Packer},
    reader::record,
};
use alluvium_core::{Chunk, Partition};
use rdkafka::{Offset, TopicPartitionList, consumer::Consumer, error::RDKafkaErrorCode as Code};
use std::{
    collections::BTreeMap,
    ffi::CString,
    time::{Duration, Instant},
};

/// How long the brokers may say nothing before what came has to do.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
const BATCH: usize = 1000;

/// Up to `most` records, in equal parts of these partitions from these positions on; fewer where a
/// partition ends, or holds its position no more.
pub async fn sample(config: &KafkaConfig, from: &[(Partition, i64)], most: usize) -> Result<Vec<Chunk>, Error> {
    let (config, from) = (config.clone(), from.to_vec());
    let topic = config.topic.clone();
    // librdkafka answers by blocking: not on the threads that drive futures.
    let read = tokio::task::spawn_blocking(move || read(&config, &from, most)).await;
    read.unwrap_or(Err(Error::Closed { topic }))
}

fn read(config: &KafkaConfig, from: &[(Partition, i64)], most: usize) -> Result<Vec<Chunk>, Error> {
    let topic = config.topic.as_str();
    if from.is_empty() || most == 0 {
        return Ok(Vec::new());
    }
    // Without the group's name librdkafka reads nothing; it is joined by a subscription only.
    let consumer = config.consumer(Some(&config.group))?;
    let name = CString::new(topic).map_err(|_| Error::TopicName { topic: topic.to_owned() })?;
    let closed = || Error::Closed { topic: topic.to_owned() };
    let mut queue = MessageQueue::new(&consumer).ok_or_else(closed)?;
    let failed = |source: rdkafka::error::KafkaError| Error::Subscribe {
        topic: topic.to_owned(),
        group: config.group.clone(),
        source: source.into(),
    };
    let mut list = TopicPartitionList::new();
    let mut sampler = Sampler::new(topic, from, most);
    for (partition, position) in from {
        list.add_partition_offset(topic, partition.0, Offset::Offset(*position)).map_err(failed)?;
        queue.forward(&name, partition.0);
    }
    consumer.assign(&list).map_err(failed)?;
    let mut heard = Instant::now();
    while !sampler.open.is_empty() && heard.elapsed() < PATIENCE {
        for message in queue.poll(BATCH, POLL) {
            heard = Instant::now();
            let partition = Partition(message.partition());
            match message.code() {
                Code::NoError => sampler
                    .push(partition, |packer, headers, now| packer.push(partition, record(&message, headers), now))?,
                Code::PartitionEOF => sampler.close(partition, Some(message.offset()))?,
                code => {
                    tracing::debug!(%partition, ?code, reason = message.reason(), "a partition gives no sample");
                    sampler.close(partition, None)?;
                }
            }
        }
        // What is not a record of a forwarded partition: the client's own news.
        drop(consumer.poll(Duration::ZERO));
    }
    let trouble = consumer.context().take_error();
    consumer.context().close();
    match trouble {
        Some((_, reason)) if sampler.chunks.is_empty() && !sampler.open.is_empty() => {
            Err(Error::Unreachable { brokers: config.broker_list(), reason })
        }
        _ => sampler.finish(),
    }
}

struct Sampler<'t> {
    topic: &'t str,
    packer: Packer,
    headers: Vec<u8>,
    /// How many records are still wanted of each partition.
    open: BTreeMap<Partition, usize>,
    chunks: Vec<Chunk>,
}

impl<'t> Sampler<'t> {
    fn new(topic: &'t str, from: &[(Partition, i64)], most: usize) -> Self {
        let mut packer = Packer::new(Limits::default());
        let share = most.div_ceil(from.len());
        for (partition, position) in from {
            packer.start(*partition, *position, 0);
        }
        let open = from.iter().map(|(partition, _)| (*partition, share)).collect();
        Self { topic, packer, headers: Vec::new(), open, chunks: Vec::new() }
    }

    fn push(
        &mut self,
        partition: Partition,
        pack: impl FnOnce(&mut Packer, &mut Vec<u8>, Instant) -> Result<Option<Packed>, crate::PackError>,
    ) -> Result<(), Error> {
        let Some(wanted) = self.open.get_mut(&partition) else { return Ok(()) };
        *wanted -= 1;
        let is_last = *wanted == 0;
        let packed = pack(&mut self.packer, &mut self.headers, Instant::now());
        self.take(partition, packed)?;
        if is_last { self.close(partition, None) } else { Ok(()) }
    }

    /// No more is wanted of a partition, or it has no more up to an offset.
    fn close(&mut self, partition: Partition, end: Option<i64>) -> Result<(), Error> {
        let packed = match end {
            Some(end) => self.packer.end(partition, end),
            None => self.packer.flush(partition),
        };
        self.take(partition, packed)?;
        self.packer.stop(partition);
        self.open.remove(&partition);
        Ok(())
    }

    fn take(&mut self, partition: Partition, packed: Result<Option<Packed>, crate::PackError>) -> Result<(), Error> {
        let packed = packed.map_err(|source| Error::Chunk { topic: self.topic.to_owned(), partition, source })?;
        self.chunks.extend(packed.map(|packed| packed.chunk));
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Chunk>, Error> {
        let open: Vec<_> = self.open.keys().copied().collect();
        open.into_iter().try_for_each(|partition| self.close(partition, None))?;
        Ok(self.chunks)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{KafkaSource, NewRecord, Producer, Sandbox};
    use alluvium_core::chunk::Header;
    use alluvium_core::seam::{Event, Source};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sample_takes_an_equal_part_of_each_partition_and_moves_nobody() {
        let sandbox = Sandbox::start(&[("orders", 3)]).unwrap();
        let producer = Producer::connect(sandbox.brokers(), &[]).unwrap();
        for offset in 0..30 {
            for partition in 0..2 {
                let value = format!("{partition} {offset}");
                let record = NewRecord {
                    topic: "orders",
                    partition: Some(partition),
                    value: Some(value.as_bytes()),
                    headers: &[Header { key: "h", value: Some(b"1") }],
                    ..NewRecord::default()
                };
                producer.produce(record).await.unwrap();
            }
        }
        let config = KafkaConfig::new(sandbox.brokers(), "orders", "readers");
        let mut member = KafkaSource::connect(config.clone()).unwrap();
        let Event::Assigned { partitions, .. } = member.next().await.unwrap() else { unreachable!("an assignment") };
        assert_eq!(partitions.len(), 3);
        let from = [(Partition(0), 25), (Partition(1), 3), (Partition(2), 0)];
        let mut chunks = sample(&config, &from, 30).await.unwrap();
        chunks.sort_by_key(Chunk::partition);
        let found: Vec<_> =
            chunks.iter().map(|chunk| (chunk.partition().0, chunk.records().offsets().to_vec())).collect();
        assert_eq!(found, [(0, (25..30).collect::<Vec<i64>>()), (1, (3..13).collect())]);
        let first = chunks[0].records().get(0).unwrap();
        assert_eq!((first.value, first.headers.is_some()), (Some(b"0 25".as_slice()), true));
        let quiet = tokio::time::timeout(Duration::from_secs(1), member.next()).await;
        assert!(quiet.is_err(), "the member of the group notices nothing: {quiet:?}");
        // A position that the broker has not is no reason to wait.
        let begun = Instant::now();
        assert!(sample(&config, &[(Partition(0), 1000)], 30).await.unwrap().is_empty());
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }
}

//! Reading on from other positions.

use super::{POLL, Reader, SEEK, Seek};
use crate::native::MessageQueue;
use alluvium_core::Partition;
use rdkafka::{
    consumer::Consumer,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use std::time::Instant;

impl<'c> Reader<'c> {
    pub(super) fn seek(&mut self, partition: Partition, position: i64, epoch: u64, queue: &MessageQueue<'c>) {
        self.epochs.insert(partition, epoch);
        if let Some(held) = self.held.get_mut(&partition) {
            *held = Some(position);
            self.fetch_held(queue);
        } else if self.assigned.contains_key(&partition) {
            self.packer.stop(partition);
            self.seek_now(partition, position);
        } else {
            tracing::debug!(%partition, position, "not seeking in a partition that is not assigned");
        }
    }

    /// Starts fetching the held partitions whose position was told meanwhile.
    pub(super) fn fetch_held(&mut self, queue: &MessageQueue<'c>) {
        if self.pending.is_none() {
            let told = |(partition, position): (&Partition, &Option<i64>)| Some((*partition, (*position)?));
            let positions: Vec<_> = self.held.iter().filter_map(told).collect();
            if !positions.is_empty() {
                self.fetch(&positions, queue);
            }
        }
    }

    /// Tries to seek. Nothing of the partition is handed out until it has succeeded.
    pub(super) fn seek_now(&mut self, partition: Partition, position: i64) {
        for (partition, position, failure) in self.try_seek(&[(partition, position)]) {
            let restarted = match failure {
                None => true,
                // After some errors librdkafka has stopped fetching, and knows no seek out of that.
                Some(Code::State) if self.pending.is_none() => self.restart(partition, position),
                Some(_) => false,
            };
            if restarted {
                self.start(partition, position);
            } else {
                self.assigned.insert(partition, Some(Seek { position, due: Instant::now() + POLL }));
            }
        }
    }

    /// Seeks in assigned partitions; for each, why it failed. When it did not, all that librdkafka
    /// hands out from now on lies at or behind the position.
    pub(super) fn try_seek(&self, positions: &[(Partition, i64)]) -> Vec<(Partition, i64, Option<Code>)> {
        if positions.is_empty() {
            return Vec::new();
        }
        let sought = self.list(positions).and_then(|list| self.consumer.seek_partitions(list, SEEK));
        let failure = |partition: Partition| match &sought {
            Ok(list) => {
                let element = list.find_partition(&self.config.topic, partition.0);
                element.map_or(Some(Code::UnknownPartition), |element| code_of(element.error()))
            }
            Err(error) => Some(error.rdkafka_error_code().unwrap_or(Code::Unknown)),
        };
        let result: Vec<_> = positions.iter().map(|(p, position)| (*p, *position, failure(*p))).collect();
        for (partition, position, failure) in &result {
            if let Some(code) = failure {
                tracing::debug!(%partition, position, ?code, "seeking failed");
            }
        }
        result
    }

    /// Takes a partition out of the assignment and in again at a position. Not during a rebalance,
    /// which that would answer.
    fn restart(&mut self, partition: Partition, position: i64) -> bool {
        self.changed = Instant::now();
        let list = self.list(&[(partition, position)]);
        let restarted = list.and_then(|list| {
            self.consumer.incremental_unassign(&list)?;
            self.consumer.incremental_assign(&list)
        });
        let succeeded = restarted.is_ok();
        self.log_failure("starting a partition anew", restarted);
        succeeded
    }

    /// A message came around our queue, so its partition is not forwarded: starts it anew.
    pub(super) fn stray(&mut self, partition: Partition, queue: &MessageQueue<'c>) {
        if let Some(position) = self.packer.stop(partition) {
            tracing::warn!(%partition, position, "reading a partition anew: its messages went astray");
            queue.forward(&self.topic, partition.0);
            self.assigned.insert(partition, Some(Seek { position, due: Instant::now() }));
        }
    }
}

fn code_of(result: Result<(), KafkaError>) -> Option<Code> {
    result.err().map(|error| error.rdkafka_error_code().unwrap_or(Code::Unknown))
}

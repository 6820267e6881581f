//! What happens between the members of a group: partitions come and go.

use super::{Command, Pending, Reader, Seek, command};
use crate::{Error, context::Rebalance, native::MessageQueue};
use alluvium_core::{
    Partition,
    seam::{Ack, Event},
};
use rdkafka::{TopicPartitionList, consumer::Consumer, error::KafkaError};
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Instant,
};

impl<'c> Reader<'c> {
    pub(super) fn rebalance(&mut self, rebalance: Rebalance, queue: &MessageQueue<'c>) {
        self.rebalances += 1;
        self.joined = true;
        self.trouble = None;
        tracing::debug!(topic = self.config.topic, group = self.config.group, ?rebalance, "rebalance");
        let (number, sender, reader) = (self.rebalances, self.sender.clone(), thread::current());
        match &rebalance {
            // The end of every rebalance, also of one that gives us nothing new.
            Rebalance::Assign(partitions) if partitions.is_empty() => return self.answer(&rebalance, queue),
            Rebalance::Assign(partitions) => {
                let start = move |positions| Command::Start { rebalance: number, positions };
                let ack = Ack::new(move |positions| command(&sender, &reader, start(positions)));
                self.tell(Ok(Event::Assigned { partitions: partitions.clone(), ack }));
            }
            Rebalance::Revoke { partitions, lost } => {
                let read = self.stop(partitions, *lost);
                let ack = Ack::new(move |()| command(&sender, &reader, Command::Release { rebalance: number }));
                if read {
                    self.tell(Ok(Event::Revoked { partitions: partitions.clone(), lost: *lost, ack }));
                }
                // What is lost is somebody else's already; waiting would only delay our return.
                if *lost || !read {
                    return self.answer(&rebalance, queue);
                }
            }
        }
        self.pending = Some(Pending { rebalance: number, kind: rebalance, since: Instant::now() });
    }

    /// Stops reading partitions. Returns whether any of them was read or held.
    fn stop(&mut self, partitions: &[Partition], lost: bool) -> bool {
        let mut read = false;
        for partition in partitions {
            if !lost {
                let packed = self.packer.flush(*partition);
                self.hand_out(*partition, packed);
            }
            self.packer.stop(*partition);
            read |= self.assigned.remove(partition).is_some();
            read |= self.held.remove(partition).is_some();
        }
        read
    }

    pub(super) fn is_pending(&self, rebalance: u64) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.rebalance == rebalance)
    }

    /// Takes the partitions of the open assignment whose positions were told; the others are held.
    pub(super) fn take(&mut self, positions: Vec<(Partition, i64)>, queue: &MessageQueue<'c>) {
        let Some(Pending { kind: Rebalance::Assign(given), .. }) = &self.pending else { return };
        let given: BTreeSet<_> = given.iter().copied().collect();
        // The last word on a partition counts.
        let positions: BTreeMap<_, _> =
            positions.into_iter().filter(|(partition, _)| given.contains(partition)).collect();
        let positions: Vec<_> = positions.into_iter().collect();
        self.pending = None;
        self.held.extend(given.into_iter().map(|partition| (partition, None)));
        self.fetch(&positions, queue);
    }

    /// Starts fetching held partitions, and answers an assignment that waits for it.
    pub(super) fn fetch(&mut self, positions: &[(Partition, i64)], queue: &MessageQueue<'c>) {
        // A partition that cannot be fetched is told of once.
        self.held.extend(positions.iter().map(|(partition, _)| (*partition, None)));
        let mut known = Vec::with_capacity(positions.len());
        for (partition, position) in positions {
            let (topic, partition, position) = (self.config.topic.clone(), *partition, *position);
            if position < 0 {
                let reason = "a position is not negative".to_owned();
                self.tell_of(partition, Error::PositionGone { topic, partition, position, reason });
            } else if queue.forward(&self.topic, partition.0) {
                known.push((partition, position));
            } else {
                self.tell(Err(Error::PartitionMissing { topic, partition }));
            }
        }
        let assigned = self.list(&known).and_then(|list| self.consumer.incremental_assign(&list));
        if let Err(source) = assigned {
            let partitions = known.iter().map(|(partition, _)| *partition).collect();
            self.tell(Err(Error::Assign { topic: self.config.topic.clone(), partitions, source: source.into() }));
            // The group waits for an answer, if only that nothing is taken.
            self.answer(&Rebalance::Assign(Vec::new()), queue);
            return;
        }
        self.settle(queue);
        for (partition, position) in known {
            self.start(partition, position);
            self.held.remove(&partition);
        }
    }

    /// Takes records of an assigned partition from this position on.
    pub(super) fn start(&mut self, partition: Partition, position: i64) {
        let epoch = self.epochs.get(&partition).copied().unwrap_or(0);
        self.packer.start(partition, position, epoch);
        self.assigned.insert(partition, None);
    }

    pub(super) fn release(&mut self, queue: &MessageQueue<'c>) {
        if let Some(Pending { kind, .. }) = self.pending.take() {
            self.answer(&kind, queue);
        }
    }

    /// Answers a rebalance: takes nothing, or gives back the revoked partitions.
    fn answer(&mut self, rebalance: &Rebalance, queue: &MessageQueue<'c>) {
        let answered = match rebalance {
            Rebalance::Assign(_) => self.consumer.incremental_assign(&TopicPartitionList::new()),
            Rebalance::Revoke { partitions, .. } => self.give_back(partitions),
        };
        self.log_failure("answering a rebalance", answered);
        self.settle(queue);
    }

    /// Brings all partitions to where we are, after an answered rebalance. librdkafka stops fetching
    /// during one and then goes on from where it believes us to be. Its belief can be wrong: after
    /// the end of a partition it is an offset too far, and the next record would be left out.
    fn settle(&mut self, queue: &MessageQueue<'c>) {
        self.changed = Instant::now();
        let reading = self.assigned.iter().filter(|(_, seek)| seek.is_none());
        let positions: Vec<_> = reading.filter_map(|(p, _)| Some((*p, self.packer.next(*p)?))).collect();
        for (partition, position, failure) in self.try_seek(&positions) {
            if failure.is_some() {
                let packed = self.packer.flush(partition);
                self.hand_out(partition, packed);
                self.packer.stop(partition);
                self.assigned.insert(partition, Some(Seek { position, due: Instant::now() }));
            }
        }
        self.forward_all(queue);
    }

    pub(super) fn forward_all(&mut self, queue: &MessageQueue<'c>) {
        self.forwarded = Instant::now();
        for partition in self.assigned.keys() {
            queue.forward(&self.topic, partition.0);
        }
    }

    fn give_back(&self, partitions: &[Partition]) -> Result<(), KafkaError> {
        // librdkafka refuses the whole list when one of it was never taken.
        let mut list = TopicPartitionList::new();
        for element in self.consumer.assignment()?.elements() {
            if partitions.contains(&Partition(element.partition())) {
                list.add_partition(element.topic(), element.partition());
            }
        }
        self.consumer.incremental_unassign(&list)
    }
}

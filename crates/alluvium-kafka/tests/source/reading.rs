//! A reader for tests: answers rebalances, checks that chunks join, and keeps what it read.

use alluvium_core::{
    Partition,
    seam::{Event, Source},
};
use alluvium_kafka::{Error, KafkaSource};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// Long enough for a session to time out and a group to settle.
pub const LIMIT: Duration = Duration::from_secs(40);

pub struct Reading {
    pub source: KafkaSource,
    /// Next offset of every partition ever read: kept over revocations, as a table would.
    pub positions: BTreeMap<Partition, i64>,
    pub assigned: BTreeMap<Partition, i64>,
    /// (partition, offset, value), in the order of arrival.
    pub records: Vec<(Partition, i64, Option<Vec<u8>>)>,
    pub chunks: usize,
    pub revoked: Vec<(Vec<Partition>, bool)>,
}

/// What happened in a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Chunk(Partition, i64, i64),
    Assigned(Vec<Partition>),
    Revoked(Vec<Partition>),
}

impl Reading {
    pub fn new(source: KafkaSource) -> Self {
        Self {
            source,
            positions: BTreeMap::new(),
            assigned: BTreeMap::new(),
            records: Vec::new(),
            chunks: 0,
            revoked: Vec::new(),
        }
    }

    /// Takes one event and answers it.
    pub async fn step(&mut self) -> Result<Seen, Error> {
        let event = timeout(LIMIT, self.source.next()).await;
        Ok(match event.unwrap_or_else(|_| panic!("nothing comes; positions {:?}", self.positions))? {
            Event::Assigned { mut partitions, ack } => {
                partitions.sort();
                let position = |p: &Partition| (*p, self.positions.get(p).copied().unwrap_or(0));
                let positions: Vec<_> = partitions.iter().map(position).collect();
                for (partition, position) in &positions {
                    assert_eq!(self.assigned.insert(*partition, *position), None, "{partition} was assigned already");
                }
                ack.send(positions);
                Seen::Assigned(partitions)
            }
            Event::Revoked { mut partitions, lost, ack } => {
                partitions.sort();
                for partition in &partitions {
                    assert!(self.assigned.remove(partition).is_some(), "{partition} was not assigned");
                }
                self.revoked.push((partitions.clone(), lost));
                ack.send(());
                Seen::Revoked(partitions)
            }
            Event::Chunk(chunk) => {
                let (partition, span) = (chunk.partition(), chunk.span());
                let position = self.assigned.get_mut(&partition).expect("a chunk of an unassigned partition");
                assert_eq!(span.from(), *position, "a chunk of partition {partition} does not join");
                assert!(span.to() > span.from(), "an empty span {span}");
                *position = span.to();
                self.positions.insert(partition, span.to());
                for index in 0..chunk.records().len() {
                    let record = chunk.records().get(index).unwrap();
                    self.records.push((partition, record.offset, record.value.map(<[u8]>::to_vec)));
                }
                self.chunks += 1;
                Seen::Chunk(partition, span.from(), span.to())
            }
        })
    }

    /// Steps until `done`, which is asked first.
    pub async fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let limit = Instant::now() + LIMIT;
        while !done(self) {
            match timeout_at(limit, self.step()).await {
                Ok(seen) => drop(seen.unwrap()),
                Err(_) => {
                    panic!("not within {LIMIT:?}: {what}; positions {:?}, assigned {:?}", self.positions, self.assigned)
                }
            }
        }
    }

    /// Reads until every partition is at the given position.
    pub async fn until_at(&mut self, ends: &[(i32, i64)]) {
        let at = |r: &Self| ends.iter().all(|(p, end)| r.positions.get(&Partition(*p)).is_some_and(|at| at >= end));
        self.until(&format!("reading to {ends:?}"), at).await;
    }

    /// Steps for a while, whatever comes. Returns what was seen.
    pub async fn for_a_while(&mut self, time: Duration) -> Vec<Seen> {
        let limit = Instant::now() + time;
        let mut all = Vec::new();
        while let Ok(seen) = timeout_at(limit, self.step()).await {
            all.push(seen.unwrap());
        }
        all
    }

    pub fn values(&self, partition: i32) -> Vec<String> {
        let of = self.records.iter().filter(|(p, _, _)| p.0 == partition);
        of.map(|(_, _, value)| String::from_utf8(value.clone().unwrap_or_default()).unwrap()).collect()
    }

    pub fn offsets(&self, partition: i32) -> Vec<i64> {
        self.records.iter().filter(|(p, _, _)| p.0 == partition).map(|(_, offset, _)| *offset).collect()
    }
}

//! The broker: partitions with gaps, and groups whose members come, go and are forgotten.

use super::records;
use super::world::World;
use alluvium_core::Partition;
use alluvium_core::position::Watermarks;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a member may be silent.
const SESSION: Duration = Duration::from_millis(1_500);
/// How long a member may hold a rebalance.
const RELEASE: Duration = Duration::from_secs(60);
/// How often the coordinator looks for the silent.
const LOOK: Duration = Duration::from_millis(250);

/// A record as it lies in a partition.
#[derive(Clone, Debug)]
pub struct Stored {
    pub offset: i64,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    pub value: Option<Vec<u8>>,
}

/// One partition. Offsets that no record has were transaction markers, or compacted away.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub records: Vec<Stored>,
    pub low: i64,
    pub high: i64,
}

/// What the coordinator tells a member.
#[derive(Debug)]
pub(super) enum Notice {
    Assigned { rebalance: u64, partitions: Vec<Partition> },
    Revoked { rebalance: u64, partitions: Vec<Partition> },
}

#[derive(Debug)]
struct Member {
    owned: BTreeSet<Partition>,
    pending: Option<(u64, Pending, Instant)>,
    seen: Instant,
    notices: mpsc::UnboundedSender<Notice>,
}

#[derive(Debug)]
enum Pending {
    Assign,
    Revoke(Vec<Partition>),
}

#[derive(Debug, Default)]
struct Group {
    members: BTreeMap<u64, Member>,
    targets: BTreeMap<Partition, u64>,
}

#[derive(Debug, Default)]
struct State {
    partitions: BTreeMap<Partition, Log>,
    groups: BTreeMap<String, Group>,
    numbers: u64,
}

#[derive(Debug)]
pub struct Broker {
    world: Arc<World>,
    state: Mutex<State>,
}

/// A member of a group, by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberId {
    pub group: String,
    pub number: u64,
}

impl Broker {
    /// A broker of one topic; its coordinator is a task of the present runtime.
    pub fn start(world: &Arc<World>, partitions: usize) -> Arc<Self> {
        let broker = Arc::new(Self { world: world.clone(), state: Mutex::default() });
        (0..partitions).for_each(|_| broker.add_partition());
        let coordinator = broker.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                coordinator.expel_silent();
            }
        });
        broker
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn partitions(&self) -> Vec<Partition> {
        self.lock().partitions.keys().copied().collect()
    }

    pub fn log(&self, partition: Partition) -> Option<Log> {
        self.lock().partitions.get(&partition).cloned()
    }

    pub fn watermarks(&self, partition: Partition) -> Option<Watermarks> {
        self.lock().partitions.get(&partition).map(|log| Watermarks { low: log.low, high: log.high })
    }

    pub(super) fn read<T>(&self, partition: Partition, read: impl FnOnce(&Log) -> T) -> Option<T> {
        self.lock().partitions.get(&partition).map(read)
    }

    pub fn add_partition(&self) {
        let mut state = self.lock();
        let partition = Partition(state.partitions.len() as i32);
        state.partitions.insert(partition, Log::default());
        self.world.note(format_args!("partition {partition} is there"));
        let groups: Vec<_> = state.groups.keys().cloned().collect();
        groups.iter().for_each(|group| self.rebalance(&mut state, group));
    }

    /// Appends records, with gaps between some of them.
    pub fn produce(&self, partition: Partition, count: usize) {
        let world = &self.world;
        let mut state = self.lock();
        let Some(log) = state.partitions.get_mut(&partition) else { return };
        for _ in 0..count {
            if world.happens(0.15) {
                log.high += 1 + world.below(3) as i64;
            }
            let value = records::value(world, log.high);
            log.records.push(Stored { offset: log.high, timestamp: 1_700_000_000_000 + log.high, value });
            log.high += 1;
        }
        // A transaction marker.
        if world.happens(0.3) {
            log.high += 1;
        }
        world.note(format_args!("partition {partition} ends at {}", log.high));
    }

    /// Drops all before an offset.
    pub fn retain_from(&self, partition: Partition, offset: i64) {
        if let Some(log) = self.lock().partitions.get_mut(&partition) {
            log.low = log.low.max(offset.min(log.high));
            self.world.note(format_args!("partition {partition} begins at {}", log.low));
        }
    }

    pub(super) fn join(&self, group: &str, notices: mpsc::UnboundedSender<Notice>) -> MemberId {
        let mut state = self.lock();
        state.numbers += 1;
        let number = state.numbers;
        let member = Member { owned: BTreeSet::new(), pending: None, seen: Instant::now(), notices };
        state.groups.entry(group.to_owned()).or_default().members.insert(number, member);
        self.world.note(format_args!("member {number} joins {group}"));
        self.rebalance(&mut state, group);
        MemberId { group: group.to_owned(), number }
    }

    /// A sign of life; false when the member was forgotten.
    pub(super) fn heartbeat(&self, member: &MemberId) -> bool {
        let mut state = self.lock();
        let found = state.groups.get_mut(&member.group).and_then(|group| group.members.get_mut(&member.number));
        found.map(|found| found.seen = Instant::now()).is_some()
    }

    pub(super) fn leave(&self, member: &MemberId) {
        self.remove(&mut self.lock(), &member.group, member.number, "leaves");
    }

    /// Forgets some member, as if its signs of life had been lost.
    pub fn expel_one(&self) {
        let mut state = self.lock();
        let members: Vec<(String, u64)> = state
            .groups
            .iter()
            .flat_map(|(name, group)| group.members.keys().map(move |number| (name.clone(), *number)))
            .collect();
        if let Some((group, number)) = members.get(self.world.below(members.len())) {
            self.remove(&mut state, group, *number, "is forgotten by");
        }
    }

    fn expel_silent(&self) {
        let mut state = self.lock();
        let mut silent = Vec::new();
        let mut held = Vec::new();
        for (name, group) in &state.groups {
            for (number, member) in &group.members {
                if member.seen.elapsed() > SESSION {
                    silent.push((name.clone(), *number));
                } else if let Some((rebalance, _, since)) = &member.pending
                    && since.elapsed() > RELEASE
                {
                    held.push((MemberId { group: name.clone(), number: *number }, *rebalance));
                }
            }
        }
        silent.iter().for_each(|(group, number)| self.remove(&mut state, group, *number, "was silent in"));
        held.iter().for_each(|(member, rebalance)| self.answer(&mut state, member, *rebalance));
    }

    fn remove(&self, state: &mut State, group: &str, number: u64, how: &str) {
        let found = state.groups.get_mut(group).and_then(|group| group.members.remove(&number));
        if found.is_some() {
            self.world.note(format_args!("member {number} {how} {group}"));
            self.rebalance(state, group);
        }
    }

    /// A member's answer to what it was told.
    pub(super) fn acknowledge(&self, member: &MemberId, rebalance: u64) {
        self.answer(&mut self.lock(), member, rebalance);
    }

    fn answer(&self, state: &mut State, member: &MemberId, rebalance: u64) {
        let found = state.groups.get_mut(&member.group).and_then(|group| group.members.get_mut(&member.number));
        let Some(found) = found else { return };
        if found.pending.as_ref().is_none_or(|(number, ..)| *number != rebalance) {
            return;
        }
        if let Some((_, Pending::Revoke(partitions), _)) = found.pending.take() {
            found.owned.retain(|partition| !partitions.contains(partition));
        }
        self.reconcile(state, &member.group);
    }

    /// Decides anew who is to have what: as many as before stay where they are, mostly.
    fn rebalance(&self, state: &mut State, name: &str) {
        let Some(group) = state.groups.get_mut(name) else { return };
        let partitions: Vec<_> = state.partitions.keys().copied().collect();
        let fair = partitions.len().div_ceil(group.members.len().max(1));
        let mut loads: BTreeMap<u64, usize> = group.members.keys().map(|number| (*number, 0)).collect();
        let mut homeless = Vec::new();
        let before = std::mem::take(&mut group.targets);
        for partition in partitions {
            let stays = before.get(&partition).filter(|_| !self.world.happens(0.1));
            match stays.and_then(|member| loads.get_mut(member).map(|load| (*member, load))) {
                Some((member, load)) if *load < fair => {
                    *load += 1;
                    group.targets.insert(partition, member);
                }
                _ => homeless.push(partition),
            }
        }
        for partition in homeless {
            let idlest = loads.iter_mut().min_by_key(|(_, load)| **load);
            if let Some((member, load)) = idlest {
                *load += 1;
                group.targets.insert(partition, *member);
            }
        }
        self.reconcile(state, name);
    }

    /// Tells members what to give back, and what has become theirs.
    fn reconcile(&self, state: &mut State, name: &str) {
        let State { groups, numbers, .. } = state;
        let Some(group) = groups.get_mut(name) else { return };
        let taken: BTreeSet<Partition> =
            group.members.values().flat_map(|member| member.owned.iter().copied()).collect();
        for (number, member) in group.members.iter_mut().filter(|(_, member)| member.pending.is_none()) {
            let is_mine = |partition: &&Partition| group.targets.get(partition) == Some(number);
            let gone: Vec<_> = member.owned.iter().filter(|partition| !is_mine(partition)).copied().collect();
            let new: Vec<_> = group.targets.keys().filter(|p| is_mine(p) && !taken.contains(p)).copied().collect();
            if gone.is_empty() && new.is_empty() {
                continue;
            }
            *numbers += 1;
            let rebalance = *numbers;
            let (pending, notice) = if gone.is_empty() {
                self.world.note(format_args!("member {number} gets {new:?}"));
                member.owned.extend(new.iter().copied());
                (Pending::Assign, Notice::Assigned { rebalance, partitions: new })
            } else {
                self.world.note(format_args!("member {number} is to give back {gone:?}"));
                (Pending::Revoke(gone.clone()), Notice::Revoked { rebalance, partitions: gone })
            };
            member.pending = Some((rebalance, pending, Instant::now()));
            // A member that is gone is found out by its silence.
            drop(member.notices.send(notice));
        }
    }
}

//! What happens when: decided by the seed alone, before anything is started.

use alluvium_core::edge::{Edge, Point};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// Processes in the group.
pub const MEMBERS: usize = 3;
/// Partitions at the start, and at most.
pub const PARTITIONS: usize = 8;
const MOST_PARTITIONS: usize = 14;

/// Something that is done to the processes, the broker or the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A process of this number, perhaps with a trap.
    Start(usize, Option<Trap>),
    Kill(usize),
    Freeze(usize),
    Thaw(usize),
    Terminate(usize),
    BrokerKill,
    BrokerStop,
    BrokerStart,
    /// Raises the topic's number of partitions to this.
    Partitions(usize),
}

/// What a process does to itself at a point that it reaches for the n-th time (`commit:before#2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trap {
    Kill(String),
    /// Thawed again so many milliseconds later.
    Freeze(String, u64),
}

/// An action and when it happens, in milliseconds since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: u64,
    pub action: Action,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3} s  {:?}", self.at as f64 / 1000.0, self.action)
    }
}

/// The steps of a run that lasts so long, in order.
pub fn schedule(seed: u64, length: Duration) -> Vec<Step> {
    let end = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let mut steps = Vec::new();
    for member in 0..MEMBERS {
        lives(&mut stream(seed, member as u64), member, end, &mut steps);
    }
    broker(&mut stream(seed, 100), end, &mut steps);
    partitions(&mut stream(seed, 200), end, &mut steps);
    steps.retain(|step| step.at < end);
    steps.sort_by_key(|step| step.at);
    steps
}

/// Each of the timelines has numbers of its own: one that is changed leaves the others as they are.
fn stream(seed: u64, number: u64) -> StdRng {
    StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number))
}

/// A process after the other: started, perhaps frozen now and then, and ended in one of four ways. The
/// first meets the trap that matters most, so that every run, however short, has a process that wakes
/// up in a commit of what others have committed meanwhile, and letters that are owed by the dead.
fn lives(random: &mut StdRng, member: usize, end: u64, steps: &mut Vec<Step>) {
    let first = match member {
        0 => Trap::Freeze("commit:before#2".to_owned(), 6_000),
        1 => Trap::Kill("commit:after#2".to_owned()),
        _ => Trap::Kill("dead-letters:after#2".to_owned()),
    };
    steps.push(Step { at: 0, action: Action::Start(member, Some(first)) });
    let mut at = random.random_range(11_000..13_000);
    steps.push(Step { at, action: Action::Kill(member) });
    at += random.random_range(0..1_500);
    while at < end {
        let mut then = |at, action| steps.push(Step { at, action });
        then(at, Action::Start(member, trap(random)));
        loop {
            // Some lives end before the process has joined its group.
            let short = random.random_bool(0.2);
            at += if short { random.random_range(20..1_500) } else { random.random_range(2_000..14_000) };
            match random.random_range(0..100) {
                0..45 => {
                    then(at, Action::Kill(member));
                    break;
                }
                45..65 => {
                    then(at, Action::Terminate(member));
                    break;
                }
                // Half of the time past the session timeout, so that others take its partitions.
                _ => {
                    then(at, Action::Freeze(member));
                    let long = random.random_bool(0.5);
                    at += if long { random.random_range(2_000..7_000) } else { random.random_range(50..1_200) };
                    if random.random_bool(0.2) {
                        then(at, Action::Kill(member));
                        break;
                    }
                    then(at, Action::Thaw(member));
                }
            }
        }
        at += random.random_range(0..2_500);
    }
}

fn trap(random: &mut StdRng) -> Option<Trap> {
    // Half of them in the middle of a commit, where a moment decides.
    let within = random.random_bool(0.5);
    let is_commit = |point: &Point| matches!(point.edge, Edge::DeadLetters | Edge::Schema | Edge::Commit);
    let points: Vec<_> = Point::all().filter(|point| !within || is_commit(point)).collect();
    let at = format!("{}#{}", points[random.random_range(0..points.len())], random.random_range(1..8));
    match random.random_range(0..100) {
        0..40 => Some(Trap::Kill(at)),
        40..65 => Some(Trap::Freeze(at, random.random_range(1_000..6_000))),
        _ => None,
    }
}

fn broker(random: &mut StdRng, end: u64, steps: &mut Vec<Step>) {
    repeat(random, 12_000..40_000, end, |random, at| {
        let down = if random.random_bool(0.5) { Action::BrokerKill } else { Action::BrokerStop };
        steps.push(Step { at, action: down });
        let at = at + random.random_range(0..5_000);
        steps.push(Step { at, action: Action::BrokerStart });
        at
    });
}

fn partitions(random: &mut StdRng, end: u64, steps: &mut Vec<Step>) {
    let mut count = PARTITIONS;
    repeat(random, 15_000..50_000, end, |_, at| {
        if count < MOST_PARTITIONS {
            count += 1;
            steps.push(Step { at, action: Action::Partitions(count) });
        }
        at
    });
}

fn repeat(random: &mut StdRng, gap: Range<u64>, end: u64, mut act: impl FnMut(&mut StdRng, u64) -> u64) {
    let mut at = random.random_range(gap.clone()) / 2;
    while at < end {
        at = act(random, at) + random.random_range(gap.clone());
    }
}

#[test]
fn the_seed_alone_decides() {
    let minute = Duration::from_secs(60);
    assert_eq!(schedule(1, minute), schedule(1, minute));
    assert_ne!(schedule(1, minute), schedule(2, minute));
    // A longer run begins as the shorter one does.
    let longer = schedule(1, 3 * minute);
    assert_eq!(schedule(1, minute), longer[..schedule(1, minute).len()]);
}

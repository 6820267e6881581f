//! A simulated world for the whole runtime: broker, group, table, processes, and all that goes wrong.
//!
//! One seed decides everything. The real driver, planner, stages and workers run on one thread under a
//! paused clock; every wait of the world around them is drawn from the seed, so that the order of
//! events is a matter of virtual time alone, and the same seed gives the same run, event by event.
//!
//! - [`world`]: dice, events, and the gate that all operations of a process pass.
//! - [`broker`], [`source`]: the topic, the group, and its members.
//! - [`store`], [`table`]: the logs of two tables, and a process's handle on them.
//! - [`scenario`]: what a seed chooses; [`processes`]: how it is lived; [`check`]: what must hold then.

pub mod broker;
pub mod check;
pub mod error;
pub mod faults;
pub mod processes;
pub mod records;
pub mod scenario;
pub mod source;
pub mod store;
pub mod table;
pub mod world;

pub use faults::{Faults, Plant};
pub use scenario::Scenario;
pub use world::Protocol;

/// Lives through the world of a seed, on a runtime of its own. With `traced`, the protocol holds every
/// event as text.
pub fn simulate(seed: u64, plant: Option<Plant>, traced: bool) -> Protocol {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(processes::live(seed, plant, traced)),
        Err(error) => Protocol { violations: vec![format!("no runtime: {error}")], ..Protocol::default() },
    }
}

/// The first seeds of a range whose worlds show a violation, at most `most` of them, searched on
/// `threads` threads.
pub fn search(seeds: std::ops::Range<u64>, plant: Option<Plant>, threads: usize, most: usize) -> Vec<(u64, Protocol)> {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    let (next, found) = (AtomicU64::new(seeds.start), AtomicUsize::new(0));
    let work = || {
        let mut failures = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || found.load(Ordering::Relaxed) >= most {
                return failures;
            }
            let protocol = simulate(seed, plant, false);
            if !protocol.violations.is_empty() {
                found.fetch_add(1, Ordering::Relaxed);
                failures.push((seed, protocol));
            }
        }
    };
    let mut failures: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    failures.sort_by_key(|(seed, _)| *seed);
    failures
}

//! What goes wrong, and how often.

use super::world::World;

/// Chances, from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A request to the broker fails.
    pub broker: f64,
    /// A fetch fails.
    pub fetch: f64,
    /// A chunk gets lost on its way, so that the next one does not follow.
    pub gap: f64,
    /// A member that was forgotten goes on for another step.
    pub unaware: f64,
    /// A table cannot be read.
    pub load: f64,
    /// A file cannot be uploaded.
    pub upload: f64,
    /// The write of a log entry goes wrong, in one of several ways.
    pub write: f64,
    /// The process dies at a step of a commit.
    pub death: f64,
    /// Chunks of the time before a seek still come out of the source.
    pub shows_stale: bool,
    /// A fault of ours, put in to see it found.
    pub plant: Option<Plant>,
}

/// A planted fault: the simulation must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The table commits whatever comes, as if positions were not judged.
    NeverJudges,
    /// A lost race is tried again at the next version, without judging on it.
    RetriesUnjudged,
    /// Dead letters that an entry names are written only by the process that wrote it.
    ForgetsLetters,
    /// Dead letters are written without looking whether somebody has done so.
    RepeatsLetters,
    /// The first record after a rebalance is left out, as if it had been compacted away.
    SkipsAfterRebalance,
    /// A member does not tell that its partitions were lost, so that work on them goes on.
    HidesLosses,
}

impl Faults {
    /// Each kind of fault is there in about half of all worlds, more or less often.
    pub fn draw(world: &World) -> Self {
        let chance = |most: f64| if world.happens(0.5) { most * world.below(100) as f64 / 100.0 } else { 0.0 };
        Self {
            broker: chance(0.2),
            fetch: chance(0.05),
            gap: chance(0.05),
            unaware: chance(0.99),
            load: chance(0.15),
            upload: chance(0.2),
            write: chance(0.5),
            death: chance(0.02),
            shows_stale: world.happens(0.5),
            plant: None,
        }
    }
}

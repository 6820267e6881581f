//! What a seed chooses before the world begins.

use super::faults::Faults;
use super::records::Treatment;
use super::world::World;
use alluvium_config::{LostData, Pipeline};
use alluvium_core::position::StartPolicy;
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Scenario {
    pub partitions: usize,
    /// The group of each process.
    pub groups: Vec<&'static str>,
    pub workers: usize,
    /// How long a worker takes for a job, at most, in milliseconds.
    pub slowness: u64,
    /// How long the world is wild, in milliseconds.
    pub wild: u64,
    /// How long it takes on average until something happens to the processes, in milliseconds.
    pub calm: u64,
    pub treatment: Treatment,
    /// Whether tables do not answer for longer than a rebalance is held.
    pub outage: bool,
    /// Whether the topic's retention passes what was not read.
    pub loses: bool,
    pub pipeline: Arc<Pipeline>,
    pub faults: Faults,
}

const PIPELINE: &str = r#"
version = 1
tenant = "acme"
name = "orders"
[source]
brokers = ["simulated:1"]
topic = "orders"
[sink]
table = "rows"
"#;

const DECLARED: &str = r#"
[schema]
evolve = "add"
[[schema.column]]
name = "id"
type = "bigint"
[[schema.column]]
name = "name"
type = "string"
"#;

thread_local! {
    static PIPELINES: [OnceCell<Result<Pipeline, String>>; 2] = const { [const { OnceCell::new() }; 2] };
}

/// A pipeline file's pipeline, parsed once.
fn pipeline(declared: bool) -> Result<Pipeline, String> {
    let text = || format!("{PIPELINE}{}", if declared { DECLARED } else { "" });
    let parse = || alluvium_config::parse(&text(), "simulated.toml").map_err(|errors| errors.to_string());
    PIPELINES.with(|pipelines| pipelines[usize::from(declared)].get_or_init(parse).clone())
}

impl Scenario {
    /// Draws a scenario. Fails when its pipeline is refused, which is a fault of the simulation.
    pub fn draw(world: &World) -> Result<Self, String> {
        let declared = world.happens(0.3);
        let mut pipeline = pipeline(declared)?;
        let keeps_tombstones = world.happens(0.5);
        if keeps_tombstones {
            pipeline.source.tombstones = alluvium_config::Tombstones::DeadLetter;
        }
        let loses = world.happens(0.1);
        if loses && world.happens(0.7) {
            pipeline.source.lost_data = LostData::Skip;
        }
        pipeline.source.start = match world.below(6) {
            0 => StartPolicy::Latest,
            1 => StartPolicy::Timestamp(1_700_000_000_005),
            _ => StartPolicy::Earliest,
        };
        pipeline.flush.every = Duration::from_millis(world.within(50..2_000));
        (pipeline.flush.size, pipeline.flush.memory) = (1 << 20, 4 << 20);
        pipeline.flush.rows = world.within(3..60);
        pipeline.flush.grace = Duration::from_secs(world.within(1..30));
        let outage = world.happens(0.03);
        let groups = (0..1 + world.below(3)).map(|_| if world.happens(0.15) { "other" } else { "readers" });
        Ok(Self {
            partitions: 1 + world.below(3),
            groups: groups.collect(),
            workers: 1 + world.below(2),
            slowness: if world.happens(0.3) { 400 } else { 10 },
            wild: if outage { 50_000 } else { world.within(1_000..8_000) },
            calm: world.within(200..2_000),
            treatment: Treatment { declared, keeps_tombstones },
            outage,
            loses,
            pipeline: Arc::new(pipeline),
            faults: Faults::draw(world),
        })
    }

    /// A world without faults, for tests that want one thing to happen.
    pub fn plain(partitions: usize, change: impl FnOnce(&mut Pipeline)) -> Result<Self, String> {
        let mut pipeline = pipeline(true)?;
        change(&mut pipeline);
        Ok(Self {
            partitions,
            groups: Vec::new(),
            workers: 1,
            slowness: 2,
            wild: 0,
            calm: 0,
            treatment: Treatment { declared: true, keeps_tombstones: false },
            outage: false,
            loses: false,
            pipeline: Arc::new(pipeline),
            faults: Faults::default(),
        })
    }

    /// Whether lost data must stop the pipeline.
    pub fn may_stop(&self) -> bool {
        self.loses && self.pipeline.source.lost_data == LostData::Stop
    }
}

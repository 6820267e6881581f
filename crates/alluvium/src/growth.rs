//! What a pipeline's table would grow by, before it does.

use crate::cli::Look;
use crate::failure::Failure;
use crate::load::{self, Loaded};
use crate::local::{Local, chunks_of};
use alluvium_config::{Mapping, Pipeline};
use alluvium_core::seam::TableState;
use alluvium_core::{Chunk, Evolve, Packed};
use alluvium_delta::{DeltaReader, TextRow};
use alluvium_kafka::{KafkaTopic, sample};
use alluvium_runtime::layout::Layout;
use alluvium_runtime::{Error, Planner};
use alluvium_schema::{Addition, GrowError, Plan, Rescued, Shape, additions};
use arrow_schema::SchemaRef;
use std::path::Path;
use std::sync::Arc;

/// Records that a look takes unless told otherwise.
pub const SAMPLE: u32 = 10_000;

/// A pipeline over its table, and what is known of records that the table does not show in columns.
pub struct Outlook {
    pub loaded: Loaded,
    pub tables: DeltaReader,
    pub state: TableState,
    /// What records that are not in the table yet look like.
    pub coming: Shape,
    /// How many of them were looked at.
    pub looked_at: usize,
}

/// What the next commit does to the table's columns.
#[derive(Debug, Default)]
pub struct Growth {
    pub adds: Vec<Addition>,
    /// What could be added, and is not.
    pub held: Vec<Addition>,
    /// Unknown fields that stop the pipeline.
    pub stops: Vec<String>,
    /// Why the pipeline does not even start.
    pub waits: Vec<String>,
}

fn failed(error: Error) -> Failure {
    Failure::classified(&error)
}

fn failed_table(error: alluvium_delta::Error) -> Failure {
    Failure::classified(&error)
}

impl Outlook {
    /// Reads the table's state, and as many records as wished: by default `sample` of them, and always some
    /// where a plugin decides, which must see whole records.
    pub async fn new(file: &Path, look: &Look, sample: u32) -> Result<Self, Failure> {
        let loaded = load::load(file, &load::host()?)?;
        let tables = load::tables(file, &loaded.pipeline)?;
        let state = tables.writable_state().await.map_err(failed_table)?;
        let mut chunks = match &look.records {
            Some(records) => chunks_of(records)?,
            None => Vec::new(),
        };
        let decides = matches!(loaded.pipeline.schema.mapping, Mapping::Plugin(_));
        let default = if look.records.is_some() {
            0
        } else if decides {
            SAMPLE
        } else {
            sample
        };
        let most = look.sample.unwrap_or(default) as usize;
        if most > 0 {
            chunks.extend(next_records(&loaded, &state, most, decides).await?);
        }
        let looked_at = chunks.iter().map(|chunk| chunk.records().len()).sum();
        if decides && looked_at == 0 {
            return Err(Failure::input("a plugin decides on the columns by what records look like, and there is none")
                .with_hint("name a file of records, as in --records records.ndjson"));
        }
        let adding = adding(&loaded);
        let coming = tokio::task::block_in_place(|| Local::new(&adding, &state)?.shape(&chunks))?;
        Ok(Self { loaded, tables, state, coming, looked_at })
    }

    /// The rows' columns over the table, with what the plan takes of the records looked at.
    pub fn layout(&self) -> Result<Arc<Layout>, Failure> {
        let planner = self.planner(&self.loaded.pipeline).map_err(failed)?;
        let planned = tokio::task::block_in_place(|| grow(&planner, &self.coming));
        match planned {
            Ok(_) | Err(Error::Grow(GrowError::Unknown { .. })) => Ok(planner.layout()),
            Err(error) => Err(failed(error)),
        }
    }

    fn planner(&self, pipeline: &Pipeline) -> Result<Planner, Error> {
        Planner::new(pipeline, &self.loaded.plugins, &self.state)
    }

    /// Reads the rescued column, and tells what `plan` makes of it.
    pub async fn rescued(&self, plan: &Plan) -> Result<Rescued, Failure> {
        let mut rescued = Rescued::new(plan);
        let metadata = &self.loaded.pipeline.sink.metadata;
        let is_there = |schema: &SchemaRef| schema.field_with_name(plan.rescued()).is_ok();
        if !self.state.schema.as_ref().is_some_and(is_there) {
            return Ok(rescued);
        }
        let mut scan = self.tables.scan_texts(plan.rescued(), metadata.kafka.as_deref()).await.map_err(failed_table)?;
        while let Some(batch) = scan.next().await {
            let batch = batch.map_err(failed_table)?;
            let texts: Packed = batch.iter().map(|row| Some(row.text.as_bytes())).collect();
            let place = |at: usize| batch.get(at).and_then(|row: &TextRow| row.place);
            let observed = tokio::task::block_in_place(|| rescued.observe(&texts, place));
            observed.map_err(|error| Failure::caused("the rescued column cannot be read", &error))?;
        }
        Ok(rescued)
    }

    /// The table's columns with all that could be added: what was rescued, what the records looked at
    /// have, what the pipeline declares and what its plugins write.
    pub async fn widest(&self) -> Result<(SchemaRef, Plan), Failure> {
        let adding = adding(&self.loaded);
        let planner = self.planner(&adding.pipeline).map_err(failed)?;
        let rescued = self.rescued(planner.layout().plan()).await?;
        let mut shape = rescued.shape().clone();
        shape.merge(self.coming.clone());
        tokio::task::block_in_place(|| grow(&planner, &shape)).map_err(failed)?;
        Ok((planner.committable(), planner.layout().plan().as_ref().clone()))
    }

    /// What the next commit adds, and what is held back.
    pub async fn growth(&self) -> Result<Growth, Failure> {
        let table = self.state.schema.as_deref();
        let mut growth = Growth::default();
        match self.planner(&self.loaded.pipeline) {
            Ok(planner) => match tokio::task::block_in_place(|| grow(&planner, &self.coming)) {
                Ok(()) => growth.adds = additions(table, &planner.committable()),
                Err(Error::Grow(GrowError::Unknown { fields })) => growth.stops = fields,
                Err(error) => return Err(failed(error)),
            },
            Err(Error::NotApproved { columns }) => growth.waits = columns,
            Err(error) => return Err(failed(error)),
        }
        if self.loaded.pipeline.schema.evolve != Evolve::Add && table.is_some() {
            let (widest, _) = self.widest().await?;
            growth.held = additions(table, &widest);
            growth.held.retain(|held| !growth.adds.contains(held));
        }
        Ok(growth)
    }
}

/// The same pipeline, as if all growth were approved.
fn adding(loaded: &Loaded) -> Loaded {
    let mut pipeline = loaded.pipeline.as_ref().clone();
    pipeline.schema.evolve = Evolve::Add;
    Loaded { file: loaded.file.clone(), pipeline: Arc::new(pipeline), plugins: loaded.plugins.clone() }
}

fn grow(planner: &Planner, shape: &Shape) -> Result<(), Error> {
    if planner.needs_sample() {
        return planner.learn(shape);
    }
    planner.grow(shape).map(drop)
}

/// The topic's next records: from the stored positions on, or from the oldest that the broker has. `or_last`:
/// where there are none, the last of those before.
async fn next_records(loaded: &Loaded, state: &TableState, most: usize, or_last: bool) -> Result<Vec<Chunk>, Failure> {
    let unreachable = |error: alluvium_kafka::Error| {
        let failure = Failure::classified(&error).context("the topic's next records cannot be looked at");
        failure.with_hint("--sample 0 looks at the table alone, --records FILE at records of a file")
    };
    let config = load::kafka_config(&loaded.file, &loaded.pipeline)?;
    let topic = KafkaTopic::connect(&config).map_err(unreachable)?;
    let partitions = topic.partitions().await.map_err(unreachable)?;
    let share = i64::try_from(most / partitions.len().max(1)).unwrap_or(i64::MAX).max(1);
    let (mut next, mut last) = (Vec::new(), Vec::new());
    for partition in partitions {
        let watermarks = topic.watermarks(partition).await.map_err(unreachable)?;
        let stored = state.positions.iter().find(|(found, _)| *found == partition).map(|(_, at)| *at);
        let from = stored.unwrap_or(watermarks.low).max(watermarks.low);
        if from < watermarks.high {
            next.push((partition, from));
        } else if watermarks.low < watermarks.high {
            last.push((partition, watermarks.high.saturating_sub(share).max(watermarks.low)));
        }
    }
    let from = if next.is_empty() && or_last { last } else { next };
    sample(&config, &from, most).await.map_err(unreachable)
}

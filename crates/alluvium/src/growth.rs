//! What a pipeline's table would grow by, before it does.

use crate::cli::Look;
use crate::failure::Failure;
use crate::load::{self, Loaded};
use crate::local::{Local, chunks_of};
use alluvium_config::{LostData, Mapping, Pipeline};
use alluvium_core::position::{PositionError, Resume, resume, same_topic};
use alluvium_core::seam::TableState;
use alluvium_core::{Chunk, Evolve, Packed};
use alluvium_delta::{DeltaReader, TextRow};
use alluvium_kafka::{KafkaTopic, sample};
use alluvium_runtime::{Error, Planner};
use alluvium_schema::{Addition, GrowError, Plan, Rescued, Shape, additions, select};
use arrow_schema::{Field, Fields, Schema, SchemaRef};
use std::fmt;
use std::path::{Path, PathBuf};
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
    pub looked: Looked,
    /// Why the pipeline does not read on from its positions, if the broker was asked.
    pub lost: Option<PositionError>,
}

/// How many records were looked at.
#[derive(Debug, Default)]
pub struct Looked {
    pub file: Option<(PathBuf, usize)>,
    pub topic: Option<(String, usize)>,
}

impl Looked {
    pub fn records(&self) -> usize {
        let (file, topic) = (self.file.as_ref().map(|file| file.1), self.topic.as_ref().map(|topic| topic.1));
        file.unwrap_or(0) + topic.unwrap_or(0)
    }
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_ref().map(|(file, found)| format!("{} of {}", count(*found, "record"), file.display()));
        let topic = self.topic.as_ref().map(|(topic, found)| format!("{} of topic {topic}", count(*found, "record")));
        let parts: Vec<String> = file.into_iter().chain(topic).collect();
        match parts.is_empty() {
            true => f.write_str("looked at no records, only at the table"),
            false => write!(f, "looked at {}", parts.join(" and ")),
        }
    }
}

/// A number of things: `1 row`, `2 rows`.
pub fn count(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into() {
        Ok(1) => format!("1 {what}"),
        Ok(number) => format!("{number} {what}s"),
        Err(_) => format!("many {what}s"),
    }
}

/// The plan over the table, with what it takes of the records looked at.
pub struct Planned {
    pub plan: Plan,
    /// The rows' columns.
    pub schema: SchemaRef,
    /// What the next commit may give the table.
    committable: SchemaRef,
    /// Unknown fields that stop the pipeline. The plan is without them.
    pub stops: Vec<String>,
    /// Columns that must be approved before the pipeline starts. The plan is as if they were.
    pub waits: Vec<String>,
}

/// Columns of the table that are null in the next rows.
#[derive(Debug, Default)]
pub struct Unfilled {
    /// Filled from the first record on that has a field of their name.
    pub for_now: Vec<Addition>,
    /// Null in all new rows.
    pub for_good: Vec<Addition>,
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
    pub unfilled: Unfilled,
    /// Whether the rescued column holds more fields than were looked into.
    pub is_cut: bool,
}

/// All that the table could get.
pub struct Widest {
    pub schema: SchemaRef,
    pub plan: Plan,
    /// Whether the rescued column holds more fields than were looked into.
    pub is_cut: bool,
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
        let (mut chunks, mut looked, mut lost) = (Vec::new(), Looked::default(), None);
        if let Some(records) = &look.records {
            chunks = chunks_of(records)?;
            looked.file = Some((records.clone(), records_in(&chunks)));
        }
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
            let next = next_records(&loaded, &state, most, decides).await?;
            looked.topic = Some((loaded.pipeline.source.topic.clone(), records_in(&next.chunks)));
            chunks.extend(next.chunks);
            lost = next.lost;
        }
        if decides && looked.records() == 0 {
            return Err(Failure::input("a plugin decides on the columns by what records look like, and there is none")
                .with_hint("name a file of records, as in --records records.ndjson"));
        }
        let adding = adding(&loaded);
        let coming = tokio::task::block_in_place(|| Local::new(&adding, &state)?.shape(&chunks))?;
        Ok(Self { loaded, tables, state, coming, looked, lost })
    }

    /// The plan over the table, with what it takes of the records looked at.
    pub fn planned(&self) -> Result<Planned, Failure> {
        tokio::task::block_in_place(|| self.plan_over(&self.loaded.pipeline)).map_err(failed)
    }

    fn plan_over(&self, pipeline: &Pipeline) -> Result<Planned, Error> {
        let (mut stops, mut waits) = (Vec::new(), Vec::new());
        let planner = match self.grown(pipeline, &self.state) {
            Ok(planner) => planner,
            // The pipeline takes nothing of such a batch; what a plugin planned for it is to be shown all the same.
            Err(Error::Grow(GrowError::Unknown { fields })) => {
                stops = fields;
                self.grown(&evolving(pipeline, Evolve::None), &self.state)?
            }
            Err(Error::NotApproved { columns }) => {
                let state = self.approved(pipeline, &columns)?;
                waits = columns;
                self.grown(pipeline, &state)?
            }
            Err(error) => return Err(error),
        };
        let layout = planner.layout();
        let plan = layout.plan().as_ref().clone().evolving(pipeline.schema.evolve);
        let is_written = |field: &&Arc<Field>| plan.can_rescue() || field.name() != plan.rescued();
        let schema =
            Arc::new(Schema::new(layout.schema().fields().iter().filter(is_written).cloned().collect::<Fields>()));
        Ok(Planned { plan, schema, committable: planner.committable(), stops, waits })
    }

    /// A planner with what it takes of the records looked at.
    fn grown(&self, pipeline: &Pipeline, state: &TableState) -> Result<Planner, Error> {
        let planner = Planner::new(pipeline, &self.loaded.plugins, state)?;
        grow(&planner, &self.coming)?;
        Ok(planner)
    }

    /// The table as if somebody had approved these columns.
    fn approved(&self, pipeline: &Pipeline, columns: &[String]) -> Result<TableState, Error> {
        let Some(table) = &self.state.schema else { return Ok(self.state.clone()) };
        let wanted = self.grown(&evolving(pipeline, Evolve::Add), &self.state)?.layout().schema().clone();
        let chosen = additions(Some(table), &wanted).into_iter().map(|addition| addition.path);
        let chosen: Vec<_> = chosen.filter(|path| path.first().is_some_and(|name| columns.contains(name))).collect();
        let grown = select(table, &wanted, &chosen);
        let is_named = |field: &Arc<Field>, name: &str| field.name().to_lowercase() == name.to_lowercase();
        let find = |fields: &Fields, name: &str| fields.iter().find(|field| is_named(field, name)).cloned();
        let in_table = table.fields().iter().map(|field| find(grown.fields(), field.name()).unwrap_or(field.clone()));
        let new = grown.fields().iter().filter(|field| find(table.fields(), field.name()).is_none()).cloned();
        let schema = Arc::new(Schema::new(in_table.chain(new).collect::<Fields>()));
        Ok(TableState { schema: Some(schema), ..self.state.clone() })
    }

    /// The columns of the table that the next rows leave null.
    pub fn unfilled(&self, planned: &Planned) -> Unfilled {
        let Some(table) = self.state.schema.as_deref() else { return Unfilled::default() };
        let plan = &planned.plan;
        let comes = |addition: &Addition| {
            let is_read = plan.columns().iter().any(|column| column.path.first() == addition.path.first());
            plan.evolve() == Evolve::Add && !is_read && plan.room() > 0 && !plan.drops().contains(&addition.path)
        };
        // The rescued column is not there to be filled.
        let is_unfilled = |addition: &Addition| match addition.path.as_slice() {
            [name] => name != plan.rescued(),
            _ => false,
        };
        let (for_now, for_good) =
            additions(Some(&planned.schema), table).into_iter().filter(is_unfilled).partition(comes);
        Unfilled { for_now, for_good }
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
    pub async fn widest(&self) -> Result<Widest, Failure> {
        let adding = evolving(&self.loaded.pipeline, Evolve::Add);
        let planner = Planner::new(&adding, &self.loaded.plugins, &self.state).map_err(failed)?;
        let rescued = self.rescued(planner.layout().plan()).await?;
        let mut shape = rescued.shape().clone();
        shape.merge(self.coming.clone());
        tokio::task::block_in_place(|| grow(&planner, &shape)).map_err(failed)?;
        let plan = planner.layout().plan().as_ref().clone();
        Ok(Widest { schema: planner.committable(), plan, is_cut: rescued.is_cut() })
    }

    /// What the next commit adds, and what is held back.
    pub async fn growth(&self) -> Result<Growth, Failure> {
        let table = self.state.schema.as_deref();
        let planned = self.planned()?;
        let mut growth = Growth { unfilled: self.unfilled(&planned), ..Growth::default() };
        if planned.stops.is_empty() && planned.waits.is_empty() && self.lost.is_none() {
            growth.adds = additions(table, &planned.committable);
        }
        (growth.stops, growth.waits) = (planned.stops, planned.waits);
        if table.is_some() {
            let widest = self.widest().await?;
            growth.is_cut = widest.is_cut;
            growth.held = additions(table, &widest.schema);
            growth.held.retain(|held| !growth.adds.contains(held));
        }
        Ok(growth)
    }
}

/// The same pipeline, with another answer to new fields.
fn evolving(pipeline: &Pipeline, evolve: Evolve) -> Pipeline {
    let mut pipeline = pipeline.clone();
    pipeline.schema.evolve = evolve;
    pipeline
}

/// The same pipeline, as if all growth were approved.
fn adding(loaded: &Loaded) -> Loaded {
    let pipeline = Arc::new(evolving(&loaded.pipeline, Evolve::Add));
    Loaded { file: loaded.file.clone(), pipeline, plugins: loaded.plugins.clone() }
}

fn records_in(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|chunk| chunk.records().len()).sum()
}

fn grow(planner: &Planner, shape: &Shape) -> Result<(), Error> {
    if planner.needs_sample() {
        return planner.learn(shape);
    }
    planner.grow(shape).map(drop)
}

struct Next {
    chunks: Vec<Chunk>,
    lost: Option<PositionError>,
}

/// The topic's next records: from the stored positions on, or from the oldest that the broker has. `or_last`:
/// where there are none, the last of those before.
async fn next_records(loaded: &Loaded, state: &TableState, most: usize, or_last: bool) -> Result<Next, Failure> {
    let unreachable = |error: alluvium_kafka::Error| {
        let failure = Failure::classified(&error).context("the topic's next records cannot be looked at");
        failure.with_hint("--sample 0 looks at the table alone, --records FILE at records of a file")
    };
    let config = load::kafka_config(&loaded.file, &loaded.pipeline)?;
    let topic = KafkaTopic::connect(&config).map_err(unreachable)?;
    let topic_id = topic.id().await.map_err(unreachable)?;
    let mut lost = same_topic(topic.name(), state.topic_id.as_ref(), topic_id.as_ref()).err();
    // Positions of another topic say nothing of this one.
    let is_same = lost.is_none();
    let partitions = topic.partitions().await.map_err(unreachable)?;
    let share = i64::try_from(most / partitions.len().max(1)).unwrap_or(i64::MAX).max(1);
    let (mut next, mut last) = (Vec::new(), Vec::new());
    for partition in partitions {
        let watermarks = topic.watermarks(partition).await.map_err(unreachable)?;
        let stored = state.positions.iter().find(|(found, _)| is_same && *found == partition).map(|(_, at)| *at);
        let from = match resume(stored, watermarks) {
            Resume::At(stored) => stored,
            Resume::Choose => watermarks.low,
            Resume::Lost { stored, low } => {
                if loaded.pipeline.source.lost_data != LostData::Skip {
                    lost.get_or_insert(PositionError::Lost { partition, stored, low });
                }
                low
            }
            Resume::Beyond { stored, high } => {
                lost.get_or_insert(PositionError::Beyond { partition, stored, high });
                watermarks.low
            }
        };
        if from < watermarks.high {
            next.push((partition, from));
        } else if watermarks.low < watermarks.high {
            last.push((partition, watermarks.high.saturating_sub(share).max(watermarks.low)));
        }
    }
    let from = if next.is_empty() && or_last { last } else { next };
    let chunks = sample(&config, &from, most).await.map_err(unreachable)?;
    Ok(Next { chunks, lost })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_which_records_were_looked_at() {
        let file = |found| Some((PathBuf::from("records.ndjson"), found));
        let topic = |found| Some(("orders".to_owned(), found));
        for (looked, told) in [
            (Looked::default(), "looked at no records, only at the table"),
            (Looked { file: file(1), topic: None }, "looked at 1 record of records.ndjson"),
            (Looked { file: None, topic: topic(0) }, "looked at 0 records of topic orders"),
            (
                Looked { file: file(2), topic: topic(1) },
                "looked at 2 records of records.ndjson and 1 record of topic orders",
            ),
        ] {
            assert_eq!(looked.to_string(), told);
        }
    }
}

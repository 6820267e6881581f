//! A pipeline over records at hand, without Kafka.

use crate::failure::Failure;
use crate::load::Loaded;
use alluvium_core::chunk::{NO_TIMESTAMP, Record};
use alluvium_core::seam::TableState;
use alluvium_core::{Chunk, Hook, Partition, Records, Span};
use alluvium_runtime::{Planner, Processed, Stages};
use alluvium_schema::Shape;
use std::path::Path;
use std::sync::Arc;

/// Records of one chunk, as when they come from Kafka.
pub const CHUNK: usize = 1000;

/// A pipeline's stages over a table's state.
pub struct Local {
    planner: Arc<Planner>,
    stages: Stages,
}

impl Local {
    pub fn new(loaded: &Loaded, state: &TableState) -> Result<Self, Failure> {
        let pipeline = &loaded.pipeline;
        let planner = Planner::new(pipeline, &loaded.plugins, state).map_err(|error| Failure::classified(&error))?;
        let planner = Arc::new(planner);
        let tombstones = pipeline.source.tombstones;
        let stages = Stages::new(loaded.plugins.clone(), planner.clone(), tombstones, &pipeline.limits, Hook::NONE);
        Ok(Self { planner, stages })
    }

    /// Infers columns from a first batch, where they are inferred.
    pub fn learn(&mut self, chunks: &[Chunk]) -> Result<(), Failure> {
        if !self.planner.needs_sample() {
            return Ok(());
        }
        let shape = self.shape(chunks)?;
        self.planner.learn(&shape).map_err(|error| Failure::classified(&error))
    }

    /// What the records look like after the record plugins.
    pub fn shape(&mut self, chunks: &[Chunk]) -> Result<Shape, Failure> {
        let mut shape = Shape::default();
        for chunk in chunks {
            self.stages.observe(chunk, &mut shape).map_err(|error| Failure::classified(&error))?;
        }
        Ok(shape)
    }

    pub fn process(&mut self, chunk: &Chunk) -> Result<Processed, Failure> {
        self.stages.process(chunk).map_err(|error| Failure::classified(&error))
    }
}

/// The records of a file: one a line; an empty line is a record too, but not the end of the last line.
pub fn chunks_of(file: &Path) -> Result<Vec<Chunk>, Failure> {
    let bytes =
        std::fs::read(file).map_err(|error| Failure::input(format!("{} cannot be read: {error}", file.display())))?;
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let lines: Vec<&[u8]> =
        text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    let numbered = lines.chunks(CHUNK).enumerate();
    numbered.map(|(number, lines)| chunk((number * CHUNK) as i64, lines.iter().copied())).collect()
}

/// A chunk of partition 0 from `offset` on.
pub fn chunk<'a>(offset: i64, values: impl IntoIterator<Item = &'a [u8]>) -> Result<Chunk, Failure> {
    let mut records = Records::default();
    let mut next = offset;
    for value in values {
        let record = Record { offset: next, timestamp: NO_TIMESTAMP, key: None, value: Some(value), headers: None };
        records.push(record).map_err(|error| Failure::caused("the records do not fit into one chunk", &error))?;
        next += 1;
    }
    let span = Span::new(offset, next).map_err(|error| Failure::caused("the records are out of order", &error))?;
    Chunk::new(Partition(0), span, records).map_err(|error| Failure::caused("the records are out of order", &error))
}

//! The columns of the rows as they are written.

use crate::frame::Frame;
use crate::metadata::MetadataColumns;
use alluvium_core::Chunk;
use alluvium_schema::Plan;
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use std::sync::Arc;

/// A mapping plan with the columns that plugins add and the metadata columns.
#[derive(Debug, PartialEq)]
pub struct Layout {
    plan: Arc<Plan>,
    metadata: MetadataColumns,
    schema: SchemaRef,
    digest: String,
}

impl Layout {
    /// Column order: the plan's columns, those added by plugins, the rescue column, metadata.
    pub fn new(plan: Plan, added: &[Field], metadata: MetadataColumns) -> Self {
        let decoded = plan.schema();
        let rescued = |field: &&Arc<Field>| field.name() == plan.rescued();
        let mut fields: Vec<Arc<Field>> = decoded.fields().iter().filter(|field| !rescued(field)).cloned().collect();
        fields.extend(added.iter().cloned().map(Arc::new));
        fields.extend(decoded.fields().iter().filter(rescued).cloned());
        fields.extend(metadata.fields().into_iter().map(Arc::new));
        let digest = plan.digest();
        Self { plan: Arc::new(plan), metadata, schema: Arc::new(Schema::new(fields)), digest }
    }

    pub fn plan_digest(&self) -> &str {
        &self.digest
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Schema of the rows as they are written.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Only the columns that are there whatever the records hold: the rescue column, metadata, and those
    /// that divide the table, which cannot be added later.
    pub fn bare_schema(&self, partition_by: &[String]) -> SchemaRef {
        let names = [self.metadata.names().as_slice(), partition_by].concat();
        let is_bare = |field: &&Arc<Field>| field.name() == self.plan.rescued() || names.contains(field.name());
        Arc::new(Schema::new(self.schema.fields().iter().filter(is_bare).cloned().collect::<Vec<_>>()))
    }

    /// The rows of `chunk` that went through all stages, as they are written.
    pub fn rows(&self, chunk: &Chunk, frame: &Frame) -> Result<RecordBatch, ArrowError> {
        let metadata = self.metadata.columns(chunk, frame.records())?;
        let own = self.schema.fields().len() - metadata.len();
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields().iter().take(own) {
            let missing = || ArrowError::SchemaError(format!("column {} was not written", field.name()));
            columns.push(frame.column(field.name()).cloned().ok_or_else(missing)?);
        }
        columns.extend(metadata);
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}

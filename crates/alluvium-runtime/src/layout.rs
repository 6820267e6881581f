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

/// The columns of both schemas. Columns of one name are of one type, of which one may have more fields:
/// types of a pipeline only grow. It is whole plans that may leave a column out, where a plugin makes them.
pub(crate) fn joined(one: &SchemaRef, other: &SchemaRef) -> SchemaRef {
    if Arc::ptr_eq(one, other) || one == other {
        return one.clone();
    }
    let (wide, narrow) = if leaves(one.fields()) > leaves(other.fields()) { (one, other) } else { (other, one) };
    let fields_of = |field: &Field| leaves(&[Arc::new(field.clone())].into_iter().collect());
    let widest = |field: &Arc<Field>| match narrow.field_with_name(field.name()) {
        Ok(other) if fields_of(other) > fields_of(field) => Arc::new(other.clone()),
        _ => field.clone(),
    };
    let lacking = narrow.fields().iter().filter(|field| wide.field_with_name(field.name()).is_err());
    Arc::new(Schema::new(wide.fields().iter().map(widest).chain(lacking.cloned()).collect::<Vec<_>>()))
}

/// How many columns there are, with all fields inside them.
fn leaves(fields: &arrow_schema::Fields) -> usize {
    Schema::new(fields.clone()).flattened_fields().len()
}

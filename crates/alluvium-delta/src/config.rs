//! What a sink is made of.

use alluvium_core::PipelineId;

/// A pipeline's table, the dead letters beside it, and how to reach them.
#[derive(Clone, Debug)]
pub struct DeltaConfig {
    /// A directory, or a URL such as `s3://bucket/path`.
    pub table: String,
    /// The dead letters' own table: a directory or a URL.
    pub dead_letters: String,
    pub pipeline: PipelineId,
    pub topic: String,
    /// Partition columns of a table that is created; an existing table must have the same.
    pub partition_by: Vec<String>,
    /// Options of the object store, as `AWS_REGION`.
    pub storage: Vec<(String, String)>,
    /// A data file is closed once its encoded size reaches this many bytes.
    pub file_size: u64,
}

impl DeltaConfig {
    /// What the ids of all transactions of this pipeline's topic start with.
    pub(crate) fn transaction_prefix(&self) -> String {
        let pipeline = &self.pipeline;
        format!("{}/{}/{}/{}/", pipeline.tenant(), pipeline.name(), pipeline.generation(), self.topic)
    }
}

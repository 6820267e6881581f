//! Names of pipelines, partitions and transactions.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a partition of the pipeline's topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(pub i32);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id that brokers give a topic when it is made: one made anew under the same name has another.
/// As Kafka's own tools print it: 22 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicId(String);

impl TopicId {
    /// From the halves of its 128 bits; `None` for zero, with which old brokers say that they have none.
    pub fn from_halves(most: u64, least: u64) -> Option<Self> {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits = u128::from(most) << 64 | u128::from(least);
        let digit = |place: u32| {
            // The last digit holds two bits, filled up with zeros.
            let sextet = bits.checked_shr(122 - 6 * place).unwrap_or_default() as usize & 63;
            char::from(DIGITS[sextet])
        };
        let last = char::from(DIGITS[(least as usize & 3) << 4]);
        (bits != 0).then(|| Self((0..21).map(digit).chain([last]).collect()))
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A pipeline of a tenant. `generation` is raised by the owner to read a topic anew into the same table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PipelineId {
    tenant: String,
    name: String,
    generation: u32,
}

/// A tenant's or pipeline's name that cannot be part of a transaction id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a name cannot be empty")]
    Empty,
    #[error("{name:?} has {len} characters; at most 128 are allowed")]
    TooLong { name: String, len: usize },
    #[error("{name:?} holds {found:?}; allowed are letters, digits, '-', '_' and '.'")]
    Character { name: String, found: char },
}

/// Checks a tenant's or pipeline's name: 1 to 128 of ASCII letters, digits, `-`, `_`, `.`.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    let len = name.chars().count();
    if len > 128 {
        return Err(NameError::TooLong { name: name.to_owned(), len });
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))) {
        Some(found) => Err(NameError::Character { name: name.to_owned(), found }),
        None => Ok(()),
    }
}

impl PipelineId {
    pub fn new(tenant: &str, name: &str, generation: u32) -> Result<Self, NameError> {
        check_name(tenant)?;
        check_name(name)?;
        Ok(Self { tenant: tenant.to_owned(), name: name.to_owned(), generation })
    }

    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }
}

impl fmt::Display for PipelineId {
    /// `tenant/name`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.name)
    }
}

/// The `appId` of a partition's transactions in the Delta log:
/// `tenant/pipeline/generation/topic/partition`. The transaction's version is the next offset to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AppId(String);

impl AppId {
    pub fn new(pipeline: &PipelineId, topic: &str, partition: Partition) -> Self {
        Self(format!("{}/{}/{}/{}/{}", pipeline.tenant, pipeline.name, pipeline.generation, topic, partition))
    }

    /// The id whose versions are the marks of dead letters, in the rows' log and in theirs; see
    /// [`crate::letters::Marks`].
    pub fn dead_letters(pipeline: &PipelineId, topic: &str) -> Self {
        Self(format!("{}/{}/{}/{}/dead-letters", pipeline.tenant, pipeline.name, pipeline.generation, topic))
    }

    /// The id whose version in the rows' log is the number of the newest replay of dead letters.
    pub fn replay(pipeline: &PipelineId, topic: &str) -> Self {
        Self(format!("{}/{}/{}/{}/replay", pipeline.tenant, pipeline.name, pipeline.generation, topic))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

//! Where reading a partition starts, and when it must not.

use crate::{Partition, TopicId};
use std::fmt;

/// Where a pipeline starts while its table holds no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPolicy {
    /// The oldest record that the broker still has.
    Earliest,
    /// Only what arrives from now on.
    Latest,
    /// The first record at or after this time, in milliseconds since the epoch.
    Timestamp(i64),
}

/// The offsets that a broker holds of a partition: `[low, high)`. Under `read_committed`, `high`
/// is the last stable offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    pub low: i64,
    pub high: i64,
}

/// What a stored position means against a broker's watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Read from this offset.
    At(i64),
    /// No position is stored: the start policy chooses.
    Choose,
    /// The broker no longer has the offsets `[stored, low)`.
    Lost { stored: i64, low: i64 },
    /// The broker has never had the stored position: the topic was made anew.
    Beyond { stored: i64, high: i64 },
}

/// How to resume a partition whose stored position is `stored`.
pub fn resume(stored: Option<i64>, watermarks: Watermarks) -> Resume {
    match stored {
        None => Resume::Choose,
        Some(stored) if stored < watermarks.low => Resume::Lost { stored, low: watermarks.low },
        Some(stored) if stored > watermarks.high => Resume::Beyond { stored, high: watermarks.high },
        Some(stored) => Resume::At(stored),
    }
}

/// A partition that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The next offset to take.
    pub next: i64,
    /// Whether the table held no position when reading began, so that none may stand for the start of
    /// the first span.
    pub was_absent: bool,
}

impl Cursor {
    /// At a stored position.
    pub fn at(next: i64) -> Self {
        Self { next, was_absent: false }
    }

    /// Where a partition without a stored position begins; `None` when the policy's choice must be
    /// committed first: a crash before the first flush would choose anew, and lose what arrived in
    /// between. With `others`, the pipeline has positions: a partition added later starts at its
    /// beginning, whatever the policy. The beginning needs no commit: it is the same for everybody.
    pub fn begin(policy: StartPolicy, others: bool, watermarks: Watermarks) -> Option<Self> {
        (others || policy == StartPolicy::Earliest).then_some(Self { next: watermarks.low, was_absent: true })
    }
}

/// Whether positions of topic `stored` may be read on in the topic that the broker has now. Ids are
/// never given twice: what was the same topic before and after was the same all the time between.
/// Unknown ids are taken on trust.
pub fn same_topic(topic: &str, stored: Option<&TopicId>, found: Option<&TopicId>) -> Result<(), PositionError> {
    match (stored, found) {
        (Some(stored), Some(found)) if stored != found => {
            Err(PositionError::Replaced { topic: topic.to_owned(), stored: stored.clone(), found: found.clone() })
        }
        _ => Ok(()),
    }
}

/// Stored data and broker do not fit together: going on would lose or double records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    #[error("partition {partition}: offsets {stored} to {} are lost: the table is at offset {stored}, but the broker's oldest is {low}", low - 1)]
    Lost { partition: Partition, stored: i64, low: i64 },
    #[error(
        "partition {partition}: the table is at offset {stored}, but the broker's newest position is {high}: the broker lost records, or the topic was created anew"
    )]
    Beyond { partition: Partition, stored: i64, high: i64 },
    #[error(
        "topic {topic} was created anew: the positions so far are those of the topic with id {stored}, but the broker's has id {found}"
    )]
    Replaced { topic: String, stored: TopicId, found: TopicId },
}

impl fmt::Display for StartPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Earliest => f.write_str("earliest"),
            Self::Latest => f.write_str("latest"),
            Self::Timestamp(ms) => write!(f, "timestamp {ms}"),
        }
    }
}

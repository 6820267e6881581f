//! What fails in the simulated world.

use alluvium_core::{Classified, ErrorClass, Partition};

#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error("{what} fails for now")]
    Passing { what: &'static str },
    #[error("position {position} of partition {partition} is not there")]
    PositionGone { partition: Partition, position: i64 },
    #[error("partition {partition} is missing")]
    PartitionMissing { partition: Partition },
    #[error("the source is closed")]
    Closed,
    #[error("rows cannot be put together")]
    Rows(#[source] arrow_schema::ArrowError),
    #[error("the letters that a log owes are named by no entry")]
    LettersGone,
}

impl Classified for SimError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Passing { .. } => ErrorClass::External,
            Self::PositionGone { .. } | Self::PartitionMissing { .. } => ErrorClass::User,
            Self::Closed | Self::Rows(_) | Self::LettersGone => ErrorClass::Bug,
        }
    }
}

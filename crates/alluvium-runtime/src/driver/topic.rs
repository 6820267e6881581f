//! Whether the topic is still the one that the positions belong to.
//!
//! Offsets alone cannot tell: in a topic that was deleted and made anew with more records than were
//! read, every position looks good. Its id does. It is asked for before anything is read, at every
//! assignment, before every commit (after the last record of the flush was read), and now and then.

use super::{Driver, Duration, Instant};
use crate::error::Error;
use alluvium_core::position::same_topic;
use alluvium_core::seam::{Source, Table, TableState};
use alluvium_core::{Fault, TopicId};

/// Between looks at the id of a topic of which nothing is flushed: one that was made anew with no
/// more records than were read sends none.
const LOOK: Duration = Duration::from_secs(5);

impl<S: Source, T: Table> Driver<S, T> {
    /// Asks for the topic's id, which must be the one known. A start does not wait for brokers.
    pub(super) async fn identify(&mut self) -> Result<(), Error> {
        let found = self.source.topic_id().await.map_err(|error| Error::Source(Fault::new(error)))?;
        self.looked(found)
    }

    /// The same while running, with what the table has by now.
    pub(super) async fn identify_with(&mut self, state: &TableState) -> Result<(), Error> {
        same_topic(&self.pipeline.source.topic, state.topic_id.as_ref(), self.topic_id.as_ref())?;
        self.topic_id = self.topic_id.take().or_else(|| state.topic_id.clone());
        let found = self.ask(|| self.source.topic_id()).await?;
        self.looked(found)
    }

    /// Takes in the answer to such a question.
    pub(super) fn looked(&mut self, found: Option<TopicId>) -> Result<(), Error> {
        self.next_id_look = Instant::now() + LOOK;
        same_topic(&self.pipeline.source.topic, self.topic_id.as_ref(), found.as_ref())?;
        self.topic_id = found.or(self.topic_id.take());
        Ok(())
    }

    /// Starts a look when one is due.
    pub(super) fn look(&mut self) {
        if self.look.is_none() && self.under_way.is_none() && Instant::now() >= self.next_id_look {
            self.look = Some(tokio::spawn(self.source.topic_id()));
        }
    }
}

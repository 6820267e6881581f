//! Partitions that come and go, and where reading them starts.

use super::flush::{commit, full};
use super::{Assigned, Driver, Instant, LOOK, Leaving, REVOKE_GRACE, Sample, Unflushed};
use crate::error::Error;
use crate::worker::Job;
use alluvium_config::LostData;
use alluvium_core::position::{Cursor, PositionError, Resume, StartPolicy, Watermarks, resume};
use alluvium_core::seam::{Ack, Flush, Source, Table, TableState};
use alluvium_core::{
    Classified, CommitInfo, CommitKind, Counts, Edge, ErrorClass, Fault, Partition, PartitionProgress, PipelineId, Span,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often the table or the broker is asked before giving up, with waits that double.
const TRIES: u32 = 8;
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How many errors of the source in a row `until_end` waits out; one comes every half minute.
const TROUBLES: u32 = 10;

impl<S: Source, T: Table> Driver<S, T> {
    pub(super) async fn assign(
        &mut self,
        partitions: &[Partition],
        ack: Ack<Vec<(Partition, i64)>>,
    ) -> Result<(), Error> {
        let mut state = self.load().await?;
        self.identify_with(&state).await?;
        let mut starts = Vec::new();
        for partition in partitions {
            let cursor = self.start(*partition, &mut state).await?;
            self.assigned.insert(*partition, Assigned { cursor, worker: self.idlest_worker(), fresh: true });
            starts.push((*partition, cursor.next));
        }
        let pipeline = &self.pipeline.id;
        tracing::info!(%pipeline, positions = ?starts.iter().map(|(p, at)| (p.0, *at)).collect::<Vec<_>>(), "assigned");
        self.hook.before(Edge::Assign);
        ack.send(starts);
        self.hook.after(Edge::Assign);
        Ok(())
    }

    /// Commits what was read before a rebalance takes partitions away; lost ones take all unflushed
    /// work with them, since a flush is committed as a whole.
    pub(super) async fn revoke(&mut self, partitions: Vec<Partition>, lost: bool, ack: Ack<()>) -> Result<(), Error> {
        tracing::info!(pipeline = %self.pipeline.id, partitions = ?partitions.iter().map(|p| p.0).collect::<Vec<_>>(), lost, "revoked");
        if lost {
            self.assigned.retain(|partition, _| !partitions.contains(partition));
            self.give_back(ack);
            return self.reset().await;
        }
        self.leaving = Some(Leaving::Revoked { partitions, ack, until: Instant::now() + REVOKE_GRACE });
        Ok(())
    }

    pub(super) async fn finish_revoke(&mut self, expired: bool) -> Result<(), Error> {
        let Some(Leaving::Revoked { partitions, ack, .. }) = self.leaving.take() else { return Ok(()) };
        self.assigned.retain(|partition, _| !partitions.contains(partition));
        self.give_back(ack);
        if expired { self.reset().await } else { Ok(()) }
    }

    pub(super) fn give_back(&self, ack: Ack<()>) {
        self.hook.before(Edge::Revoke);
        ack.send(());
        self.hook.after(Edge::Revoke);
    }

    /// Drops all that is not committed, and reads on from the table's positions as soon as a flush under
    /// way is settled: its outcome is in the table, whatever it is.
    pub(super) async fn reset(&mut self) -> Result<(), Error> {
        for worker in &self.workers {
            worker.send(Job::Reset);
        }
        self.sample = Sample::default();
        self.unflushed = Unflushed { under_way: self.unflushed.under_way, ..Unflushed::default() };
        self.resetting = true;
        if self.under_way.is_none() { self.restart().await } else { Ok(()) }
    }

    /// Reads on from the table's positions.
    pub(super) async fn restart(&mut self) -> Result<(), Error> {
        self.resetting = false;
        let mut state = self.load().await?;
        self.planner.reload(&state)?;
        if self.assigned.is_empty() {
            return Ok(());
        }
        self.identify_with(&state).await?;
        let partitions: Vec<_> = self.assigned.keys().copied().collect();
        let mut positions = Vec::new();
        for partition in partitions {
            let cursor = self.start(partition, &mut state).await?;
            positions.push((partition, cursor.next));
            if let Some(assigned) = self.assigned.get_mut(&partition) {
                assigned.cursor = cursor;
            }
        }
        self.source.seek(&positions).map_err(|error| Error::Source(Fault::new(error)))
    }

    /// An error of the source. What passes by itself is waited for, since the topic had been reached; a
    /// position that the broker has dropped meanwhile is treated as at a start.
    pub(super) async fn trouble(&mut self, error: Error) -> Result<(), Error> {
        if error.class() == ErrorClass::Bug {
            return Err(error);
        }
        let partitions: Vec<_> =
            self.assigned.iter().map(|(partition, assigned)| (*partition, assigned.cursor.next)).collect();
        for (partition, next) in partitions {
            let asked = match error.class() {
                // The brokers may be gone: then that is what the source told.
                ErrorClass::External => self.source.watermarks(partition).await.ok(),
                _ => Some(self.watermarks(partition).await?),
            };
            match asked {
                Some(watermarks) if !matches!(resume(Some(next), watermarks), Resume::At(_)) => {
                    return self.reset().await;
                }
                Some(_) => {}
                None => break,
            }
        }
        self.troubles += 1;
        // A run that is to end does not wait for ever.
        if error.class() != ErrorClass::External || (self.options.until_end && self.troubles > TROUBLES) {
            return Err(error);
        }
        tracing::warn!(pipeline = %self.pipeline.id, cause = full(&error), "reading fails for now: it goes on by itself");
        Ok(())
    }

    /// Where a partition starts: at the table's position, or where the start policy says.
    async fn start(&mut self, partition: Partition, state: &mut TableState) -> Result<Cursor, Error> {
        let watermarks = self.watermarks(partition).await?;
        match resume(position(state, partition), watermarks) {
            Resume::At(next) => Ok(Cursor::at(next)),
            Resume::Lost { stored, low } => match self.pipeline.source.lost_data {
                LostData::Skip => self.skip(partition, stored, low).await,
                _ => Err(PositionError::Lost { partition, stored, low }.into()),
            },
            Resume::Beyond { stored, high } => Err(PositionError::Beyond { partition, stored, high }.into()),
            Resume::Choose => {
                let policy = self.pipeline.source.start;
                match Cursor::begin(policy, !state.positions.is_empty(), watermarks) {
                    Some(cursor) => Ok(cursor),
                    None => self.choose(partition, state, policy).await,
                }
            }
        }
    }

    /// Commits the start of every partition before the first record is read: a crash before the first
    /// flush would otherwise choose anew, and lose what arrived in between.
    async fn choose(
        &mut self,
        partition: Partition,
        state: &mut TableState,
        policy: StartPolicy,
    ) -> Result<Cursor, Error> {
        let mut partitions = Vec::new();
        for partition in self.ask(|| self.source.partitions()).await? {
            let at = match policy {
                StartPolicy::Earliest => self.watermarks(partition).await?.low,
                StartPolicy::Latest => self.watermarks(partition).await?.high,
                StartPolicy::Timestamp(timestamp) => self.ask(|| self.source.offset_at(partition, timestamp)).await?,
            };
            partitions.push(PartitionProgress { partition, span: Span::empty(at), counts: Counts::default() });
        }
        let info = CommitInfo { partitions, ..self.info(CommitKind::Start) };
        let absent = info.partitions.iter().map(|progress| progress.partition).collect();
        self.commit_positions(info, absent).await?;
        *state = self.load().await?;
        match position(state, partition) {
            Some(next) => Ok(Cursor::at(next)),
            None => Ok(Cursor { next: self.watermarks(partition).await?.low, was_absent: true }),
        }
    }

    /// Records in the log that offsets are passed over on the owner's word.
    async fn skip(&mut self, partition: Partition, stored: i64, low: i64) -> Result<Cursor, Error> {
        let span = Span::new(stored, low).map_err(|_| PositionError::Lost { partition, stored, low })?;
        let progress = PartitionProgress { partition, span, counts: Counts::default() };
        let info = CommitInfo { partitions: vec![progress], ..self.info(CommitKind::Skip) };
        let pipeline = &self.pipeline.id;
        tracing::warn!(%pipeline, %partition, %span, "lost offsets are skipped, as the pipeline file says");
        self.commit_positions(info, BTreeSet::new()).await?;
        let next = position(&self.load().await?, partition).unwrap_or(low);
        Ok(Cursor::at(next))
    }

    /// Commits positions without rows. Fenced or not, the table then says where to go on.
    async fn commit_positions(&self, info: CommitInfo, absent: BTreeSet<Partition>) -> Result<(), Error> {
        let schema = self.planner.committable();
        let mut flush = Flush { info, schema, files: Vec::new(), dead_letters: Vec::new(), absent };
        commit(self.table.as_ref(), &mut flush).await.map(drop)
    }

    async fn watermarks(&self, partition: Partition) -> Result<Watermarks, Error> {
        self.ask(|| self.source.watermarks(partition)).await
    }

    /// Asks the source; while the brokers are away, as long as the run may wait.
    pub(super) async fn ask<A, F: Future<Output = Result<A, S::Error>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<A, Error> {
        let tries = if self.options.until_end { TRIES } else { u32::MAX };
        patiently(&self.pipeline.id, tries, ask).await.map_err(|error| Error::Source(Fault::new(error)))
    }

    async fn load(&self) -> Result<TableState, Error> {
        patiently(&self.pipeline.id, TRIES, || self.table.load()).await.map_err(|error| Error::Load(Fault::new(error)))
    }
}

/// Asks until there is an answer, as long as the outside is at fault and there are tries left.
async fn patiently<T, E: Classified, F: Future<Output = Result<T, E>>>(
    pipeline: &PipelineId,
    most: u32,
    ask: impl Fn() -> F,
) -> Result<T, E> {
    let mut wait = Duration::from_millis(100);
    for tries in 1..most {
        match ask().await {
            Err(error) if error.class() == ErrorClass::External => {
                tracing::warn!(%pipeline, tries, cause = full(&error), "there was no answer: it is asked again");
            }
            answer => return answer,
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
    ask().await
}

// The end of a topic, for `until_end`.
impl<S: Source, T: Table> Driver<S, T> {
    /// Notes where each partition ends now. A position that does not fit the broker is told here too:
    /// one beyond the end would look as if everything had been read.
    pub(super) async fn find_ends(&mut self) -> Result<(), Error> {
        let partitions = self.source.partitions().await.map_err(|error| Error::Source(Fault::new(error)))?;
        let state = self.load().await?;
        for partition in partitions {
            let watermarks = self.watermarks(partition).await?;
            if let Resume::Beyond { stored, high } = resume(position(&state, partition), watermarks) {
                return Err(PositionError::Beyond { partition, stored, high }.into());
            }
            self.ends.insert(partition, watermarks.high);
            // An empty partition is at its end before anybody reads it.
            self.lows.insert(partition, watermarks.low);
        }
        Ok(())
    }

    /// Whether partitions that other processes read are at their ends too, by the table.
    pub(super) async fn others_are_at_ends(&mut self) -> Result<bool, Error> {
        let others = |driver: &Self| -> Vec<_> {
            driver
                .ends
                .iter()
                .filter(|(partition, _)| !driver.assigned.contains_key(partition))
                .map(|(p, e)| (*p, *e))
                .collect()
        };
        if others(self).is_empty() {
            return Ok(true);
        }
        if Instant::now() < self.next_look {
            return Ok(false);
        }
        self.next_look = Instant::now() + LOOK;
        let state = self.load().await?;
        let at = |partition| position(&state, partition).or_else(|| self.lows.get(&partition).copied());
        Ok(others(self).into_iter().all(|(partition, end)| at(partition).is_some_and(|at| at >= end)))
    }
}

fn position(state: &TableState, partition: Partition) -> Option<i64> {
    state.positions.iter().find(|(found, _)| *found == partition).map(|(_, at)| *at)
}

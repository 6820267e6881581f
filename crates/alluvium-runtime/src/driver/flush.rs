//! Flushes: what the workers made, committed at once.

use super::{Driver, Flushed, Instant, Unflushed};
use crate::budget::Charge;
use crate::error::Error;
use crate::layout::joined;
use crate::worker::{Job, Share};
use alluvium_core::position::same_topic;
use alluvium_core::seam::{Flush, Outcome, Source, Table};
use alluvium_core::{Classified, CommitKind, Counts, Edge, ErrorClass, Fault, Partition, PartitionProgress, Span};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often a failed commit is tried, with waits that double.
const TRIES: u32 = 12;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl<S: Source, T: Table> Driver<S, T> {
    pub(super) fn is_flush_due(&self) -> bool {
        let Some(since) = self.unflushed.since else { return false };
        if self.under_way.is_some() || self.resetting {
            return false;
        }
        let flush = &self.pipeline.flush;
        self.unflushed.records >= flush.rows
            || since.elapsed() >= self.interval(self.unflushed.fresh)
            || self.open.is_spent()
            || self.budget.used() >= self.budget.limit() / 2
            || (self.is_ending() && self.sample.chunks.is_empty())
    }

    /// Asks every worker for its share, and commits them all in a task of its own. Chunks handed out
    /// later belong to the next flush.
    pub(super) fn start_flush(&mut self) {
        self.unflushed = Unflushed { under_way: self.unflushed.records, ..Unflushed::default() };
        let mut shares = Vec::new();
        for worker in &self.workers {
            let (answer, share) = oneshot::channel();
            worker.send(Job::Flush(answer));
            shares.push(share);
        }
        let info = self.info(CommitKind::Rows);
        let topic_id = self.source.topic_id();
        let absent = self.assigned.iter().filter(|(_, assigned)| assigned.cursor.was_absent);
        let absent = absent.map(|(partition, _)| *partition).collect();
        let schema = self.planner.committable();
        let table = self.table.clone();
        self.under_way = Some(tokio::spawn(async move {
            let mut gathered = Gathered::default();
            for share in shares {
                let share = share.await.map_err(|_| Error::Worker { message: "a worker ended early".to_owned() })?;
                gathered.add(share?);
            }
            let Gathered { files, progress, dead_letters, plan, charges, schema: widest } = gathered;
            let progress: Vec<PartitionProgress> = progress
                .into_iter()
                .filter(|(_, (span, _))| !span.is_empty())
                .map(|(partition, (span, counts))| PartitionProgress { partition, span, counts })
                .collect();
            if progress.is_empty() {
                return Ok(Flushed::Nothing);
            }
            // Asked only now, after the last record was read: if the topic is the same, all of them are its.
            match topic_id.await {
                Ok(found) => same_topic(&info.topic, info.topic_id.as_ref(), found.as_ref())?,
                Err(error) if error.class() == ErrorClass::External => {
                    return Ok(Flushed::Unidentified(Fault::new(error)));
                }
                Err(error) => return Err(Error::Source(Fault::new(error))),
            }
            let info = alluvium_core::CommitInfo { partitions: progress.clone(), plan, ..info };
            // The newest plan holds the columns of all older ones.
            let schema = widest.filter(|_| !files.is_empty()).unwrap_or(schema);
            let mut flush = Flush { info, schema, files, dead_letters, absent };
            let (outcome, tries) = commit(table.as_ref(), &mut flush).await?;
            drop(charges);
            // What is there before a first try was not made by us.
            let own = outcome != Outcome::AlreadyCommitted || tries > 1;
            Ok(Flushed::Settled { outcome, own, progress })
        }));
    }

    /// Goes on after a flush, or drops all work that builds on what did not hold.
    pub(super) async fn settle(&mut self, flushed: Flushed) -> Result<(), Error> {
        self.unflushed.under_way = 0;
        let pipeline = &self.pipeline.id;
        let (outcome, own, progress) = match flushed {
            Flushed::Nothing if self.resetting => return self.restart().await,
            Flushed::Nothing => return Ok(()),
            Flushed::Unidentified(error) => {
                let cause = full(&error);
                tracing::warn!(%pipeline, cause, "the topic's id cannot be asked: the flush is dropped, and read again");
                return self.reset().await;
            }
            Flushed::Settled { outcome, own, progress } => (outcome, own, progress),
        };
        let version = match &outcome {
            Outcome::Committed { version } => Some(*version),
            Outcome::AlreadyCommitted => None,
            Outcome::Fenced { found } => {
                self.stats.fence();
                tracing::warn!(
                    %pipeline,
                    ?found,
                    "another process moved this pipeline's positions: the flush is dropped, reading goes on from there"
                );
                None
            }
            Outcome::SchemaMoved { column } => {
                tracing::info!(%pipeline, column, "the table's schema changed under a flush: it is read and planned anew");
                self.misfits += 1;
                if self.misfits > MOST_MISFITS {
                    return Err(Error::Misfit { column: column.clone(), times: MOST_MISFITS });
                }
                None
            }
        };
        if !outcome.holds() {
            return self.reset().await;
        }
        self.misfits = 0;
        let mut counts = Counts::default();
        let mut positions = Vec::new();
        for progress in &progress {
            counts += progress.counts;
            positions.push((progress.partition, progress.span.to()));
            if let Some(assigned) = self.assigned.get_mut(&progress.partition) {
                assigned.cursor.was_absent = false;
            }
        }
        if own {
            self.stats.commit(counts, version, Instant::now().into_std());
        }
        tracing::info!(pipeline = %self.pipeline.id, version, read = counts.read, rows = counts.rows, "committed");
        self.hook.before(Edge::Offsets);
        self.source.publish(&positions);
        self.hook.after(Edge::Offsets);
        if self.resetting {
            return self.restart().await;
        }
        // A column that the owner has approved, or that another process added, is filled from here on.
        let is_behind = |schema: arrow_schema::SchemaRef| self.planner.is_behind(&schema);
        if self.leaving.is_none() && self.table.known_schema().is_some_and(is_behind) {
            tracing::info!(pipeline = %self.pipeline.id, "the table has new columns: it is planned anew, and read on from its positions");
            return self.reset().await;
        }
        Ok(())
    }
}

/// How often in a row a flush is planned anew since the table changed: others change it now and then, not all
/// the time.
const MOST_MISFITS: u32 = 20;

/// The workers' shares of one flush, put together.
struct Gathered<F> {
    files: Vec<F>,
    progress: BTreeMap<Partition, (Span, Counts)>,
    dead_letters: Vec<alluvium_core::DeadLetter>,
    schema: Option<arrow_schema::SchemaRef>,
    plan: Option<String>,
    charges: Vec<Charge>,
}

impl<F> Default for Gathered<F> {
    fn default() -> Self {
        let (progress, charges) = (BTreeMap::new(), Vec::new());
        Self { files: Vec::new(), progress, dead_letters: Vec::new(), schema: None, plan: None, charges }
    }
}

impl<F> Gathered<F> {
    /// A partition's chunks all went to one worker, so no two shares speak of the same one.
    fn add(&mut self, share: Share<F>) {
        self.files.extend(share.files);
        self.progress.extend(share.progress);
        self.dead_letters.extend(share.dead_letters);
        self.charges.extend(share.charges);
        let Some(schema) = share.schema else { return };
        let all = self.schema.as_ref().map_or_else(|| schema.clone(), |all| joined(all, &schema));
        // The plan that is told is one of those whose columns are all.
        if self.plan.is_none() || self.schema.as_ref() != Some(&all) {
            self.plan = share.plan;
        }
        self.schema = Some(all);
    }
}

/// Commits a flush, trying again while the outside is at fault; the outcome, and how many tries it took.
pub(super) async fn commit<T: Table>(table: &T, flush: &mut Flush<T::File>) -> Result<(Outcome, u32), Error> {
    let rows = flush.info.partitions.iter().map(|progress| progress.counts.rows).sum();
    let mut wait = FIRST_WAIT;
    for tries in 1.. {
        match table.commit(flush).await {
            Ok(outcome) => return Ok((outcome, tries)),
            Err(error) if error.class() == ErrorClass::External && tries < TRIES => {
                let cause = full(&error);
                tracing::warn!(
                    pipeline = flush.info.pipeline,
                    tries,
                    ?wait,
                    cause,
                    "a commit failed: it is tried again"
                );
            }
            Err(source) => return Err(Error::Commit { rows, tries, source: Fault::new(source) }),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
    Err(Error::Worker { message: "a commit was tried without end".to_owned() })
}

/// An error with all its causes.
pub(super) fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

//! A worker owns chunks from bytes to encoded files, on a thread of its own.

use crate::budget::{Budget, Charge};
use crate::driver::Compute;
use crate::error::Error;
use crate::layout::joined;
use crate::stages::Stages;
use alluvium_core::seam::{RowWriter, Table};
use alluvium_core::{Chunk, Counts, DeadLetter, Edge, Fault, Partition, Span};
use arrow_schema::SchemaRef;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Chunks that may wait for each worker, on average: enough to keep it busy, few enough to answer a
/// flush soon.
pub(crate) const QUEUE: usize = 4;

#[expect(clippy::large_enum_variant, reason = "almost every job is a chunk: boxing it would gain nothing")]
pub(crate) enum Job<F> {
    /// With its place among the chunks that may wait, if it has one.
    Chunk(Chunk, Charge, Option<OwnedSemaphorePermit>),
    /// Hand over all that was made since the last one.
    Flush(oneshot::Sender<Result<Share<F>, Error>>),
    /// Drop all that was made since the last flush.
    Reset,
}

/// A worker's share of a flush.
#[derive(Debug)]
pub(crate) struct Share<F> {
    pub files: Vec<F>,
    pub progress: BTreeMap<Partition, (Span, Counts)>,
    pub dead_letters: Vec<DeadLetter>,
    /// What all the rows need; `None` when there was no chunk.
    pub schema: Option<SchemaRef>,
    /// The plan of the newest rows.
    pub plan: Option<String>,
    pub charges: Vec<Charge>,
}

impl<F> Default for Share<F> {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            progress: BTreeMap::new(),
            dead_letters: Vec::new(),
            schema: None,
            plan: None,
            charges: Vec::new(),
        }
    }
}

/// The driver's end of a worker. Nothing waits here: the driver bounds the chunks that it hands out.
pub(crate) struct Worker<F> {
    jobs: mpsc::UnboundedSender<Job<F>>,
}

impl<F: Send + 'static> Worker<F> {
    /// Starts a worker, which charges what it holds to the budgets of all bytes and of open files. Its
    /// first error goes to `faults`, after which it does nothing more.
    pub fn start<T: Table<File = F>>(
        name: &str,
        compute: &Compute,
        table: Arc<T>,
        stages: Stages,
        [budget, open]: [Budget; 2],
        faults: mpsc::UnboundedSender<Error>,
    ) -> Result<Self, Error> {
        let (jobs, mut queue) = mpsc::unbounded_channel();
        let charges = [budget.charge(0), open.charge(0)];
        let mut state = State { table, stages, charges, budget, writer: None, share: Share::default(), letters: 0 };
        // The driver is gone when nobody listens.
        let tell = move |error| drop(faults.send(error));
        match compute {
            Compute::Threads => {
                let work = move || while queue.blocking_recv().is_some_and(|job| state.work(job, &tell)) {};
                std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(Error::Thread)?;
            }
            Compute::Inline(pace) => {
                let pace = pace.clone();
                tokio::spawn(async move {
                    while let Some(job) = queue.recv().await {
                        tokio::time::sleep(pace()).await;
                        if !state.work(job, &tell) {
                            return;
                        }
                    }
                });
            }
        }
        Ok(Self { jobs })
    }

    /// Puts a job behind those before. A worker that has ended told why through its `faults`.
    pub fn send(&self, job: Job<F>) {
        drop(self.jobs.send(job));
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("unknown").to_owned()
}

struct State<T: Table> {
    table: Arc<T>,
    stages: Stages,
    budget: Budget,
    writer: Option<(SchemaRef, T::Writer)>,
    share: Share<T::File>,
    /// The bytes of the share's dead letters.
    letters: usize,
    /// The bytes held by the open writer and the dead letters, charged to both budgets.
    charges: [Charge; 2],
}

impl<T: Table> State<T> {
    /// Does a job; false after an error, which is told. A fault of ours must end this pipeline with an
    /// error, not the process.
    fn work(&mut self, job: Job<T::File>, tell: &impl Fn(Error)) -> bool {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.job(job)));
        let error = match done {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error,
            Err(panic) => Error::Worker { message: panic_message(panic.as_ref()) },
        };
        tell(error);
        false
    }

    fn job(&mut self, job: Job<T::File>) -> Result<(), Error> {
        match job {
            Job::Chunk(chunk, charge, place) => {
                let done = self.chunk(&chunk);
                drop((charge, place));
                done
            }
            Job::Flush(answer) => {
                let share = self.hand_over();
                // The driver stopped waiting when nobody listens.
                let _gone = answer.send(share).is_err();
                Ok(())
            }
            Job::Reset => {
                self.writer = None;
                self.share = Share::default();
                self.letters = 0;
                self.charge(0);
                Ok(())
            }
        }
    }

    fn chunk(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let processed = self.stages.process(chunk)?;
        let (partition, span) = (chunk.partition(), chunk.span());
        let encode = |source| Error::Encode { partition, span, source: Fault::new(source) };
        let schema = processed.layout.schema();
        if processed.batch.num_rows() > 0 {
            // A grown plan begins a new file; readers fill the older ones' missing columns with nulls.
            if self.writer.as_ref().is_some_and(|(open, _)| open != schema) {
                self.close().map_err(encode)?;
            }
            if self.writer.is_none() {
                self.writer = Some((schema.clone(), self.table.writer(schema.clone()).map_err(encode)?));
            }
            if let Some((_, writer)) = &mut self.writer {
                writer.write(&processed.batch).map_err(encode)?;
            }
        }
        self.account(chunk, processed.counts)?;
        let all = self.share.schema.as_ref().map_or_else(|| schema.clone(), |all| joined(all, schema));
        self.share.schema = Some(all);
        self.share.plan = Some(processed.layout.plan_digest().to_owned());
        self.letters += processed.dead_letters.iter().map(DeadLetter::memory).sum::<usize>();
        self.share.dead_letters.extend(processed.dead_letters);
        self.charge(self.writer.as_ref().map_or(0, |(_, writer)| writer.memory()) + self.letters);
        Ok(())
    }

    fn charge(&mut self, bytes: usize) {
        self.charges.iter_mut().for_each(|charge| charge.resize(bytes));
    }

    fn account(&mut self, chunk: &Chunk, counts: Counts) -> Result<(), Error> {
        let (partition, second) = (chunk.partition(), chunk.span());
        let start = (Span::empty(second.from()), Counts::default());
        let (span, sum) = self.share.progress.entry(partition).or_insert(start);
        *span = span.join(second).map_err(|_| Error::Disjoint { partition, first: *span, second })?;
        *sum += counts;
        Ok(())
    }

    /// Finishes the open files; their bytes stay charged until they are committed.
    fn close(&mut self) -> Result<(), T::Error> {
        if let Some((_, writer)) = self.writer.take() {
            let bytes = writer.memory();
            self.stages.hook.before(Edge::FileClose);
            self.share.files.extend(writer.finish()?);
            self.stages.hook.after(Edge::FileClose);
            self.share.charges.push(self.budget.charge(bytes));
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<Share<T::File>, Error> {
        let (partition, span) =
            self.share.progress.first_key_value().map_or((Partition(0), Span::empty(0)), |(p, (span, _))| (*p, *span));
        self.close().map_err(|source| Error::Encode { partition, span, source: Fault::new(source) })?;
        self.share.charges.push(self.budget.charge(std::mem::take(&mut self.letters)));
        self.charge(0);
        Ok(std::mem::take(&mut self.share))
    }
}

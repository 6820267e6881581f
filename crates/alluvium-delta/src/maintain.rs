//! Checkpoints and the cleanup behind them: beside the commits, and never a commit's failure.

use crate::actions::now_ms;
use crate::engine::Wait;
use crate::error::{Error, Source};
use crate::load::{LogState, on_snapshot};
use crate::protocol::is_true;
use crate::store::TableStore;
use crate::thread::Thread;
use crate::{checkpoint, cleanup};
use alluvium_core::{Edge, Hook};
use buoyant_kernel::Snapshot;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Commits between checkpoints, unless `delta.checkpointInterval` says otherwise.
const INTERVAL: u64 = 100;
/// How long log entries are kept, unless `delta.logRetentionDuration` says otherwise.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// The maintenance of one table; one run at a time.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    thread: Thread,
    /// One above the newest version at which a checkpoint was made or tried; 0 for none.
    tried: Arc<AtomicU64>,
    running: Mutex<Option<JoinHandle<()>>>,
}

impl Maintenance {
    /// Maintenance that is done on a thread.
    pub(crate) fn on(thread: &Thread) -> Self {
        Self { thread: thread.clone(), ..Self::default() }
    }

    /// Starts a run when one is due after a commit. A failure is a warning; the next run comes an
    /// interval later.
    pub(crate) fn after_commit(&self, store: &TableStore, state: &LogState, hook: &Hook) {
        let known = state.checkpoint.map_or(0, |version| version + 1);
        let since = known.max(self.tried.load(Ordering::Relaxed));
        if (state.version + 1).saturating_sub(since) < interval(state) {
            return;
        }
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().is_some_and(|run| !run.is_finished()) {
            return;
        }
        self.tried.store(state.version + 1, Ordering::Relaxed);
        let (store, thread, hook) = (store.clone(), self.thread.clone(), hook.clone());
        *running = Some(tokio::spawn(async move {
            if let Err(error) = maintain(&store, &thread, &hook).await {
                tracing::warn!(table = %store.name, error = &error as &dyn std::error::Error, "maintenance failed");
            }
        }));
    }

    /// Waits for a run that is under way.
    pub(crate) async fn finish(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = match running {
            Some(run) => Some(run.await),
            None => None,
        } {
            tracing::warn!(%error, "maintenance did not end");
        }
    }
}

fn interval(state: &LogState) -> u64 {
    let wished = state.metadata.property("delta.checkpointInterval").and_then(|text| text.trim().parse().ok());
    wished.filter(|interval| *interval > 0).unwrap_or(INTERVAL)
}

/// Writes a checkpoint at the newest version, and removes entries that it made superfluous and that
/// have passed the table's retention.
pub(crate) async fn maintain(store: &TableStore, thread: &Thread, hook: &Hook) -> Result<(), Error> {
    hook.before(Edge::Checkpoint);
    let here = store.clone();
    let wait = if store.is_on_disk { Wait::Alone } else { Wait::With(Handle::current()) };
    let done = thread.run(move || maintain_log(&here, &wait)).await;
    hook.after(Edge::Checkpoint);
    done.unwrap_or_else(|source| Err(Error::Maintenance { table: store.table(), source }))
}

/// Blocks.
fn maintain_log(store: &TableStore, wait: &Wait) -> Result<(), Error> {
    let failed = |source: Source| Error::Checkpoint { table: store.table(), source };
    let made = on_snapshot(store, None, wait, |snapshot, engine| {
        let written = checkpoint::write(store, &snapshot, engine.as_ref(), wait);
        Ok(written.map(|()| (snapshot.version(), retention(&snapshot))))
    });
    let (version, retention) = made.map_err(|error| failed(error.into()))?.map_err(failed)?;
    tracing::debug!(table = %store.name, version, "checkpoint written");
    if let Some(retention) = retention {
        let cutoff = now_ms().saturating_sub(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX));
        let removed = wait.until(cleanup::clean(store, version, cutoff))?;
        tracing::debug!(table = %store.name, removed, "log entries cleaned up");
    }
    Ok(())
}

/// How long entries are kept; `None` for ever.
fn retention(snapshot: &Snapshot) -> Option<Duration> {
    let configuration = snapshot.table_configuration();
    let wish = configuration.metadata().configuration().get("delta.enableExpiredLogCleanup");
    let features = configuration.protocol().writer_features().into_iter().flatten();
    let is_protected = features.into_iter().any(|feature| feature.as_ref() == "checkpointProtection");
    let is_wanted = wish.is_none_or(|value| is_true(value)) && !is_protected;
    is_wanted.then(|| snapshot.table_properties().log_retention_duration.unwrap_or(RETENTION))
}

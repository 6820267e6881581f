//! Checkpoints and the cleanup behind them: beside the commits, and never a commit's failure.

use crate::actions::now_ms;
use crate::error::Error;
use crate::load::{LogState, with_snapshot};
use crate::protocol::is_true;
use crate::store::TableStore;
use alluvium_core::{Edge, Hook};
use deltalake::checkpoints::cleanup_expired_logs_for;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Commits between checkpoints, unless `delta.checkpointInterval` says otherwise.
const INTERVAL: u64 = 100;
/// How long log entries are kept, unless `delta.logRetentionDuration` says otherwise.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// The maintenance of one table; one run at a time.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    /// One above the newest version at which a checkpoint was made or tried; 0 for none.
    tried: Arc<AtomicU64>,
    running: Mutex<Option<JoinHandle<()>>>,
}

impl Maintenance {
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
        let (store, hook) = (store.clone(), hook.clone());
        *running = Some(tokio::spawn(async move {
            if let Err(error) = maintain(&store, &hook).await {
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
pub(crate) async fn maintain(store: &TableStore, hook: &Hook) -> Result<(), Error> {
    hook.before(Edge::Checkpoint);
    let done = maintain_log(store).await;
    hook.after(Edge::Checkpoint);
    done
}

async fn maintain_log(store: &TableStore) -> Result<(), Error> {
    let made = with_snapshot(store, None, |snapshot, engine| {
        snapshot.checkpoint(engine.as_ref(), None)?;
        let properties = snapshot.table_properties();
        let retention = properties.log_retention_duration.unwrap_or(RETENTION);
        let configuration = snapshot.table_configuration().metadata().configuration().clone();
        let protocol = snapshot.table_configuration().protocol();
        let protected =
            protocol.writer_features().into_iter().flatten().any(|feature| feature.as_ref() == "checkpointProtection");
        let wanted = configuration.get("delta.enableExpiredLogCleanup").is_none_or(|value| is_true(value));
        Ok((snapshot.version(), retention, wanted && !protected))
    });
    let (version, retention, clean) =
        made.await.map_err(|source| Error::Checkpoint { table: store.table(), source: source.into() })?;
    tracing::debug!(table = %store.name, version, "checkpoint written");
    if !clean {
        return Ok(());
    }
    let cutoff = now_ms().saturating_sub(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX));
    let cleaned = cleanup_expired_logs_for(version, store.log.as_ref(), cutoff, None).await;
    let removed = cleaned.map_err(|source| Error::Cleanup { table: store.table(), source: source.into() })?;
    tracing::debug!(table = %store.name, removed, "log entries cleaned up");
    Ok(())
}

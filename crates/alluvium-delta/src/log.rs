//! A table's log as this process knows it, and the one way to add to it.

use crate::actions::{Entry, is_of};
use crate::error::{Error, Source};
use crate::load::{Head, LOG, LogFile, LogState, load};
use crate::store::TableStore;
use bytes::Bytes;
use futures::{TryStreamExt, try_join};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// How long a store may take over one log entry before its outcome counts as unknown.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);
/// Waits before each further try to find out what became of a log entry.
const SETTLE_WAITS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];
/// Further behind than this, a checkpoint is the shorter way.
const MAX_FOLLOWED: u64 = 1000;
/// Well below the retention of log entries, which is 30 days unless the table says otherwise.
const FRESH: Duration = Duration::from_secs(3600);

/// The log of a table; its state is `None` while there is no table.
#[derive(Debug)]
pub(crate) struct TableLog {
    pub store: TableStore,
    prefix: String,
    state: Option<LogState>,
    /// When the state was the newest.
    seen: Option<SystemTime>,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    Landed(u64),
    /// Another writer's entry took the version: judge again.
    Lost,
}

impl TableLog {
    /// A log of which nothing is known yet; positions are those of transactions that start with `prefix`.
    pub(crate) fn new(store: TableStore, prefix: String) -> Self {
        Self { store, prefix, state: None, seen: None }
    }

    pub(crate) fn state(&self) -> Option<&LogState> {
        self.state.as_ref()
    }

    /// Brings the state to the newest version.
    pub(crate) async fn refresh(&mut self) -> Result<(), Error> {
        if !self.follow().await? {
            self.state = load(&self.store, &self.prefix).await?;
        }
        self.seen = Some(SystemTime::now());
        Ok(())
    }

    /// Reads the entries after the known version. False when that is not possible: nothing is
    /// known yet, entries were cleaned up, or another table lies in the known one's place.
    ///
    /// An entry that is missing right after the known one means that there is none, unless it was
    /// cleaned up; so the log is listed unless the known version was the newest a short time ago,
    /// when nothing that came after it can have passed the table's retention.
    async fn follow(&mut self) -> Result<bool, Error> {
        let Some(state) = &mut self.state else { return Ok(false) };
        let elapsed = self.seen.and_then(|seen| seen.elapsed().ok());
        let is_fresh = elapsed.is_some_and(|elapsed| elapsed < FRESH);
        if is_fresh && state.metadata.property("delta.logRetentionDuration").is_none() {
            step(&self.store, state, &self.prefix).await
        } else {
            walk(&self.store, state, &self.prefix).await
        }
    }

    /// Writes the entry that follows the known version, if nobody else has.
    ///
    /// On an error the entry was not written, or (`Error::Unsettled`) may have been; only the
    /// log's newest state can tell. An entry still on its way can land at that one version alone.
    pub(crate) async fn append(&mut self, entry: &Entry) -> Result<Appended, Error> {
        let version = self.state.as_ref().map_or(0, |state| state.version + 1);
        let (path, bytes) = (LogFile::entry(version), PutPayload::from(entry.bytes.clone()));
        let write = self.store.store.put_opts(&path, bytes, PutOptions::from(PutMode::Create));
        let failure: Source = match tokio::time::timeout(WRITE_TIMEOUT, write).await {
            Ok(Ok(_)) => return self.landed(version, entry).await,
            Ok(Err(error)) => error.into(),
            Err(_) => Error::NoAnswer { after: WRITE_TIMEOUT }.into(),
        };
        self.settle(version, entry, failure).await
    }

    /// Finds out what an entry's failed write came to.
    async fn settle(&mut self, version: u64, entry: &Entry, failure: Source) -> Result<Appended, Error> {
        let table = self.store.table();
        let mut waits = SETTLE_WAITS.into_iter();
        let found = loop {
            match (read_entry(&self.store, version).await, waits.next()) {
                (Ok(found), _) => break found.map(|(bytes, _)| bytes),
                (Err(_), Some(wait)) => tokio::time::sleep(wait).await,
                (Err(error), None) => {
                    return Err(Error::Unsettled { table, version, unsettled: error.into(), source: failure });
                }
            }
        };
        match found {
            Some(bytes) if is_of(&bytes, entry.id) => {
                tracing::info!(table, version, %failure, "a log entry landed although its write failed");
                self.landed(version, entry).await
            }
            Some(_) => {
                tracing::debug!(table, version, "another writer's entry took the version: it is judged anew");
                Ok(Appended::Lost)
            }
            None => Err(Error::WriteLog { table, version, source: failure }),
        }
    }

    async fn landed(&mut self, version: u64, entry: &Entry) -> Result<Appended, Error> {
        // A failure to read back what has landed must not hide that it landed: the next refresh tells.
        let known = match &mut self.state {
            Some(state) => state.follow(&self.store.name, version, &entry.bytes, &self.prefix, None),
            None => load(&self.store, &self.prefix).await.map(|state| self.state = state),
        };
        if let Err(error) = known {
            tracing::warn!(table = %self.store.name, version, %error, "cannot read back a log entry just written");
            self.state = None;
        }
        self.seen = Some(SystemTime::now());
        Ok(Appended::Landed(version))
    }
}

/// Follows a log entry by entry until one is missing; false when the known version is gone.
async fn step(store: &TableStore, state: &mut LogState, prefix: &str) -> Result<bool, Error> {
    let (head, mut next) = try_join!(head(store, state.version), read_entry(store, state.version + 1))?;
    let Some(head) = head else { return Ok(false) };
    if state.head.as_ref().is_some_and(|known| !known.is_same(&head)) {
        return Ok(false);
    }
    state.head = Some(head);
    while let Some((entry, head)) = next {
        state.follow(&store.name, state.version + 1, &entry, prefix, Some(head))?;
        next = read_entry(store, state.version + 1).await?;
    }
    Ok(true)
}

/// Follows a log along its listing; false when that leads nowhere.
async fn walk(store: &TableStore, state: &mut LogState, prefix: &str) -> Result<bool, Error> {
    let listed = Listed::from(store, state.version).await?;
    let Some(head) = listed.entries.get(&state.version) else { return Ok(false) };
    if state.head.as_ref().is_some_and(|known| !known.is_same(head)) {
        return Ok(false);
    }
    state.head = Some(head.clone());
    state.checkpoint = state.checkpoint.max(listed.checkpoint);
    let newer = listed.entries.range(state.version + 1..);
    let last = newer.clone().next_back().map_or(state.version, |(version, _)| *version);
    if last - state.version > MAX_FOLLOWED {
        return Ok(false);
    }
    for (version, _) in newer {
        if *version != state.version + 1 {
            return Ok(false);
        }
        let Some((entry, head)) = read_entry(store, *version).await? else { return Ok(false) };
        state.follow(&store.name, *version, &entry, prefix, Some(head))?;
    }
    Ok(true)
}

/// The files of a log from one version on.
struct Listed {
    entries: BTreeMap<u64, Head>,
    checkpoint: Option<u64>,
}

impl Listed {
    async fn from(store: &TableStore, version: u64) -> Result<Self, Error> {
        // Sorts before every file of this version.
        let offset = Path::from_iter([LOG.to_owned(), format!("{version:020}")]);
        let mut files = store.store.list_with_offset(Some(&Path::from(LOG)), &offset);
        let mut listed = Self { entries: BTreeMap::new(), checkpoint: None };
        let list = |source| Error::ListLog { table: store.table(), source };
        while let Some(meta) = files.try_next().await.map_err(list)? {
            match LogFile::parse(&meta.location) {
                Some(LogFile::Entry(version)) => {
                    listed.entries.insert(version, Head::from(&meta));
                }
                Some(LogFile::Checkpoint(version)) => listed.checkpoint = listed.checkpoint.max(Some(version)),
                None => {}
            }
        }
        Ok(listed)
    }
}

/// The log entry of a version, if there is one.
pub(crate) async fn read_entry(store: &TableStore, version: u64) -> Result<Option<(Bytes, Head)>, Error> {
    let failed = |source: object_store::Error| Error::ReadLog { table: store.table(), version, source };
    match store.store.get(&LogFile::entry(version)).await {
        Ok(found) => {
            let head = Head::from(&found.meta);
            Ok(Some((found.bytes().await.map_err(failed)?, head)))
        }
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(source) => Err(failed(source)),
    }
}

async fn head(store: &TableStore, version: u64) -> Result<Option<Head>, Error> {
    match store.store.head(&LogFile::entry(version)).await {
        Ok(meta) => Ok(Some(Head::from(&meta))),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(source) => Err(Error::ReadLog { table: store.table(), version, source }),
    }
}

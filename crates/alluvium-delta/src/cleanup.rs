//! Removing what a checkpoint made superfluous from a log, without a listing of it in memory.

use crate::error::Error;
use crate::load::{LOG, LogFile};
use crate::store::TableStore;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

/// Removes log entries and checkpoints that were last modified before `cutoff`, in milliseconds, and that
/// neither version `newest` nor any younger version needs; how many.
///
/// A version is as old as its entry's file. All younger than the cutoff can be read afterwards, and so can
/// all after them; what is removed comes before the checkpoint that they start from.
pub(crate) async fn clean(store: &TableStore, newest: u64, cutoff: i64) -> Result<u64, Error> {
    let failed = |source: object_store::Error| Error::Cleanup { table: store.table(), source: source.into() };
    let mut log = Log::new(newest, cutoff);
    let mut files = list(store);
    while let Some((file, meta)) = files.try_next().await.map_err(failed)? {
        log.see(&file, &meta);
    }
    let Some(first) = log.first_needed() else { return Ok(0) };
    let superfluous = list(store).try_filter_map(move |(file, meta)| async move {
        Ok((file.version() < first && is_expired(&meta, cutoff)).then_some(meta.location))
    });
    let mut removals = store.store.delete_stream(superfluous.boxed());
    let mut removed = 0;
    while let Some(removal) = removals.next().await {
        match removal {
            Ok(_) => removed += 1,
            // Another writer cleans up as well.
            Err(object_store::Error::NotFound { .. }) => {}
            Err(source) => return Err(failed(source)),
        }
    }
    Ok(removed)
}

/// The entries and checkpoints of a log, in no order.
fn list(store: &TableStore) -> BoxStream<'static, object_store::Result<(LogFile, ObjectMeta)>> {
    let log = Path::from(LOG);
    let files = store.store.list(Some(&log)).try_filter_map(move |meta| {
        // Folders in it hold what others look after.
        let direct = meta.location.prefix_match(&log).is_some_and(|parts| parts.count() == 1);
        let file = LogFile::parse(&meta.location).filter(|_| direct);
        std::future::ready(Ok(file.map(|file| (file, meta))))
    });
    files.boxed()
}

fn is_expired(meta: &ObjectMeta, cutoff: i64) -> bool {
    meta.last_modified.timestamp_millis() < cutoff
}

/// What decides how far a log may be cleaned up.
#[derive(Debug)]
struct Log {
    cutoff: i64,
    /// The oldest version that must stay readable: the newest, or one that is not expired.
    kept: u64,
    oldest_expired: Option<u64>,
    checkpoints: Vec<u64>,
}

impl Log {
    fn new(newest: u64, cutoff: i64) -> Self {
        Self { cutoff, kept: newest, oldest_expired: None, checkpoints: Vec::new() }
    }

    fn see(&mut self, file: &LogFile, meta: &ObjectMeta) {
        let version = file.version();
        if is_expired(meta, self.cutoff) {
            self.oldest_expired = Some(self.oldest_expired.map_or(version, |oldest| oldest.min(version)));
        } else {
            self.kept = self.kept.min(version);
        }
        // One of several files may lack some of them: only one that is whole by itself is relied on.
        if matches!(file, LogFile::Checkpoint(_)) && meta.location == LogFile::checkpoint(version) {
            self.checkpoints.push(version);
        }
    }

    /// The version of the checkpoint from which all that stay readable are read; `None` when there is
    /// none, or nothing before it to remove.
    fn first_needed(&self) -> Option<u64> {
        let first = self.checkpoints.iter().copied().filter(|version| *version <= self.kept).max()?;
        self.oldest_expired.filter(|oldest| *oldest < first).map(|_| first)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::Access;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    /// A time of the tests, in milliseconds: files are as many seconds older or younger.
    const MIDST: i64 = 1_700_000_000_000;

    /// A log with files of these names, last modified so many seconds after the midst.
    fn log(files: &[(String, i64)]) -> (tempfile::TempDir, TableStore) {
        let dir = tempfile::tempdir().unwrap();
        for (name, seconds) in files {
            let path = dir.path().join(LOG).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let modified = u64::try_from(MIDST / 1000 + seconds).unwrap();
            let file = File::create(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(modified)).unwrap();
        }
        let store = TableStore::open(dir.path().to_str().unwrap(), &[], Access::Write).unwrap();
        (dir, store)
    }

    fn entry(version: u64) -> String {
        format!("{version:020}.json")
    }

    fn checkpoint(version: u64) -> String {
        format!("{version:020}.checkpoint.parquet")
    }

    fn names(files: &[(String, i64)]) -> BTreeSet<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    }

    async fn left(store: &TableStore) -> BTreeSet<String> {
        let files: Vec<_> = store.store.list(Some(&Path::from(LOG))).try_collect().await.unwrap();
        files.into_iter().map(|meta| meta.location.as_ref().trim_start_matches("_delta_log/").to_owned()).collect()
    }

    /// What a cleanup removes from a log.
    async fn removed(files: &[(String, i64)], newest: u64, cutoff: i64) -> BTreeSet<String> {
        let (_dir, store) = log(files);
        let count = clean(&store, newest, MIDST + cutoff * 1000).await.unwrap();
        let removed: BTreeSet<_> = names(files).difference(&left(&store).await).cloned().collect();
        assert_eq!(removed.len() as u64, count);
        removed
    }

    #[tokio::test]
    async fn what_lies_before_the_checkpoint_of_the_oldest_kept_version_is_removed() {
        let mut files: Vec<_> = (0..=6).map(|version| (entry(version), version as i64)).collect();
        files.extend([2, 4, 6].map(|version| (checkpoint(version), version as i64)));
        let before = |first: u64| {
            let mut gone: BTreeSet<_> = (0..first).map(entry).collect();
            gone.extend([2, 4, 6].into_iter().filter(|version| *version < first).map(checkpoint));
            gone
        };
        for (cutoff, first) in [(0, 0), (2, 2), (3, 2), (4, 4), (5, 4), (6, 6), (100, 6)] {
            assert_eq!(removed(&files, 6, cutoff).await, before(first), "cutoff {cutoff}");
        }
        assert_eq!(removed(&files, 5, 100).await, before(4), "version 5 is to be kept");
    }

    #[tokio::test]
    async fn without_a_checkpoint_of_one_file_all_is_kept() {
        let mut files: Vec<_> = (0..=4).map(|version| (entry(version), 0)).collect();
        assert_eq!(removed(&files, 4, 100).await, BTreeSet::new());
        // Its second part may be missing, and the other's sidecars.
        files.push((format!("{:020}.checkpoint.0000000001.0000000002.parquet", 3), 0));
        files.push((format!("{:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", 3), 0));
        assert_eq!(removed(&files, 4, 100).await, BTreeSet::new());
        files.push((checkpoint(4), 0));
        let kept = BTreeSet::from([entry(4), checkpoint(4)]);
        assert_eq!(removed(&files, 4, 100).await, names(&files).difference(&kept).cloned().collect());
    }

    #[tokio::test]
    async fn an_old_version_that_was_written_lately_is_kept_with_all_after_it() {
        let mut files: Vec<_> = (0..=6).map(|version| (entry(version), 0)).collect();
        files.extend([1, 3, 5].map(|version| (checkpoint(version), 0)));
        files[2].1 = 200;
        assert_eq!(removed(&files, 6, 100).await, BTreeSet::from([entry(0)]));
    }

    #[tokio::test]
    async fn what_is_no_entry_and_no_checkpoint_is_left_alone() {
        let others = [
            "_last_checkpoint".to_owned(),
            format!("{:020}.crc", 0),
            format!("{:020}.{:020}.compacted.json", 0, 1),
            format!("{:020}.json.tmp", 0),
            format!("_staged_commits/{:020}.80a083e8-7026-4e79-81be-64bd76c43a11.json", 0),
            format!("_sidecars/{}", checkpoint(0)),
            format!("backup/{}", entry(0)),
            "notes.txt".to_owned(),
        ];
        let mut files: Vec<_> = others.map(|name| (name, 0)).into();
        files.extend([(entry(0), 0), (entry(1), 0), (checkpoint(1), 0)]);
        assert_eq!(removed(&files, 1, 100).await, BTreeSet::from([entry(0)]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// deltalake's own cleanup, which keeps a listing, removes the same.
        #[test]
        fn deltalake_removes_the_same(
            versions in prop::collection::vec((prop::option::weighted(0.9, 0..40_i64), prop::option::weighted(0.4, 0..40_i64)), 1..12),
            is_sorted: bool,
            cutoff in 0..20_i64,
        ) {
            let mut files = Vec::new();
            for (version, (written, checkpointed)) in (0..).zip(&versions) {
                let sorted = |seconds: i64| if is_sorted { version as i64 * 4 } else { seconds } * 2;
                files.extend(written.map(|seconds| (entry(version), sorted(seconds))));
                files.extend(checkpointed.map(|seconds| (checkpoint(version), sorted(seconds))));
            }
            let newest = versions.len() as u64 - 1;
            let cutoff = cutoff * 4 + 1;
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let ours = removed(&files, newest, cutoff).await;
                let (_dir, store) = log(&files);
                let cutoff = MIDST + cutoff * 1000;
                let clean = deltalake::checkpoints::cleanup_expired_logs_for(newest, store.log.as_ref(), cutoff, None);
                let count = clean.await.unwrap();
                assert_eq!(ours.len(), count);
                assert_eq!(left(&store).await, names(&files).difference(&ours).cloned().collect());
            });
        }
    }
}

//! Putting data files into the table's store.

use crate::error::Error;
use crate::store::TableStore;
use crate::writer::DataFile;
use alluvium_core::{Edge, Hook};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use std::time::Duration;
use tokio::runtime::Handle;

/// Files put at the same time.
const FILES_AT_ONCE: usize = 4;
/// A larger file is put in parts, so that a failure on the way repeats a part and not the file.
const PART: usize = 16 * 1024 * 1024;
/// A store that takes longer over one request of at most a part has failed; what its client retries
/// by itself is included.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Uploads what is not uploaded yet. A file's path is its own, so that doing it twice does no harm.
pub(crate) async fn upload(store: &TableStore, files: &mut [DataFile], hook: &Hook) -> Result<(), Error> {
    let mut uploads = Vec::new();
    for file in files {
        uploads.push(upload_file(store, file, hook).boxed());
    }
    stream::iter(uploads).buffer_unordered(FILES_AT_ONCE).try_collect().await
}

async fn upload_file(store: &TableStore, file: &mut DataFile, hook: &Hook) -> Result<(), Error> {
    let Some(bytes) = file.pending().cloned() else { return Ok(()) };
    // Taken as it is: its own escapes must not be escaped again.
    let path = Path::parse(file.path()).map_err(|source| {
        let (table, path) = (store.table(), file.path().to_owned());
        Error::FilePath { table, path, source }
    })?;
    hook.before(Edge::Upload);
    let put = if bytes.len() <= PART {
        in_time(store.store.put(&path, PutPayload::from(bytes))).await.map(drop)
    } else {
        put_parts(store, &path, bytes).await
    };
    let failed = |source| Error::Upload { table: store.table(), path: file.path().to_owned(), source };
    put.map_err(failed)?;
    hook.after(Edge::Upload);
    file.uploaded();
    Ok(())
}

async fn put_parts(store: &TableStore, path: &Path, bytes: Bytes) -> object_store::Result<()> {
    let mut upload = in_time(store.store.put_multipart(path)).await?;
    let result = put_all(upload.as_mut(), bytes).await;
    if result.is_err() {
        abort(store, path, upload.as_mut()).await;
    }
    result
}

/// Gives an upload in parts up.
pub(crate) async fn abort(store: &TableStore, path: &Path, upload: &mut dyn MultipartUpload) {
    if let Err(error) = in_time(upload.abort()).await {
        tracing::warn!(table = %store.name, %path, %error, "cannot abort an upload; the store's own rules must remove its parts");
    }
}

async fn put_all(upload: &mut dyn MultipartUpload, mut rest: Bytes) -> object_store::Result<()> {
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let part = rest.split_to(rest.len().min(PART));
        parts.push(in_time(upload.put_part(PutPayload::from(part))));
    }
    stream::iter(parts).buffer_unordered(FILES_AT_ONCE).try_collect::<Vec<()>>().await?;
    in_time(upload.complete()).await.map(drop)
}

pub(crate) async fn in_time<T>(request: impl Future<Output = object_store::Result<T>>) -> object_store::Result<T> {
    // Without a runtime there are no timers; then it is files that are waited for.
    if Handle::try_current().is_err() {
        return request.await;
    }
    let late = |_| object_store::Error::Generic { store: "upload", source: Error::NoAnswer { after: TIMEOUT }.into() };
    tokio::time::timeout(TIMEOUT, request).await.map_err(late)?
}

//! A local store whose objects survive a power cut once their put has returned.
//!
//! A file system may keep a name and lose what was written under it. An entry cut off that way would
//! make the table unreadable, and a data file would be rows lost: the position behind them is safe in
//! another file. So a file is brought to the disk before it gets its name, and its name after.

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path as FilePath, PathBuf};
use tokio::runtime::Handle;

const NAME: &str = "local";

/// The file system from its root on.
#[derive(Debug)]
pub(crate) struct Durable(LocalFileSystem);

impl Durable {
    pub(crate) fn new() -> Self {
        Self(LocalFileSystem::new())
    }
}

impl std::fmt::Display for Durable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Durable({})", self.0)
    }
}

/// Writes a file so that it is whole as soon as it has its name.
fn put(path: &FilePath, payload: &PutPayload, mode: &PutMode) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    make(directory)?;
    // Names like this one are left out when the store is listed.
    let number = uuid::Uuid::new_v4().as_u64_pair().0;
    let staged = directory.join(format!("{}#{number}", name.to_string_lossy()));
    let placed = stage(&staged, payload).and_then(|()| match mode {
        PutMode::Create => std::fs::hard_link(&staged, path),
        PutMode::Overwrite | PutMode::Update(_) => std::fs::rename(&staged, path),
    });
    if placed.is_err() || matches!(mode, PutMode::Create) {
        // What stays behind is seen by nobody.
        let _left = std::fs::remove_file(&staged).is_err();
    }
    placed?;
    sync(directory)
}

fn stage(path: &FilePath, payload: &PutPayload) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    payload.iter().try_for_each(|bytes| file.write_all(bytes))?;
    file.sync_all()
}

/// Creates a directory that is absent, and those above it.
fn make(directory: &FilePath) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(above) = directory.parent() {
        make(above)?;
        match std::fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => sync(above)?,
        }
    }
    Ok(())
}

/// Brings a file, or the names in a directory, to the disk.
fn sync(path: &FilePath) -> io::Result<()> {
    File::open(path)?.sync_all()
}

async fn blocking(path: PathBuf, work: impl FnOnce(&FilePath) -> io::Result<()> + Send + 'static) -> Result<()> {
    // Without a runtime the thread is one that may block.
    let (done, path) = match Handle::try_current() {
        Ok(runtime) => {
            let done = runtime.spawn_blocking(move || (work(&path), path)).await;
            done.map_err(|source| Error::JoinError { source })?
        }
        Err(_) => (work(&path), path),
    };
    done.map_err(|source| {
        let path = path.display().to_string();
        match source.kind() {
            io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: source.into() },
            io::ErrorKind::NotFound => Error::NotFound { path, source: source.into() },
            _ => Error::Generic { store: NAME, source: source.into() },
        }
    })
}

#[async_trait]
impl ObjectStore for Durable {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if matches!(options.mode, PutMode::Update(_)) || !options.attributes.is_empty() {
            let operation = "updates and attributes of files".to_owned();
            return Err(Error::NotImplemented { operation, implementer: self.to_string() });
        }
        let path = self.0.path_to_filesystem(location)?;
        blocking(path, move |path| put(path, &payload, &options.mode)).await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let path = self.0.path_to_filesystem(location)?;
        Ok(Box::new(Parts { inner: self.0.put_multipart_opts(location, options).await?, path }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

/// An upload in parts: on the disk once it is complete, and named by no log entry before.
#[derive(Debug)]
struct Parts {
    inner: Box<dyn MultipartUpload>,
    path: PathBuf,
}

#[async_trait]
impl MultipartUpload for Parts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.inner.complete().await?;
        blocking(self.path.clone(), |path| {
            sync(path)?;
            path.parent().map_or(Ok(()), sync)
        })
        .await?;
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

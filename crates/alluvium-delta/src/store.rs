//! Where a table lies, and whether its store can be trusted with commits.

use crate::error::Error;
use crate::local::Durable;
use bytes::Bytes;
use deltalake::logstore::{LogStoreRef, StorageConfig, logstore_for, logstore_with};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::path::PathBuf;
use std::sync::Arc;
use url::Url;

/// The folder of the objects that try out conditional puts.
const PROBE: &str = "_alluvium_probe";

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// A local directory is created when it is absent.
    Write,
}

/// A table's place: its log, and the store whose root is the table's.
#[derive(Clone)]
pub(crate) struct TableStore {
    /// As the user wrote it, for messages.
    pub name: Arc<str>,
    pub url: Url,
    pub log: LogStoreRef,
    pub store: Arc<dyn ObjectStore>,
    /// Whether these are plain files, which need no runtime.
    pub is_on_disk: bool,
}

impl TableStore {
    /// Opens the store at `location`, to be written or only read.
    pub(crate) fn open(location: &str, storage: &[(String, String)], access: Access) -> Result<Self, Error> {
        let url = locate(location, access)?;
        if url.scheme().starts_with("s3") {
            refuse_locking_provider(location, storage)?;
            deltalake::aws::register_handlers(None);
        }
        if url.scheme() == "file" {
            let store = Self::rooted(Arc::new(Durable::new()), location, url, storage)?;
            return Ok(Self { is_on_disk: true, ..store });
        }
        let options = storage_config(location, storage)?;
        let log = logstore_for(&url, options)
            .map_err(|source| Error::OpenStore { table: location.to_owned(), source: source.into() })?;
        Ok(Self::new(location, url, log))
    }

    /// The table at `location` in a store whose root is the location's.
    pub(crate) fn within(
        root: Arc<dyn ObjectStore>,
        location: &str,
        storage: &[(String, String)],
    ) -> Result<Self, Error> {
        let url = locate(location, Access::Write)?;
        Self::rooted(root, location, url, storage)
    }

    fn rooted(
        root: Arc<dyn ObjectStore>,
        location: &str,
        url: Url,
        storage: &[(String, String)],
    ) -> Result<Self, Error> {
        let options = storage_config(location, storage)?;
        let log = logstore_with(root, &url, options)
            .map_err(|source| Error::OpenStore { table: location.to_owned(), source: source.into() })?;
        Ok(Self::new(location, url, log))
    }

    fn new(location: &str, url: Url, log: LogStoreRef) -> Self {
        let store = log.object_store(None);
        Self { name: location.into(), url, log, store, is_on_disk: false }
    }

    pub(crate) fn table(&self) -> String {
        self.name.to_string()
    }

    /// Checks that a second put-if-absent of one object is refused. Local directories need no
    /// probe: they commit with hard links.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        if self.url.scheme() == "file" {
            return Ok(());
        }
        let path = Path::from_iter([PROBE.to_owned(), uuid::Uuid::new_v4().to_string()]);
        let put = || {
            let options = PutOptions::from(PutMode::Create);
            self.store.put_opts(&path, PutPayload::from(Bytes::from_static(b"probe")), options)
        };
        let first = put().await;
        let second = match first {
            // A retry inside the store can meet its own first try; the second put then tells.
            Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => put().await,
            Err(source) => return Err(self.probe_error(source)),
        };
        if let Err(error) = self.store.delete(&path).await {
            tracing::warn!(table = %self.name, %path, %error, "cannot delete a probe object");
        }
        match second {
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(()),
            Ok(_) => Err(Error::ConditionalPutIgnored { table: self.table() }),
            Err(source) => Err(self.probe_error(source)),
        }
    }

    fn probe_error(&self, source: object_store::Error) -> Error {
        let table = self.table();
        match source {
            object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. } => {
                Error::ConditionalPutMissing { table, source }
            }
            source => Error::Probe { table, source },
        }
    }
}

impl std::fmt::Debug for TableStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableStore").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

fn storage_config(location: &str, storage: &[(String, String)]) -> Result<StorageConfig, Error> {
    StorageConfig::parse_options(storage.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        .map_err(|source| Error::OpenStore { table: location.to_owned(), source: source.into() })
}

/// The URL of a location; it ends with a slash.
fn locate(location: &str, access: Access) -> Result<Url, Error> {
    let wrong = |problem: &str| Error::Location { location: location.to_owned(), problem: problem.to_owned() };
    if location.is_empty() {
        return Err(wrong("it is empty"));
    }
    let directory = if location.contains("://") {
        let url = Url::parse(location).map_err(|error| wrong(&error.to_string()))?;
        if url.scheme() != "file" {
            return Ok(with_slash(url));
        }
        url.to_file_path().map_err(|()| wrong("a file URL must hold an absolute path"))?
    } else {
        PathBuf::from(location)
    };
    let create = |source| Error::CreateDirectory { table: location.to_owned(), source };
    let directory = match access {
        Access::Write => {
            std::fs::create_dir_all(&directory).map_err(create)?;
            std::fs::canonicalize(&directory).map_err(create)?
        }
        // What is absent is an empty table.
        Access::Read => match std::fs::canonicalize(&directory) {
            Ok(directory) => directory,
            Err(_) => std::path::absolute(&directory).map_err(|error| wrong(&error.to_string()))?,
        },
    };
    Url::from_directory_path(&directory).map_err(|()| wrong("it cannot be written as a URL"))
}

fn with_slash(mut url: Url) -> Url {
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    url
}

/// The library accepts this setting and then commits without any lock.
fn refuse_locking_provider(location: &str, storage: &[(String, String)]) -> Result<(), Error> {
    const KEY: &str = "AWS_S3_LOCKING_PROVIDER";
    let option = storage.iter().find(|(key, _)| key.eq_ignore_ascii_case(KEY)).map(|(_, value)| value.clone());
    match option.or_else(|| std::env::var(KEY).ok()) {
        Some(value) if value.eq_ignore_ascii_case("dynamodb") => {
            Err(Error::LockingProvider { table: location.to_owned(), key: KEY.to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_dynamodb_lock_is_refused_by_name_whatever_its_case() {
        for key in ["AWS_S3_LOCKING_PROVIDER", "aws_s3_locking_provider"] {
            let storage = vec![(key.to_owned(), "DynamoDB".to_owned())];
            let error = TableStore::open("s3://bucket/table", &storage, Access::Write).unwrap_err();
            assert!(matches!(error, Error::LockingProvider { .. }), "{error}");
        }
    }

    #[test]
    fn locations_are_directories_or_urls() {
        assert!(matches!(locate("", Access::Read), Err(Error::Location { .. })));
        assert!(matches!(locate("s3://", Access::Read), Err(Error::Location { .. }) | Ok(_)));
        assert_eq!(locate("memory:///a/b", Access::Write).unwrap().as_str(), "memory:///a/b/");
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("a table/ü");
        let absent = locate(place.to_str().unwrap(), Access::Read).unwrap();
        assert!(!place.exists());
        let url = locate(place.to_str().unwrap(), Access::Write).unwrap();
        assert!(place.is_dir());
        assert_eq!(url, locate(url.as_str(), Access::Read).unwrap());
        assert_eq!(url, absent);
    }

    #[test]
    fn an_unknown_scheme_is_the_users_to_fix() {
        let error = TableStore::open("ftp://host/table", &[], Access::Read).unwrap_err();
        assert_eq!(alluvium_core::Classified::class(&error), alluvium_core::ErrorClass::User);
    }
}

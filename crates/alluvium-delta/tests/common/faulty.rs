//! A store that fails on demand.

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is done, and then an error is told.
    LandsThenFails,
    /// It is not done.
    Fails,
    /// It is done, tried again as clients do, and the second try finds the first.
    LandsThenConflicts,
    /// It is done, and the answer never comes.
    LandsThenHangs,
    /// It is not done, and the answer never comes.
    Hangs,
    /// It is done later, after the error was told.
    FailsThenLands,
    /// The store ignores that the object should not exist.
    IgnoresCondition,
    /// It is done after a while.
    Slow,
}

impl Fault {
    /// Those that can befall the entry of a commit.
    pub const OF_AN_ENTRY: [Self; 6] = [
        Self::LandsThenFails,
        Self::Fails,
        Self::LandsThenConflicts,
        Self::LandsThenHangs,
        Self::Hangs,
        Self::FailsThenLands,
    ];
}

/// The kinds of requests that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Put,
    Get,
    List,
    /// One part of an upload in parts.
    Part,
    /// Gives an upload in parts up.
    Abort,
}

type Rule = Box<dyn FnMut(On, &Path) -> Option<Fault> + Send>;

/// Passes requests on, unless a rule has a fault for them.
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    rule: Arc<Mutex<Option<Rule>>>,
    /// Every request that changes or reads an object, in order.
    pub requests: Arc<Mutex<Vec<(On, String)>>>,
}

impl FaultyStore {
    pub fn new(inner: Arc<dyn ObjectStore>) -> Arc<Self> {
        Arc::new(Self { inner, rule: Arc::default(), requests: Arc::default() })
    }

    /// Each request is asked of `rule`; `None` lets it pass.
    pub fn set_rule(&self, rule: impl FnMut(On, &Path) -> Option<Fault> + Send + 'static) {
        *self.rule.lock().unwrap() = Some(Box::new(rule));
    }

    pub fn clear(&self) {
        *self.rule.lock().unwrap() = None;
    }

    /// The next `times` puts whose path holds `part` meet `fault`.
    pub fn fail_puts(&self, part: &'static str, fault: Fault, times: usize) {
        let mut left = times;
        self.set_rule(move |on, path| {
            let hit = on == On::Put && left > 0 && path.as_ref().contains(part);
            left -= usize::from(hit);
            hit.then_some(fault)
        });
    }

    fn fault(&self, on: On, path: &Path) -> Option<Fault> {
        self.requests.lock().unwrap().push((on, path.to_string()));
        self.rule.lock().unwrap().as_mut().and_then(|rule| rule(on, path))
    }
}

fn failure(what: &str) -> Error {
    Error::Generic { store: "faulty", source: what.to_owned().into() }
}

async fn hang<T>() -> T {
    tokio::time::sleep(Duration::from_secs(100_000)).await;
    std::future::pending().await
}

const SLOW: Duration = Duration::from_millis(30);

fn slow<T: Send + 'static>(items: BoxStream<'static, T>) -> BoxStream<'static, T> {
    use futures::StreamExt;
    Box::pin(futures::stream::once(tokio::time::sleep(SLOW)).flat_map({
        let mut items = Some(items);
        move |()| items.take().unwrap_or_else(|| Box::pin(futures::stream::empty()))
    }))
}

/// An upload in parts of which some fail.
struct FaultyParts {
    inner: Box<dyn MultipartUpload>,
    path: Path,
    rule: Arc<Mutex<Option<Rule>>>,
    requests: Arc<Mutex<Vec<(On, String)>>>,
}

impl FaultyParts {
    fn fault(&self, on: On) -> Option<Fault> {
        self.requests.lock().unwrap().push((on, self.path.to_string()));
        self.rule.lock().unwrap().as_mut().and_then(|rule| rule(on, &self.path))
    }
}

impl fmt::Debug for FaultyParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyParts")
    }
}

#[async_trait]
impl MultipartUpload for FaultyParts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.fault(On::Part) {
            None => self.inner.put_part(data),
            Some(_) => Box::pin(async { Err(failure("connection reset by peer")) }),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.fault(On::Abort);
        self.inner.abort().await
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let put = || self.inner.put_opts(location, payload.clone(), options.clone());
        match self.fault(On::Put, location) {
            None => put().await,
            Some(Fault::Slow) => {
                tokio::time::sleep(SLOW).await;
                put().await
            }
            Some(Fault::Fails) => Err(failure("put failed")),
            Some(Fault::Hangs) => hang().await,
            Some(Fault::LandsThenFails) => {
                put().await?;
                Err(failure("the answer was lost"))
            }
            Some(Fault::LandsThenConflicts) => {
                put().await?;
                put().await
            }
            Some(Fault::LandsThenHangs) => {
                put().await?;
                hang().await
            }
            Some(Fault::FailsThenLands) => {
                let (inner, location) = (self.inner.clone(), location.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    drop(inner.put_opts(&location, payload, options).await);
                });
                Err(failure("the request was cut off"))
            }
            Some(Fault::IgnoresCondition) => {
                let options = PutOptions { mode: PutMode::Overwrite, ..options.clone() };
                self.inner.put_opts(location, payload, options).await
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        match self.fault(On::Put, location) {
            None => {
                let inner = self.inner.put_multipart_opts(location, options).await?;
                let (rule, requests) = (self.rule.clone(), self.requests.clone());
                Ok(Box::new(FaultyParts { inner, path: location.clone(), rule, requests }))
            }
            Some(_) => Err(failure("multipart put failed")),
        }
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.fault(On::Get, location) {
            None => self.inner.get_opts(location, options).await,
            Some(Fault::Slow) => {
                tokio::time::sleep(SLOW).await;
                self.inner.get_opts(location, options).await
            }
            Some(Fault::Hangs) => hang().await,
            Some(_) => Err(failure("get failed")),
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fault(On::List, prefix.unwrap_or(&Path::default())) {
            None => self.inner.list(prefix),
            Some(Fault::Slow) => slow(self.inner.list(prefix)),
            Some(_) => Box::pin(futures::stream::once(async { Err(failure("list failed")) })),
        }
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fault(On::List, prefix.unwrap_or(&Path::default())) {
            None => self.inner.list_with_offset(prefix, offset),
            Some(Fault::Slow) => slow(self.inner.list_with_offset(prefix, offset)),
            Some(_) => Box::pin(futures::stream::once(async { Err(failure("list failed")) })),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

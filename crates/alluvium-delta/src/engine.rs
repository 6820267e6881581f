//! The kernel's engine: a log is read with little of it in memory, on the thread that asks.
//!
//! deltalake's own reads up to a thousand log entries ahead, each with buffers for a batch, and decodes
//! them on the async threads.

use crate::store::TableStore;
use buoyant_kernel as kernel;
use buoyant_kernel_engine::DefaultEngineBuilder;
use buoyant_kernel_engine::executor::TaskExecutor;
use futures::FutureExt;
use futures::future::BoxFuture;
use kernel::{DeltaResult, Engine};
use std::num::NonZero;
use std::sync::Arc;
use tokio::runtime::{EnterGuard, Handle};

/// Files of a log that are opened at the same time.
const FILES_AHEAD: NonZero<usize> = NonZero::<usize>::MIN.saturating_add(15);

/// An engine for a table's log. It blocks: its calls are not for async threads.
pub(crate) fn engine(store: &TableStore, wait: &Wait) -> Arc<dyn Engine> {
    let builder = DefaultEngineBuilder::new(store.log.root_object_store(None))
        .with_task_executor(Arc::new(wait.clone()))
        .with_buffer_size(FILES_AHEAD);
    Arc::new(builder.build())
}

/// How a thread that may block waits for what it asks of a store. Its own work it does itself.
#[derive(Clone, Debug)]
pub(crate) enum Wait {
    /// A runtime's threads attend to sockets, files and timers.
    With(Handle),
    /// Files are read and written by the thread that asks: what that takes is not left behind on others. Not
    /// for a thread of a runtime's.
    Alone,
}

impl Wait {
    pub(crate) fn until<T>(&self, task: impl Future<Output = T>) -> T {
        match self {
            Self::With(runtime) => runtime.block_on(task),
            Self::Alone => futures::executor::block_on(task),
        }
    }
}

impl TaskExecutor for Wait {
    type Guard<'a> = Option<EnterGuard<'a>>;

    fn block_on<T>(&self, task: T) -> T::Output
    where
        T: Future + Send + 'static,
        T::Output: Send + 'static,
    {
        self.until(task)
    }

    fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match self {
            Self::With(runtime) => drop(runtime.spawn(task)),
            Self::Alone => self.until(task),
        }
    }

    fn spawn_blocking<T, R>(&self, task: T) -> BoxFuture<'_, DeltaResult<R>>
    where
        T: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self {
            Self::With(runtime) => {
                runtime.spawn_blocking(task).map(|done| done.map_err(kernel::Error::join_failure)).boxed()
            }
            Self::Alone => async { Ok(task()) }.boxed(),
        }
    }

    fn enter(&self) -> Self::Guard<'_> {
        match self {
            Self::With(runtime) => Some(runtime.enter()),
            Self::Alone => None,
        }
    }
}

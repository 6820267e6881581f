//! The thread of a sink's maintenance.
//!
//! The system's allocator keeps for every thread the most that it ever needed, and a checkpoint handles an
//! action for every file of its table. On the changing threads of a pool, each would come to hold that much.

use crate::error::Source;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that does one job after the other; it starts with the first, and ends with the last handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thread(Arc<Mutex<Option<Sender<Job>>>>);

impl Thread {
    /// Does a job, and waits for it. It is done also when nobody waits any more.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Source> {
        let (send, done) = oneshot::channel();
        let job = Box::new(move || drop(send.send(work())));
        // A job that cannot be sent is dropped, and so is what would have told that it is done.
        drop(self.jobs()?.send(job));
        Ok(done.await?)
    }

    fn jobs(&self) -> std::io::Result<Sender<Job>> {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(jobs) = &*jobs {
            return Ok(jobs.clone());
        }
        let (send, wanted) = channel::<Job>();
        // A job that panics is told to who waits for it, and is not the end of the thread.
        let work = move || wanted.into_iter().for_each(|job| drop(catch_unwind(AssertUnwindSafe(job))));
        std::thread::Builder::new().name("maintenance".to_owned()).spawn(work)?;
        Ok(jobs.insert(send).clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn all_jobs_are_done_on_one_thread_also_after_a_panic() {
        let thread = Thread::default();
        let id = || std::thread::current().id();
        let first = thread.run(id).await.unwrap();
        assert_ne!(first, id());
        assert!(thread.run(|| panic!("as it is wanted here")).await.is_err());
        assert_eq!(thread.clone().run(id).await.unwrap(), first);
    }
}

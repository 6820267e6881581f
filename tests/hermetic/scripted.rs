//! The driver over a source that does what it is told: a topic that changes under it at one moment.

use alluvium_core::chunk::{NO_TIMESTAMP, Record};
use alluvium_core::position::{PositionError, Watermarks};
use alluvium_core::seam::{Ack, Event, Source};
use alluvium_core::{Chunk, Classified, ErrorClass, Partition, Records, Span, TopicId};
use alluvium_runtime::{Compute, Driver, Error, PipelineRun, Plugins, RunOptions, Shutdown, Stats};
use alluvium_tests::{Options, Workbench};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// It never fails.
#[derive(Debug, thiserror::Error)]
#[error("nothing")]
struct Nothing;

impl Classified for Nothing {
    fn class(&self) -> ErrorClass {
        ErrorClass::Bug
    }
}

struct Scripted {
    events: VecDeque<Event>,
    /// The topic's id is asked for so many times before it is another.
    same: u64,
    asked: Arc<AtomicU64>,
}

impl Source for Scripted {
    type Error = Nothing;

    async fn next(&mut self) -> Result<Event, Nothing> {
        match self.events.pop_front() {
            Some(event) => Ok(event),
            None => std::future::pending().await,
        }
    }

    fn topic_id(&self) -> impl Future<Output = Result<Option<TopicId>, Nothing>> + Send + 'static {
        let (same, asked) = (self.same, self.asked.clone());
        async move {
            let number = asked.fetch_add(1, Ordering::SeqCst);
            Ok(TopicId::from_halves(1, if number < same { 1 } else { 2 }))
        }
    }

    async fn partitions(&self) -> Result<Vec<Partition>, Nothing> {
        Ok(vec![Partition(0)])
    }

    async fn watermarks(&self, _partition: Partition) -> Result<Watermarks, Nothing> {
        Ok(Watermarks { low: 0, high: 10 })
    }

    async fn offset_at(&self, _partition: Partition, _timestamp: i64) -> Result<i64, Nothing> {
        Ok(0)
    }

    fn seek(&self, _positions: &[(Partition, i64)]) -> Result<(), Nothing> {
        Ok(())
    }

    fn pause(&self) {}

    fn resume(&self) {}

    fn publish(&self, _positions: &[(Partition, i64)]) {}

    async fn close(&mut self) {}
}

fn assignment() -> Event {
    Event::Assigned { partitions: vec![Partition(0)], ack: Ack::new(drop) }
}

fn chunk() -> Event {
    let mut records = Records::default();
    for offset in 0..10 {
        let value = Some(&br#"{"id":1}"#[..]);
        records.push(Record { offset, timestamp: NO_TIMESTAMP, key: None, value, headers: None }).unwrap();
    }
    Event::Chunk(Chunk::new(Partition(0), Span::new(0, 10).unwrap(), records).unwrap())
}

/// Runs until the driver ends by itself, which it must; the positions that the table then has.
async fn run(events: Vec<Event>, same: u64) -> (Result<(), Error>, usize) {
    let bench = Workbench::new("127.0.0.1:1", "scripted", &Options { transforms: String::new(), ..Options::default() });
    let text = std::fs::read_to_string(bench.dir().join("pipeline.toml")).unwrap();
    let pipeline = Arc::new(alluvium_config::parse(&text, "pipeline.toml").unwrap());
    let run = PipelineRun {
        pipeline,
        plugins: Plugins::default(),
        options: RunOptions { until_end: false, workers: 1, compute: Compute::Threads },
        stats: Arc::new(Stats::default()),
        hook: alluvium_core::Hook::NONE,
    };
    let source = Scripted { events: events.into(), same, asked: Arc::default() };
    let sink = Arc::new(bench.sink("pipeline").await);
    let state = alluvium_core::seam::Table::load(sink.as_ref()).await.unwrap();
    let (_ask, asked) = watch::channel(Shutdown::No);
    let driver = Driver::new(run, source, sink, &state).unwrap();
    let done = tokio::time::timeout(Duration::from_secs(20), driver.run(asked)).await.expect("it goes on");
    (done, bench.positions("pipeline").await.len())
}

fn is_replaced(done: &Result<(), Error>) -> bool {
    matches!(done, Err(Error::Position(PositionError::Replaced { .. })))
}

/// The id is asked for at the start and at the assignment; then by the flush, before its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_changes_before_a_commit_stops_it() {
    let (done, positions) = run(vec![assignment(), chunk()], 2).await;
    assert!(is_replaced(&done), "{done:?}");
    assert_eq!(positions, 0, "it was committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_changes_after_a_commit_is_noticed_though_nothing_comes() {
    let (done, positions) = run(vec![assignment(), chunk()], 3).await;
    assert!(is_replaced(&done), "{done:?}");
    assert_eq!(positions, 1);
    let (done, _) = run(vec![assignment()], 2).await;
    assert!(is_replaced(&done), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_changes_before_an_assignment_is_not_read() {
    let (done, positions) = run(vec![assignment(), chunk()], 1).await;
    assert!(is_replaced(&done), "{done:?}");
    assert_eq!(positions, 0);
}

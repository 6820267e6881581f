//! `alluvium run`

use crate::failure::{Failure, WRONG_INPUT};
use crate::load::Loaded;
use crate::{cli, load, output, progress};
use alluvium_core::seam::Table;
use alluvium_kafka::{KafkaSource, KafkaTopic};
use alluvium_runtime::{Driver, Hook, PipelineRun, RunOptions, Shutdown, Stats};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

const LAG_EVERY: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Summary {
    pipeline: String,
    ok: bool,
    #[serde(flatten)]
    counts: alluvium_core::Counts,
    commits: u64,
    fenced: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub async fn run(arguments: cli::Run, hook: Option<Hook>) -> Result<(), Failure> {
    let host = load::host()?;
    let mut pipelines = Vec::new();
    for file in &arguments.files {
        pipelines.push(load::load(file, &host)?);
    }
    refuse_twice(&pipelines)?;
    let shutdown = watch_signals()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = arguments.workers.map_or(cores, usize::from);
    let options = RunOptions { until_end: arguments.until_end, workers };
    let mut tasks = Vec::new();
    let mut watched = Vec::new();
    for loaded in pipelines {
        let stats = Arc::new(Stats::default());
        watched.push((loaded.pipeline.id.to_string(), stats.clone()));
        let id = loaded.pipeline.id.to_string();
        let task = run_one(loaded, options.clone(), stats.clone(), shutdown.clone(), hook.clone());
        tasks.push((id, stats, tokio::spawn(task)));
    }
    let progress = progress::start(watched);
    let mut summaries = Vec::new();
    let mut failures = Vec::new();
    for (pipeline, stats, task) in tasks {
        let done = match task.await {
            Ok(done) => done,
            Err(panic) => Err(Failure::caused("the pipeline ended by a fault of its own", &panic)),
        };
        let committed = stats.committed();
        summaries.push(Summary {
            pipeline: pipeline.clone(),
            ok: done.is_ok(),
            counts: committed.counts,
            commits: committed.commits,
            fenced: committed.fenced,
            error: done.as_ref().err().map(ToString::to_string),
        });
        failures.extend(done.err().map(|failure| failure.context(format!("pipeline {pipeline} stopped"))));
    }
    progress.end();
    report(&summaries, arguments.json);
    end(failures)
}

fn refuse_twice(pipelines: &[Loaded]) -> Result<(), Failure> {
    for (index, loaded) in pipelines.iter().enumerate() {
        if let Some(other) = pipelines.iter().take(index).find(|other| other.pipeline.id == loaded.pipeline.id) {
            let (id, first, second) = (&loaded.pipeline.id, other.file.display(), loaded.file.display());
            return Err(Failure::input(format!("{first} and {second} are both pipeline {id}"))
                .with_hint("give one of them another name: two pipelines of one name would fence each other"));
        }
    }
    Ok(())
}

async fn run_one(
    loaded: Loaded,
    options: RunOptions,
    stats: Arc<Stats>,
    shutdown: watch::Receiver<Shutdown>,
    hook: Option<Hook>,
) -> Result<(), Failure> {
    let classified = |error: &dyn alluvium_core::Classified| Failure::classified(error);
    let mut sink = load::sink(&loaded.file, &loaded.pipeline).await?;
    if let Some(hook) = &hook {
        sink = sink.with_hook(hook.clone());
    }
    let state = sink.load().await.map_err(|error| classified(&error))?;
    let source = KafkaSource::connect(load::kafka_config(&loaded.file, &loaded.pipeline)?);
    let source = source.map_err(|error| classified(&error))?;
    let lag = tokio::spawn(watch_lag(source.topic().clone(), stats.clone()));
    let Loaded { pipeline, plugins, .. } = loaded;
    let run = PipelineRun { pipeline, plugins, options, stats, hook };
    let driver = Driver::new(run, source, Arc::new(sink), &state);
    let driver = driver.map_err(|error| classified(&error))?;
    let done = driver.run(shutdown).await.map_err(|error| classified(&error));
    lag.abort();
    done
}

/// Keeps the number of records that are still to be read, asking behind a client of its own.
async fn watch_lag(topic: KafkaTopic, stats: Arc<Stats>) {
    stats.lag.store(u64::MAX, Ordering::Relaxed);
    loop {
        tokio::time::sleep(LAG_EVERY).await;
        let mut lag = 0;
        for (partition, position) in stats.committed().positions {
            match topic.watermarks(partition).await {
                Ok(watermarks) => lag += u64::try_from(watermarks.high - position).unwrap_or(0),
                // Unknown for now; the pipeline's own errors are told elsewhere.
                Err(_) => lag = u64::MAX / 2,
            }
        }
        stats.lag.store(if lag >= u64::MAX / 2 { u64::MAX } else { lag }, Ordering::Relaxed);
    }
}

fn report(summaries: &[Summary], json: bool) {
    if json {
        output::json(&summaries);
        return;
    }
    for summary in summaries {
        let counts = summary.counts;
        output::note(format!(
            "{}: {} records read, {} rows, {} filtered, {} dead letters in {} commits",
            summary.pipeline, counts.read, counts.rows, counts.filtered, counts.rejected, summary.commits
        ));
    }
}

/// All failures are told; the first decides the exit code.
fn end(mut failures: Vec<Failure>) -> Result<(), Failure> {
    let Some(last) = failures.pop() else { return Ok(()) };
    failures.iter().for_each(output::failure);
    let code = failures.first().map_or(last.exit_code(), Failure::exit_code);
    Err(if code == WRONG_INPUT { last.into_input() } else { last })
}

/// The first SIGTERM or SIGINT asks for a flush, the second for an end at once.
fn watch_signals() -> Result<watch::Receiver<Shutdown>, Failure> {
    let failed = |error| Failure::caused("signals cannot be received", &error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let (ask, asked) = watch::channel(Shutdown::No);
    tokio::spawn(async move {
        for shutdown in [Shutdown::Flush, Shutdown::Now] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!(?shutdown, "a signal asks to stop");
            ask.send_replace(shutdown);
        }
        // Kept alive: a closed channel would mean an end at once.
        std::future::pending::<()>().await;
        drop(ask);
    });
    Ok(asked)
}

/// Waits for SIGTERM or SIGINT.
pub async fn stop_signal() -> Result<(), Failure> {
    let mut asked = watch_signals()?;
    let _closed = asked.changed().await.is_err();
    Ok(())
}

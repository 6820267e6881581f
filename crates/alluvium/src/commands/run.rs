//! `alluvium run`

use crate::failure::{FAILED, Failure, WRONG_INPUT};
use crate::load::Loaded;
use crate::{cli, load, output, progress};
use alluvium_core::Hook;
use alluvium_core::seam::Table;
use alluvium_kafka::{KafkaSource, KafkaTopic};
use alluvium_runtime::{Compute, Driver, PipelineRun, RunOptions, Shutdown, Stats};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

const LAG_EVERY: Duration = Duration::from_secs(2);
/// How long an end at once may take.
const LEAVE: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_secs(1);

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

pub async fn run(arguments: cli::Run, hook: Hook) -> Result<(), Failure> {
    // Before plugins are compiled, which takes a while.
    let signals = Signals::listen()?;
    let host = load::host()?;
    let mut pipelines = Vec::new();
    for file in &arguments.files {
        pipelines.push(load::load(file, &host)?);
    }
    refuse_twice(&pipelines)?;
    let grace = pipelines.iter().map(|loaded| loaded.pipeline.flush.grace).max().unwrap_or_default();
    let shutdown = signals.watch(grace);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = arguments.workers.map_or(cores, usize::from);
    let options = RunOptions { until_end: arguments.until_end, workers, compute: Compute::Threads };
    let mut tasks = Vec::new();
    let mut watched = Vec::new();
    for loaded in pipelines {
        let stats = Arc::new(Stats::default());
        watched.push((loaded.pipeline.id.to_string(), stats.clone()));
        let id = loaded.pipeline.id.to_string();
        let task = run_one(loaded, options.clone(), stats.clone(), shutdown.clone(), hook.clone());
        let alone = arguments.files.len() == 1;
        let named = id.clone();
        let told = async move {
            let done = task.await.map_err(|failure| failure.context(format!("pipeline {named} stopped")));
            // The others go on: this must not wait for their end to be told.
            if let (Err(failure), false) = (&done, alone) {
                output::failure(failure);
            }
            done
        };
        tasks.push((id, stats, tokio::spawn(told)));
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
        failures.extend(done.err());
    }
    progress.end();
    report(&summaries, arguments.json);
    end(failures, summaries.len())
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
    hook: Hook,
) -> Result<(), Failure> {
    let classified = |error: &dyn alluvium_core::Classified| Failure::classified(error);
    let sink = load::sink(&loaded.file, &loaded.pipeline).await?.with_hook(hook.clone());
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

/// One failure is told as it is; of several pipelines each has been told when it stopped.
fn end(mut failures: Vec<Failure>, pipelines: usize) -> Result<(), Failure> {
    let Some(last) = failures.pop() else { return Ok(()) };
    if pipelines == 1 {
        return Err(last);
    }
    let summary = Failure::new(format!("{} of {pipelines} pipelines stopped", failures.len() + 1));
    let code = failures.first().map_or(last.exit_code(), Failure::exit_code);
    Err(if code == WRONG_INPUT { summary.into_input() } else { summary })
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on they are kept until somebody looks, and do not end the process by themselves.
    fn listen() -> Result<Self, Failure> {
        let failed = |error| Failure::caused("signals cannot be received", &error);
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt()).map_err(failed)? })
    }

    /// The first one asks for a flush; the second, or the end of the grace time, for an end at once.
    /// Whatever still holds the process past that (a store that does not answer, a plugin being
    /// searched for a bad record) is left: what was not committed is read again next time.
    fn watch(mut self, grace: Duration) -> watch::Receiver<Shutdown> {
        let (ask, asked) = watch::channel(Shutdown::No);
        tokio::spawn(async move {
            for shutdown in [Shutdown::Flush, Shutdown::Now] {
                // Pipelines look at the grace time themselves, and have more to say about it.
                let patience = if shutdown == Shutdown::Now { grace + MARGIN } else { Duration::MAX };
                tokio::select! {
                    _ = self.terminate.recv() => {}
                    _ = self.interrupt.recv() => {}
                    () = tokio::time::sleep(patience) => {}
                }
                tracing::info!(?shutdown, "a signal asks to stop");
                ask.send_replace(shutdown);
            }
            tokio::time::sleep(LEAVE).await;
            output::failure(&Failure::new("the process did not end by itself after it was told to: it is ended now"));
            std::process::exit(i32::from(FAILED));
        });
        asked
    }
}

/// Waits for SIGTERM or SIGINT.
pub async fn stop_signal() -> Result<(), Failure> {
    let mut asked = Signals::listen()?.watch(Duration::ZERO);
    let _closed = asked.changed().await.is_err();
    Ok(())
}

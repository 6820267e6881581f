//! `alluvium demo`: all of it in one minute.

use crate::failure::Failure;
use crate::orders::{Fate, Orders};
use crate::proof::prove;
use crate::{cli, load, output};
use alluvium_delta::{DeltaSink, TableRole};
use alluvium_kafka::{NewRecord, Producer, Sandbox};
use arrow_cast::pretty::pretty_format_batches;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TOPIC: &str = "orders";
const PARTITIONS: usize = 4;
/// The sandbox keeps about 5 MiB of a partition: the producer stays this many records (1.4 MB) ahead
/// of the table at most.
const AHEAD: i64 = 4_000;
const ROWS_SHOWN: usize = 5;

/// What the producer did, for the proof from outside.
#[derive(Debug, Default)]
struct Ledger {
    produced: [AtomicI64; PARTITIONS],
    /// The next offset that the table holds not yet.
    committed: [AtomicI64; PARTITIONS],
    rows: AtomicU64,
    filtered: AtomicU64,
    broken: AtomicU64,
    /// Kills still to come: the last records wait for them.
    kills_left: AtomicU64,
}

impl Ledger {
    fn total(counters: &[AtomicI64; PARTITIONS]) -> i64 {
        counters.iter().map(|counter| counter.load(Ordering::Acquire)).sum()
    }
}

pub async fn demo(arguments: cli::Demo) -> Result<(), Failure> {
    let begun = Instant::now();
    let plugin = plugin(arguments.plugin.as_deref())?;
    let temporary;
    let dir = match &arguments.dir {
        Some(dir) => dir.clone(),
        None => {
            temporary = tempfile::Builder::new().prefix("alluvium-demo-").tempdir();
            let made =
                temporary.as_ref().map_err(|error| Failure::caused("no temporary directory can be made", error))?;
            made.path().to_owned()
        }
    };
    let sandbox = Sandbox::start(&[(TOPIC, PARTITIONS as i32)]).map_err(|error| Failure::classified(&error))?;
    let file = write_pipeline(&dir, &plugin, sandbox.brokers())?;
    output::line(format!("sandbox broker on {}, topic {TOPIC} with {PARTITIONS} partitions", sandbox.brokers()));
    output::line(format!("pipeline file {}", file.display()));

    let pipeline = load::pipeline(&file)?;
    let sink = load::sink(&file, &pipeline).await?;
    let ledger = Arc::new(Ledger::default());
    ledger.kills_left.store(arguments.kills.into(), Ordering::Release);
    let producing = {
        let (ledger, brokers) = (ledger.clone(), sandbox.brokers().to_owned());
        let (records, seed) = (arguments.records, arguments.seed);
        tokio::spawn(async move { produce(&brokers, records, seed, &ledger).await })
    };
    work(&arguments, &file, &sink, &ledger, &producing).await?;
    producing.await.map_err(|error| Failure::caused("the producer failed", &error))??;

    report(&sink, &pipeline, &ledger).await?;
    output::line(format!("done in {:.1} s", begun.elapsed().as_secs_f64()));
    if let Some(dir) = &arguments.dir {
        output::line(format!("the table is in {}", dir.join("orders").display()));
    }
    Ok(())
}

/// The plugin named, or the one that was built beside this binary.
fn plugin(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let beside = || {
        let binary = std::env::current_exe().ok()?;
        Some(binary.parent()?.parent()?.join("plugins/redact.wasm"))
    };
    let found = named.map(Path::to_owned).or_else(beside).filter(|path| path.is_file());
    let missing =
        || Failure::input("the demo needs the redact plugin").with_hint("build it with `cargo xtask plugins`");
    let found = found.ok_or_else(missing)?;
    std::path::absolute(&found).map_err(|error| Failure::caused("the plugin's path cannot be told", &error))
}

fn write_pipeline(dir: &Path, plugin: &Path, brokers: &str) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| Failure::caused(format!("{} cannot be written", dir.display()), &error);
    std::fs::create_dir_all(dir).map_err(failed)?;
    let dir = std::path::absolute(dir).map_err(failed)?;
    if dir.join("orders").exists() {
        return Err(Failure::input(format!("{} already holds a table of orders", dir.display()))
            .with_hint("give --dir a new directory"));
    }
    let plugin = toml_string(&plugin.display().to_string());
    let text =
        include_str!("../../demo/orders.toml").replace("BROKERS", &toml_string(brokers)).replace("PLUGIN", &plugin);
    let file = dir.join("orders.toml");
    std::fs::write(&file, text).map_err(failed)?;
    Ok(file)
}

/// A TOML string: JSON's escapes are a part of TOML's.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

async fn produce(brokers: &str, records: u64, seed: u64, ledger: &Ledger) -> Result<(), Failure> {
    let failed = |error: alluvium_kafka::Error| Failure::classified(&error).context("the producer failed");
    let producer = Producer::connect(brokers, &[]).map_err(failed)?;
    let mut orders = Orders::new(seed, true);
    let mut order = String::new();
    let mut deliveries = Vec::new();
    for number in 0..records {
        let partition = (number % PARTITIONS as u64) as usize;
        let (Some(produced), Some(committed)) = (ledger.produced.get(partition), ledger.committed.get(partition))
        else {
            continue;
        };
        let is_early = || {
            let kept_back = number >= records - records / 20 && ledger.kills_left.load(Ordering::Acquire) > 0;
            kept_back || produced.load(Ordering::Relaxed) - committed.load(Ordering::Acquire) >= AHEAD
        };
        while is_early() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (key, fate) = orders.write_next(&mut order);
        let record = NewRecord {
            topic: TOPIC,
            partition: Some(partition as i32),
            key: Some(key.as_bytes()),
            value: Some(order.as_bytes()),
            ..NewRecord::default()
        };
        deliveries.push(producer.enqueue(record).await.map_err(failed)?);
        produced.fetch_add(1, Ordering::Release);
        let counter = match fate {
            Fate::Row => &ledger.rows,
            Fate::Filtered => &ledger.filtered,
            Fate::DeadLetter => &ledger.broken,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if deliveries.len() >= 2_000 || number + 1 == records {
            for delivery in deliveries.drain(..) {
                delivery.await.map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Runs workers, killing them at random moments, until the table holds all that was produced.
async fn work(
    arguments: &cli::Demo,
    file: &Path,
    sink: &DeltaSink,
    ledger: &Ledger,
    producing: &tokio::task::JoinHandle<Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut random = StdRng::seed_from_u64(arguments.seed);
    let mut kills = 0;
    loop {
        let mut worker = Worker::start(file)?;
        // Killed at a random moment: of its start, or of its work.
        let life = Duration::from_millis(random.random_range(100..1500));
        let working = random.random_bool(0.7);
        let before = Ledger::total(&ledger.committed);
        let started = Instant::now();
        let mut until = (kills < arguments.kills && !working).then(|| Instant::now() + life);
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            for (partition, position) in
                sink.reader().state().await.map_err(|error| Failure::classified(&error))?.positions
            {
                if let Some(committed) = usize::try_from(partition.0).ok().and_then(|index| ledger.committed.get(index))
                {
                    committed.store(position, Ordering::Release);
                }
            }
            let done = Ledger::total(&ledger.committed);
            if done as u64 >= arguments.records {
                return worker.stop();
            }
            if producing.is_finished() && Ledger::total(&ledger.produced) as u64 != arguments.records {
                return Ok(()); // Its error is told by the caller.
            }
            // When the producer waits for the kills, there may be nothing new to work on.
            let idle = started.elapsed() > Duration::from_secs(4);
            if kills < arguments.kills && (done > before || idle) {
                until.get_or_insert_with(|| Instant::now() + life);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                kills += 1;
                worker.kill()?;
                ledger.kills_left.fetch_sub(1, Ordering::Release);
                output::line(format!(
                    "killed the worker (kill {kills} of {}) with {done} of {} records in the table",
                    arguments.kills, arguments.records
                ));
                break;
            }
            worker.check()?;
        }
    }
}

/// A worker: this same binary, in a process of its own.
struct Worker {
    child: Child,
}

impl Worker {
    fn start(file: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::caused("a worker cannot be started", &error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("run").arg(file).env("ALLUVIUM_LOG", "error").stdin(Stdio::null()).stdout(Stdio::null());
        // The worker's summary line is of no interest; its errors are.
        Ok(Self { child: command.stderr(Stdio::piped()).spawn().map_err(failed)? })
    }

    /// SIGKILL: no time to write, to flush, to say goodbye.
    fn kill(&mut self) -> Result<(), Failure> {
        let failed = |error| Failure::caused("the worker cannot be killed", &error);
        self.child.kill().map_err(failed)?;
        self.child.wait().map_err(failed)?;
        Ok(())
    }

    /// An error when the worker ended by itself.
    fn check(&mut self) -> Result<(), Failure> {
        let Ok(Some(status)) = self.child.try_wait() else { return Ok(()) };
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _unreadable = std::io::Read::read_to_string(&mut stderr, &mut text).is_err();
        }
        Err(Failure::new(format!("the worker ended by itself ({status}):\n{}", text.trim_end())))
    }

    /// SIGTERM: it commits what it read and ends.
    fn stop(&mut self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::caused("the worker cannot be stopped", &error);
        let id = i32::try_from(self.child.id()).map(Pid::from_raw);
        let id = id.map_err(|error| Failure::caused("the worker's process id is out of range", &error))?;
        signal::kill(id, Signal::SIGTERM).map_err(|errno| failed(errno.into()))?;
        let status = self.child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::new(format!("the worker did not end well after SIGTERM: {status}"))),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _gone = self.kill().is_err();
        }
    }
}

async fn report(sink: &DeltaSink, pipeline: &alluvium_config::Pipeline, ledger: &Ledger) -> Result<(), Failure> {
    let proof = prove(sink.reader(), pipeline, pipeline.sink.metadata.kafka.as_deref()).await?;
    output::line("");
    super::verify::print(&proof);
    output::line("");
    let counts = proof.log.counts();
    let scan = proof.scan.as_ref();
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let produced = Ledger::total(&ledger.produced);
    output::line(format!("{:<14}{:>10}", "produced", produced));
    output::line(format!("{:<14}{:>10}", "rows", counts.rows));
    output::line(format!("{:<14}{:>10}", "filtered", counts.filtered));
    output::line(format!("{:<14}{:>10}", "dead letters", proof.dead_letters.letters));
    output::line(format!("{:<14}{:>10}", "missing", scan.map_or(0, |scan| scan.missing)));
    output::line(format!("{:<14}{:>10}", "doubled", scan.map_or(0, |scan| scan.doubled)));
    output::line("");
    let columns = ["id", "event_time", "customer", "amount", "order_date", "_kafka"];
    let columns = columns.map(str::to_owned);
    let rows = sink.reader().first_rows(TableRole::Rows, Some(&columns), ROWS_SHOWN).await;
    let rows = rows.map_err(|error| Failure::classified(&error))?;
    let table = pretty_format_batches(&[rows]).map_err(|error| Failure::caused("the rows cannot be shown", &error))?;
    output::line(table);
    let expected = (produced as u64, load(&ledger.rows), load(&ledger.filtered), load(&ledger.broken));
    let found = (counts.read, counts.rows, counts.filtered, proof.dead_letters.letters);
    if !proof.holds() || expected != found {
        return Err(Failure::new(format!("the table is not what was produced: {found:?} instead of {expected:?}")));
    }
    Ok(())
}

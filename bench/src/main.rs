//! `cargo xtask bench`: alluvium and a vectorised script on one topic of a real broker.
//!
//! Every contender reads the whole topic into a new table, in turn, several times; what is printed
//! is each figure's median, and the ratios within one run.
#![expect(clippy::print_stdout, reason = "a command line tool: what it has to say goes to the terminal")]

use alluvium::orders::Orders;
use alluvium_kafka::{NewRecord, Producer};
use alluvium_testkit::kafka_server::KafkaServer;
use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use wait4::Wait4;

const TOPIC: &str = "orders";
const PARTITIONS: u64 = 4;
/// The contender whose table all later ones must equal.
const REDACT: usize = 1;

/// Measures alluvium beside a vectorised script.
#[derive(Parser)]
struct Arguments {
    /// Orders in the topic
    #[arg(long, default_value_t = 2_000_000)]
    records: u64,
    /// How often each contender runs
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The alluvium binary [default: the one beside this]
    #[arg(long)]
    alluvium: Option<PathBuf>,
    /// The redact plugin
    #[arg(long)]
    plugin: PathBuf,
    /// A Python with bench/peers' packages
    #[arg(long)]
    python: PathBuf,
    /// A shell command that fills $TOPIC at $BOOTSTRAP with $RECORDS orders, instead of our own
    #[arg(long)]
    fill: Option<String>,
    /// One more contender: NAME=COMMAND, a shell command that reads $TOPIC at $BOOTSTRAP into the table $TABLE
    #[arg(long = "peer", value_parser = named)]
    peers: Vec<(String, String)>,
}

fn named(text: &str) -> Result<(String, String)> {
    let (name, command) = text.split_once('=').context("not NAME=COMMAND")?;
    Ok((name.to_owned(), command.to_owned()))
}

struct Contender {
    name: String,
    /// Makes the command that reads the topic into `table` in a directory.
    command: Box<MakeCommand>,
}

type MakeCommand = dyn Fn(&Path) -> Result<Command>;

/// What one run took.
#[derive(Clone, Copy, Debug)]
struct Figures {
    records_per_second: f64,
    cpu_per_million: f64,
    peak_mib: f64,
    files: f64,
    megabytes: f64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let server = KafkaServer::start().context("starting a broker")?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(fill(&server, &arguments))?;

    let contenders = contenders(&arguments, server.brokers())?;
    let mut all: Vec<Vec<Figures>> = vec![Vec::new(); contenders.len()];
    let mut contents: Vec<Value> = vec![Value::Null; contenders.len()];
    for run in 0..arguments.runs {
        for (number, contender) in contenders.iter().enumerate() {
            let context = || format!("running {}", contender.name);
            let (measured, holds) = measure(contender, &arguments).with_context(context)?;
            println!("run {}  {}", run + 1, line(&contender.name, measured));
            all[number].push(measured);
            contents[number] = holds;
        }
    }
    println!("\nmedians of {} runs", arguments.runs);
    println!("{:<28} {:>12} {:>14} {:>10} {:>6} {:>8}", "", "records/s", "CPU-s/million", "peak MiB", "files", "MB");
    let mut all_alike = true;
    for (number, contender) in contenders.iter().enumerate() {
        println!("{}", line(&contender.name, median(&all[number])));
        println!("{:<28} {}", "", contents[number]);
        // The first has no plugin, and so other rows.
        all_alike &= number < REDACT || contents[number] == contents[REDACT];
    }
    println!();
    for (number, contender) in contenders.iter().enumerate().skip(REDACT + 1) {
        let ratio = |of: fn(&Figures) -> f64| {
            median_of(all[number].iter().zip(&all[REDACT]).map(|(theirs, ours)| of(theirs) / of(ours)))
        };
        let cpu = ratio(|figures| figures.cpu_per_million);
        let rate = ratio(|figures| 1.0 / figures.records_per_second);
        let name = &contender.name;
        println!(
            "with the plugin, beside {name}: {cpu:.2} times the records per CPU-second, {rate:.2} times the records/s"
        );
    }
    if !all_alike {
        bail!("the contenders' tables differ: they did not do the same job");
    }
    Ok(())
}

async fn fill(server: &KafkaServer, arguments: &Arguments) -> Result<()> {
    server.create_topic(TOPIC, PARTITIONS as i32, &[]).await?;
    let records = arguments.records;
    match &arguments.fill {
        Some(command) => {
            let status = shell(command, server.brokers()).env("RECORDS", records.to_string()).status()?;
            if !status.success() {
                bail!("{command:?} ended with {status}");
            }
        }
        None => {
            let average = produce(server, records).await? as f64 / records as f64;
            println!("topic {TOPIC}: {records} records of {average:.0} bytes in {PARTITIONS} partitions");
        }
    }
    Ok(())
}

/// A contender's or a producer's command; what it has to say of itself goes to standard error.
fn shell(command: &str, brokers: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("BOOTSTRAP", brokers).env("TOPIC", TOPIC).stdout(std::io::stderr());
    shell
}

async fn produce(server: &KafkaServer, records: u64) -> Result<u64> {
    let large =
        [("linger.ms", "50"), ("batch.size", "1000000"), ("batch.num.messages", "10000"), ("compression.type", "lz4")];
    let large = large.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let producer = Producer::connect(server.brokers(), &large)?;
    let mut orders = Orders::new(42, false);
    let (mut order, mut bytes) = (String::new(), 0);
    for number in 0..records {
        let (key, _) = orders.write_next(&mut order);
        bytes += order.len() as u64;
        let record = NewRecord {
            topic: TOPIC,
            partition: Some((number % PARTITIONS) as i32),
            key: Some(key.as_bytes()),
            value: Some(order.as_bytes()),
            ..NewRecord::default()
        };
        drop(producer.enqueue(record).await?);
    }
    producer.flush().await?;
    Ok(bytes)
}

fn contenders(arguments: &Arguments, brokers: &str) -> Result<Vec<Contender>> {
    let beside = std::env::current_exe()?.parent().context("this binary lies in no directory")?.join("alluvium");
    let binary = arguments.alluvium.clone().unwrap_or(beside);
    if !binary.is_file() {
        bail!("{} is missing: `cargo xtask bench` builds it", binary.display());
    }
    let ours = |plugin: Option<PathBuf>| {
        let (binary, brokers) = (binary.clone(), brokers.to_owned());
        move |dir: &Path| {
            let transform = plugin.as_ref().map_or_else(String::new, |plugin| {
                format!("[[transform]]\nplugin = {plugin:?}\nwith = {{ fields = [\"customer.email\"] }}\n")
            });
            let text = include_str!("../orders.toml").replace("BROKERS", &brokers).replace("TRANSFORM", &transform);
            std::fs::write(dir.join("orders.toml"), text)?;
            let mut command = Command::new(&binary);
            command.args(["run", "--until-end", "--json"]).arg(dir.join("orders.toml")).env("ALLUVIUM_LOG", "warn");
            Ok(command)
        }
    };
    let (python, at) = (arguments.python.clone(), brokers.to_owned());
    let script = move |dir: &Path| {
        let mut command = Command::new(&python);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/vectorised.py");
        command.arg(script).args([&at, TOPIC]).arg(dir.join("table"));
        Ok(command)
    };
    let mut contenders = vec![
        Contender { name: "alluvium, no plugin".to_owned(), command: Box::new(ours(None)) },
        Contender {
            name: "alluvium, redact plugin".to_owned(),
            command: Box::new(ours(Some(arguments.plugin.clone()))),
        },
        Contender { name: "vectorised Python, tuned".to_owned(), command: Box::new(script) },
    ];
    for (name, line) in arguments.peers.clone() {
        let brokers = brokers.to_owned();
        let command = move |dir: &Path| {
            let mut command = shell(&line, &brokers);
            command.env("TABLE", dir.join("table"));
            Ok(command)
        };
        contenders.push(Contender { name, command: Box::new(command) });
    }
    Ok(contenders)
}

/// One run into a new table, and what the table then holds.
fn measure(contender: &Contender, arguments: &Arguments) -> Result<(Figures, Value)> {
    let records = arguments.records;
    let dir = tempfile::tempdir()?;
    let mut command = (contender.command)(dir.path())?;
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(std::io::stderr()).spawn()?;
    let used = child.wait4()?;
    let seconds = begun.elapsed().as_secs_f64();
    if !used.status.success() {
        bail!("{command:?} ended with {}", used.status);
    }
    let cpu = (used.rusage.utime + used.rusage.stime).as_secs_f64();
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(dir.path().join("table"))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "parquet") {
            files += 1;
            bytes += entry.metadata()?.len();
        }
    }
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/check.py");
    let checked = Command::new(&arguments.python).arg(check).arg(dir.path().join("table")).output()?;
    if !checked.status.success() {
        bail!("the table cannot be read: {}", String::from_utf8_lossy(&checked.stderr));
    }
    let figures = Figures {
        records_per_second: records as f64 / seconds,
        cpu_per_million: cpu / records as f64 * 1e6,
        peak_mib: used.rusage.maxrss as f64 / f64::from(1 << 20),
        files: f64::from(files),
        megabytes: bytes as f64 / 1e6,
    };
    Ok((figures, serde_json::from_slice(&checked.stdout)?))
}

fn median(figures: &[Figures]) -> Figures {
    let of = |field: fn(&Figures) -> f64| median_of(figures.iter().map(field));
    Figures {
        records_per_second: of(|figures| figures.records_per_second),
        cpu_per_million: of(|figures| figures.cpu_per_million),
        peak_mib: of(|figures| figures.peak_mib),
        files: of(|figures| figures.files),
        megabytes: of(|figures| figures.megabytes),
    }
}

fn median_of(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn line(name: &str, figures: Figures) -> String {
    let Figures { records_per_second, cpu_per_million, peak_mib, files, megabytes } = figures;
    format!(
        "{name:<28} {records_per_second:>12.0} {cpu_per_million:>14.2} {peak_mib:>10.0} {files:>6.0} {megabytes:>8.1}"
    )
}

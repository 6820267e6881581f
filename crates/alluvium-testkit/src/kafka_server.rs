//! A real Apache Kafka broker on loopback, from its Maven artifacts.
//!
//! Needs `java` 17 or later, and `mvn` for the first start, which brings the jars to
//! `$XDG_CACHE_HOME/alluvium/kafka-4.4.0` (about 140 MB). A start takes about five seconds and
//! 500 MB of memory. Data lie in a temporary directory.
//!
//! The broker ends with its [`KafkaServer`] and, however that ends, with the process that started
//! it: a shell watches, and kills the broker once its standard input closes.

use alluvium_kafka::admin;
use std::{
    env, fs,
    io::{self, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub const VERSION: &str = "4.4.0";

/// How long a broker may take to open its port.
const START: Duration = Duration::from_secs(60);

const STOP: Duration = Duration::from_secs(20);

/// Waits for a word. When there is none, because this process has ended, kills the broker and
/// removes its data.
const WATCH: &str = r#"read -r word || { kill -9 "$1"; sleep 1; rm -rf "$2"; }"#;

const POM: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.4.0</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"#;

/// A running broker.
#[derive(Debug)]
pub struct KafkaServer {
    directory: TempDir,
    libraries: PathBuf,
    brokers: String,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    broker: Child,
    watch: Child,
    /// Held open as long as the broker is to live.
    watched: Option<ChildStdin>,
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("a real Kafka needs {tool}: apt-get install -y default-jre-headless maven")]
    Tool { tool: &'static str },
    #[error("there is no cache directory: set XDG_CACHE_HOME or HOME")]
    NoCache,
    #[error("{what} failed")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{what} failed:\n{output}")]
    Run { what: &'static str, output: String },
    #[error("the broker did not start:\n{log}")]
    Start { log: String },
}

impl KafkaServer {
    /// Starts a broker of its own.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with(&[])
    }

    /// Starts a broker with these settings of `server.properties` besides, or instead of, the usual.
    pub fn start_with(settings: &[(&str, &str)]) -> Result<Self, ServerError> {
        check_java()?;
        let libraries = libraries()?;
        loop {
            match Self::try_start(&libraries, settings) {
                // Somebody else was given the same free port before the broker took it.
                Err(ServerError::Start { log }) if log.contains("Address already in use") => {}
                started => return started,
            }
        }
    }

    fn try_start(libraries: &Path, settings: &[(&str, &str)]) -> Result<Self, ServerError> {
        let directory = tempfile::tempdir().map_err(|source| ServerError::Io { what: "making a directory", source })?;
        let ports = free_ports().map_err(|source| ServerError::Io { what: "finding free ports", source })?;
        let brokers = format!("127.0.0.1:{}", ports.0);
        let server = Self { directory, libraries: libraries.to_owned(), brokers, process: Mutex::new(None) };
        let properties = properties(ports, &server.data(), settings);
        fs::write(server.properties_file(), properties)
            .map_err(|source| ServerError::Io { what: "writing server.properties", source })?;
        server.format()?;
        server.start_again()?;
        Ok(server)
    }

    /// A broker that the tests of one process share. It lives until the process ends.
    pub fn shared() -> Result<&'static Self, &'static ServerError> {
        static SHARED: OnceLock<Result<KafkaServer, ServerError>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// `host:port`.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Where the broker keeps its log segments.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Stops the broker in order; its data stay.
    pub fn stop(&self) {
        if let Some(mut process) = self.process().take() {
            process.end(true);
        }
    }

    /// Kills the broker; its data stay.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.end(false);
        }
    }

    /// Starts the broker after it was stopped or killed, on the same port with the same data.
    pub fn start_again(&self) -> Result<(), ServerError> {
        self.stop();
        let io = |what| move |source| ServerError::Io { what, source };
        let log = self.directory.path().join("server.log");
        let output = fs::File::create(&log).map_err(io("making a log file"))?;
        let errors = output.try_clone().map_err(io("making a log file"))?;
        let mut command = Command::new("java");
        command.args(self.java_arguments(512)).arg("kafka.Kafka").arg(self.properties_file());
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let broker = command.spawn().map_err(io("starting the broker"))?;
        let mut command = Command::new("sh");
        command.args(["-c", WATCH, "watch"]).arg(broker.id().to_string()).arg(self.directory.path());
        let watch = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut watch = watch.map_err(io("starting the broker's watch"))?;
        let watched = watch.stdin.take();
        let mut process = Process { broker, watch, watched };
        let until = Instant::now() + START;
        while !is_open(&self.brokers) {
            let ended = !matches!(process.broker.try_wait(), Ok(None));
            if ended || Instant::now() > until {
                process.end(false);
                let log = fs::read_to_string(&log).unwrap_or_default();
                return Err(ServerError::Start { log: tail(&log) });
            }
            thread::sleep(Duration::from_millis(50));
        }
        *self.process() = Some(process);
        Ok(())
    }

    /// Makes a topic; `settings` are the topic's.
    pub async fn create_topic(
        &self,
        topic: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Result<(), alluvium_kafka::Error> {
        admin::create_topic(&self.brokers, topic, partitions, settings).await
    }

    /// Deletes a topic.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), alluvium_kafka::Error> {
        admin::delete_topic(&self.brokers, topic).await
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn properties_file(&self) -> PathBuf {
        self.directory.path().join("server.properties")
    }

    fn java_arguments(&self, megabytes: u32) -> Vec<String> {
        vec![
            format!("-Xmx{megabytes}m"),
            // For the native libraries that Java unpacks, and leaves behind when it is killed.
            format!("-Djava.io.tmpdir={}", self.directory.path().display()),
            "-XX:+UseSerialGC".to_owned(),
            "-XX:TieredStopAtLevel=1".to_owned(),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".to_owned(),
            "-cp".to_owned(),
            format!("{}/*", self.libraries.display()),
        ]
    }

    fn format(&self) -> Result<(), ServerError> {
        let mut command = Command::new("java");
        // The id is any sixteen bytes in base 64.
        command.args(self.java_arguments(128)).args(["kafka.tools.StorageTool", "format", "-t"]);
        command.args(["YWxsdXZpdW0ta2Fma2EtMQ", "-c"]).arg(self.properties_file());
        run("formatting the broker's storage", &mut command)
    }
}

impl Drop for KafkaServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Process {
    /// Ends the broker, and then its watch. What cannot be ended or waited for is gone already.
    fn end(&mut self, in_order: bool) {
        if let Some(mut watched) = self.watched.take() {
            drop(watched.write_all(b"enough\n"));
        }
        drop(self.watch.wait());
        if in_order {
            let until = Instant::now() + STOP;
            drop(Command::new("kill").arg(self.broker.id().to_string()).status());
            while Instant::now() < until && matches!(self.broker.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(20));
            }
        }
        drop(self.broker.kill());
        drop(self.broker.wait());
    }
}

fn properties((port, controller): (u16, u16), data: &Path, settings: &[(&str, &str)]) -> String {
    let mut properties = vec![
        ("process.roles".to_owned(), "broker,controller".to_owned()),
        ("node.id".to_owned(), "1".to_owned()),
        ("listeners".to_owned(), format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}")),
        ("advertised.listeners".to_owned(), format!("PLAINTEXT://127.0.0.1:{port}")),
        ("controller.quorum.voters".to_owned(), format!("1@127.0.0.1:{controller}")),
        ("log.dirs".to_owned(), data.display().to_string()),
    ];
    let usual = [
        ("inter.broker.listener.name", "PLAINTEXT"),
        ("controller.listener.names", "CONTROLLER"),
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
        ("offsets.topic.replication.factor", "1"),
        ("offsets.topic.num.partitions", "4"),
        ("transaction.state.log.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        ("transaction.state.log.num.partitions", "4"),
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
        // Three seconds less per test.
        ("group.initial.rebalance.delay.ms", "0"),
        ("auto.create.topics.enable", "false"),
        ("log.retention.ms", "-1"),
        // Compaction and deletion while a test waits.
        ("log.initial.task.delay.ms", "500"),
        ("log.cleaner.backoff.ms", "200"),
        ("log.cleaner.dedupe.buffer.size", "4194304"),
        // A broker that starts again waits until the one before is thought dead.
        ("broker.session.timeout.ms", "2000"),
        ("broker.heartbeat.interval.ms", "250"),
    ];
    for (key, value) in usual.iter().chain(settings) {
        properties.retain(|(known, _)| known != key);
        properties.push(((*key).to_owned(), (*value).to_owned()));
    }
    properties.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

/// The directory of Kafka's jars; fetched once, by one process at a time.
fn libraries() -> Result<PathBuf, ServerError> {
    let io = |what| move |source| ServerError::Io { what, source };
    let from_home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(from_home).ok_or(ServerError::NoCache)?.join("alluvium").join(format!("kafka-{VERSION}"));
    let libraries = cache.join("libs");
    if libraries.is_dir() {
        return Ok(libraries);
    }
    fs::create_dir_all(&cache).map_err(io("making the cache directory"))?;
    let lock = fs::File::create(cache.join("lock")).map_err(io("making a lock file"))?;
    lock.lock().map_err(io("locking the cache directory"))?;
    if libraries.is_dir() {
        return Ok(libraries);
    }
    let arriving = cache.join("arriving");
    drop(fs::remove_dir_all(&arriving));
    fs::create_dir_all(&arriving).map_err(io("making the cache directory"))?;
    fs::write(arriving.join("pom.xml"), POM).map_err(io("writing pom.xml"))?;
    let mut command = Command::new("mvn");
    command.current_dir(&arriving).args(["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]);
    command.arg(format!("-DoutputDirectory={}", arriving.join("libs").display()));
    run("fetching Kafka with mvn", &mut command)?;
    fs::rename(arriving.join("libs"), &libraries).map_err(io("keeping Kafka's jars"))?;
    drop(fs::remove_dir_all(&arriving));
    Ok(libraries)
}

fn check_java() -> Result<(), ServerError> {
    let missing = ServerError::Tool { tool: "`java` 17 or later" };
    let Ok(output) = Command::new("java").arg("-version").stdin(Stdio::null()).output() else { return Err(missing) };
    let text = String::from_utf8_lossy(&output.stderr);
    let version = text.split('"').nth(1).and_then(|version| version.split(['.', '-']).next()?.parse::<u32>().ok());
    if version.is_some_and(|major| major >= 17) { Ok(()) } else { Err(missing) }
}

fn run(what: &'static str, command: &mut Command) -> Result<(), ServerError> {
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Err(ServerError::Tool { tool: "`mvn`" }),
        Err(source) => return Err(ServerError::Io { what, source }),
    };
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(ServerError::Run { what, output: tail(&String::from_utf8_lossy(&text)) })
}

fn free_ports() -> io::Result<(u16, u16)> {
    // Both are held until both are known, so that they differ.
    let (first, second) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok((first.local_addr()?.port(), second.local_addr()?.port()))
}

fn is_open(brokers: &str) -> bool {
    let Ok(address) = brokers.parse::<SocketAddr>() else { return false };
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(20)).copied().collect::<Vec<_>>().join("\n")
}

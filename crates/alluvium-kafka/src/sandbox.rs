//! A Kafka broker in memory, to try things on.

use crate::{Error, KafkaConfig, context::LogContext, native};
use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    error::KafkaError,
    mocking::MockCluster,
    producer::{BaseProducer, DeliveryResult, Producer, ProducerContext},
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use std::{fmt, sync::mpsc, thread, time::Duration};
use tokio::sync::oneshot;

/// librdkafka's mock cluster with one broker on a free loopback port, for this process and others.
///
/// It holds topics in memory while it lives, and of each partition only about the newest 5 MiB or
/// 100,000 records. It takes part in groups, idempotent writes and the protocol of transactions,
/// but shows the records of aborted transactions, and knows no administration, security, or
/// retention by time. Topics that a producer writes to are made with four partitions.
pub struct Sandbox {
    brokers: String,
    calls: mpsc::Sender<Call>,
    thread: Option<thread::JoinHandle<()>>,
}

type Cluster<'c> = MockCluster<'c, Context>;
type Call = Box<dyn FnOnce(&Cluster<'_>) + Send>;

/// A kind of request, to make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Fetch,
    Produce,
    Metadata,
    ListOffsets,
    FindCoordinator,
    JoinGroup,
    SyncGroup,
    Heartbeat,
    OffsetCommit,
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is cut.
    Disconnect,
    NotLeader,
    OffsetOutOfRange,
    TopicAuthorization,
    GroupAuthorization,
    CoordinatorLoading,
    RebalanceInProgress,
    UnknownMember,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    UnknownServerError,
}

impl Sandbox {
    /// Starts a broker with topics of so many partitions.
    pub fn start(topics: &[(&str, i32)]) -> Result<Self, Error> {
        let topics: Vec<_> = topics.iter().map(|(topic, partitions)| ((*topic).to_owned(), *partitions)).collect();
        let (calls, receiver) = mpsc::channel();
        let (started, start) = mpsc::channel();
        // The cluster lives in a client, and its wrapper cannot leave this thread.
        let run = move || match Self::producer() {
            Ok(producer) => serve(&producer, &topics, &started, &receiver),
            Err(error) => drop(started.send(Err(error))),
        };
        let spawned = thread::Builder::new().name("kafka-sandbox".to_owned()).spawn(run);
        let thread = spawned.map_err(|source| Error::Thread { topic: "of the sandbox".to_owned(), source })?;
        let brokers = start.recv().unwrap_or(Err(Error::SandboxEnded))?;
        Ok(Self { brokers, calls, thread: Some(thread) })
    }

    fn producer() -> Result<BaseProducer<Context>, Error> {
        let mut config = KafkaConfig::client("127.0.0.1:1", &[])?;
        config.set("test.mock.num.brokers", "1");
        config.create_with_context(Context).map_err(Error::configure)
    }

    /// `host:port`, to give to any Kafka client.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    pub async fn create_topic(&self, topic: &str, partitions: i32) -> Result<(), Error> {
        let (name, topic) = (topic.to_owned(), topic.to_owned());
        let made = self.call(move |cluster| cluster.create_topic(&name, partitions, 1)).await?;
        made.map_err(|source| Error::CreateTopic { topic, source: source.into() })
    }

    /// Lets the next requests of a kind fail, each in the next of these ways.
    pub async fn fail(&self, request: Request, faults: &[Fault]) -> Result<(), Error> {
        let codes: Vec<_> = faults.iter().map(|fault| fault.code()).collect();
        self.call(move |cluster| cluster.request_errors(request.key(), &codes)).await
    }

    /// Lets requests of a kind succeed again.
    pub async fn heal(&self, request: Request) -> Result<(), Error> {
        self.call(move |cluster| cluster.clear_request_errors(request.key())).await
    }

    /// Speaks a kind of request up to this version only, as older brokers do.
    pub async fn limit_version(&self, request: Request, newest: i16) -> Result<(), Error> {
        self.change(move |cluster| cluster.apiversion(request.key(), Some(0), Some(newest))).await
    }

    /// Delays every answer.
    pub async fn set_round_trip(&self, delay: Duration) -> Result<(), Error> {
        self.change(move |cluster| cluster.broker_round_trip_time(-1, delay)).await
    }

    /// Cuts all connections and takes no new ones.
    pub async fn go_down(&self) -> Result<(), Error> {
        self.change(|cluster| cluster.broker_down(-1)).await
    }

    /// Takes connections again.
    pub async fn come_up(&self) -> Result<(), Error> {
        self.change(|cluster| cluster.broker_up(-1)).await
    }

    async fn change(
        &self,
        change: impl FnOnce(&Cluster<'_>) -> Result<(), KafkaError> + Send + 'static,
    ) -> Result<(), Error> {
        self.call(change).await?.map_err(|source| Error::Sandbox { source: source.into() })
    }

    async fn call<T: Send + 'static>(&self, call: impl FnOnce(&Cluster<'_>) -> T + Send + 'static) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let call = Box::new(move |cluster: &Cluster<'_>| drop(answer.send(call(cluster))));
        self.calls.send(call).map_err(|_| Error::SandboxEnded)?;
        answered.await.map_err(|_| Error::SandboxEnded)
    }
}

fn serve(
    producer: &BaseProducer<Context>,
    topics: &[(String, i32)],
    started: &mpsc::Sender<Result<String, Error>>,
    calls: &mpsc::Receiver<Call>,
) {
    native::start_groups_at_once(producer.client());
    let Some(cluster) = producer.client().mock_cluster() else {
        return drop(started.send(Err(Error::SandboxEnded)));
    };
    for (topic, partitions) in topics {
        if let Err(source) = cluster.create_topic(topic, *partitions, 1) {
            return drop(started.send(Err(Error::CreateTopic { topic: topic.clone(), source: source.into() })));
        }
    }
    drop(started.send(Ok(cluster.bootstrap_servers())));
    loop {
        // Log lines wait in the client until they are taken.
        producer.poll(Duration::ZERO);
        match calls.recv_timeout(Duration::from_millis(500)) {
            Ok(call) => call(&cluster),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let (nobody, _) = mpsc::channel();
        drop(std::mem::replace(&mut self.calls, nobody));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("brokers", &self.brokers).finish_non_exhaustive()
    }
}

impl Request {
    fn key(self) -> RDKafkaApiKey {
        match self {
            Self::Fetch => RDKafkaApiKey::Fetch,
            Self::Produce => RDKafkaApiKey::Produce,
            Self::Metadata => RDKafkaApiKey::Metadata,
            Self::ListOffsets => RDKafkaApiKey::ListOffsets,
            Self::FindCoordinator => RDKafkaApiKey::FindCoordinator,
            Self::JoinGroup => RDKafkaApiKey::JoinGroup,
            Self::SyncGroup => RDKafkaApiKey::SyncGroup,
            Self::Heartbeat => RDKafkaApiKey::Heartbeat,
            Self::OffsetCommit => RDKafkaApiKey::OffsetCommit,
        }
    }
}

impl Fault {
    fn code(self) -> RDKafkaRespErr {
        match self {
            Self::Disconnect => RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
            Self::NotLeader => RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            Self::OffsetOutOfRange => RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE,
            Self::TopicAuthorization => RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            Self::GroupAuthorization => RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED,
            Self::CoordinatorLoading => RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
            Self::RebalanceInProgress => RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,
            Self::UnknownMember => RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
            Self::InconsistentGroupProtocol => RDKafkaRespErr::RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL,
            Self::InvalidSessionTimeout => RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT,
            Self::UnknownServerError => RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN,
        }
    }
}

/// A client that writes nothing.
struct Context;

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        LogContext.log(level, facility, message);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, _result: &DeliveryResult<'_>, (): ()) {}
}

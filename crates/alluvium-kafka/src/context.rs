//! What librdkafka tells a client: log lines, errors, rebalances.

use alluvium_core::Partition;
use rdkafka::{
    ClientContext, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A change of the group's mind. librdkafka holds the rebalance until it is answered by an
/// incremental assign or unassign, which [`Context`] leaves to the reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rebalance {
    Assign(Vec<Partition>),
    Revoke { partitions: Vec<Partition>, lost: bool },
}

/// Keeps what was told until somebody asks. Never waits.
#[derive(Default)]
pub(crate) struct Context {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rebalances: VecDeque<Rebalance>,
    last_error: Option<(RDKafkaErrorCode, String)>,
    closing: bool,
}

impl Context {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn next_rebalance(&self) -> Option<Rebalance> {
        self.state().rebalances.pop_front()
    }

    /// The newest error, with librdkafka's words for it.
    pub(crate) fn take_error(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.state().last_error.take()
    }

    /// From now on rebalances are answered here: nobody reads any more.
    pub(crate) fn close(&self) {
        self.state().closing = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason, "client error");
        // End of partition comes this way too when nobody forwarded the partition's messages yet.
        if let Some(code) = error.rdkafka_error_code()
            && code != RDKafkaErrorCode::PartitionEOF
        {
            self.state().last_error = Some((code, reason.to_owned()));
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, code: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let partitions = list.elements().iter().map(|element| Partition(element.partition())).collect();
        let rebalance = match code {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Rebalance::Assign(partitions),
            _ => Rebalance::Revoke { partitions, lost: consumer.assignment_lost() },
        };
        let mut state = self.state();
        if !state.closing {
            state.rebalances.push_back(rebalance);
            return;
        }
        drop(state);
        if let Err(error) = refuse(consumer, &rebalance) {
            tracing::debug!(%error, "giving partitions back while closing");
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::warn!(%error, "group offsets, kept for lag dashboards only, were not written");
        }
    }
}

/// Answers a rebalance of a consumer that reads no more: takes nothing, gives back everything.
pub(crate) fn refuse(consumer: &BaseConsumer<Context>, rebalance: &Rebalance) -> KafkaResult<()> {
    match (consumer.rebalance_protocol(), rebalance) {
        (RebalanceProtocol::Cooperative, Rebalance::Assign(_)) => {
            consumer.incremental_assign(&TopicPartitionList::new())
        }
        (RebalanceProtocol::Cooperative, Rebalance::Revoke { .. }) => {
            consumer.incremental_unassign(&consumer.assignment()?)
        }
        (RebalanceProtocol::Eager | RebalanceProtocol::None, _) => consumer.unassign(),
    }
}

/// A context for clients that only log.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogContext;

impl ClientContext for LogContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason, "client error");
    }
}

/// librdkafka calls a refused connection an error, but goes on trying: a level less for all.
fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(target: "librdkafka", "{facility}: {message}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            tracing::warn!(target: "librdkafka", "{facility}: {message}");
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(target: "librdkafka", "{facility}: {message}");
        }
    }
}

//! What can go wrong with Kafka.

use alluvium_core::{Classified, ErrorClass, Partition, chunk::ChunkError, packed::PackedFull, span::SpanError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::time::Duration;

/// A failed operation, named after it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("setting {key:?} is not to be changed: {reason}")]
    ProtectedSetting { key: String, reason: &'static str },
    #[error("setting {key:?}: {reason}")]
    Setting { key: String, reason: String },
    #[error("{topic:?} is not a topic's name")]
    TopicName { topic: String },
    #[error("no brokers are given")]
    NoBrokers,
    #[error("making a Kafka client failed: {reason}")]
    Configure { reason: String },
    #[error("starting a thread for topic {topic} failed")]
    Thread {
        topic: String,
        #[source]
        source: std::io::Error,
    },

    #[error("Kafka cannot be reached at {brokers}: {reason}")]
    Unreachable { brokers: String, reason: String },
    #[error("Kafka at {brokers} did not accept the credentials: {reason}")]
    Authentication { brokers: String, reason: String },
    #[error("Kafka does not allow this client to {action}: {reason}")]
    Authorization { action: String, reason: String },
    #[error("topic {topic} does not exist at {brokers}")]
    TopicMissing { brokers: String, topic: String },
    #[error("partition {partition} of topic {topic} does not exist")]
    PartitionMissing { topic: String, partition: Partition },
    #[error("asking for the partitions of topic {topic} failed")]
    Partitions {
        topic: String,
        #[source]
        source: ClientError,
    },
    #[error("asking for the id of topic {topic} failed")]
    TopicId {
        topic: String,
        #[source]
        source: ClientError,
    },
    #[error("asking for the watermarks of partition {partition} of topic {topic} failed")]
    Watermarks {
        topic: String,
        partition: Partition,
        #[source]
        source: ClientError,
    },
    #[error("asking for the offset at timestamp {timestamp} of partition {partition} of topic {topic} failed")]
    OffsetAt {
        topic: String,
        partition: Partition,
        timestamp: i64,
        #[source]
        source: ClientError,
    },

    #[error("subscribing group {group} to topic {topic} failed")]
    Subscribe {
        topic: String,
        group: String,
        #[source]
        source: ClientError,
    },
    #[error("group {group} did not take this member: {reason}")]
    Group { group: String, code: RDKafkaErrorCode, reason: String },
    #[error("taking partitions {partitions:?} of topic {topic} failed")]
    Assign {
        topic: String,
        partitions: Vec<Partition>,
        #[source]
        source: ClientError,
    },
    #[error("partitions {partitions:?} of topic {topic} got no starting positions within {waited:?}")]
    AssignTimeout { topic: String, partitions: Vec<Partition>, waited: Duration },
    #[error("partition {partition} of topic {topic} has no records at offset {position} to read on from: {reason}")]
    PositionGone { topic: String, partition: Partition, position: i64, reason: String },
    #[error("reading partition {partition} of topic {topic} from offset {position} failed: {reason}")]
    Fetch { topic: String, partition: Partition, position: i64, code: RDKafkaErrorCode, reason: String },
    #[error("records of partition {partition} of topic {topic} do not make a chunk")]
    Chunk {
        topic: String,
        partition: Partition,
        #[source]
        source: PackError,
    },
    #[error("the Kafka client of topic {topic} cannot go on: {reason}")]
    Fatal { topic: String, code: RDKafkaErrorCode, reason: String },
    #[error("the source of topic {topic} is closed")]
    Closed { topic: String },

    #[error("writing a record to topic {topic} failed")]
    Produce {
        topic: String,
        #[source]
        source: ClientError,
    },
    #[error("waiting for records to be written failed")]
    Flush {
        #[source]
        source: ClientError,
    },
    #[error("to {step} a transaction failed")]
    Transaction {
        step: &'static str,
        #[source]
        source: ClientError,
    },
    #[error("making topic {topic} failed")]
    CreateTopic {
        topic: String,
        #[source]
        source: ClientError,
    },
    #[error("deleting topic {topic} failed")]
    DeleteTopic {
        topic: String,
        #[source]
        source: ClientError,
    },
    #[error("deleting records of topic {topic} below offset {offset} failed")]
    DeleteRecords {
        topic: String,
        offset: i64,
        #[source]
        source: ClientError,
    },
    #[error("starting the sandbox failed")]
    Sandbox {
        #[source]
        source: ClientError,
    },
    #[error("the sandbox has ended")]
    SandboxEnded,
}

/// librdkafka's own error, in its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ClientError {
    pub(crate) code: Option<RDKafkaErrorCode>,
    reason: String,
}

impl From<KafkaError> for ClientError {
    fn from(error: KafkaError) -> Self {
        let code = error.rdkafka_error_code();
        // With a code, the rest of the error only names the call again.
        Self { code, reason: code.map_or_else(|| error.to_string(), |code| code.to_string()) }
    }
}

/// Records that cannot be packed into a chunk.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error(transparent)]
    Full(#[from] PackedFull),
    #[error(transparent)]
    Span(#[from] SpanError),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
}

impl Error {
    /// A refused configuration, without the refused value: it may be a secret.
    pub(crate) fn configure(source: KafkaError) -> Self {
        match source {
            KafkaError::ClientConfig(_, description, key, value) => {
                let reason = if value.is_empty() { description } else { description.replace(&value, "…") };
                Self::Setting { key, reason }
            }
            KafkaError::ClientCreation(reason) => Self::Configure { reason },
            other => Self::Configure { reason: other.to_string() },
        }
    }
}

impl Classified for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::ProtectedSetting { .. }
            | Self::Setting { .. }
            | Self::TopicName { .. }
            | Self::NoBrokers
            | Self::Configure { .. }
            | Self::Authentication { .. }
            | Self::Authorization { .. }
            | Self::TopicMissing { .. }
            | Self::PartitionMissing { .. }
            | Self::PositionGone { .. } => ErrorClass::User,
            Self::Group { code, .. } if *code == RDKafkaErrorCode::GroupMaxSizeReached => ErrorClass::External,
            Self::Group { .. } => ErrorClass::User,
            Self::Fetch { code, .. } | Self::Fatal { code, .. } if is_owners(*code) => ErrorClass::User,
            Self::Produce { source, .. }
            | Self::CreateTopic { source, .. }
            | Self::DeleteTopic { source, .. }
            | Self::DeleteRecords { source, .. }
                if source.code.is_some_and(is_owners) =>
            {
                ErrorClass::User
            }
            Self::Thread { .. }
            | Self::Unreachable { .. }
            | Self::Partitions { .. }
            | Self::TopicId { .. }
            | Self::Watermarks { .. }
            | Self::OffsetAt { .. }
            | Self::AssignTimeout { .. }
            | Self::Fetch { .. }
            | Self::Produce { .. }
            | Self::Flush { .. }
            | Self::Transaction { .. }
            | Self::CreateTopic { .. }
            | Self::DeleteTopic { .. }
            | Self::DeleteRecords { .. }
            | Self::Sandbox { .. }
            | Self::SandboxEnded => ErrorClass::External,
            // Nothing comes after a fatal error: it must end the pipeline while its reason is at hand.
            Self::Fatal { .. }
            | Self::Subscribe { .. }
            | Self::Assign { .. }
            | Self::Chunk { .. }
            | Self::Closed { .. } => ErrorClass::Bug,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::ProtectedSetting { key, .. } => format!("take {key:?} out of `kafka`"),
            Self::Setting { .. } => "the settings are librdkafka's; its CONFIGURATION.md lists them".to_owned(),
            Self::TopicName { .. } => {
                "a topic's name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'".to_owned()
            }
            Self::NoBrokers => "give `brokers` at least one host:port".to_owned(),
            Self::Unreachable { .. } => {
                "check `brokers`, and that the address the brokers advertise can be reached from here".to_owned()
            }
            Self::Authentication { .. } => "check `security.protocol` and the `sasl.` settings".to_owned(),
            Self::Authorization { .. } => "ask the cluster's owner to grant it".to_owned(),
            Self::TopicMissing { .. } => "check `topic` and `brokers`, or make the topic".to_owned(),
            Self::PartitionMissing { .. } => "the topic was probably made anew with fewer partitions".to_owned(),
            Self::PositionGone { .. } => {
                "compare the position with the broker's watermarks: retention passed it, or the topic was made anew"
                    .to_owned()
            }
            Self::Group { code, .. } => group_hint(*code),
            Self::AssignTimeout { .. } => "the table did not tell its positions in time".to_owned(),
            Self::Fetch { code: RDKafkaErrorCode::MessageSizeTooLarge, .. } => {
                "raise `receive.message.max.bytes` and `fetch.message.max.bytes`".to_owned()
            }
            Self::Fetch { code: RDKafkaErrorCode::BadMessage | RDKafkaErrorCode::BadCompression, .. } => {
                "the broker's copy may be damaged; nothing past it is read".to_owned()
            }
            Self::Fatal { code: RDKafkaErrorCode::FencedInstanceId, .. } => {
                "another process uses the same `group.instance.id`".to_owned()
            }
            _ => return None,
        };
        Some(hint)
    }
}

/// Whether an error stays until somebody changes something.
fn is_owners(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
            | Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::UnknownPartition
            | Code::InvalidTopic
            | Code::InvalidReplicationFactor
            | Code::InvalidPartitions
            | Code::InvalidConfig
            | Code::PolicyViolation
            | Code::TopicAlreadyExists
            | Code::TopicDeletionDisabled
            | Code::MessageSizeTooLarge
            | Code::FencedInstanceId
    )
}

fn group_hint(code: RDKafkaErrorCode) -> String {
    match code {
        RDKafkaErrorCode::InconsistentGroupProtocol => {
            "another kind of consumer is in this group: give the pipeline a group of its own".to_owned()
        }
        RDKafkaErrorCode::InvalidSessionTimeout => {
            "set `session.timeout.ms` within the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms"
                .to_owned()
        }
        RDKafkaErrorCode::GroupMaxSizeReached => "the brokers' group.max.size is reached".to_owned(),
        _ => "check `group`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_comes_after_is_never_waited_out() {
        let fatal = |code| Error::Fatal { topic: "orders".to_owned(), code, reason: "gone".to_owned() };
        assert_eq!(fatal(RDKafkaErrorCode::Fatal).class(), ErrorClass::Bug);
        assert_eq!(Error::Closed { topic: "orders".to_owned() }.class(), ErrorClass::Bug);
        // Another process with the same identity is the owner's to end.
        assert_ne!(fatal(RDKafkaErrorCode::FencedInstanceId).class(), ErrorClass::External);
    }
}

//! Errors: which are told, and what follows from them.

use super::{Next, PROBE, Reader, Seek};
use crate::{Error, native::Message};
use alluvium_core::Partition;
use rdkafka::{
    consumer::Consumer,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use std::time::Instant;

/// The brokers are gone.
pub(super) struct Trouble {
    since: Instant,
    code: Code,
    reason: String,
}

impl Reader<'_> {
    /// An error of one partition. librdkafka goes on behind some of them, as if what it could not
    /// read had not been there, so nothing more is taken of the partition before a seek back.
    pub(super) fn partition_error(&mut self, partition: Partition, code: Code, message: &Message) {
        let Some(position) = self.packer.position(partition) else { return };
        let (topic, reason) = (self.config.topic.clone(), message.reason());
        let gone = matches!(code, Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation);
        // Such an error outlives a seek in the queue; one about offsets before the position is old.
        if gone && (0..position).contains(&message.offset()) {
            return;
        }
        let packed = self.packer.flush(partition);
        self.hand_out(partition, packed);
        let position = self.packer.stop(partition).unwrap_or(position);
        if gone {
            self.tell_of(partition, Error::PositionGone { topic, partition, position, reason });
            return;
        }
        self.assigned.insert(partition, Some(Seek { position, due: Instant::now() + self.timing.retry }));
        self.tell(Err(match code {
            Code::TopicAuthorizationFailed => self.unauthorized(reason),
            code => Error::Fetch { topic, partition, position, code, reason },
        }));
    }

    /// An error of the client or the group. What librdkafka tries again by itself is only logged.
    pub(super) fn client_error(&mut self, error: &KafkaError) -> Next {
        let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
        let told = self.consumer.context().take_error().filter(|(of, _)| *of == code);
        let reason = told.map_or_else(|| code.to_string(), |(_, reason)| reason);
        let topic = self.config.topic.clone();
        if let Some((code, reason)) = self.consumer.client().fatal_error() {
            self.tell(Err(Error::Fatal { topic, code, reason }));
            return Next::End;
        }
        let (brokers, group) = (self.config.broker_list(), self.config.group.clone());
        match code {
            Code::AllBrokersDown | Code::Authentication | Code::SaslAuthenticationFailed => {
                // Once we were in, refused credentials are more likely a broker's than the owner's fault.
                if code != Code::AllBrokersDown && !self.joined && self.trouble.is_none() {
                    self.tell(Err(Error::Authentication { brokers, reason: reason.clone() }));
                }
                tracing::debug!(?code, reason, "brokers are gone");
                self.trouble.get_or_insert(Trouble { since: Instant::now(), code, reason });
            }
            Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed | Code::ClusterAuthorizationFailed => {
                let error = self.unauthorized(reason);
                self.tell(Err(error));
            }
            Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
                self.tell(Err(Error::TopicMissing { brokers, topic }));
            }
            Code::InconsistentGroupProtocol
            | Code::InvalidSessionTimeout
            | Code::InvalidGroupId
            | Code::GroupMaxSizeReached => self.tell(Err(Error::Group { group, code, reason })),
            code => tracing::warn!(topic, ?code, reason, "kafka client"),
        }
        Next::GoOn
    }

    fn unauthorized(&self, reason: String) -> Error {
        let action = format!("read topic {} as group {}", self.config.topic, self.config.group);
        Error::Authorization { action, reason }
    }

    /// After a while without brokers, asks once more, and tells.
    pub(super) fn look_for_brokers(&mut self) {
        let patience = self.timing.patience;
        let Some(trouble) = self.trouble.take_if(|trouble| trouble.since.elapsed() > patience) else { return };
        if self.consumer.fetch_metadata(Some(&self.config.topic), PROBE).is_ok() {
            return;
        }
        let brokers = self.config.broker_list();
        let Trouble { code, reason, .. } = trouble;
        self.tell(Err(match code {
            Code::Authentication | Code::SaslAuthenticationFailed => {
                Error::Authentication { brokers, reason: reason.clone() }
            }
            _ => Error::Unreachable { brokers, reason: reason.clone() },
        }));
        self.trouble = Some(Trouble { since: Instant::now(), code, reason });
    }
}

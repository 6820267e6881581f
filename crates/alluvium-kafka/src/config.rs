//! How to connect, and the settings that the promises rest on.

use crate::{Error, context::Context};
use rdkafka::{ClientConfig, config::RDKafkaLogLevel, consumer::BaseConsumer};
use std::{fmt, time::Duration};

/// A topic, the group that reads it, and how to connect.
#[derive(Clone)]
pub struct KafkaConfig {
    /// `host:port`, at least one.
    pub brokers: Vec<String>,
    pub topic: String,
    /// The consumer group; processes of the same group share the partitions.
    pub group: String,
    /// How this process is named in the brokers' logs.
    pub client_id: String,
    /// librdkafka settings of the owner: security, fetch sizes and the like.
    pub settings: Vec<(String, String)>,
}

/// Settings that are not the owner's to change, with the reason.
const PROTECTED: &[(&str, &str)] = &[
    ("allow.auto.create.topics", "a mistyped topic must not be made"),
    ("auto.commit.enable", "positions live in the table"),
    ("auto.offset.reset", "lost data must stop the pipeline, not be skipped"),
    ("bootstrap.servers", "use `brokers`"),
    ("check.crcs", "damaged records must be noticed"),
    ("enable.auto.commit", "positions live in the table"),
    ("enable.auto.offset.store", "positions live in the table"),
    ("enable.partition.eof", "it tells where a partition ends"),
    ("group.id", "use `group`"),
    ("group.protocol", "partitions are handed over by the classic protocol"),
    ("isolation.level", "records of aborted transactions must not be read"),
    ("metadata.broker.list", "use `brokers`"),
    ("offset.store.method", "positions live in the table"),
    ("partition.assignment.strategy", "partitions are handed over by cooperative-sticky"),
    ("plugin.library.paths", "it would load native code into this process"),
    ("sasl.kerberos.kinit.cmd", "it would run a command on this machine"),
];

/// What a source sets unless the owner does.
const DEFAULTS: &[(&str, &str)] = &[
    // As short as brokers allow unless told otherwise (group.min.session.timeout.ms): a killed process's
    // partitions are somebody else's soon. A process that was only slow is dropped as soon, which is
    // safe: positions live in the table, where it finds that others moved them, and commits nothing.
    // Static membership (group.instance.id) would be quicker still, but a clean end would then keep
    // the partitions for a session, and every process would need a name that is its own for ever.
    ("session.timeout.ms", "6000"),
    ("heartbeat.interval.ms", "1500"),
    // Of these the first matters most: with its default of a second, the fetcher sleeps while the
    // queue is empty. The others bound memory; more gained no speed.
    ("fetch.queue.backoff.ms", "5"),
    ("queued.min.messages", "1000000"),
    ("queued.max.messages.kbytes", "16384"),
    ("fetch.message.max.bytes", "2097152"),
    ("fetch.max.bytes", "16777216"),
    // While a fetch waits for records, no seek or new partition gets its turn. What is written
    // arrives at once all the same.
    ("fetch.wait.max.ms", "100"),
    ("reconnect.backoff.max.ms", "2000"),
    // How late new partitions are noticed.
    ("topic.metadata.refresh.interval.ms", "30000"),
];

const PROMISED: &[(&str, &str)] = &[
    ("allow.auto.create.topics", "false"),
    ("auto.offset.reset", "error"),
    ("check.crcs", "true"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("enable.partition.eof", "true"),
    ("isolation.level", "read_committed"),
    ("partition.assignment.strategy", "cooperative-sticky"),
    ("statistics.interval.ms", "0"),
];

impl KafkaConfig {
    /// A configuration without settings of the owner.
    pub fn new(brokers: &str, topic: &str, group: &str) -> Self {
        Self {
            brokers: brokers.split(',').map(str::to_owned).collect(),
            topic: topic.to_owned(),
            group: group.to_owned(),
            client_id: "alluvium".to_owned(),
            settings: Vec::new(),
        }
    }

    /// Checks all that can be known without a broker: names, settings, their values.
    pub fn validate(&self) -> Result<(), Error> {
        self.consumer(Some(&self.group)).map(drop)
    }

    pub(crate) fn broker_list(&self) -> String {
        self.brokers.join(",")
    }

    /// How long a member may take over a rebalance before its group goes on without it.
    pub(crate) fn max_poll_interval(&self) -> Duration {
        let setting = self.settings.iter().rev().find(|(key, _)| key == "max.poll.interval.ms");
        let milliseconds = setting.and_then(|(_, value)| value.trim().parse().ok());
        Duration::from_millis(milliseconds.unwrap_or(300_000))
    }

    /// A consumer; without a group it can only ask about topics. Connects in the background.
    pub(crate) fn consumer(&self, group: Option<&str>) -> Result<BaseConsumer<Context>, Error> {
        check_topic(&self.topic)?;
        check_settings(&self.settings)?;
        if self.brokers.iter().all(|broker| broker.trim().is_empty()) {
            return Err(Error::NoBrokers);
        }
        let mut config = ClientConfig::new();
        config.extend(owned(DEFAULTS));
        config.extend(self.settings.iter().cloned());
        config.extend(owned(PROMISED));
        if let Some(group) = group {
            config.set("group.id", group);
        }
        config.set("bootstrap.servers", self.broker_list()).set("client.id", &self.client_id);
        config.set_log_level(RDKafkaLogLevel::Info);
        config.create_with_context(Context::new()).map_err(Error::configure)
    }

    /// A client configuration for producers and administration.
    pub(crate) fn client(brokers: &str, settings: &[(String, String)]) -> Result<ClientConfig, Error> {
        check_settings(settings)?;
        let mut config = ClientConfig::new();
        config.extend(settings.iter().cloned());
        config.set("bootstrap.servers", brokers).set_log_level(RDKafkaLogLevel::Info);
        Ok(config)
    }
}

fn owned(settings: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
}

fn check_settings(settings: &[(String, String)]) -> Result<(), Error> {
    for (key, _) in settings {
        let protected = PROTECTED.iter().find(|(name, _)| name == key);
        if let Some((_, reason)) = protected {
            return Err(Error::ProtectedSetting { key: key.clone(), reason });
        }
        if key.starts_with("test.mock.") {
            return Err(Error::ProtectedSetting { key: key.clone(), reason: "the source must be a real topic" });
        }
    }
    Ok(())
}

/// Kafka's own rule. A leading `^` would make librdkafka read a regular expression.
fn check_topic(topic: &str) -> Result<(), Error> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.is_empty() || topic.len() > 249 || !topic.chars().all(legal) || matches!(topic, "." | "..") {
        return Err(Error::TopicName { topic: topic.to_owned() });
    }
    Ok(())
}

impl fmt::Debug for KafkaConfig {
    /// Leaves out the settings' values: some are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("group", &self.group)
            .field("client_id", &self.client_id)
            .field("settings", &self.settings.iter().map(|(key, _)| key).collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alluvium_core::Classified;

    fn with(key: &str, value: &str) -> KafkaConfig {
        let mut config = KafkaConfig::new("127.0.0.1:1", "orders", "readers");
        config.settings.push((key.to_owned(), value.to_owned()));
        config
    }

    #[test]
    fn every_protected_setting_is_refused_with_its_reason() {
        for (key, reason) in PROTECTED {
            let message = with(key, "x").validate().unwrap_err().to_string();
            assert!(message.contains(key) && message.contains(reason), "{message}");
        }
        assert!(with("test.mock.num.brokers", "1").validate().is_err());
    }

    #[test]
    fn every_promised_setting_is_protected() {
        for (key, _) in PROMISED {
            let protected = PROTECTED.iter().any(|(name, _)| name == key);
            assert!(protected || *key == "statistics.interval.ms", "{key}");
        }
    }

    #[test]
    fn every_setting_of_ours_is_known_to_librdkafka_and_the_owner_may_change_the_defaults() {
        KafkaConfig::new("127.0.0.1:1", "orders", "readers").validate().unwrap();
        with("session.timeout.ms", "45000").validate().unwrap();
        with("max.poll.interval.ms", "600000").validate().unwrap();
        assert_eq!(with("max.poll.interval.ms", "600000").max_poll_interval(), Duration::from_secs(600));
    }

    #[test]
    fn an_unknown_setting_is_named_but_its_value_is_not() {
        let error = with("sasl.pasword", "s3cret").validate().unwrap_err();
        let told = format!("{error} {error:?} {:?} {:?}", error.hint(), with("sasl.pasword", "s3cret"));
        assert!(told.contains("sasl.pasword") && !told.contains("s3cret"), "{told}");
        let error = with("session.timeout.ms", "s3cret").validate().unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(told.contains("session.timeout.ms") && !told.contains("s3cret"), "{told}");
    }

    #[test]
    fn without_brokers_nothing_is_tried() {
        for brokers in [vec![], vec![String::new()]] {
            let config = KafkaConfig { brokers, ..KafkaConfig::new("", "orders", "readers") };
            assert!(matches!(config.validate(), Err(Error::NoBrokers)));
        }
    }

    #[test]
    fn topic_names_follow_kafkas_rule() {
        for topic in ["", ".", "..", "^orders.*", "a b", "a/b", "é", "a\0b", &"x".repeat(250)] {
            let config = KafkaConfig::new("127.0.0.1:1", topic, "readers");
            assert!(matches!(config.validate(), Err(Error::TopicName { .. })), "{topic:?}");
        }
        KafkaConfig::new("127.0.0.1:1", "A.b_c-9", "readers").validate().unwrap();
    }
}

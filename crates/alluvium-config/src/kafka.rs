//! The settings of librdkafka that a pipeline may make, and why not the others.

use crate::ErrorKind;
use crate::reader::Item;
use crate::report::Problem;
use crate::setting::{self, Setting};
use crate::snippet::quoted;
use crate::suggest::did_you_mean;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What a consumer may be told, of librdkafka 2.12.
const ALLOWED: &[&str] = &[
    "broker.address.family",
    "broker.address.ttl",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "connections.max.idle.ms",
    "coordinator.query.interval.ms",
    "debug",
    "enable.metrics.push",
    "enable.sasl.oauthbearer.unsecure.jwt",
    "enable.ssl.certificate.verification",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "heartbeat.interval.ms",
    "https.ca.location",
    "https.ca.pem",
    "log.connection.close",
    "log.thread.name",
    "log_level",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "message.copy.max.bytes",
    "message.max.bytes",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "receive.message.max.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.kerberos.keytab",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal",
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.grant.type",
    "sasl.oauthbearer.metadata.authentication.type",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "session.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.max.fails",
    "socket.nagle.disable",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.timeout.ms",
    "ssl.ca.certificate.stores",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.providers",
    "ssl.sigalgs.list",
    "statistics.interval.ms",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.sparse",
];

const POSITIONS: &str =
    "positions live in the table, in the same commit as the rows; what the broker remembers is never read back";
const START: &str = "where a pipeline starts is decided by the table, and by `start` while it holds no position";
const GROUP: &str = "alluvium hands partitions over itself, so that none is committed by two processes";
const OLD: &str = "brokers hide aborted transactions only from clients that speak a newer protocol";
const NATIVE: &str = "it runs foreign code inside the process, outside of every limit";
const PRODUCER: &str = "it is a producer's setting, and alluvium only reads";
const CODE: &str = "it can only be set from code";

/// Settings that would break a promise, with the reason and what to do instead.
const REFUSED: &[(&str, &str, &str)] = &[
    ("bootstrap.servers", "the brokers have a key of their own", "use `brokers` in [source]"),
    ("metadata.broker.list", "the brokers have a key of their own", "use `brokers` in [source]"),
    ("group.id", "the consumer group has a key of its own", "use `group` in [source]"),
    ("group.instance.id", "several processes can run the same file, and each member's id must differ", LEAVE),
    ("group.protocol", GROUP, LEAVE),
    ("group.protocol.type", GROUP, LEAVE),
    ("group.remote.assignor", GROUP, LEAVE),
    ("partition.assignment.strategy", GROUP, LEAVE),
    ("enable.auto.commit", POSITIONS, LEAVE),
    ("auto.commit.enable", POSITIONS, LEAVE),
    ("auto.commit.interval.ms", POSITIONS, LEAVE),
    ("enable.auto.offset.store", POSITIONS, LEAVE),
    ("offset.store.method", POSITIONS, LEAVE),
    ("offset.store.path", POSITIONS, LEAVE),
    ("offset.store.sync.interval.ms", POSITIONS, LEAVE),
    ("auto.offset.reset", START, "use `start` in [source]"),
    ("isolation.level", "only committed records may reach the table: it is always read_committed", LEAVE),
    ("enable.partition.eof", "alluvium finds the end of a partition from the broker's watermarks", LEAVE),
    (
        "allow.auto.create.topics",
        "a misspelt topic would be created, and read as an empty one",
        "create the topic first",
    ),
    ("topic.blacklist", "alluvium reads the one topic that is named", "use `topic` in [source]"),
    ("api.version.request", OLD, LEAVE),
    ("api.version.fallback.ms", OLD, LEAVE),
    ("broker.version.fallback", OLD, LEAVE),
    ("plugin.library.paths", NATIVE, LEAVE),
    ("ssl.engine.location", NATIVE, LEAVE),
    ("ssl.engine.id", NATIVE, LEAVE),
    ("sasl.kerberos.kinit.cmd", "it runs a command on the machine", "keep the ticket fresh outside of alluvium"),
    ("internal.termination.signal", "signals belong to the process, not to a pipeline", LEAVE),
    ("sasl.jaas.config", "it is a setting of the Java client", "use `sasl.username` and `sasl.password`"),
    ("background_event_cb", CODE, LEAVE),
    ("closesocket_cb", CODE, LEAVE),
    ("connect_cb", CODE, LEAVE),
    ("consume_cb", CODE, LEAVE),
    ("default_topic_conf", CODE, LEAVE),
    ("enabled_events", CODE, LEAVE),
    ("error_cb", CODE, LEAVE),
    ("interceptors", CODE, LEAVE),
    ("log.queue", CODE, LEAVE),
    ("log_cb", CODE, LEAVE),
    ("oauthbearer_token_refresh_cb", CODE, LEAVE),
    ("offset_commit_cb", CODE, LEAVE),
    ("opaque", CODE, LEAVE),
    ("open_cb", CODE, LEAVE),
    ("rebalance_cb", CODE, LEAVE),
    ("resolve_cb", CODE, LEAVE),
    ("socket_cb", CODE, LEAVE),
    ("ssl.certificate.verify_cb", CODE, LEAVE),
    ("stats_cb", CODE, LEAVE),
    ("throttle_cb", CODE, LEAVE),
    ("acks", PRODUCER, LEAVE),
    ("batch.num.messages", PRODUCER, LEAVE),
    ("batch.size", PRODUCER, LEAVE),
    ("compression.codec", PRODUCER, LEAVE),
    ("compression.level", PRODUCER, LEAVE),
    ("compression.type", PRODUCER, LEAVE),
    ("delivery.timeout.ms", PRODUCER, LEAVE),
    ("enable.idempotence", PRODUCER, LEAVE),
    ("linger.ms", PRODUCER, LEAVE),
    ("message.timeout.ms", PRODUCER, LEAVE),
    ("partitioner", PRODUCER, LEAVE),
    ("queue.buffering.max.kbytes", PRODUCER, LEAVE),
    ("queue.buffering.max.messages", PRODUCER, LEAVE),
    ("queue.buffering.max.ms", PRODUCER, LEAVE),
    ("request.required.acks", PRODUCER, LEAVE),
    ("request.timeout.ms", PRODUCER, LEAVE),
    ("retries", PRODUCER, LEAVE),
    ("transaction.timeout.ms", PRODUCER, LEAVE),
    ("transactional.id", PRODUCER, LEAVE),
];

const LEAVE: &str = "leave it out";

/// Bounds narrower than librdkafka's own, in milliseconds: outside of them a group never settles, or
/// a dead member or a new partition goes unnoticed for hours.
const BOUNDS: &[(&str, u64, u64)] = &[
    ("session.timeout.ms", 1_000, 1_800_000),
    ("heartbeat.interval.ms", 100, 600_000),
    ("max.poll.interval.ms", 10_000, 7_200_000),
    ("topic.metadata.refresh.interval.ms", 100, 3_600_000),
];

/// librdkafka's own defaults of two settings that must fit together.
const SESSION: u64 = 45_000;
const POLL: u64 = 300_000;
const HEARTBEAT: u64 = 3_000;

const MOST: usize = 200;

/// A setting as it was found.
struct Found<'a> {
    key: String,
    key_span: Range<usize>,
    value: &'a Spanned<DeValue<'a>>,
}

/// Reads the table of settings. A key may be quoted (`"sasl.password"`) or not (`sasl.password`,
/// which to TOML is a table in a table).
pub(crate) fn settings(item: &Item<'_>) -> Vec<(String, Setting)> {
    let DeValue::Table(table) = item.value() else {
        let problem = item.wrong_type("a table of librdkafka's settings");
        item.report().add(problem.hint("write kafka = { \"client.rack\" = \"a\" }"));
        return Vec::new();
    };
    let mut found = Vec::new();
    flatten("", table, &mut found);
    found.sort_by_key(|setting| setting.key_span.start);
    // More than there are.
    if found.len() > MOST {
        let message = format!("{} holds {} settings", item.shown(), found.len());
        item.report().add(item.problem(ErrorKind::Value, message).allowed(format!("at most {MOST}")));
        found.iter().for_each(|setting| item.report().hide(setting.value.span()));
        return Vec::new();
    }
    let mut settings: Vec<(String, Setting)> = Vec::new();
    let mut numbers = Vec::new();
    for (index, Found { key, key_span, value }) in found.iter().enumerate() {
        let earlier = found.get(..index).unwrap_or_default();
        if earlier.iter().any(|other| other.key == *key) {
            let message = format!("the setting {} stands here a second time", quoted(key));
            item.report()
                .add(Problem::new(ErrorKind::Duplicate, key_span.clone(), message).hint("keep one of the two"));
            continue;
        }
        let value = Item::new(quoted(key), key, value, item.report());
        if let Some(problem) = forbidden(key, key_span) {
            // A misspelt key can be one whose value is secret.
            if !is_known(key) && !matches!(value.value(), DeValue::Table(_)) {
                item.report().hide(value.span());
            }
            item.report().add(problem);
            continue;
        }
        let Some(setting) = setting::read(key, &value) else { continue };
        numbers.extend(bounded(key, &setting, &value).map(|number| (key.as_str(), number, value.clone())));
        settings.push((key.clone(), setting));
    }
    check_intervals(&numbers);
    settings
}

fn flatten<'a>(prefix: &str, table: &'a DeTable<'a>, found: &mut Vec<Found<'a>>) {
    for (key, value) in table {
        let full = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() && !is_reference(&full, inner) => flatten(&full, inner, found),
            _ => found.push(Found { key: full, key_span: key.span(), value }),
        }
    }
}

/// Whether a table is the value of the setting `key`, not a part of longer keys.
fn is_reference(key: &str, table: &DeTable<'_>) -> bool {
    let continues = table.keys().any(|part| is_known(&format!("{key}.{}", part.get_ref())));
    !continues && (is_known(key) || table.contains_key("env") || table.contains_key("file"))
}

fn is_known(key: &str) -> bool {
    ALLOWED.contains(&key) || REFUSED.iter().any(|(refused, ..)| *refused == key)
}

fn forbidden(key: &str, span: &Range<usize>) -> Option<Problem> {
    if ALLOWED.contains(&key) {
        return None;
    }
    if let Some((_, reason, hint)) = REFUSED.iter().find(|(refused, ..)| *refused == key) {
        let message = format!("`{key}` cannot be set: {reason}");
        return Some(Problem::new(ErrorKind::Refused, span.clone(), message).hint(*hint));
    }
    let message = format!("{} is not a setting of librdkafka that a pipeline can make", quoted(key));
    let problem = Problem::new(ErrorKind::Unknown, span.clone(), message);
    let known = ALLOWED.iter().copied().chain(REFUSED.iter().map(|(refused, ..)| *refused));
    Some(match did_you_mean(key, known) {
        Some(hint) => problem.hint(hint),
        None => {
            problem.hint("its CONFIGURATION.md lists them; those of consumers can be made, unless they are deprecated")
        }
    })
}

/// The number of a setting that has [`BOUNDS`], if it is written out and keeps them.
fn bounded(key: &str, setting: &Setting, value: &Item<'_>) -> Option<u64> {
    let (_, least, most) = BOUNDS.iter().find(|(bounded, ..)| *bounded == key)?;
    let Setting::Plain(text) = setting else { return None };
    let number = text.parse::<u64>().ok().filter(|number| (*least..=*most).contains(number));
    if number.is_none() {
        value.refuse(format!("`{key}` is {}", quoted(text)), format!("{least} to {most}, in milliseconds"));
    }
    number
}

/// A member must be heard of several times in a session, and a session must fit between two polls.
fn check_intervals(numbers: &[(&str, u64, Item<'_>)]) {
    let find = |key: &str| numbers.iter().find(|(found, ..)| *found == key).map(|(_, number, item)| (*number, item));
    let session = find("session.timeout.ms");
    let pairs = [
        (find("heartbeat.interval.ms"), HEARTBEAT, "heartbeat.interval.ms", session, SESSION, "session.timeout.ms"),
        (session, SESSION, "session.timeout.ms", find("max.poll.interval.ms"), POLL, "max.poll.interval.ms"),
    ];
    for (lower, lower_default, lower_key, upper, upper_default, upper_key) in pairs {
        let Some((_, item)) = lower.or(upper) else { continue };
        let lower = lower.map_or(lower_default, |(number, _)| number);
        let upper = upper.map_or(upper_default, |(number, _)| number);
        if lower > upper {
            let message = format!("`{lower_key}` ({lower}) is longer than `{upper_key}` ({upper})");
            item.report()
                .add(item.problem(ErrorKind::Conflict, message).allowed(format!("`{lower_key}` at most {upper}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_is_both_allowed_and_refused() {
        assert!(REFUSED.iter().all(|(key, ..)| !ALLOWED.contains(key)));
        assert!(ALLOWED.is_sorted(), "sorted, so that a missing one is easy to see");
        assert!(BOUNDS.iter().all(|(key, ..)| ALLOWED.contains(key)));
    }
}

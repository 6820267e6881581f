//! `[source]`

use crate::pipeline::{Format, LostData, Source, Tombstones};
use crate::reader::{Item, Table};
use crate::snippet::quoted;
use crate::{ErrorKind, kafka, units};
use alluvium_core::position::StartPolicy;
use toml::de::DeValue;

/// A source with the place of its start policy.
pub(crate) struct Draft<'a> {
    pub source: Source,
    pub start: Option<Item<'a>>,
}

pub(crate) fn read(table: Option<Table<'_>>) -> Draft<'_> {
    let mut source = Source {
        brokers: Vec::new(),
        topic: String::new(),
        format: Format::Json,
        start: StartPolicy::Earliest,
        tombstones: Tombstones::Drop,
        lost_data: LostData::Stop,
        group: None,
        kafka: Vec::new(),
    };
    let Some(table) = table else { return Draft { source, start: None } };
    if let Some(item) = table.required("brokers", "brokers = [\"localhost:9092\"]") {
        source.brokers = brokers(&item);
    }
    if let Some(item) = table.required("topic", "topic = \"orders\"") {
        source.topic = topic(&item).unwrap_or_default().to_owned();
    }
    if let Some(format) = table.optional("format").and_then(|item| item.choice(&[("json", Format::Json)])) {
        source.format = format;
    }
    let start = table.optional("start");
    if let Some(policy) = start.as_ref().and_then(start_policy) {
        source.start = policy;
    }
    let tombstones = [("drop", Tombstones::Drop), ("dead-letter", Tombstones::DeadLetter)];
    if let Some(tombstones) = table.optional("tombstones").and_then(|item| item.choice(&tombstones)) {
        source.tombstones = tombstones;
    }
    let lost_data = [("stop", LostData::Stop), ("skip", LostData::Skip)];
    if let Some(lost_data) = table.optional("lost_data").and_then(|item| item.choice(&lost_data)) {
        source.lost_data = lost_data;
    }
    source.group = table.optional("group").and_then(|item| group(&item));
    source.kafka = table.optional("kafka").map(|item| kafka::settings(&item)).unwrap_or_default();
    table.finish();
    Draft { source, start }
}

const MOST_BROKERS: usize = 100;

fn brokers(item: &Item<'_>) -> Vec<String> {
    const EXAMPLE: &str = "[\"localhost:9092\"]";
    let Some(elements) = item.elements(EXAMPLE) else { return Vec::new() };
    if elements.is_empty() {
        item.refuse(format!("{} is empty", item.shown()), format!("at least one broker, as in {EXAMPLE}"));
    }
    if elements.len() > MOST_BROKERS {
        let message = format!("{} has {} elements", item.shown(), elements.len());
        item.refuse(message, format!("at most {MOST_BROKERS}; a few are enough to find the others"));
    }
    let mut brokers: Vec<String> = Vec::new();
    for element in elements.into_iter().take(MOST_BROKERS) {
        let Some(broker) = element.word("localhost:9092") else { continue };
        if let Some((problem, hint)) = broker_fault(broker) {
            let problem = element.problem(ErrorKind::Value, format!("the broker {} {problem}", quoted(broker)));
            element.report().add(problem.allowed("a host and a port, as in \"localhost:9092\"").hint(hint));
        } else if brokers.iter().any(|other| other == broker) {
            let message = format!("the broker {} stands here twice", quoted(broker));
            element.report().add(element.problem(ErrorKind::Duplicate, message).hint("keep one of the two"));
        } else {
            brokers.push(broker.to_owned());
        }
    }
    brokers
}

/// What is wrong with a broker's address, and what to do.
fn broker_fault(broker: &str) -> Option<(&'static str, &'static str)> {
    if broker.contains("://") {
        return Some((
            "has a scheme",
            "leave it out; how to connect is told by kafka = { \"security.protocol\" = \"…\" }",
        ));
    }
    if broker.contains(',') {
        return Some(("names several brokers", "write each as an element of the array"));
    }
    if broker.contains(|c: char| c.is_whitespace() || c == '/' || c == '@') {
        return Some(("is not an address", "leave out what is neither host nor port"));
    }
    // An IPv6 address is full of colons, and stands in brackets.
    let (host, port) = match broker.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, rest))) => (host, rest.strip_prefix(':')),
        Some(None) => return Some(("has a bracket that is not closed", "write an IPv6 address as in \"[::1]:9092\"")),
        None if broker.matches(':').count() > 1 => {
            return Some(("has several colons", "write an IPv6 address as in \"[::1]:9092\""));
        }
        None => match broker.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => return Some(("has no port", "Kafka's usual port is 9092")),
        },
    };
    if host.is_empty() {
        return Some(("has no host", "add the host before the colon"));
    }
    match port.map(str::parse::<u16>) {
        Some(Ok(1..)) => None,
        Some(_) => Some(("has no valid port", "ports are 1 to 65535")),
        None => Some(("has no port", "Kafka's usual port is 9092")),
    }
}

fn topic<'a>(item: &Item<'a>) -> Option<&'a str> {
    let topic = item.word("orders")?;
    let found = topic.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')));
    let message = match found {
        Some('^') => "patterns of topics are not read: a pipeline has one topic".to_owned(),
        Some(found) => format!("{} holds {found:?}", item.shown()),
        None if topic.len() > 249 => format!("{} has {} characters", item.shown(), topic.len()),
        None if matches!(topic, "." | "..") => format!("{} is {}", item.shown(), quoted(topic)),
        None => return Some(topic),
    };
    item.refuse(message, "1 to 249 letters, digits, `.`, `_` and `-`");
    None
}

fn group(item: &Item<'_>) -> Option<String> {
    let group = item.word("acme-orders")?;
    if group.len() > 249 {
        item.refuse(format!("{} has {} bytes", item.shown(), group.len()), "at most 249 bytes");
        return None;
    }
    Some(group.to_owned())
}

fn start_policy(item: &Item<'_>) -> Option<StartPolicy> {
    const ALLOWED: &str = "`earliest`, `latest` or `{ timestamp = 2026-03-01T00:00:00Z }`";
    match item.value() {
        DeValue::String(text) => match text.as_ref() {
            "earliest" => Some(StartPolicy::Earliest),
            "latest" => Some(StartPolicy::Latest),
            other => {
                let problem = item.problem(ErrorKind::Value, format!("{} is {}", item.shown(), quoted(other)));
                let problem = problem.allowed(ALLOWED);
                let hint = match crate::suggest::did_you_mean(other, ["earliest", "latest"]) {
                    Some(hint) => Some(hint),
                    None => match other {
                        "beginning" | "smallest" => Some("did you mean `earliest`?".to_owned()),
                        "end" | "largest" => Some("did you mean `latest`?".to_owned()),
                        _ => None,
                    },
                };
                item.report().add(match hint {
                    Some(hint) => problem.hint(hint),
                    None => problem,
                });
                None
            }
        },
        DeValue::Table(_) => {
            let table = item.table("`start`")?;
            let time = table.required("timestamp", "timestamp = 2026-03-01T00:00:00Z");
            let time = time.and_then(|item| units::timestamp(&item));
            table.finish();
            time.map(StartPolicy::Timestamp)
        }
        DeValue::Datetime(time) => {
            let problem = item.wrong_type(ALLOWED);
            item.report().add(problem.hint(format!("write start = {{ timestamp = {time} }}")));
            None
        }
        _ => {
            item.report().add(item.wrong_type(ALLOWED));
            None
        }
    }
}

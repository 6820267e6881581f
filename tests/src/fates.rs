//! Records whose fate is known from their place in the topic.

/// What must become of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Row,
    Filtered,
    DeadLetter,
}

/// As [`record`], but some of the rows make the plugin `hostile-record` trap (mode `trap-marker`).
pub fn hard(partition: i32, index: u64, count: u64) -> (Option<Vec<u8>>, Fate) {
    let (value, fate) = record(partition, index, count);
    match value {
        Some(value) if fate == Fate::Row && index % 211 == 12 => {
            let text = String::from_utf8_lossy(&value).replacen('{', r#"{"text":"boom","#, 1);
            (Some(text.into_bytes()), Fate::DeadLetter)
        }
        value => (value, fate),
    }
}

/// The `index`-th of `count` records of a partition: orders, test orders (which the redact plugin
/// drops), malformed ones, values of the wrong type, tombstones; in the second half a new field
/// appears.
pub fn record(partition: i32, index: u64, count: u64) -> (Option<Vec<u8>>, Fate) {
    let id = u64::try_from(partition).unwrap() * 1_000_000 + index;
    if index % 23 == 7 {
        return (None, Fate::DeadLetter);
    }
    if index % 17 == 5 {
        return (Some(format!(r#"{{"id":{id},"customer":{{"#).into_bytes()), Fate::DeadLetter);
    }
    let test = index % 10 == 3;
    let grown = if index >= count / 2 { r#","channel":{"name":"web","code":7}"# } else { "" };
    let text = format!(
        r#"{{"id":{id},"event_time":"2026-03-01T00:00:{:02}.{:03}Z","customer":{{"id":"c-{}","email":"user{}@example.com"}},"amount":{}.25,"test":{test}{grown}}}"#,
        index / 1000 % 60,
        index % 1000,
        index % 7,
        index % 7,
        index % 100
    );
    (Some(text.into_bytes()), if test { Fate::Filtered } else { Fate::Row })
}

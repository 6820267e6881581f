//! `alluvium sandbox`

use crate::cli;
use crate::failure::Failure;
use crate::output;
use alluvium_kafka::Sandbox;

pub async fn sandbox(arguments: cli::Sandbox) -> Result<(), Failure> {
    let topics: Vec<(String, i32)> = arguments.topics.iter().map(|topic| parse(topic)).collect::<Result<_, _>>()?;
    let named: Vec<(&str, i32)> = topics.iter().map(|(name, partitions)| (name.as_str(), *partitions)).collect();
    let sandbox = Sandbox::start(&named).map_err(|error| Failure::classified(&error))?;
    output::line(sandbox.brokers());
    for (name, partitions) in &topics {
        output::note(format!("topic {name} with {partitions} partitions on {}", sandbox.brokers()));
    }
    output::note("in memory, about 5 MiB or 100,000 records a partition: older ones are dropped; Ctrl-C ends it");
    output::note("it takes two sessions to forget a killed process: a pipeline file can shorten them with");
    output::note(r#"    kafka = { "session.timeout.ms" = "1500", "heartbeat.interval.ms" = "300" }"#);
    super::run::stop_signal().await?;
    Ok(())
}

fn parse(topic: &str) -> Result<(String, i32), Failure> {
    let wrong = || {
        Failure::input(format!("--topic {topic} is not NAME:PARTITIONS, with 1 to 1000 partitions"))
            .with_hint("as in: alluvium sandbox --topic orders:4")
    };
    let (name, partitions) = topic.rsplit_once(':').ok_or_else(wrong)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let named = !name.is_empty() && name.len() <= 249 && name.chars().all(allowed);
    match partitions.parse() {
        Ok(partitions @ 1..=1000) if named => Ok((name.to_owned(), partitions)),
        _ => Err(wrong()),
    }
}

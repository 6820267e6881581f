//! `alluvium position`

use crate::failure::Failure;
use crate::{cli, load, output};
use alluvium_core::position::{Resume, resume, same_topic};
use alluvium_kafka::KafkaTopic;
use serde::Serialize;

#[derive(Serialize)]
struct Row {
    partition: i32,
    /// The next offset to read; absent while the table holds none.
    stored: Option<i64>,
    low: i64,
    high: i64,
    lag: i64,
    state: &'static str,
}

pub async fn position(arguments: cli::Position) -> Result<(), Failure> {
    let pipeline = load::pipeline(&arguments.file)?;
    let tables = load::tables(&arguments.file, &pipeline)?;
    let table = tables.state().await.map_err(|error| Failure::classified(&error))?;
    let source = KafkaTopic::connect(&load::kafka_config(&arguments.file, &pipeline)?);
    let source = source.map_err(|error| Failure::classified(&error))?;
    let topic_id = source.id().await.map_err(|error| Failure::classified(&error))?;
    let replaced = same_topic(source.name(), table.topic_id.as_ref(), topic_id.as_ref()).err();
    let mut rows = Vec::new();
    for partition in source.partitions().await.map_err(|error| Failure::classified(&error))? {
        let watermarks = source.watermarks(partition).await.map_err(|error| Failure::classified(&error))?;
        let stored = table.positions.iter().find(|(found, _)| *found == partition).map(|(_, at)| *at);
        let state = match resume(stored, watermarks) {
            _ if replaced.is_some() => "REPLACED: the topic was created anew",
            Resume::At(_) => "ok",
            Resume::Choose => "not started",
            Resume::Lost { .. } => "LOST: the broker's oldest offset is past the position",
            Resume::Beyond { .. } => "BEYOND: the broker has never had this position",
        };
        let lag = (watermarks.high - stored.unwrap_or(watermarks.low)).max(0);
        rows.push(Row { partition: partition.0, stored, low: watermarks.low, high: watermarks.high, lag, state });
    }
    if arguments.json {
        output::json(&rows);
        return Ok(());
    }
    output::line(format!("{:>9} {:>14} {:>14} {:>14} {:>12}  state", "partition", "stored", "low", "high", "lag"));
    for row in &rows {
        let stored = row.stored.map_or_else(|| "-".to_owned(), |stored| stored.to_string());
        output::line(format!(
            "{:>9} {stored:>14} {:>14} {:>14} {:>12}  {}",
            row.partition, row.low, row.high, row.lag, row.state
        ));
    }
    Ok(())
}

//! `alluvium check`

use crate::failure::{Failure, WRONG_INPUT};
use crate::{cli, load, output};
use alluvium_core::position::same_topic;
use alluvium_kafka::KafkaTopic;
use alluvium_runtime::Planner;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Serialize)]
struct Checked {
    file: PathBuf,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub async fn check(arguments: cli::Check) -> Result<(), Failure> {
    let host = load::host()?;
    let mut checked = Vec::new();
    let mut worst: u8 = 0;
    for file in &arguments.files {
        let result = check_file(file, &host, arguments.connect).await;
        if !arguments.json {
            match &result {
                Ok(pipeline) => output::line(format!("{}: {pipeline} is fine", file.display())),
                Err(failure) => output::failure(failure),
            }
        }
        worst = worst.max(result.as_ref().err().map_or(0, Failure::exit_code));
        checked.push(Checked {
            file: file.clone(),
            ok: result.is_ok(),
            pipeline: result.as_ref().ok().cloned(),
            error: result.err().map(|failure| failure.to_string()),
        });
    }
    if arguments.json {
        output::json(&checked);
    }
    let wrong = checked.iter().filter(|checked| !checked.ok).count();
    match (wrong, worst) {
        (0, _) => Ok(()),
        (_, WRONG_INPUT) => Err(Failure::input(format!("{wrong} of {} files are not fine", checked.len()))),
        _ => Err(Failure::new(format!("{wrong} of {} files are not fine", checked.len()))),
    }
}

async fn check_file(file: &Path, host: &Arc<alluvium_wasm::Host>, connect: bool) -> Result<String, Failure> {
    let loaded = load::load(file, host)?;
    let id = loaded.pipeline.id.to_string();
    if !connect {
        let table = alluvium_core::seam::TableState::default();
        Planner::new(&loaded.pipeline, &loaded.plugins, &table).map_err(|error| Failure::classified(&error))?;
        return Ok(id);
    }
    let tables = load::tables(file, &loaded.pipeline)?;
    let state = tables.writable_state().await.map_err(|error| Failure::classified(&error))?;
    Planner::new(&loaded.pipeline, &loaded.plugins, &state).map_err(|error| Failure::classified(&error))?;
    let source = KafkaTopic::connect(&load::kafka_config(file, &loaded.pipeline)?);
    let source = source.map_err(|error| Failure::classified(&error))?;
    let partitions = source.partitions().await.map_err(|error| Failure::classified(&error))?;
    let topic_id = source.id().await.map_err(|error| Failure::classified(&error))?;
    let same = same_topic(source.name(), state.topic_id.as_ref(), topic_id.as_ref());
    same.map_err(|error| Failure::classified(&alluvium_runtime::Error::from(error)))?;
    for partition in &partitions {
        source.watermarks(*partition).await.map_err(|error| Failure::classified(&error))?;
    }
    Ok(format!("{id} (topic {} with {} partitions)", loaded.pipeline.source.topic, partitions.len()))
}

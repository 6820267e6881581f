//! `alluvium try`

use crate::failure::Failure;
use crate::load::Loaded;
use crate::local::{CHUNK, Local, chunks_of};
use crate::{cli, load, output, rows};
use alluvium_core::seam::{Flush, Outcome, RowWriter, Table};
use alluvium_core::{Chunk, CommitInfo, CommitKind, Counts, DeadLetter, Partition, PartitionProgress, Span};
use alluvium_delta::{DeltaConfig, DeltaSink};
use alluvium_runtime::Processed;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// Records that the columns are inferred from, as when they come from Kafka.
const SAMPLE: usize = 10_000;

#[derive(Default, Serialize)]
struct Summary {
    #[serde(flatten)]
    counts: Counts,
    schema: Vec<String>,
    rejected_lines: Vec<Rejected>,
}

#[derive(Serialize)]
struct Rejected {
    line: i64,
    stage: alluvium_core::Stage,
    code: &'static str,
    message: String,
}

pub async fn try_records(arguments: cli::Try) -> Result<(), Failure> {
    let loaded = load::load(&arguments.file, &load::host()?)?;
    let chunks = chunks_of(&arguments.records)?;
    let sink = match &arguments.table {
        Some(table) => Some(open(&loaded, table).await?),
        None => None,
    };
    let state = match &sink {
        Some(sink) => sink.load().await.map_err(|error| Failure::classified(&error))?,
        None => Default::default(),
    };
    if let Some((_, at)) = state.positions.first() {
        return Err(Failure::input(format!("the table already holds the result of a try (position {at})"))
            .with_hint("give --table another directory, or remove this one"));
    }
    // Plugins may take long: not on the threads that wait.
    let work = tokio::task::spawn_blocking(move || process(&loaded, &state, &chunks).map(|done| (loaded, done)));
    let (loaded, done) = work.await.map_err(|error| Failure::caused("the records cannot be processed", &error))??;
    let summary = summary(&done);
    if let Some(sink) = &sink {
        commit(&loaded, sink, done, &summary).await?;
    } else if !arguments.json {
        done.iter().for_each(print_rows);
    }
    if arguments.json {
        output::json(&summary);
    } else {
        print(&summary, arguments.table.as_deref());
    }
    Ok(())
}

async fn open(loaded: &Loaded, table: &Path) -> Result<DeltaSink, Failure> {
    let place = table.display().to_string();
    let own = load::delta_config(&loaded.file, &loaded.pipeline)?;
    let config =
        DeltaConfig { dead_letters: format!("{place}_dead_letters"), table: place, storage: Vec::new(), ..own };
    DeltaSink::open(config).await.map_err(|error| Failure::classified(&error))
}

fn process(
    loaded: &Loaded,
    state: &alluvium_core::seam::TableState,
    chunks: &[Chunk],
) -> Result<Vec<Processed>, Failure> {
    let mut local = Local::new(loaded, state)?;
    local.learn(chunks.get(..chunks.len().min(SAMPLE / CHUNK)).unwrap_or_default())?;
    chunks.iter().map(|chunk| local.process(chunk)).collect()
}

fn summary(done: &[Processed]) -> Summary {
    let mut summary = Summary::default();
    for processed in done {
        summary.counts += processed.counts;
        let rejected = |letter: &DeadLetter| Rejected {
            line: letter.offset + 1,
            stage: letter.stage,
            code: letter.reason.code,
            message: letter.reason.message.clone(),
        };
        summary.rejected_lines.extend(processed.dead_letters.iter().map(rejected));
    }
    if let Some(last) = done.last() {
        let kind =
            |data_type| alluvium_core::DataType::from_arrow(data_type).map_or_else(String::new, |t| t.to_string());
        let fields = last.layout.schema().fields();
        summary.schema = fields.iter().map(|field| format!("{} {}", field.name(), kind(field.data_type()))).collect();
    }
    summary
}

async fn commit(loaded: &Loaded, sink: &DeltaSink, done: Vec<Processed>, summary: &Summary) -> Result<(), Failure> {
    let failed = |error: alluvium_delta::Error| Failure::classified(&error).context("the table cannot be written");
    let Some(schema) = done.last().map(|last| last.layout.schema().clone()) else { return Ok(()) };
    let (mut files, mut dead_letters) = (Vec::new(), Vec::new());
    for processed in done {
        let mut writer = sink.writer(processed.layout.schema().clone()).map_err(failed)?;
        writer.write(&processed.batch).map_err(failed)?;
        files.extend(writer.finish().map_err(failed)?);
        dead_letters.extend(processed.dead_letters);
    }
    let span = Span::new(0, summary.counts.read as i64);
    let span = span.map_err(|error| Failure::caused("the records cannot be counted", &error))?;
    let info = CommitInfo {
        format: 1,
        kind: CommitKind::Rows,
        pipeline: loaded.pipeline.id.to_string(),
        generation: loaded.pipeline.id.generation(),
        topic: loaded.pipeline.source.topic.clone(),
        topic_id: None,
        partitions: vec![PartitionProgress { partition: Partition(0), span, counts: summary.counts }],
        plugins: loaded.plugins.references(),
        plan: None,
        replay: None,
    };
    let mut flush = Flush { info, schema, files, dead_letters, absent: BTreeSet::from([Partition(0)]) };
    match sink.commit(&mut flush).await.map_err(failed)? {
        Outcome::Committed { .. } => Ok(()),
        other => Err(Failure::new(format!("the table was written by another process meanwhile: {other:?}"))),
    }
}

fn print_rows(processed: &Processed) {
    (0..processed.batch.num_rows()).for_each(|row| output::line(rows::row(&processed.batch, row)));
}

fn print(summary: &Summary, table: Option<&Path>) {
    for rejected in &summary.rejected_lines {
        output::note(format!("line {}: {} ({}): {}", rejected.line, rejected.code, rejected.stage, rejected.message));
    }
    let counts = summary.counts;
    let place = table.map_or_else(String::new, |table| format!(" in {}", table.display()));
    output::note(format!(
        "{} records: {} rows{place}, {} filtered, {} rejected",
        counts.read, counts.rows, counts.filtered, counts.rejected
    ));
    output::note(format!("columns: {}", summary.schema.join(", ")));
}

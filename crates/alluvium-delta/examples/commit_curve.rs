//! Commits many small flushes to a local table, and shows how latency and memory develop.
//!
//! `cargo run -p alluvium-delta --example commit_curve -- DIRECTORY [COMMITS]`

#![allow(clippy::print_stdout)]

use alluvium_core::seam::{Flush, RowWriter, Table};
use alluvium_core::{CommitInfo, CommitKind, Counts, Partition, PartitionProgress, PipelineId, Span};
use alluvium_delta::{DeltaConfig, DeltaSink, TableRole};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROWS: i64 = 100;
const WINDOW: i64 = 100;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("name a directory")?;
    let commits: i64 = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let pipeline = PipelineId::new("acme", "curve", 1)?;
    let sink = DeltaSink::open(DeltaConfig {
        table: format!("{directory}/rows"),
        dead_letters: format!("{directory}/letters"),
        pipeline: pipeline.clone(),
        topic: "records".to_owned(),
        partition_by: Vec::new(),
        storage: Vec::new(),
        file_size: 128 * 1024 * 1024,
    })
    .await?;

    println!("{:>8} {:>10} {:>10} {:>10} {:>12}", "commit", "median", "p99", "longest", "resident");
    let mut window: Vec<Duration> = Vec::new();
    for commit in 1..=commits {
        let from = (commit - 1) * ROWS;
        let mut flush = flush(&sink, &pipeline, from, from + ROWS)?;
        let start = Instant::now();
        sink.commit(&mut flush).await?;
        window.push(start.elapsed());
        if commit % WINDOW == 0 {
            window.sort_unstable();
            let at = |share: usize| window.get(window.len() * share / 100).copied().unwrap_or_default();
            let longest = window.last().copied().unwrap_or_default();
            println!("{commit:>8} {:>10.2?} {:>10.2?} {longest:>10.2?} {:>8} KiB", at(50), at(99), resident_kib());
            window.clear();
        }
    }
    sink.finish_maintenance().await;

    let start = Instant::now();
    let state = sink.load().await?;
    println!("load of a known table: {:.2?}, positions {:?}", start.elapsed(), state.positions);
    let config = sink.config().clone();
    drop(sink);
    let start = Instant::now();
    let sink = DeltaSink::open(config).await?;
    println!("open: {:.2?}", start.elapsed());
    let start = Instant::now();
    let history = sink.reader().history(TableRole::Rows).await?;
    println!("history of {} commits: {:.2?}, resident {} KiB", history.len(), start.elapsed(), resident_kib());
    Ok(())
}

fn flush(
    sink: &DeltaSink,
    pipeline: &PipelineId,
    from: i64,
    to: i64,
) -> Result<Flush<alluvium_delta::DataFile>, Box<dyn Error>> {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((from..to).map(|offset| format!("name {offset}"))));
    let batch = RecordBatch::try_from_iter([("id", ids), ("name", names)])?;
    let mut writer = sink.writer(batch.schema())?;
    writer.write(&batch)?;
    let rows = (to - from) as u64;
    let counts = Counts { read: rows, kept: rows, rows, ..Counts::default() };
    let info = CommitInfo {
        format: 1,
        kind: CommitKind::Rows,
        pipeline: pipeline.to_string(),
        generation: 1,
        topic: "records".to_owned(),
        topic_id: None,
        partitions: vec![PartitionProgress { partition: Partition(0), span: Span::new(from, to)?, counts }],
        plugins: Vec::new(),
        plan: None,
    };
    let files = writer.finish()?;
    Ok(Flush { info, schema: batch.schema(), files, dead_letters: Vec::new(), absent: BTreeSet::from([Partition(0)]) })
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

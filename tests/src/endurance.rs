//! Many small commits to one table: how long each takes, and what the process holds.

use alluvium_core::seam::{Flush, Outcome, RowWriter, Table};
use alluvium_core::{CommitInfo, CommitKind, Counts, Partition, PartitionProgress, PipelineId, Span};
use alluvium_delta::{DataFile, DeltaConfig, DeltaSink};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROWS: i64 = 100;
/// Commits of one point of the curve.
const WINDOW: usize = 100;

/// What a hundred commits in a row were like.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub commit: usize,
    /// Of the fastest tenth: other work on the machine only makes commits slower.
    pub least: Duration,
    pub median: Duration,
    /// Of 99 in 100 commits; maintenance runs beside them.
    pub most: Duration,
    pub longest: Duration,
    pub resident_kib: u64,
}

/// Commits so many flushes, and prints the curve.
pub async fn curve(table: &str, storage: Vec<(String, String)>, commits: usize) -> Vec<Point> {
    let pipeline = PipelineId::new("acme", "endurance", 1).unwrap();
    let config = DeltaConfig {
        table: format!("{table}/rows"),
        dead_letters: format!("{table}/letters"),
        pipeline,
        topic: "records".to_owned(),
        partition_by: Vec::new(),
        storage,
        file_size: 1 << 27,
    };
    let sink = DeltaSink::open(config).await.unwrap();
    let (mut curve, mut window) = (Vec::new(), Vec::new());
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "commit", "least", "median", "99 of 100", "longest", "resident"
    );
    for commit in 1..=commits {
        let from = (commit as i64 - 1) * ROWS;
        let mut flush = flush(&sink, from, from + ROWS);
        let begun = Instant::now();
        let outcome = sink.commit(&mut flush).await.unwrap();
        window.push(begun.elapsed());
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        if window.len() == WINDOW {
            window.sort_unstable();
            let (least, median) = (window[WINDOW / 10], window[WINDOW / 2]);
            let (most, longest) = (window[WINDOW * 99 / 100 - 1], window[WINDOW - 1]);
            let resident_kib = resident_kib();
            println!("{commit:>8} {least:>10.2?} {median:>10.2?} {most:>10.2?} {longest:>10.2?} {resident_kib:>8} KiB");
            curve.push(Point { commit, least, median, most, longest, resident_kib });
            window.clear();
        }
    }
    sink.finish_maintenance().await;
    let state = sink.load().await.unwrap();
    assert_eq!(state.positions, [(Partition(0), commits as i64 * ROWS)]);
    let begun = Instant::now();
    drop(DeltaSink::open(sink.config().clone()).await.unwrap());
    println!("open at the end: {:.2?}", begun.elapsed());
    curve
}

/// What the process may hold more for each file of the table, in bytes: a checkpoint reads and writes an
/// action for every one, and the system's allocator keeps what that took.
const OF_A_FILE: f64 = 16.0 * 1024.0;

/// The end of a curve against commit 500, by the medians of a few points: commits take at most
/// `most` times as long, and the process grows by no more than checkpoints need.
pub fn assert_flat(curve: &[Point], most: f64) {
    let at = |points: &[Point], part: fn(&Point) -> f64| {
        let mut values: Vec<f64> = points.iter().map(part).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let start: Vec<Point> = curve.iter().copied().filter(|point| (300..=700).contains(&point.commit)).collect();
    let end = &curve[curve.len() - start.len()..];
    let (first, last) = (at(&start, |point| point.commit as f64), at(end, |point| point.commit as f64));
    let time: fn(&Point) -> f64 = |point| point.least.as_secs_f64();
    let memory: fn(&Point) -> f64 = |point| point.resident_kib as f64 * 1024.0;
    let ratio = at(end, time) / at(&start, time);
    let grown = (at(end, memory) - at(&start, memory)) / (last - first);
    println!("a commit at {last} takes {ratio:.2} times as long as at {first}");
    println!(
        "resident memory is {:.2} times that at {first}: {grown:.0} bytes a file",
        at(end, memory) / at(&start, memory)
    );
    assert!(ratio <= most, "commits take {ratio:.2} times as long");
    assert!(grown <= OF_A_FILE, "the process grows by {grown:.0} bytes a file");
}

fn flush(sink: &DeltaSink, from: i64, to: i64) -> Flush<DataFile> {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((from..to).map(|offset| format!("name {offset}"))));
    let batch = RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap();
    let mut writer = sink.writer(batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let rows = (to - from) as u64;
    let counts = Counts { read: rows, kept: rows, rows, ..Counts::default() };
    let span = Span::new(from, to).unwrap();
    let info = CommitInfo {
        format: 1,
        kind: CommitKind::Rows,
        pipeline: "acme/endurance".to_owned(),
        generation: 1,
        topic: "records".to_owned(),
        topic_id: None,
        partitions: vec![PartitionProgress { partition: Partition(0), span, counts }],
        plugins: Vec::new(),
        plan: None,
        replay: None,
    };
    let files = writer.finish().unwrap();
    Flush { info, schema: batch.schema(), files, dead_letters: Vec::new(), absent: BTreeSet::from([Partition(0)]) }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

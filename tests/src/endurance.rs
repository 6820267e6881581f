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
/// Of so many commits, one is followed by one to a table that is young.
const YOUNG: usize = 5;

/// What a hundred commits in a row were like.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub commit: usize,
    /// Of the fastest tenth: other work on the machine only makes commits slower.
    pub least: Duration,
    /// Of the fastest tenth to a table that begins with this point, meanwhile: it tells how fast the machine is.
    pub young: Duration,
    pub median: Duration,
    /// Of 99 in 100 commits; maintenance runs beside them.
    pub most: Duration,
    pub longest: Duration,
    pub resident_kib: u64,
}

/// Commits so many flushes, and prints the curve. `paced` waits for maintenance at each of its points, so
/// that no checkpoint is left out because the last is still being written.
pub async fn curve(table: &str, storage: Vec<(String, String)>, commits: usize, paced: bool) -> Vec<Point> {
    let sink = DeltaSink::open(config(table, storage.clone())).await.unwrap();
    let (mut curve, mut window, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "commit", "least", "young", "median", "99 of 100", "longest", "resident"
    );
    let mut young = None;
    for commit in 1..=commits {
        window.push(commit_one(&sink, commit as i64 - 1).await);
        if commit % YOUNG == 0 {
            let young = match &young {
                Some(young) => young,
                None => {
                    let config = config(&format!("{table}/young/{commit}"), storage.clone());
                    young.insert(DeltaSink::open(config).await.unwrap())
                }
            };
            beside.push(commit_one(young, beside.len() as i64).await);
        }
        if window.len() == WINDOW {
            if paced {
                sink.finish_maintenance().await;
            }
            window.sort_unstable();
            beside.sort_unstable();
            let (least, median) = (window[WINDOW / 10], window[WINDOW / 2]);
            let (most, longest) = (window[WINDOW * 99 / 100 - 1], window[WINDOW - 1]);
            let point = Point {
                commit,
                least,
                young: beside[beside.len() / 10],
                median,
                most,
                longest,
                resident_kib: resident_kib(),
            };
            let Point { young: fresh, resident_kib, .. } = point;
            println!(
                "{commit:>8} {least:>10.2?} {fresh:>10.2?} {median:>10.2?} {most:>10.2?} {longest:>10.2?} {resident_kib:>8} KiB"
            );
            curve.push(point);
            window.clear();
            beside.clear();
            young = None;
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

/// Commits the next rows; how long it took.
async fn commit_one(sink: &DeltaSink, number: i64) -> Duration {
    let mut flush = flush(sink, number * ROWS, (number + 1) * ROWS);
    let begun = Instant::now();
    let outcome = sink.commit(&mut flush).await.unwrap();
    let took = begun.elapsed();
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    took
}

/// The end of a curve against commit 500, by the medians of a few points: commits take at most `most`
/// times as long, and the process holds at most `most` times as much. Where the machine itself became
/// slower, commits may have become so by as much.
pub fn assert_flat(curve: &[Point], most: f64) {
    let start: Vec<Point> = curve.iter().copied().filter(|point| (300..=700).contains(&point.commit)).collect();
    let end = &curve[curve.len() - start.len()..];
    let ratio = |part: fn(&Point) -> f64| median(end, part) / median(&start, part);
    let (time, machine) = (ratio(|point| point.least.as_secs_f64()), ratio(|point| point.young.as_secs_f64()));
    let memory = ratio(|point| point.resident_kib as f64);
    let (first, last) = (median(&start, |point| point.commit as f64), median(end, |point| point.commit as f64));
    println!(
        "at commit {last} against {first}: a commit takes {time:.2} times as long (one to a young table {machine:.2}), \
         in {memory:.2} times as much memory"
    );
    assert!(time <= most * machine.max(1.0), "commits take {time:.2} times as long");
    assert!(memory <= most, "the process holds {memory:.2} times as much");
}

fn median(points: &[Point], part: fn(&Point) -> f64) -> f64 {
    let mut values: Vec<f64> = points.iter().map(part).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A table of two columns, and its dead letters.
pub fn config(table: &str, storage: Vec<(String, String)>) -> DeltaConfig {
    let pipeline = PipelineId::new("acme", "endurance", 1).unwrap();
    DeltaConfig {
        table: format!("{table}/rows"),
        dead_letters: format!("{table}/letters"),
        pipeline,
        topic: "records".to_owned(),
        partition_by: Vec::new(),
        storage,
        file_size: 1 << 27,
    }
}

/// The rows of the offsets `[from, to)`.
pub fn flush(sink: &DeltaSink, from: i64, to: i64) -> Flush<DataFile> {
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

//! A line for each pipeline on a terminal.

use crate::output;
use alluvium_runtime::Stats;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(500);

/// Progress lines, while there is somebody to watch them.
pub struct Progress {
    lines: Option<(MultiProgress, JoinHandle<()>)>,
}

pub fn start(pipelines: Vec<(String, Arc<Stats>)>) -> Progress {
    if !output::is_watched() {
        return Progress { lines: None };
    }
    let lines = MultiProgress::new();
    let style =
        ProgressStyle::with_template("{spinner} {prefix}  {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bars: Vec<(ProgressBar, Arc<Stats>)> = pipelines
        .into_iter()
        .map(|(pipeline, stats)| {
            let bar = lines.add(ProgressBar::new_spinner().with_style(style.clone()).with_prefix(pipeline));
            bar.enable_steady_tick(EVERY);
            (bar, stats)
        })
        .collect();
    let task = tokio::spawn(async move {
        let mut before: Vec<u64> = vec![0; bars.len()];
        let mut at = Instant::now();
        loop {
            tokio::time::sleep(EVERY).await;
            let elapsed = at.elapsed().as_secs_f64();
            at = Instant::now();
            for ((bar, stats), before) in bars.iter().zip(&mut before) {
                let consumed = stats.consumed.load(Ordering::Relaxed);
                let rate = consumed.saturating_sub(*before) as f64 / elapsed;
                *before = consumed;
                bar.set_message(message(stats, rate));
            }
        }
    });
    Progress { lines: Some((lines, task)) }
}

fn message(stats: &Stats, rate: f64) -> String {
    let committed = stats.committed();
    let last = committed.last_commit.map_or_else(
        || "no commit yet".to_owned(),
        |(version, at)| format!("version {version} {:.0} s ago", at.elapsed().as_secs_f64()),
    );
    let counts = committed.counts;
    let lag = stats.lag.load(Ordering::Relaxed);
    let lag = if lag == u64::MAX { "-".to_owned() } else { lag.to_string() };
    format!(
        "{rate:.0} records/s  {} rows  {} filtered  {} rejected  lag {lag}  {last}",
        counts.rows, counts.filtered, counts.rejected
    )
}

impl Progress {
    pub fn end(self) {
        if let Some((lines, task)) = self.lines {
            task.abort();
            // The terminal may be gone.
            let _gone = lines.clear().is_err();
        }
    }
}

//! A process that freezes at the worst moment.

use crate::process::Signal;
use crate::workbench::{PATIENCE, Workbench};

/// A process freezes right before the commit of rows, another (of `file`) takes over and commits on, the
/// first wakes: it must notice, say so (`fenced`), and both must go on. The topic has 3 partitions.
pub async fn frozen_in_a_commit(bench: &mut Workbench, file: &str) {
    bench.produce(3, 0..1_000, 6_000).await;
    let mut first = bench.run("first", &[], &[("ALLUVIUM_FREEZE_AT", "commit:before#2")]);
    bench.wait_for("pipeline", 1).await;
    bench.produce(3, 1_000..2_000, 6_000).await;
    first.wait_frozen(PATIENCE);
    let mut second = bench.alluvium("second", &["run", "--json", file], &[]);
    // Past what the first is about to commit: had the other committed the very same, nothing would be wrong.
    bench.produce(3, 2_000..3_000, 6_000).await;
    bench.wait_for("pipeline", 9_000).await;
    first.signal(Signal::SIGCONT);
    bench.produce(3, 3_000..6_000, 6_000).await;
    bench.wait_for("pipeline", 18_000).await;
    first.signal(Signal::SIGTERM);
    second.signal(Signal::SIGTERM);
    let summaries = [first.done(PATIENCE), second.done(PATIENCE)];
    bench.assert_exactly_once().await;
    assert!(summaries[0][0]["fenced"].as_u64() >= Some(1), "{summaries:#?}");
    // Whatever one committed, the other did not.
    let read: u64 = summaries.iter().map(|summary| summary[0]["read"].as_u64().expect("a count")).sum();
    assert_eq!(read, 18_000, "{summaries:#?}");
}

//! What holds on every kind of broker: each case on the sandbox and on a real one.

use crate::Workbench;
use crate::process::Signal;
use crate::workbench::PATIENCE;
use std::time::{Duration, Instant};

/// One partition, three processes: one that has it, one that waits, one that is to end.
pub async fn processes_without_partitions(mut bench: Workbench) {
    bench.produce(1, 0..100, 1_000).await;
    let mut first = bench.run("first", &[], &[]);
    bench.wait_for("pipeline", 100).await;
    let mut second = bench.run("second", &[], &[]);
    bench.produce(1, 100..300, 1_000).await;
    bench.run("third", &["--until-end"], &[]).done(PATIENCE);
    assert!(bench.committed("pipeline").await >= 300);
    assert!(first.is_running() && second.is_running(), "{}\n{}", first.err(), second.err());
    first.signal(Signal::SIGTERM);
    first.done(PATIENCE);
    bench.produce(1, 300..400, 1_000).await;
    bench.wait_for("pipeline", 400).await;
    second.signal(Signal::SIGTERM);
    second.done(PATIENCE);
    bench.assert_exactly_once().await;
}

/// A run that is to end has none or some of the partitions, and ends when all are at their ends. The
/// bench's flush is late, so that the other has read what it has not committed.
pub async fn until_the_end_beside_others(mut bench: Workbench) {
    bench.produce(3, 0..500, 4_000).await;
    let mut other = bench.run("other", &[], &[]);
    bench.wait_for("pipeline", 1_500).await;
    bench.produce(3, 500..3_000, 4_000).await;
    bench.run("to-the-end", &["--until-end"], &[]).done(PATIENCE);
    assert!(bench.committed("pipeline").await >= 9_000, "it ended early");
    assert!(other.is_running(), "{}", other.err());
    other.signal(Signal::SIGTERM);
    other.done(PATIENCE);
    bench.assert_exactly_once().await;
}

/// The end is that of the start, and is reached, whatever arrives meanwhile.
pub async fn until_the_end_while_more_arrives(mut bench: Workbench) {
    bench.run("nothing", &["--until-end"], &[]).done(PATIENCE);
    bench.produce(3, 0..2_000, 20_000).await;
    let flow = bench.flow(3, 2_000, 20_000, 5);
    let begun = Instant::now();
    bench.run("first", &["--until-end"], &[]).done(PATIENCE);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let positions = bench.positions("pipeline").await;
    assert!(positions.len() == 3 && positions.iter().all(|(_, at)| *at >= 2_000), "it ended early: {positions:?}");
    assert!(bench.end_flow(flow).await > 0);
    bench.run_to_end("rest");
    bench.run_to_end("quiet");
    bench.assert_exactly_once().await;
}

/// A topic that is not there is told, is not made, and is read once it is.
pub async fn a_topic_that_comes_later(mut bench: Workbench, make: impl AsyncFnOnce()) {
    for arguments in [&[][..], &["--until-end"]] {
        let begun = Instant::now();
        let mut process = bench.run("absent", arguments, &[]);
        assert_eq!(process.wait(PATIENCE).code(), Some(2), "{}", process.err());
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        let told = format!("topic {} does not exist", bench.topic());
        assert!(process.err().contains(&told) && process.err().contains("make the topic"), "{}", process.err());
    }
    make().await;
    bench.produce(3, 0..100, 100).await;
    bench.run_to_end("present");
    bench.assert_exactly_once().await;
}

/// `latest` is chosen once, and survives a kill before the first flush. The bench's flush is late.
pub async fn latest_survives_a_kill_before_the_first_flush(mut bench: Workbench) {
    bench.produce(3, 0..100, 1_000).await;
    let before = std::mem::take(&mut bench.fates).len();
    let mut process = bench.run("killed", &[], &[]);
    bench.wait_for("pipeline", 300).await;
    bench.produce(3, 100..600, 1_000).await;
    process.signal(Signal::SIGKILL);
    process.wait(PATIENCE);
    bench.produce(3, 600..1_000, 1_000).await;
    bench.run_to_end("again");
    assert_eq!(before, 300);
    bench.assert_exactly_once().await;
}

/// The brokers go while records are read, and come back later than a session lasts.
pub async fn brokers_that_go_and_come_back(mut bench: Workbench, go: impl AsyncFn(), come: impl AsyncFn()) {
    bench.produce(3, 0..500, 2_000).await;
    let mut process = bench.run("run", &[], &[]);
    bench.wait_for("pipeline", 1_500).await;
    bench.produce(3, 500..700, 2_000).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    go().await;
    // Longer than a session, and than it takes until the source tells of it.
    tokio::time::sleep(Duration::from_secs(38)).await;
    assert!(process.is_running(), "{}", process.err());
    come().await;
    bench.produce(3, 700..1_000, 2_000).await;
    bench.wait_for("pipeline", 3_000).await;
    // Told to end while they are away.
    bench.produce(3, 1_000..1_200, 2_000).await;
    go().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    process.signal(Signal::SIGTERM);
    process.wait(Duration::from_secs(40));
    // And there are none at the start.
    let begun = Instant::now();
    let mut absent = bench.run("absent", &[], &[]);
    assert_eq!(absent.wait(PATIENCE).code(), Some(1), "{}", absent.err());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let told = format!("Kafka cannot be reached at {}", bench.brokers());
    assert!(absent.err().contains(&told), "{}", absent.err());
    come().await;
    bench.run_to_end("again");
    bench.assert_exactly_once().await;
}

/// SIGTERM while records keep coming: what was flushed stays, and the end comes within the grace time.
pub async fn sigterm_under_load(mut bench: Workbench, grace: Duration) {
    let flow = bench.flow(3, 1_000_000, 2_000_000, 20);
    let mut longest = Duration::ZERO;
    for round in 0..3 {
        // A backlog that takes longer than the process is given.
        bench.produce(3, round * 10_000..(round + 1) * 10_000, 1_000_000).await;
        let mut process = bench.run(&format!("round-{round}"), &[], &[]);
        let before = bench.committed("pipeline").await;
        bench.wait_for("pipeline", before + 3_000).await;
        let flushed = bench.positions("pipeline").await;
        let begun = Instant::now();
        process.signal(Signal::SIGTERM);
        process.done(PATIENCE);
        longest = longest.max(begun.elapsed());
        let kept = bench.positions("pipeline").await;
        let lost = flushed.iter().filter(|(partition, at)| !kept.iter().any(|(p, kept)| p == partition && kept >= at));
        assert_eq!(lost.count(), 0, "{flushed:?} {kept:?}");
    }
    let produced = bench.end_flow(flow).await;
    told(&format!("SIGTERM under load: ended within {longest:.1?} of {grace:?}; {} records in all", produced + 90_000));
    assert!(longest < grace, "{longest:?}");
    bench.run_to_end("rest");
    bench.assert_exactly_once().await;
}

/// After kill -9, how long it takes until something more is committed: the median of three. The next
/// process starts at once, or is there already.
pub async fn recovery(mut bench: Workbench, what: &str, standby: bool) -> Duration {
    let mut next = 0;
    let mut produce = async |bench: &mut Workbench| {
        bench.produce(3, next..next + 200, 4_000).await;
        next += 200;
    };
    produce(&mut bench).await;
    let mut running = bench.run("run-0", &[], &[]);
    bench.wait_for("pipeline", 600).await;
    let mut times = Vec::new();
    for round in 1..4 {
        let name = format!("run-{round}");
        let mut following = standby.then(|| bench.run(&name, &[], &[]));
        // Both have their share, and what is produced now is read and not yet committed.
        tokio::time::sleep(Duration::from_secs(if standby { 6 } else { 1 })).await;
        produce(&mut bench).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        running.signal(Signal::SIGKILL);
        let killed = Instant::now();
        running.wait(PATIENCE);
        let before = bench.positions("pipeline").await;
        running = following.take().unwrap_or_else(|| bench.run(&name, &[], &[]));
        produce(&mut bench).await;
        // All partitions go on, those of the killed process too.
        loop {
            let now = bench.positions("pipeline").await;
            if now.iter().zip(&before).all(|((_, now), (_, before))| now > before) {
                break;
            }
            assert!(killed.elapsed() < PATIENCE, "{now:?} {before:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        times.push(killed.elapsed());
    }
    times.sort_unstable();
    told(&format!("after kill -9, {what}: all partitions are committed to again after {times:.1?}"));
    running.signal(Signal::SIGTERM);
    running.done(PATIENCE);
    bench.run_to_end("rest");
    bench.assert_exactly_once().await;
    times[times.len() / 2]
}

/// A figure, for who reads the test's output.
#[expect(clippy::print_stderr, reason = "a figure that a test found")]
fn told(figure: &str) {
    eprintln!("{figure}");
}

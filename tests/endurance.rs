//! Commits stay as fast and as small as they were: checkpoints and cleanup run beside them.
//! `cargo xtask endurance --commits N` prints a longer curve.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_tests::endurance::{assert_flat, curve};

/// At the end of many commits, in parts of what they were at commit 500.
const MOST: f64 = 1.5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_local_disk() {
    // Enough that without maintenance's own thread, its row groups and its few entries read ahead the process
    // would hold twice as much; ten thousand are three times.
    let commits = std::env::var("ALLUVIUM_COMMITS").map_or(6_000, |text| text.parse().expect("a number of commits"));
    // In memory, where there is room for it: how long a disk takes over a sync is not what is asked.
    let dir = ["/dev/shm", "/tmp"].iter().find_map(|place| tempfile::tempdir_in(place).ok()).unwrap();
    let paced = std::env::var_os("ALLUVIUM_PACED").is_some();
    let curve = curve(dir.path().to_str().unwrap(), Vec::new(), commits, paced).await;
    assert_flat(&curve, MOST);
}

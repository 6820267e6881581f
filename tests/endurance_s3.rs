//! As `endurance.rs`, on S3; in a process of its own, for what it holds is measured.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use alluvium_tests::endurance::{assert_flat, curve};
use alluvium_tests::s3::{BUCKET, S3, storage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_s3() {
    let server = S3::start();
    let curve = curve(&format!("s3://{BUCKET}/endurance"), storage(server.port()), 1_200, false).await;
    assert_flat(&curve, 1.5);
}

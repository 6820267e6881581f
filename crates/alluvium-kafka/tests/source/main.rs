//! The source against brokers: the same suite on the sandbox and on a real Apache Kafka.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod reading;
mod sandbox;
mod suite;

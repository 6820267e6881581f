//! Development only: what tests of several crates start or share.
//!
//! - [`kafka_server`]: a real Apache Kafka broker.

pub mod kafka_server;

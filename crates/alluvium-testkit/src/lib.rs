//! Development only: what tests of several crates start or share.
//!
//! - [`conformance`]: what every table must do.
//! - [`kafka_server`]: a real Apache Kafka broker.
//! - [`sim`]: the whole runtime in a simulated world, seed by seed.

pub mod conformance;
pub mod kafka_server;
pub mod sim;

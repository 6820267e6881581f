//! Kafka: a topic as a source of chunks, an in-memory broker to try things on, a producer.
//!
//! - [`KafkaSource`] reads a topic as a member of a consumer group ([`alluvium_core::seam::Source`]).
//! - [`KafkaTopic`] asks about a topic (partitions, watermarks, offsets by time) without joining a group.
//! - [`sample`] looks at records without joining a group.
//! - [`Sandbox`] is a broker in memory, [`Producer`] writes records, [`admin`] makes and deletes topics.
//!
//! Invariants of this crate:
//! - No other crate depends on rdkafka. All unsafe code is in `native`.
//! - One thread per source talks to the consumer. It never waits for the receiver of its events, so
//!   the group keeps its member however long a table takes.
//! - Spans are made in `pack` alone, which does no IO: they join, and no record of them is left out.
//! - Group offsets are written, never read.

pub mod admin;
mod config;
mod context;
mod error;
#[expect(unsafe_code, reason = "the safe wrapper reads messages one by one, and drops the offsets of errors")]
mod native;
mod pack;
mod producer;
mod reader;
mod sample;
mod sandbox;
mod source;
mod topic;

pub use config::KafkaConfig;
pub use error::{ClientError, Error, PackError};
pub use producer::{Delivered, Delivery, NewRecord, Producer};
pub use sample::sample;
pub use sandbox::{Fault, Request, Sandbox};
pub use source::KafkaSource;
pub use topic::{KafkaTopic, TopicInfo};

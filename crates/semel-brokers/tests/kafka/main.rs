//! The Kafka sink, source and pipeline against a real Apache Kafka.
#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used)]

mod cluster;
mod conformance;
mod consuming;
mod crash;
mod credentials;
mod idempotent;
mod offsets;
mod pipeline;
mod pipeline_crash;
mod source;
mod transactional;

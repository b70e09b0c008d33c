//! The Kafka sink against a real Apache Kafka.
#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used)]

mod cluster;
mod conformance;
mod crash;
mod credentials;
mod idempotent;
mod transactional;

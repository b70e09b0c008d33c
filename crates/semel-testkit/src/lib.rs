//! What Semel's tests run on.
//!
//! Real servers only: a private PostgreSQL [`cluster`], a database per test, a pgbouncer, and ways to break them at the
//! moment that matters. The `conformance` suite is what every store passes, the `outbox` suite what every store passes
//! that keeps events, the `inbox` and `runner` suites what every store passes that keeps what consumers have seen, and
//! the `flows` suite what every store passes that flows run on.
//!
//! This is test code: it panics with an explanation where a test could not go on.
#![allow(clippy::unwrap_used)]

pub mod account;
pub mod address;
pub mod broker;
pub mod cluster;
pub mod kafka;
pub mod nats;
pub mod rabbitmq;
pub mod redis;

#[cfg(feature = "full")]
pub mod clock;
#[cfg(feature = "collectors")]
pub mod collector;
#[cfg(feature = "full")]
pub mod conformance;
#[cfg(feature = "full")]
pub mod control;
#[cfg(feature = "full")]
pub mod counts;
#[cfg(feature = "full")]
pub mod database;
#[cfg(feature = "full")]
pub mod flows;
#[cfg(feature = "full")]
pub mod inbox;
#[cfg(feature = "full")]
pub mod naive;
#[cfg(feature = "full")]
pub mod outbox;
pub mod pgbouncer;
#[cfg(feature = "full")]
pub mod poll;
#[cfg(feature = "full")]
pub mod process;
#[cfg(feature = "full")]
pub mod provider;
#[cfg(feature = "full")]
pub mod proxy;
#[cfg(feature = "full")]
pub mod runner;
#[cfg(feature = "full")]
pub mod sinks;
#[cfg(feature = "full")]
pub mod sources;

#[cfg(feature = "full")]
mod framing;
#[cfg(feature = "full")]
mod session;

//! The promises, on real processes: raced, killed, stopped, cut off and starved of their database.
#![allow(clippy::unwrap_used, missing_docs)]
#![cfg(feature = "failpoints")]

mod consumer;
mod crash;
mod fence;
mod flow;
mod lost_commit;
mod outage;
mod race;
mod reaping;
mod relay;
mod stopped;
mod tenants;
mod world;

//! The binary `semel`, used as its users do: by its commands, its exit codes and its HTTP.
#![allow(clippy::unwrap_used, missing_docs)]

mod configuration;
mod consume;
mod consumer;
mod demo;
mod flows;
mod harness;
mod inbox;
mod keys;
mod metrics;
mod migrate;
mod outbox;
mod receiver;
mod relay;
mod run;
mod sandbox;

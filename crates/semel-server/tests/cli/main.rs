//! The binary `semel`, used as its users do: by its commands, its exit codes and its HTTP.
#![allow(clippy::unwrap_used, missing_docs)]

mod configuration;
mod harness;
mod keys;
mod metrics;
mod migrate;
mod outbox;
mod receiver;
mod relay;
mod run;
mod sandbox;

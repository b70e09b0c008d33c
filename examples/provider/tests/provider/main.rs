//! Every promise of the provider as a test by name, over real HTTP; what must survive a kill, on a process that is
//! killed.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod common;
mod durability;
mod faults;
mod keys;
mod look_up;
mod routes;
mod settings;
mod webhooks;

//! Every row of the HTTP contract as a test by name, over real HTTP and on both stores.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod begun;
mod common;
mod failures;
mod flows;
mod header;
mod leases;
mod replies;
mod setup;
mod states;

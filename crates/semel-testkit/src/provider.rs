//! Somebody else's API in a process of its own: `semel-provider` of `examples/provider`, whose ledger is the witness.

use std::path::{Path, PathBuf};

use crate::process::{self, Service};

/// The path of the binary `semel-provider`, which is built first if the test run has not done so.
pub fn binary() -> PathBuf {
    process::built("semel-provider", "semel-provider")
}

/// Starts it with this ledger, and waits until it listens. `flags` decide how a new ledger's provider behaves.
pub async fn start(ledger: &Path, flags: &[&str]) -> Service {
    let ledger = ledger.to_str().expect("the path of a ledger is UTF-8");
    Service::spawn(binary(), &[&["--ledger", ledger], flags].concat(), &[]).await
}

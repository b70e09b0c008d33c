//! Providers to ask, in this process and in one of their own.

mod api;
mod process;
mod running;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use api::{Answer, Api};
pub(crate) use process::Process;
pub(crate) use running::Running;

/// How long anything that must happen may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A charge that succeeds.
pub fn new_charge() -> Value {
    json!({ "amount": 1200, "currency": "EUR", "card": "tok_visa" })
}

/// A directory that is kept if the test fails.
#[derive(Debug)]
pub struct Directory(TempDir);

impl Directory {
    pub fn make() -> Directory {
        Directory(TempDir::new().unwrap())
    }

    pub fn ledger(&self) -> PathBuf {
        self.0.path().join("ledger.db")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.disable_cleanup(true);
            eprintln!("the ledger is kept: {}", self.ledger().display());
        }
    }
}

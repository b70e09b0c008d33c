//! What `semel` can be told to do.

pub(crate) mod consume;
pub(crate) mod demo;
pub(crate) mod flows;
pub(crate) mod inbox;
pub(crate) mod keys;
pub(crate) mod migrate;
pub(crate) mod outbox;
pub(crate) mod run;
pub(crate) mod sandbox;

mod change;
mod text;

use std::io::{self, Write};

use anyhow::{Context, Result};

/// How a command ended that did not fail. Each has its own exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// It did what it was told.
    Completed,
    /// What it was told to look at is not there.
    NotFound,
    /// It was not done, for a reason that was told.
    Refused,
}

/// The command was used in a way that cannot work.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub String);

/// Writes data to stdout. A reader that went away, as in `semel keys list | head`, is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

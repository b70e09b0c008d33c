//! What to measure, and how much of it.

use std::time::Duration;

use clap::Parser;

/// Measures how many messages are applied once, beside the same work without an inbox.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench inbox", bin_name = "cargo xtask bench inbox")]
pub(crate) struct Options {
    /// Short measurements, one round: to see that it works.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints one JSON document instead of tables. It is written to target/bench/inbox.json in any case.
    #[arg(long)]
    pub(crate) json: bool,
    /// For how many milliseconds each case is measured in each round.
    #[arg(long)]
    milliseconds: Option<u64>,
    /// How often each case is measured; the median counts.
    #[arg(long)]
    rounds: Option<u32>,
    /// How many records the pipelines move.
    #[arg(long)]
    records: Option<u32>,
    /// The size of a payload.
    #[arg(long, default_value_t = 256)]
    pub(crate) payload_bytes: usize,
    /// Measures only the cases whose name holds this text; may be given more than once.
    #[arg(long)]
    pub(crate) only: Vec<String>,
}

impl Options {
    pub(crate) fn measured(&self) -> Duration {
        let milliseconds = self.milliseconds.unwrap_or(if self.quick { 500 } else { 4_000 });
        Duration::from_millis(milliseconds.max(100))
    }

    /// How long a case runs before it is measured.
    pub(crate) fn warm_up(&self) -> Duration {
        self.measured() / 4
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 }).max(1)
    }

    pub(crate) fn records(&self) -> u64 {
        self.records.unwrap_or(if self.quick { 10_000 } else { 100_000 }).max(100).into()
    }
}

//! What to measure, and how much of it.

use std::time::Duration;

use clap::Parser;
use semel::relay::Settings;

/// Measures how fast committed events get out: Semel's relay, the bare client libraries as the limit, and the polling
/// relay that most people write.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench relay", bin_name = "cargo xtask bench relay")]
pub(crate) struct Options {
    /// Few events, one round: to see that it works.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Prints one JSON document instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// How many events a backlog holds that is drained.
    #[arg(long)]
    events: Option<u32>,
    /// How often each case is measured; the median counts.
    #[arg(long)]
    rounds: Option<u32>,
    /// The longest that one drain is watched.
    #[arg(long)]
    limit_seconds: Option<u64>,
    /// How long a steady load lasts. None is measured if zero.
    #[arg(long)]
    steady_seconds: Option<u64>,
    /// How long writers and relay run flat out, twice without and twice with `xmin` held. None is measured if zero.
    #[arg(long)]
    held_seconds: Option<u64>,
    /// The size of a payload.
    #[arg(long, default_value_t = 1024)]
    pub(crate) payload_bytes: usize,
    /// How many ordering keys there are.
    #[arg(long, default_value_t = 1000)]
    pub(crate) keys: u32,
    /// How many events a transaction emits under a steady load.
    #[arg(long, default_value_t = 4)]
    pub(crate) per_transaction: usize,
    /// How many rows the polling relay takes at once.
    #[arg(long, default_value_t = 100)]
    pub(crate) polling_batch: i64,
    /// Two pauses between the commits of a Kafka transaction, in milliseconds.
    #[arg(long, num_args = 2, default_values_t = [20, 100])]
    pub(crate) commit_ms: Vec<u64>,
    /// How many events Semel's relay reads at once, if not its default.
    #[arg(long)]
    page_events: Option<u32>,
    /// How many mebibytes Semel's relay may have read and not published, if not its default.
    #[arg(long)]
    in_flight_mib: Option<u64>,
    /// Measures only the cases whose name holds this text; may be given more than once.
    #[arg(long)]
    pub(crate) only: Vec<String>,
}

impl Options {
    pub(crate) fn events(&self) -> u64 {
        self.events.unwrap_or(if self.quick { 20_000 } else { 200_000 }).max(100).into()
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 }).max(1)
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_seconds.unwrap_or(10).max(1))
    }

    /// How Semel's relay works: its defaults, unless told otherwise, with a pause between a lane's batches.
    pub(crate) fn relay(&self, commit_interval: Duration) -> Settings {
        let mut settings = Settings { commit_interval, ..Settings::default() };
        settings.page.events = self.page_events.unwrap_or(settings.page.events);
        settings.in_flight_bytes = self.in_flight_mib.map_or(settings.in_flight_bytes, |mib| mib << 20);
        settings
    }

    pub(crate) fn steady(&self) -> Duration {
        Duration::from_secs(self.steady_seconds.unwrap_or(if self.quick { 3 } else { 10 }))
    }

    pub(crate) fn held(&self) -> Duration {
        Duration::from_secs(self.held_seconds.unwrap_or(if self.quick { 6 } else { 120 }))
    }
}

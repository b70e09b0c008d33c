//! What was configured about consuming messages.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use semel::inbox::MAX_BATCH;
use semel::runner::Settings;

use super::{HOUR, Layers, MILLISECOND, SourceUrl, value};

/// The most bytes that may be received and not yet applied (I12).
const MAX_BYTES: usize = 1024 * 1024 * 1024;

/// The longest time that ids can be kept.
const MAX_RETENTION: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Where messages come from and how they are applied.
#[derive(Debug)]
pub(crate) struct ConsumeConfig {
    /// The source, if one was given.
    pub source: Option<SourceUrl>,
    /// What stands in front of the inbox, if anything does.
    pub tier: Option<TierName>,
    /// How a consumer works. What it recognises messages by is told with its name.
    pub settings: Settings,
}

/// The name of a tier. Not shown: it may be a URL with a password.
#[derive(Clone)]
pub(crate) struct TierName(String);

impl TierName {
    /// The name with all its secrets, for whoever opens it.
    pub(crate) fn with_secrets(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.split([':']).next().unwrap_or_default())
    }
}

impl ConsumeConfig {
    pub(super) fn read(layers: &Layers<'_>, transaction_deadline: Duration) -> Result<ConsumeConfig> {
        let duration = |name, from, to| layers.read(name, |text| value::duration(text, from..=to));
        let settings = Settings {
            retention: duration("inbox.retention", MILLISECOND, MAX_RETENTION)?,
            workers: layers.read("inbox.workers", |text| value::number(text, 1..=1000))?,
            batch: layers.read("inbox.batch", |text| value::number(text, 1..=MAX_BATCH))?,
            in_flight_bytes: layers.read("inbox.in_flight_bytes", |text| value::size(text, MAX_BYTES))? as u64,
            attempts: layers.read("inbox.attempts", |text| value::number(text, 1..=1000))?,
            backoff_min: duration("inbox.backoff_min", MILLISECOND, HOUR)?,
            backoff_max: duration("inbox.backoff_max", MILLISECOND, 24 * HOUR)?,
            patience: transaction_deadline,
            ..Settings::default()
        };
        ensure!(
            settings.backoff_min <= settings.backoff_max,
            "inbox.backoff_min may be at most inbox.backoff_max ({})",
            humantime::format_duration(settings.backoff_max)
        );
        ensure!(settings.in_flight_bytes >= 1024, "inbox.in_flight_bytes must be at least 1KiB");
        let source = layers.read_if_given("source", SourceUrl::parse)?;
        let tier = layers.read_if_given("inbox.tier", |text| Ok(TierName(text.to_owned())))?;
        Ok(ConsumeConfig { source, tier, settings })
    }
}

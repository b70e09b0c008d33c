//! How a runner works.

use std::time::Duration;

use crate::inbox::MAX_BATCH;
use crate::source::Recognition;

/// How a runner works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it tells messages apart by.
    pub recognition: Recognition,
    /// For how long the ids of messages are kept. Shorter than what the source may deliver again is refused (I9).
    pub retention: Duration,
    /// How many messages are worked on side by side. Those of one ordering key never are.
    pub workers: usize,
    /// The most messages in one commit.
    pub batch: usize,
    /// How many bytes of messages may be in hand. Each counts as at least 1 KiB.
    pub in_flight_bytes: u64,
    /// How often a message is tried before it is set aside as a dead letter.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub backoff_min: Duration,
    /// The longest pause between attempts.
    pub backoff_max: Duration,
    /// How often to look for dead letters that are to be tried again, and for a new generation.
    pub letters_interval: Duration,
    /// How often to compare the retention with what the source may deliver again.
    pub retention_interval: Duration,
    /// How long a stop waits for what is being applied.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            recognition: Recognition::Id,
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            workers: 8,
            batch: 100,
            in_flight_bytes: 16 * 1024 * 1024,
            attempts: 10,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            letters_interval: Duration::from_secs(1),
            retention_interval: Duration::from_secs(60),
            patience: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// Says what cannot work.
    pub(super) fn check(&self) -> Result<(), String> {
        let positive = [
            ("retention", self.retention.is_zero()),
            ("workers", self.workers == 0),
            ("batch", self.batch == 0),
            ("attempts", self.attempts == 0),
            ("backoff_min", self.backoff_min.is_zero()),
            ("letters_interval", self.letters_interval.is_zero()),
            ("retention_interval", self.retention_interval.is_zero()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, zero)| *zero) {
            return Err(format!("{name} of a consumer must be above zero"));
        }
        if self.batch > MAX_BATCH {
            return Err(format!("batch of a consumer is {} and may be {MAX_BATCH} at most", self.batch));
        }
        if self.in_flight_bytes < 1024 {
            return Err("in_flight_bytes of a consumer must be at least 1024".to_owned());
        }
        if self.backoff_max < self.backoff_min {
            return Err("backoff_max of a consumer must not be below backoff_min".to_owned());
        }
        Ok(())
    }
}

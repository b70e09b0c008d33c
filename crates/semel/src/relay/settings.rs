//! How a relay works.

use std::time::Duration;

use crate::outbox::PageLimit;

/// How a relay works. The defaults suit a service and its relay on one machine as well as a fleet.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What operators see of this relay, such as host and process id.
    pub name: String,
    /// The CloudEvents attribute `source` of every event: who emits.
    pub source: String,
    /// How long a relay that is not heard of keeps its lanes. It is renewed three times in that time.
    pub lease: Duration,
    /// How much is read at once.
    pub page: PageLimit,
    /// How many bytes may be read and not yet published. Each event counts as at least 1 KiB.
    pub in_flight_bytes: u64,
    /// The most events of one lane in one batch.
    pub batch: usize,
    /// The least time between two reads while there is little to read: it bounds how often the store is asked.
    pub read_interval: Duration,
    /// How long to wait at most before looking for events again. Events of this process wake the relay at once.
    pub poll_max: Duration,
    /// The least time between two batches of one lane. Zero, unless each batch is a costly transaction of the sink.
    pub commit_interval: Duration,
    /// The least time between two stored positions. Longer means fewer writes, and more events sent again after a
    /// crash.
    pub checkpoint_interval: Duration,
    /// How often a refused event is tried before its key is parked.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub backoff_min: Duration,
    /// The longest pause between attempts.
    pub backoff_max: Duration,
    /// How long published events are kept, for replays.
    pub keep: Duration,
    /// How often to make room, and to look after held keys.
    pub housekeeping_interval: Duration,
    /// How long a hand-over or a stop waits for what is in flight.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            name: format!("process {}", std::process::id()),
            source: "semel".to_owned(),
            lease: Duration::from_secs(30),
            page: PageLimit { events: 2_000, bytes: 4 * 1024 * 1024 },
            in_flight_bytes: 16 * 1024 * 1024,
            batch: 1_000,
            read_interval: Duration::from_millis(5),
            poll_max: Duration::from_millis(100),
            commit_interval: Duration::ZERO,
            checkpoint_interval: Duration::from_millis(100),
            attempts: 10,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            keep: Duration::from_secs(60 * 60),
            housekeeping_interval: Duration::from_secs(1),
            patience: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// Says what cannot work.
    pub(super) fn check(&self) -> Result<(), String> {
        let positive = [
            ("lease", self.lease.is_zero()),
            ("page.events", self.page.events == 0),
            ("page.bytes", self.page.bytes == 0),
            ("batch", self.batch == 0),
            ("poll_max", self.poll_max.is_zero()),
            ("attempts", self.attempts == 0),
            ("backoff_min", self.backoff_min.is_zero()),
            ("housekeeping_interval", self.housekeeping_interval.is_zero()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, zero)| *zero) {
            return Err(format!("{name} of a relay must be above zero"));
        }
        if self.in_flight_bytes < self.page.bytes {
            return Err(format!(
                "in_flight_bytes is {} and must hold at least one page of {} bytes",
                self.in_flight_bytes, self.page.bytes
            ));
        }
        if self.backoff_max < self.backoff_min {
            return Err("backoff_max of a relay must not be below backoff_min".to_owned());
        }
        if self.name.is_empty() || self.name.len() > 255 {
            return Err("the name of a relay must be 1 to 255 bytes".to_owned());
        }
        Ok(())
    }
}

//! How flows are worked on in this process.

use std::time::Duration;

/// The shortest and the longest lease.
const LEASE_BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60 * 60));

/// The longest pause in which a run stays in the process.
const MAX_PATIENCE: Duration = Duration::from_secs(60 * 60);

/// The longest name of a holder, in bytes. The database checks the same bound (I12).
const MAX_HOLDER_BYTES: usize = 255;

/// How flows are worked on in this process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a flow waits for a worker that is not heard of. The lease is renewed three times in that time.
    pub lease_for: Duration,
    /// What operators see of this worker, such as host and process id.
    pub holder: String,
    /// The longest pause that is slept through in the process. In a longer one the flow is parked, and whoever takes it
    /// up after the pause goes on.
    pub patience: Duration,
    /// How many flows a completer runs side by side.
    pub concurrency: usize,
    /// How long a completer waits at most before it looks for flows again; never longer than a quarter of the lease. A
    /// job that was staged in this process wakes it at once.
    pub poll: Duration,
    /// How long a completer that is stopped waits for what it runs.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease_for: Duration::from_secs(30),
            holder: format!("process {}", std::process::id()),
            patience: Duration::from_secs(2),
            concurrency: 16,
            poll: Duration::from_secs(1),
            grace: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// Says what cannot work (I12).
    pub(super) fn check(&self) -> Result<(), String> {
        let (shortest, longest) = LEASE_BOUNDS;
        if self.lease_for < shortest || self.lease_for > longest {
            return Err(format!(
                "lease_for of flows must be between {shortest:?} and {longest:?}, not {:?}",
                self.lease_for
            ));
        }
        if !(1..=MAX_HOLDER_BYTES).contains(&self.holder.len()) {
            return Err(format!("holder of flows must be 1 to {MAX_HOLDER_BYTES} bytes, not {:?}", self.holder));
        }
        if self.patience > MAX_PATIENCE {
            return Err(format!("patience of flows must be {MAX_PATIENCE:?} at most, not {:?}", self.patience));
        }
        if self.concurrency == 0 || self.poll.is_zero() {
            return Err("concurrency and poll of flows must be above zero".to_owned());
        }
        Ok(())
    }

    /// How often a completer looks.
    pub(super) fn looks_every(&self) -> Duration {
        self.poll.min(self.lease_for / 4).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_bounds_are_refused_by_name() {
        let defaults = Settings::default;
        let cases = [
            (Settings { lease_for: Duration::ZERO, ..defaults() }, "lease_for"),
            (Settings { lease_for: Duration::from_secs(3601), ..defaults() }, "lease_for"),
            (Settings { holder: String::new(), ..defaults() }, "holder"),
            (Settings { holder: "h".repeat(256), ..defaults() }, "holder"),
            (Settings { patience: Duration::from_secs(3601), ..defaults() }, "patience"),
            (Settings { concurrency: 0, ..defaults() }, "concurrency"),
            (Settings { poll: Duration::ZERO, ..defaults() }, "poll"),
        ];
        for (settings, named) in cases {
            let refused = settings.check().unwrap_err();
            assert!(refused.contains(named), "{refused}");
        }
        assert_eq!(defaults().check(), Ok(()));
    }

    #[test]
    fn a_completer_looks_four_times_in_a_lease_that_is_short() {
        assert_eq!(Settings::default().looks_every(), Duration::from_secs(1));
        let short = Settings { lease_for: Duration::from_secs(2), ..Settings::default() };
        assert_eq!(short.looks_every(), Duration::from_millis(500));
    }
}

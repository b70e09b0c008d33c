//! How often, and how far apart.

use std::time::Duration;

/// The most attempts a profile may allow. The journal keeps one row for each that failed (I12).
pub const MAX_ATTEMPTS: u32 = 100;

/// The longest pause a profile may ask for.
pub(super) const MAX_PAUSE: Duration = Duration::from_hours(24);

/// How often calls are made, and look-ups fail in a row, before that ends; and the pauses between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How many attempts are made at most.
    pub attempts: u32,
    /// The pause after the first; it doubles with each further one.
    pub least: Duration,
    /// The longest pause.
    pub most: Duration,
}

impl Retry {
    /// The pause after failure number `failures`, counted from one.
    pub fn pause(&self, failures: u32) -> Duration {
        match failures {
            0 => Duration::ZERO,
            _ => self.least.saturating_mul(1 << (failures - 1).min(20)).min(self.most),
        }
    }
}

impl Default for Retry {
    /// Ten attempts, 200 ms to 5 minutes apart: a minute and 42 seconds of pauses in all.
    fn default() -> Retry {
        Retry { attempts: 10, least: Duration::from_millis(200), most: Duration::from_mins(5) }
    }
}

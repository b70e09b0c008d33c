//! A clock that moves when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use semel::Clock;

/// A clock that stands still until [`ManualClock::advance`]. Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    now_ms: Arc<AtomicI64>,
}

impl ManualClock {
    /// Starts at this many milliseconds since the Unix epoch.
    pub fn at(now_ms: i64) -> ManualClock {
        ManualClock { now_ms: Arc::new(AtomicI64::new(now_ms)) }
    }

    /// Moves the time on.
    pub fn advance(&self, by: Duration) {
        self.now_ms.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }
}

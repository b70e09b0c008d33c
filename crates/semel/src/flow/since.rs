//! How long ago something was.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A moment, by two clocks: the one that never goes back, and the one that goes on while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    ran: Instant,
    passed: SystemTime,
}

impl Since {
    pub(super) fn now() -> Since {
        Since { ran: Instant::now(), passed: SystemTime::now() }
    }

    /// How long the machine has been running since. It is never more than what has passed.
    pub(super) fn ran(&self) -> Duration {
        self.ran.elapsed()
    }

    /// How much time has passed since, for those whose clocks do not stand still with this machine.
    pub(super) fn passed(&self) -> Duration {
        self.passed.elapsed().unwrap_or_default().max(self.ran())
    }
}

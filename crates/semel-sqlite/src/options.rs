//! What a service decides about its SQLite file.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use semel::{Clock, Error, SystemClock};

/// How a file is used. [`Options::default`] suits most services.
#[derive(Clone)]
pub struct Options {
    /// How long an operation may hold the writer before it is rolled back. Give [`semel::Settings`] the same.
    pub deadline: Duration,
    /// How many connections read beside the writer.
    pub readers: usize,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// When a caller is told to ask again for a key in flight.
    pub retry_after: Duration,
    /// The most operations that share one commit.
    pub group_limit: usize,
    /// How old a group may get before the next operation goes into a new one. Under load this bounds how long a
    /// finished operation waits for others to join.
    pub group_age: Duration,
    /// How long to wait for another process that holds the file's write lock; at most half of the deadline.
    pub busy_timeout: Duration,
}

impl Options {
    pub(crate) fn checked(self) -> Result<Options, Error> {
        let day = Duration::from_secs(24 * 60 * 60);
        let problem = if self.deadline < Duration::from_millis(1) || self.deadline > day {
            "the deadline must be 1 ms to 24 h"
        } else if !(1..=64).contains(&self.readers) {
            "readers must be 1 to 64"
        } else if !(1..=10_000).contains(&self.group_limit) {
            "group_limit must be 1 to 10000"
        } else if self.busy_timeout > self.deadline.max(Duration::from_secs(60)) {
            "busy_timeout must not be longer than the deadline, or 60 s if that is longer"
        } else {
            return Ok(self);
        };
        Err(Error::Settings(problem.to_owned()))
    }
}

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        Options {
            deadline: Duration::from_secs(30),
            readers: threads.clamp(2, 16),
            clock: Arc::new(SystemClock),
            retry_after: Duration::from_secs(1),
            group_limit: 256,
            group_age: Duration::from_millis(10),
            busy_timeout: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("deadline", &self.deadline)
            .field("readers", &self.readers)
            .field("retry_after", &self.retry_after)
            .field("group_limit", &self.group_limit)
            .field("group_age", &self.group_age)
            .field("busy_timeout", &self.busy_timeout)
            .finish_non_exhaustive()
    }
}

//! Asking the store again, for a while.

use std::time::Duration;

use tokio::time::Instant;

use crate::Error;
use crate::error::Next;

/// The first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Asks the store again, for a while, for what changes nothing when it was done already: a call that was made must not
/// lose its result to a connection that broke.
#[derive(Debug)]
pub(super) struct Trying {
    until: Instant,
    pause: Duration,
}

impl Trying {
    pub(super) fn new(patience: Duration) -> Trying {
        Trying { until: Instant::now() + patience, pause: PAUSES.0 }
    }

    /// Pauses before the next try, unless the error will not pass or there is no time left: then it is given back.
    pub(super) async fn again(&mut self, error: Error) -> Result<(), Error> {
        if matches!(error.next(), Next::Stop) || Instant::now() >= self.until {
            return Err(error);
        }
        tracing::debug!(%error, "the store is asked again");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_may_pass_is_tried_until_there_is_no_time_left() {
        let mut trying = Trying::new(Duration::from_secs(60));
        for error in [Error::Unavailable("away".into()), Error::Ambiguous("cut".into()), Error::RolledBack] {
            assert!(trying.again(error).await.is_ok());
        }
        let mut late = Trying::new(Duration::ZERO);
        assert!(matches!(late.again(Error::RolledBack).await, Err(Error::RolledBack)));
    }

    #[tokio::test]
    async fn a_lost_lease_is_not_asked_for_again() {
        let mut trying = Trying::new(Duration::from_secs(60));
        assert!(matches!(trying.again(Error::Fenced).await, Err(Error::Fenced)));
    }
}

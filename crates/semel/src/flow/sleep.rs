//! Steps that wait.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::Result;
use super::handle::Flow;
use super::journal::Kind;
use super::run::Run;
use super::store::FlowStore;
use crate::clock::{Clock, SystemClock};

impl<S: FlowStore> Flow<S> {
    /// Waits until `until`, by the clocks of the machines that run the flow.
    ///
    /// The time is recorded when the step is first asked for, and stays what it was then: a function may say *in an
    /// hour* in every run. While a long pause lasts nobody works on the flow; its key is in flight, and a completer
    /// goes on with it afterwards, or the client's retry. A crash loses nothing. The pause is cut short by the end of
    /// the flow's life, and a flow that is being undone does not wait.
    pub async fn sleep_until(&self, step: &str, until: SystemTime) -> Result<()> {
        self.run.whole(step, self.run.sleep_until(step, until)).await
    }
}

impl<S: FlowStore> Run<S> {
    async fn sleep_until(&self, step: &str, until: SystemTime) -> Result<()> {
        let until_ms: i64 = match self.ask(step, Kind::Sleep)? {
            Some(entry) => self.recorded(&entry)?,
            None => {
                let until_ms = milliseconds(until);
                let settled = self.done(step, Kind::Sleep, &until_ms).map_err(|error| self.stop(error))?;
                self.settle(&settled).await?;
                until_ms
            }
        };
        if self.unwinding.is_some() {
            return Ok(());
        }
        let left_ms = until_ms.saturating_sub(SystemClock.now_ms());
        let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
        if left > self.shared.settings.patience {
            return Err(self.pause(left));
        }
        tokio::time::sleep(left).await;
        Ok(())
    }
}

/// Milliseconds since the Unix epoch.
fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_the_epoch_is_over() {
        assert_eq!(milliseconds(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(milliseconds(UNIX_EPOCH + Duration::from_millis(1500)), 1500);
    }
}

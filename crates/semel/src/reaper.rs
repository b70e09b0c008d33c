//! Forgets keys whose time is over.

use std::future::Future;
use std::time::Duration;

use crate::store::Store;
use crate::{Error, observe};

/// How the reaper works.
#[derive(Debug, Clone, Copy)]
pub struct Reaper {
    /// How often to look for expired keys.
    pub every: Duration,
    /// The most keys deleted in one transaction. Small batches keep locks and replication lag short (I12).
    pub batch: u32,
}

impl Default for Reaper {
    fn default() -> Reaper {
        Reaper { every: Duration::from_secs(10), batch: 1000 }
    }
}

impl Reaper {
    /// Deletes what has expired, batch by batch, until a batch comes back short. Returns how many keys went.
    ///
    /// Each batch is its own transaction: after a crash the batches so far are gone and the rest is still there. An
    /// expired key counts as new whether or not it was reaped, so nothing depends on when this runs.
    pub async fn sweep<S: Store>(&self, store: &S) -> Result<u64, Error> {
        let mut reaped = 0;
        loop {
            let count = store.reap(self.batch.max(1)).await?;
            observe::keys_reaped(count);
            reaped += count;
            if count < u64::from(self.batch.max(1)) {
                return Ok(reaped);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sweeps until `stop` completes, which may cut a sweep short: the batch it was in commits or does not. A store
    /// that cannot be reached is tried again at the next turn.
    pub async fn run<S: Store>(&self, store: &S, stop: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = stop => {}
            () = self.sweep_for_ever(store) => {}
        }
    }

    async fn sweep_for_ever<S: Store>(&self, store: &S) {
        let mut ticks = tokio::time::interval(self.every.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let swept = async {
                let reaped = self.sweep(store).await?;
                observe::keys_stuck(store.stuck_leases().await?);
                Ok::<u64, Error>(reaped)
            };
            match swept.await {
                Ok(0) => {}
                Ok(count) => tracing::debug!(count, "reaped expired keys"),
                Err(error) => {
                    observe::reaper_failed();
                    tracing::warn!(%error, "the reaper will try again");
                }
            }
        }
    }
}

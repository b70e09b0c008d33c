//! Forgets keys and messages whose time is over.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::inbox::Inbox;
use crate::store::Store;
use crate::{Error, observe};

/// The least time between two looks at the inbox. Ids are kept for days, so a minute more makes no difference, and
/// finding its consumers costs more than finding expired keys.
const INBOX_EVERY: Duration = Duration::from_secs(60);

/// How the reaper works.
#[derive(Debug, Clone, Copy)]
pub struct Reaper {
    /// How often to look for expired keys.
    pub every: Duration,
    /// The most keys or messages deleted in one transaction. Small batches keep locks and replication lag short (I12).
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

    /// Forgets the ids of messages that were seen longer ago than their consumer keeps them, batch by batch, and
    /// returns how many went. A consumer that has not declared a retention keeps its ids.
    ///
    /// The retention is at least as long as the consumer's source may deliver a message again (I9). As with keys, each
    /// batch is its own transaction.
    pub async fn sweep_inbox<S: Inbox>(&self, store: &S) -> Result<u64, Error> {
        let batch = self.batch.max(1);
        let mut reaped = 0;
        for consumer in store.consumers(None).await? {
            let Some(declared) = consumer.declared else { continue };
            loop {
                let count = store.reap_inbox(&consumer.name, declared.retention, batch).await?;
                observe::inbox_reaped(count);
                reaped += count;
                if count < u64::from(batch) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        Ok(reaped)
    }

    /// Sweeps keys and, less often, the inbox until `stop` completes, which may cut a sweep short: the batch it was in
    /// commits or does not. A store that cannot be reached is tried again at the next turn.
    pub async fn run<S: Inbox>(&self, store: &S, stop: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = stop => {}
            () = self.sweep_for_ever(store) => {}
        }
    }

    async fn sweep_for_ever<S: Inbox>(&self, store: &S) {
        let mut inbox_due = Instant::now();
        let mut ticks = tokio::time::interval(self.every.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let swept = async {
                let reaped = self.sweep(store).await?;
                observe::keys_stuck(store.stuck_leases().await?);
                if Instant::now() < inbox_due {
                    return Ok((reaped, 0));
                }
                let forgotten = self.sweep_inbox(store).await?;
                inbox_due = Instant::now() + INBOX_EVERY;
                Ok::<_, Error>((reaped, forgotten))
            };
            match swept.await {
                Ok((0, 0)) => {}
                Ok((keys, messages)) => tracing::debug!(keys, messages, "reaped what had expired"),
                Err(error) => {
                    observe::reaper_failed();
                    tracing::warn!(%error, "the reaper will try again");
                }
            }
        }
    }
}

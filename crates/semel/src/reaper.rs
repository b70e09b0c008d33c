//! Forgets keys and messages whose time is over.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::inbox::Inbox;
use crate::store::Store;
use crate::{Error, observe};

/// A sweep that lasts so many times as long as the time between two is far behind.
const FAR_BEHIND: u32 = 10;

/// The least time between two looks at the inbox. Ids are kept for days, so a minute more makes no difference, and
/// finding its consumers costs more than finding expired keys.
const INBOX_EVERY: Duration = Duration::from_secs(60);

/// How the reaper works.
#[derive(Debug, Clone, Copy)]
pub struct Reaper {
    /// How often to look for expired keys.
    pub every: Duration,
    /// The most keys or messages deleted in one transaction. Small batches keep locks and replication lag short (I12);
    /// those far below a thousand cost more than they spare, because each passes over what others have left for vacuum.
    pub batch: u32,
    /// After a full batch it rests for so many times as long as that batch took, at most for `every`. With 3 it keeps a
    /// database busy for a quarter of the time, however many keys expire at once; with 0 it goes on without a rest, as
    /// it does once it is far behind: when a sweep has lasted ten times as long as `every`.
    pub rest: u32,
}

impl Default for Reaper {
    fn default() -> Reaper {
        Reaper { every: Duration::from_secs(10), batch: 1000, rest: 3 }
    }
}

impl Reaper {
    /// Deletes what has expired, batch by batch with a rest after each, until one comes back short. Returns how many
    /// keys went.
    ///
    /// Each batch is its own transaction: after a crash the batches so far are gone and all others are still there. An
    /// expired key counts as new whether or not it was reaped, so nothing depends on when this runs.
    pub async fn sweep<S: Store>(&self, store: &S) -> Result<u64, Error> {
        let reap = |limit: u32| async move { store.reap(limit).await.inspect(|count| observe::keys_reaped(*count)) };
        self.in_batches(reap).await
    }

    /// Forgets the ids of messages that were seen longer ago than their consumer keeps them, batch by batch, and
    /// returns how many went. A consumer that has not declared a retention keeps its ids.
    ///
    /// The retention is at least as long as the consumer's source may deliver a message again (I9). As with keys, each
    /// batch is its own transaction.
    pub async fn sweep_inbox<S: Inbox>(&self, store: &S) -> Result<u64, Error> {
        let mut reaped = 0;
        for consumer in store.consumers(None).await? {
            let Some(declared) = consumer.declared else { continue };
            let (name, keep) = (consumer.name.as_str(), declared.retention);
            let reap = |limit: u32| async move {
                store.reap_inbox(name, keep, limit).await.inspect(|count| observe::inbox_reaped(*count))
            };
            reaped += self.in_batches(reap).await?;
        }
        Ok(reaped)
    }

    /// Reaps batch by batch, with a rest after each, until one comes back short. Returns how many went in all.
    async fn in_batches<F>(&self, reap: impl Fn(u32) -> F) -> Result<u64, Error>
    where
        F: Future<Output = Result<u64, Error>>,
    {
        let (batch, is_behind_at) = (self.batch.max(1), Instant::now() + self.every.saturating_mul(FAR_BEHIND));
        let mut reaped = 0;
        loop {
            let begun = Instant::now();
            let count = reap(batch).await?;
            reaped += count;
            if count < u64::from(batch) {
                return Ok(reaped);
            }
            // More may expire than it reaps with rests, and the table must not grow for ever (I12).
            let rest = if begun < is_behind_at { self.rest } else { 0 };
            tokio::time::sleep(begun.elapsed().saturating_mul(rest).min(self.every)).await;
        }
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tokio::time::{sleep, timeout};

    use super::*;

    /// Reaps `expired` keys and returns when each batch began and ended.
    async fn batches(reaper: Reaper, expired: u64) -> Vec<(Instant, Instant)> {
        let (left, batches) = (Cell::new(expired), RefCell::new(Vec::new()));
        let (left, noted) = (&left, &batches);
        let reap = |limit: u32| async move {
            let (begun, count) = (Instant::now(), left.get().min(u64::from(limit)));
            // The store is at work.
            sleep(Duration::from_millis(5)).await;
            left.set(left.get() - count);
            noted.borrow_mut().push((begun, Instant::now()));
            Ok(count)
        };
        let reaped = timeout(Duration::from_secs(60), reaper.in_batches(reap)).await.expect("it rests for too long");
        assert_eq!((reaped.unwrap(), left.get()), (expired, 0));
        batches.into_inner()
    }

    #[tokio::test]
    async fn a_sweep_rests_after_a_batch_in_proportion_to_what_it_took() {
        let batches = batches(Reaper { batch: 10, rest: 3, ..Reaper::default() }, 25).await;
        assert_eq!(batches.len(), 3);
        for pair in batches.windows(2) {
            let (took, rested) = (pair[0].1 - pair[0].0, pair[1].0 - pair[0].1);
            assert!(rested >= took * 3, "after {took:?} it rested for {rested:?}");
        }
    }

    #[tokio::test]
    async fn a_sweep_that_is_through_does_not_rest() {
        let reaper = Reaper { every: Duration::from_secs(3600), batch: 10, rest: u32::MAX };
        assert_eq!(batches(reaper, 9).await.len(), 1);
    }

    #[tokio::test]
    async fn a_sweep_that_is_far_behind_does_not_rest() {
        let reaper = Reaper { every: Duration::from_millis(20), batch: 10, rest: u32::MAX };
        let batches = batches(reaper, 600).await;
        let rests: Vec<Duration> = batches.windows(2).map(|pair| pair[1].0 - pair[0].1).collect();
        assert!(rests[..5].iter().all(|rest| *rest >= reaper.every), "{rests:?}");
        assert!(rests[10..].iter().any(|rest| *rest < reaper.every), "{rests:?}");
    }

    #[tokio::test]
    async fn a_rest_is_not_longer_than_the_time_between_two_looks() {
        let reaper = Reaper { every: Duration::from_millis(1), batch: 10, rest: u32::MAX };
        assert_eq!(batches(reaper, 25).await.len(), 3);
    }
}

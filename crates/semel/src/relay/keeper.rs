//! Keeps a membership alive and divides the lanes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::outbox::{LANES, LaneState, Outbox};
use crate::relay::{Context, Lost, failed};
use crate::sink::Sink;
use crate::{Error as StoreError, failpoint};

/// How often the lease is renewed at least, so that a relay that joins soon gets its share.
const RENEW_AT_LEAST: Duration = Duration::from_secs(5);

/// Renews the lease of a membership until it is dropped, and takes and gives lanes.
pub(super) struct Keeper<S, K> {
    context: Arc<Context<S, K>>,
    /// How many relays there are, as of the last renewal.
    relays: watch::Receiver<u32>,
    renewing: JoinHandle<()>,
}

impl<S: Outbox, K: Sink> Keeper<S, K> {
    pub(super) fn start(context: &Arc<Context<S, K>>) -> Keeper<S, K> {
        let (count, relays) = watch::channel(0);
        let renewing = tokio::spawn(renew(Arc::clone(context), count));
        Keeper { context: Arc::clone(context), relays, renewing }
    }

    /// Completes after a renewal, with how many lanes this relay should have.
    pub(super) async fn share(&mut self) -> u16 {
        if self.relays.changed().await.is_err() {
            // The membership is over, which whoever waits here learns by other means.
            std::future::pending::<()>().await;
        }
        let relays = u16::try_from(*self.relays.borrow_and_update()).unwrap_or(u16::MAX).max(1);
        LANES.div_ceil(relays)
    }

    /// Takes up to `most` lanes that nobody has, in a task of its own: what runs beside it may have to go on before the
    /// store can answer.
    pub(super) fn take(&self, most: u16) -> JoinHandle<Vec<LaneState>> {
        tokio::spawn(take(Arc::clone(&self.context), most))
    }

    /// Gives lanes up, where they stand. What becomes of a failure is the membership's end.
    pub(super) async fn give(&self, states: &[LaneState]) {
        if states.is_empty() {
            return;
        }
        failpoint::reach(failpoint::RELAY_HANDING_OVER).await;
        if let Err(error) = self.context.store.leave_lanes(self.context.joined.id, states).await {
            failed("give lanes up", &error);
            self.context.lose(if matches!(error, StoreError::Fenced) { Lost::Fenced } else { Lost::Failed });
        }
    }
}

impl<S, K> Drop for Keeper<S, K> {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

async fn take<S: Outbox, K: Sink>(context: Arc<Context<S, K>>, most: u16) -> Vec<LaneState> {
    match context.store.take_lanes(context.joined.id, most).await {
        Ok(taken) => {
            if !taken.is_empty() {
                failpoint::reach(failpoint::RELAY_TAKEN_OVER).await;
                tracing::debug!(lanes = taken.len(), "the relay has taken lanes");
            }
            return taken;
        }
        Err(StoreError::Fenced) => context.lose(Lost::Fenced),
        // It may have been done all the same: lanes that this relay has and does not know of are nobody's.
        Err(error) => {
            failed("take lanes", &error);
            context.lose(Lost::Failed);
        }
    }
    Vec::new()
}

/// Renews three times in a lease. When the lease may have run out, the membership counts as lost: what is sent after
/// that might be sent by another relay already, and in a newer order.
async fn renew<S: Outbox, K: Sink>(context: Arc<Context<S, K>>, relays: watch::Sender<u32>) {
    let lease = context.settings.lease;
    let mut runs_until = Instant::now() + lease;
    loop {
        let asked_at = Instant::now();
        let renewed = context.store.renew_relay(context.joined.id, lease);
        match tokio::time::timeout_at(runs_until, renewed).await {
            Ok(Ok(count)) => {
                runs_until = asked_at + lease;
                context.leased_until(runs_until);
                let _ = relays.send(count);
            }
            Ok(Err(StoreError::Fenced)) => return context.lose(Lost::Fenced),
            Ok(Err(error)) => failed("renew its lease", &error),
            Err(_) => return context.lose(Lost::Lapsed),
        }
        if Instant::now() >= runs_until {
            return context.lose(Lost::Lapsed);
        }
        tokio::time::sleep((lease / 3).min(RENEW_AT_LEAST)).await;
    }
}

//! A store with somebody between it and its relay, who loses answers and holds calls up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::lease::{Lease, LeaseTerms};
use semel::operator::{Audit, Eviction, KeyFilter, KeyRecord};
use semel::outbox::{
    Backlog, Cursor, EventRecord, HeldEvent, HeldKey, HeldState, Holding, Intervention, Joined, LaneHistory, LaneState,
    OutboxStatus, Page, PageLimit, Rebased, RelayId, Tidied,
};
use semel::sink::Lane;
use semel::store::Stored;
use semel::{Ask, Claim, Error, EventId, Execution, Key, Outbox, Scope, Store};
use tokio::sync::watch;

/// What is meddled with.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meddling {
    /// Redrives are stored, and the answer is lost.
    pub(super) redrives_unanswered: bool,
    /// Nothing is read.
    pub(super) unread: bool,
    /// Positions are not stored and not answered.
    pub(super) positions_lost: bool,
}

/// A real store, meddled with.
#[derive(Debug, Clone)]
pub(super) struct Meddler<S> {
    store: S,
    meddling: Arc<watch::Sender<Meddling>>,
    unanswered: Arc<watch::Sender<u32>>,
    held_keys_found: Arc<AtomicU32>,
}

impl<S: Outbox> Meddler<S> {
    pub(super) fn new(store: &S, meddling: Meddling) -> Meddler<S> {
        let (unanswered, held_keys_found) = (Arc::default(), Arc::default());
        Meddler { store: store.clone(), meddling: Arc::new(watch::Sender::new(meddling)), unanswered, held_keys_found }
    }

    /// Meddles like this from now on.
    pub(super) fn meddle(&self, meddling: Meddling) {
        self.meddling.send_replace(meddling);
    }

    /// Completes when the answer to a redrive was lost.
    pub(super) async fn redrive_unanswered(&self) {
        let mut unanswered = self.unanswered.subscribe();
        unanswered.wait_for(|count| *count > 0).await.expect("the meddler holds the sender");
    }

    /// How often held keys were found in one lane, as the lane's worker asks.
    pub(super) fn held_keys_found(&self) -> u32 {
        self.held_keys_found.load(Ordering::Relaxed)
    }

    async fn until(&self, passes: impl FnMut(&Meddling) -> bool) {
        self.meddling.subscribe().wait_for(passes).await.expect("the meddler holds the sender");
    }
}

impl<S: Outbox> Outbox for Meddler<S> {
    async fn hold(&self, id: RelayId, lane: &LaneState, holdings: &[Holding]) -> Result<(), Error> {
        self.store.hold(id, lane, holdings).await?;
        let redrive = holdings.iter().any(|holding| matches!(holding, Holding::Renumber { .. }));
        if redrive && self.meddling.borrow().redrives_unanswered {
            self.unanswered.send_modify(|count| *count += 1);
            return Err(Error::Unavailable("the answer was lost".into()));
        }
        Ok(())
    }

    async fn page(&self, after: Cursor, lanes: &[Lane], limit: PageLimit) -> Result<Option<Page>, Error> {
        self.until(|meddling| !meddling.unread).await;
        self.store.page(after, lanes, limit).await
    }

    async fn checkpoint(&self, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
        self.until(|meddling| !meddling.positions_lost).await;
        self.store.checkpoint(id, lanes).await
    }

    async fn head(&self) -> Result<Cursor, Error> {
        self.store.head().await
    }

    async fn join_relays(&self, name: &str, lease_for: Duration) -> Result<Joined, Error> {
        self.store.join_relays(name, lease_for).await
    }

    async fn renew_relay(&self, id: RelayId, lease_for: Duration) -> Result<u32, Error> {
        self.store.renew_relay(id, lease_for).await
    }

    async fn take_lanes(&self, id: RelayId, most: u16) -> Result<Vec<LaneState>, Error> {
        self.store.take_lanes(id, most).await
    }

    async fn leave_lanes(&self, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
        self.store.leave_lanes(id, lanes).await
    }

    async fn leave_relays(&self, id: RelayId) -> Result<(), Error> {
        self.store.leave_relays(id).await
    }

    async fn held_keys(&self, lanes: &[Lane]) -> Result<Vec<HeldKey>, Error> {
        let keys = self.store.held_keys(lanes).await?;
        if let ([_], [_, ..]) = (lanes, &keys[..]) {
            self.held_keys_found.fetch_add(1, Ordering::Relaxed);
        }
        Ok(keys)
    }

    async fn held_events(&self, lane: Lane, ordering_key: &str, limit: u32) -> Result<Vec<HeldEvent>, Error> {
        self.store.held_events(lane, ordering_key, limit).await
    }

    async fn emitted(&self) {
        self.store.emitted().await;
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        self.store.backlog().await
    }

    async fn tidy_outbox(&self, keep: Duration) -> Result<Tidied, Error> {
        self.store.tidy_outbox(keep).await
    }

    async fn outbox_status(&self) -> Result<OutboxStatus, Error> {
        self.store.outbox_status().await
    }

    async fn show_event(&self, id: EventId) -> Result<Option<EventRecord>, Error> {
        self.store.show_event(id).await
    }

    async fn list_held(&self, state: Option<HeldState>, limit: u32) -> Result<Vec<HeldKey>, Error> {
        self.store.list_held(state, limit).await
    }

    async fn redrive(&self, ordering_key: Option<&str>, audit: &Audit, dry_run: bool) -> Result<Intervention, Error> {
        self.store.redrive(ordering_key, audit, dry_run).await
    }

    async fn skip_event(&self, id: EventId, audit: &Audit, dry_run: bool) -> Result<Intervention, Error> {
        self.store.skip_event(id, audit, dry_run).await
    }

    async fn rebase(&self, audit: &Audit, dry_run: bool) -> Result<Rebased, Error> {
        self.store.rebase(audit, dry_run).await
    }

    async fn history(&self) -> Result<Vec<LaneHistory>, Error> {
        self.store.history().await
    }
}

impl<S: Outbox> Store for Meddler<S> {
    type Tx = S::Tx;

    async fn claim(&self, ask: &Ask) -> Result<Claim<S::Tx, Stored>, Error> {
        self.store.claim(ask).await
    }

    async fn lease(&self, ask: &Ask, terms: &LeaseTerms) -> Result<Claim<Lease, Stored>, Error> {
        self.store.lease(ask, terms).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<bool, Error> {
        self.store.renew(lease, lease_for).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        self.store.release(lease).await
    }

    async fn abandon(&self, lease: &Lease) -> Result<(), Error> {
        self.store.abandon(lease).await
    }

    async fn begin_fenced(&self, lease: &Lease) -> Result<S::Tx, Error> {
        self.store.begin_fenced(lease).await
    }

    async fn reap(&self, limit: u32) -> Result<u64, Error> {
        self.store.reap(limit).await
    }

    async fn stuck_leases(&self) -> Result<u64, Error> {
        self.store.stuck_leases().await
    }

    async fn check(&self) -> Result<(), Error> {
        self.store.check().await
    }

    async fn check_seals(&self, known: &[String]) -> Result<(), Error> {
        self.store.check_seals(known).await
    }

    async fn list_keys(&self, filter: &KeyFilter) -> Result<Vec<KeyRecord>, Error> {
        self.store.list_keys(filter).await
    }

    async fn show_key(&self, scope: &Scope, key: &Key) -> Result<Option<KeyRecord>, Error> {
        self.store.show_key(scope, key).await
    }

    async fn evict_key(
        &self,
        scope: &Scope,
        key: &Key,
        expected: Option<Execution>,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Eviction, Error> {
        self.store.evict_key(scope, key, expected, audit, dry_run).await
    }
}

//! The outbox: events that were committed, and how far relays have come with them.
//!
//! Events are written in the turn that makes them happen, so a seq's order is the commit order, and a cursor is a plain
//! seq of the only tick there is. Whatever a relay writes is a turn like any other: it waits its turn and shares its
//! group's COMMIT. What is read is read beside the writer.

pub(crate) mod emit;

mod held;
mod history;
mod operator;
mod page;
mod relay;
mod row;
mod tidy;

use std::time::Duration;

use semel::Error;
use semel::event::EventId;
use semel::operator::Audit;
use semel::outbox::{
    Backlog, Cursor, EventRecord, HeldEvent, HeldKey, HeldState, Holding, Intervention, Joined, LaneHistory, LaneState,
    Outbox, OutboxStatus, Page, PageLimit, Rebased, RelayId, Tidied,
};
use semel::sink::Lane;

use crate::store::Sqlite;

impl Outbox for Sqlite {
    async fn join_relays(&self, name: &str, lease_for: Duration) -> Result<Joined, Error> {
        self.join_as_relay(name, lease_for).await
    }

    async fn renew_relay(&self, id: RelayId, lease_for: Duration) -> Result<u32, Error> {
        self.renew_membership(id, lease_for).await
    }

    async fn take_lanes(&self, id: RelayId, most: u16) -> Result<Vec<LaneState>, Error> {
        self.take_free_lanes(id, most).await
    }

    async fn leave_lanes(&self, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
        self.store_and_free(id, lanes).await
    }

    async fn leave_relays(&self, id: RelayId) -> Result<(), Error> {
        self.end_membership(id).await
    }

    async fn page(&self, after: Cursor, lanes: &[Lane], limit: PageLimit) -> Result<Option<Page>, Error> {
        self.read_page(after, lanes, limit).await
    }

    async fn head(&self) -> Result<Cursor, Error> {
        self.read_head().await
    }

    async fn checkpoint(&self, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
        self.store_positions(id, lanes).await
    }

    async fn hold(&self, id: RelayId, lane: &LaneState, holdings: &[Holding]) -> Result<(), Error> {
        self.store_holdings(id, lane, holdings).await
    }

    async fn held_keys(&self, lanes: &[Lane]) -> Result<Vec<HeldKey>, Error> {
        self.read_held_keys(lanes).await
    }

    async fn held_events(&self, lane: Lane, ordering_key: &str, limit: u32) -> Result<Vec<HeldEvent>, Error> {
        self.read_held_events(lane, ordering_key, limit).await
    }

    async fn emitted(&self) {
        self.emissions().next().await;
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        self.count_backlog().await
    }

    async fn tidy_outbox(&self, keep: Duration) -> Result<Tidied, Error> {
        self.delete_old_events(keep).await
    }

    async fn outbox_status(&self) -> Result<OutboxStatus, Error> {
        self.read_status().await
    }

    async fn show_event(&self, id: EventId) -> Result<Option<EventRecord>, Error> {
        self.find_event(id).await
    }

    async fn list_held(&self, state: Option<HeldState>, limit: u32) -> Result<Vec<HeldKey>, Error> {
        self.list_held_keys(state, limit).await
    }

    async fn redrive(&self, ordering_key: Option<&str>, audit: &Audit, dry_run: bool) -> Result<Intervention, Error> {
        self.redrive_keys(ordering_key, audit, dry_run).await
    }

    async fn skip_event(&self, id: EventId, audit: &Audit, dry_run: bool) -> Result<Intervention, Error> {
        self.skip_held_event(id, audit, dry_run).await
    }

    async fn rebase(&self, audit: &Audit, dry_run: bool) -> Result<Rebased, Error> {
        self.rebase_positions(audit, dry_run).await
    }

    async fn history(&self) -> Result<Vec<LaneHistory>, Error> {
        self.read_history().await
    }
}

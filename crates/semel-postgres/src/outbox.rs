//! The outbox: events that were committed, and how far relays have come with them.
//!
//! Everything that keeps a promise is a function in the schema `semel`; decision 3 lists the interleavings behind them.

pub(crate) mod emit;

mod held;
mod history;
mod operator;
mod page;
mod position;
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

use crate::store::Postgres;

impl Outbox for Postgres {
    async fn join_relays(&self, name: &str, lease_for: Duration) -> Result<Joined, Error> {
        relay::join(self, name, lease_for).await
    }

    async fn renew_relay(&self, id: RelayId, lease_for: Duration) -> Result<u32, Error> {
        relay::renew(self, id, lease_for).await
    }

    async fn take_lanes(&self, id: RelayId, most: u16) -> Result<Vec<LaneState>, Error> {
        relay::take(self, id, most).await
    }

    async fn leave_lanes(&self, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
        relay::leave_lanes(self, id, lanes).await
    }

    async fn leave_relays(&self, id: RelayId) -> Result<(), Error> {
        relay::leave(self, id).await
    }

    async fn page(&self, after: Cursor, lanes: &[Lane], limit: PageLimit) -> Result<Option<Page>, Error> {
        page::read(self, after, lanes, limit).await
    }

    async fn head(&self) -> Result<Cursor, Error> {
        page::head(self).await
    }

    async fn checkpoint(&self, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
        relay::checkpoint(self, id, lanes).await
    }

    async fn hold(&self, id: RelayId, lane: &LaneState, holdings: &[Holding]) -> Result<(), Error> {
        held::hold(self, id, lane, holdings).await
    }

    async fn held_keys(&self, lanes: &[Lane]) -> Result<Vec<HeldKey>, Error> {
        held::keys(self, lanes).await
    }

    async fn held_events(&self, lane: Lane, ordering_key: &str, limit: u32) -> Result<Vec<HeldEvent>, Error> {
        held::events(self, lane, ordering_key, limit).await
    }

    async fn emitted(&self) {
        self.shared.emitted.notified().await;
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        operator::backlog(self).await
    }

    async fn tidy_outbox(&self, keep: Duration) -> Result<Tidied, Error> {
        tidy::tidy(self, keep).await
    }

    async fn outbox_status(&self) -> Result<OutboxStatus, Error> {
        operator::status(self).await
    }

    async fn show_event(&self, id: EventId) -> Result<Option<EventRecord>, Error> {
        operator::show(self, id).await
    }

    async fn list_held(&self, state: Option<HeldState>, limit: u32) -> Result<Vec<HeldKey>, Error> {
        operator::list_held(self, state, limit).await
    }

    async fn redrive(&self, ordering_key: Option<&str>, audit: &Audit, dry_run: bool) -> Result<Intervention, Error> {
        operator::redrive(self, ordering_key, audit, dry_run).await
    }

    async fn skip_event(&self, id: EventId, audit: &Audit, dry_run: bool) -> Result<Intervention, Error> {
        operator::skip(self, id, audit, dry_run).await
    }

    async fn rebase(&self, audit: &Audit, dry_run: bool) -> Result<Rebased, Error> {
        operator::rebase(self, audit, dry_run).await
    }

    async fn history(&self) -> Result<Vec<LaneHistory>, Error> {
        history::history(self).await
    }
}

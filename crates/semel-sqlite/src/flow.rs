//! Flows: work of several steps that goes on where it stopped.
//!
//! A flow lives on a leased key. Whatever its worker writes is a turn like any other: it waits its turn, shares its
//! group's COMMIT, and checks the fence on the writer, where nobody can change what it finds before the turn ends (I7).
//! A takeover is such a turn, too, so each flow is given to one worker, however many processes use the file.

pub(crate) mod job;
pub(crate) mod step;

mod begin;
mod change;
mod course;
mod journal;
mod operator;
mod row;
mod take;

use std::time::Duration;

use semel::flow::{
    Attempt, Change, FlowFilter, FlowRecord, FlowShown, FlowStore, Journal, Kept, Pressure, Resolution, Seen, Settled,
    Start,
};
use semel::intent::Fault;
use semel::operator::Audit;
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution, Lease, LeaseTerms};

use crate::error::millis;
use crate::store::Sqlite;
use crate::tx::Tx;

/// How long a held flow is kept: until somebody resolves it, which is to say for a hundred years.
const HELD_FOR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The most bytes that are kept of a cause. The database checks the same bound (I12).
const MAX_CAUSE_BYTES: usize = 1024;

impl FlowStore for Sqlite {
    async fn begin_flow(&self, ask: &Ask, terms: &LeaseTerms, start: &Start) -> Result<Claim<Journal, Stored>, Error> {
        self.lease_flow(ask, terms, start).await
    }

    async fn take_flows(&self, flow: &str, terms: &LeaseTerms, limit: u32) -> Result<Vec<Journal>, Error> {
        self.take_due_flows(flow, terms, limit).await
    }

    /// It takes its turn at its first statement, where the fence is checked again.
    async fn begin_step(&self, lease: &Lease, step: &str) -> Result<Tx, Error> {
        self.fence_step(lease, step).await
    }

    /// What others did in the same group is waited for, too: it may have been done under this lease.
    async fn read_flow(&self, lease: &Lease) -> Result<Journal, Error> {
        self.read_journal(lease).await
    }

    async fn settle_step(&self, lease: &Lease, settled: &Settled) -> Result<(), Error> {
        self.settle_call_or_pause(lease, settled).await
    }

    async fn count_attempt(&self, lease: &Lease, attempt: &Attempt<'_>) -> Result<(), Error> {
        self.count_sending(lease, attempt).await
    }

    async fn end_attempt(
        &self,
        lease: &Lease,
        step: &str,
        number: u32,
        fault: Fault,
        cause: &str,
    ) -> Result<(), Error> {
        self.end_sending(lease, step, number, fault, cause).await
    }

    async fn park_flow(&self, lease: &Lease, pause: Duration, cause: Option<&str>) -> Result<(), Error> {
        self.pause_flow(lease, pause, cause).await
    }

    async fn hold_flow(&self, lease: &Lease, step: &str, why: &str) -> Result<(), Error> {
        self.hold_for_person(lease, step, why).await
    }

    async fn unwind_flow(&self, lease: &Lease, failure: &Kept) -> Result<(), Error> {
        self.begin_unwinding(lease, failure).await
    }

    /// Jobs that another process, or another handle, has staged are not told here; they are found by looking.
    async fn flow_staged(&self) {
        self.stagings().next().await;
    }

    async fn flow_pressure(&self) -> Result<Pressure, Error> {
        self.measure_pressure().await
    }

    async fn list_flows(&self, filter: &FlowFilter) -> Result<Vec<FlowRecord>, Error> {
        self.find_flows(filter).await
    }

    async fn show_flow(&self, flow: Execution) -> Result<Option<FlowShown>, Error> {
        self.find_flow(flow).await
    }

    async fn retry_flow(&self, flow: impl Into<Seen> + Send, audit: &Audit, dry_run: bool) -> Result<Change, Error> {
        self.let_go_on(flow.into(), audit, dry_run).await
    }

    async fn resolve_flow(
        &self,
        flow: impl Into<Seen> + Send,
        step: &str,
        resolution: &Resolution,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Change, Error> {
        self.resolve_call(flow.into(), step, resolution, audit, dry_run).await
    }

    async fn cancel_flow(&self, flow: impl Into<Seen> + Send, audit: &Audit, dry_run: bool) -> Result<Change, Error> {
        self.ask_to_undo(flow.into(), audit, dry_run).await
    }
}

/// Until when a flow is kept that is held now.
fn held_until(now_ms: i64) -> i64 {
    now_ms.saturating_add(millis(HELD_FOR))
}

/// As much of a cause as is kept.
fn cut(cause: &str) -> &str {
    &cause[..cause.floor_char_boundary(MAX_CAUSE_BYTES)]
}

/// A key under which work was leased that is no flow.
fn no_flow() -> Error {
    Error::Settings("the key belongs to leased work that is no flow; use another operation for the flow".to_owned())
}

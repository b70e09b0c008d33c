//! Flows: work of several steps that goes on where it stopped.
//!
//! A flow lives on a leased key. Everything that keeps a promise is a function in the schema `semel`, and one round
//! trip. Each that a worker calls locks the key's row first and compares execution and epoch under that lock (I7).

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
use tokio_postgres::Row;
use uuid::Uuid;

use crate::parameter::Parameter;
use crate::store::Postgres;
use crate::tx::Tx;

/// How often something is asked for again when its answer was lost, or when it conflicted with another transaction.
const ATTEMPTS: usize = 3;

/// Who holds the lease of a job that nobody has begun.
const STAGED: &str = "staged";

/// How much is kept of a cause. The database leaves room for the widest characters (I12).
const MAX_CAUSE_CHARACTERS: usize = 1000;

impl FlowStore for Postgres {
    async fn begin_flow(&self, ask: &Ask, terms: &LeaseTerms, start: &Start) -> Result<Claim<Journal, Stored>, Error> {
        begin::begin(self, ask, terms, start).await
    }

    async fn take_flows(&self, flow: &str, terms: &LeaseTerms, limit: u32) -> Result<Vec<Journal>, Error> {
        take::take(self, flow, terms, limit).await
    }

    async fn begin_step(&self, lease: &Lease, step: &str) -> Result<Tx, Error> {
        step::begin(self, lease, step).await
    }

    async fn read_flow(&self, lease: &Lease) -> Result<Journal, Error> {
        journal::read(self, lease).await
    }

    async fn settle_step(&self, lease: &Lease, settled: &Settled) -> Result<(), Error> {
        step::settle(self, lease, settled).await
    }

    async fn count_attempt(&self, lease: &Lease, attempt: &Attempt<'_>) -> Result<(), Error> {
        step::count(self, lease, attempt).await
    }

    async fn end_attempt(
        &self,
        lease: &Lease,
        step: &str,
        number: u32,
        fault: Fault,
        cause: &str,
    ) -> Result<(), Error> {
        step::end(self, lease, step, number, fault, cause).await
    }

    async fn park_flow(&self, lease: &Lease, pause: Duration, cause: Option<&str>) -> Result<(), Error> {
        course::park(self, lease, pause, cause).await
    }

    async fn hold_flow(&self, lease: &Lease, step: &str, why: &str) -> Result<(), Error> {
        course::hold(self, lease, step, why).await
    }

    async fn unwind_flow(&self, lease: &Lease, failure: &Kept) -> Result<(), Error> {
        course::unwind(self, lease, failure).await
    }

    /// Jobs that another process has staged, or a statement of the work itself, are not told here; they are found by
    /// looking.
    async fn flow_staged(&self) {
        self.shared.staged.notified().await;
    }

    async fn flow_pressure(&self) -> Result<Pressure, Error> {
        operator::pressure(self).await
    }

    async fn list_flows(&self, filter: &FlowFilter) -> Result<Vec<FlowRecord>, Error> {
        operator::list(self, filter).await
    }

    async fn show_flow(&self, flow: Execution) -> Result<Option<FlowShown>, Error> {
        operator::show(self, flow).await
    }

    async fn retry_flow(&self, flow: impl Into<Seen> + Send, audit: &Audit, dry_run: bool) -> Result<Change, Error> {
        change::retry(self, flow.into(), audit, dry_run).await
    }

    async fn resolve_flow(
        &self,
        flow: impl Into<Seen> + Send,
        step: &str,
        resolution: &Resolution,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Change, Error> {
        change::resolve(self, flow.into(), step, resolution, audit, dry_run).await
    }

    async fn cancel_flow(&self, flow: impl Into<Seen> + Send, audit: &Audit, dry_run: bool) -> Result<Change, Error> {
        change::cancel(self, flow.into(), audit, dry_run).await
    }
}

/// The lease that a worker's writes are fenced by: the first five parameters of every function that it calls.
struct Fenced<'a> {
    tenant: &'a str,
    operation: &'a str,
    key: &'a str,
    execution: Uuid,
    epoch: i64,
}

impl<'a> Fenced<'a> {
    fn by(lease: &'a Lease) -> Fenced<'a> {
        Fenced {
            tenant: lease.scope().tenant(),
            operation: lease.scope().operation(),
            key: lease.key().as_str(),
            execution: lease.execution.as_uuid(),
            epoch: lease.epoch,
        }
    }

    /// These parameters, and then the function's own.
    fn with<'b>(&'b self, own: &[&'b dyn Parameter]) -> Vec<&'b dyn Parameter> {
        let fence: [&'b dyn Parameter; 5] = [&self.tenant, &self.operation, &self.key, &self.execution, &self.epoch];
        fence.into_iter().chain(own.iter().copied()).collect()
    }
}

/// Calls a function of a worker. Asked again for what was done already it changes nothing, so that a lost answer is
/// simply asked for again.
async fn call(store: &Postgres, sql: &str, params: &[&dyn Parameter]) -> Result<(), Error> {
    let mut attempt = 1;
    loop {
        match store.call(sql, params).await {
            Err(Error::Conflict(_) | Error::Unavailable(_)) if attempt < ATTEMPTS => attempt += 1,
            called => return called.map(drop),
        }
    }
}

/// Runs a statement at READ COMMITTED, whatever the role or database prefers: what was recorded is read after the key's
/// row was locked, and by a look that is younger than the lock.
async fn query_committed(store: &Postgres, sql: &str, params: &[&dyn Parameter]) -> Result<Vec<Row>, Error> {
    let mut attempt = 1;
    loop {
        let statements = [(sql, params.to_vec())];
        match store.transact(&store.shared.begin_relaying, &statements).await {
            Err(Error::Conflict(_) | Error::Unavailable(_)) if attempt < ATTEMPTS => attempt += 1,
            answers => return Ok(answers?.pop().unwrap_or_default()),
        }
    }
}

/// Refuses the name by which jobs are known that nobody has begun.
fn check_worker(terms: &LeaseTerms) -> Result<(), Error> {
    if terms.holder == STAGED {
        return Err(Error::Settings(format!("the holder of a lease must not be {STAGED:?}: jobs are staged as that")));
    }
    Ok(())
}

/// As much of a cause as is kept, with a mark in place of the character that the database does not know.
fn cut(cause: &str) -> String {
    let known = |letter: char| if letter == '\0' { char::REPLACEMENT_CHARACTER } else { letter };
    cause.chars().map(known).take(MAX_CAUSE_CHARACTERS).collect()
}

/// A key under which work was leased that is no flow.
fn no_flow() -> Error {
    Error::Settings("the key belongs to leased work that is no flow; use another operation for the flow".to_owned())
}

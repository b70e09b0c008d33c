//! Keys whose work outlives one transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::lease::{Lease, LeaseTerms, OnExpiry, RecoveryPoint};
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution};
use uuid::Uuid;

use crate::claim::read_refusal;
use crate::connect::Statements;
use crate::error::classify;
use crate::parameter::Parameter;
use crate::session::Session;
use crate::store::{Postgres, Shared, interval_ms};
use crate::tx::{Holds, Tx};

const LEASE: &str = include_str!("sql/lease.sql");
const RENEW: &str = include_str!("sql/renew.sql");
const RELEASE: &str = "SELECT semel.release($1, $2, $3, $4, $5)";
const ABANDON: &str = "SELECT semel.abandon($1, $2, $3, $4, $5)";
const FENCE: &str = "SELECT semel.fence($1, $2, $3, $4, $5, $6), set_config('semel.fenced', $4::text, true)";
const FENCE_STEP: &str = include_str!("sql/fence_step.sql");
const FENCE_STEP_PLAIN: &str = include_str!("sql/fence_step_plain.sql");
const STUCK: &str = include_str!("sql/stuck_leases.sql");

/// How often a lease is asked for again when another run's row got in between.
const ATTEMPTS: usize = 3;

pub(crate) async fn lease(store: &Postgres, ask: &Ask, terms: &LeaseTerms) -> Result<Claim<Lease, Stored>, Error> {
    let fingerprint = ask.fingerprint.as_bytes().as_slice();
    let (lease_ms, retain_ms) = (interval_ms(terms.lease_for), interval_ms(terms.retain));
    let resume = terms.on_expiry == OnExpiry::Resume;
    // Minted here, so that asking again after a lost answer finds the row that was committed as its own.
    let execution = Execution::mint().as_uuid();
    let params: [&dyn Parameter; 9] = [
        &ask.scope.tenant(),
        &ask.scope.operation(),
        &ask.key.as_str(),
        &fingerprint,
        &terms.holder.as_str(),
        &lease_ms,
        &retain_ms,
        &resume,
        &execution,
    ];
    let mut attempt = 1;
    let row = loop {
        match store.call(LEASE, &params).await {
            // The row that got in between, or our own whose answer was lost, is committed now: asking again sees it.
            Err(Error::Raced | Error::Conflict(_) | Error::Unavailable(_)) if attempt < ATTEMPTS => attempt += 1,
            other => break other?,
        }
    };
    let outcome: &str = row.try_get("outcome").map_err(classify)?;
    if outcome == "flow" {
        return Err(Error::Settings("the key belongs to a flow; run the flow, do not lease it".to_owned()));
    }
    if !matches!(outcome, "fresh" | "resume") {
        return read_refusal(outcome, &row, store.shared.options.retry_after);
    }
    let point: Option<String> = row.try_get("recovery_point").map_err(classify)?;
    let lease = Lease {
        ask: ask.clone(),
        execution: row.try_get::<_, Uuid>("execution").map_err(classify)?.into(),
        epoch: row.try_get("epoch").map_err(classify)?,
        recovery_point: point.and_then(|name| RecoveryPoint::new(name).ok()),
        lease_for: terms.lease_for,
        retain: terms.retain,
    };
    Ok(if outcome == "fresh" { Claim::Fresh(lease) } else { Claim::Resume(lease) })
}

pub(crate) async fn renew(store: &Postgres, lease: &Lease, lease_for: Duration) -> Result<bool, Error> {
    let (lease_ms, retain_ms) = (interval_ms(lease_for), interval_ms(lease.retain));
    let params: [&dyn Parameter; 7] = [
        &lease.scope().tenant(),
        &lease.scope().operation(),
        &lease.key().as_str(),
        &lease.execution.as_uuid(),
        &lease.epoch,
        &lease_ms,
        &retain_ms,
    ];
    store.call(RENEW, &params).await?.try_get(0).map_err(classify)
}

pub(crate) async fn release(store: &Postgres, lease: &Lease) -> Result<(), Error> {
    give_up(store, RELEASE, lease).await
}

pub(crate) async fn abandon(store: &Postgres, lease: &Lease) -> Result<(), Error> {
    give_up(store, ABANDON, lease).await
}

async fn give_up(store: &Postgres, sql: &str, lease: &Lease) -> Result<(), Error> {
    let params: [&dyn Parameter; 5] = [
        &lease.scope().tenant(),
        &lease.scope().operation(),
        &lease.key().as_str(),
        &lease.execution.as_uuid(),
        &lease.epoch,
    ];
    store.call(sql, &params).await.map(drop)
}

/// What a transaction of leased work holds.
pub(crate) struct Fence {
    pub(crate) lease: Lease,
    /// The step's name, if the work is a flow.
    pub(crate) step: Option<String>,
    /// Since when it is held, if most of the lease was left then. Nobody can renew the lease meanwhile.
    pub(crate) since: Option<Instant>,
}

impl Fence {
    /// The run that events and jobs are numbered in: each step commits once, so it has one of its own.
    pub(crate) fn run(&self) -> Execution {
        match &self.step {
            Some(step) => self.lease.execution.named_step(step),
            None => self.lease.execution.step(self.lease.recovery_point.as_ref()),
        }
    }
}

pub(crate) async fn begin_fenced(store: &Postgres, lease: &Lease) -> Result<Tx, Error> {
    begin(store, Fence { lease: lease.clone(), step: None, since: None }).await
}

/// Begins a transaction and fences it, in one flight.
pub(crate) async fn begin(store: &Postgres, mut fence: Fence) -> Result<Tx, Error> {
    let mut session = store.session().await?;
    let late = take(&store.shared, &mut session, &[&store.shared.begin], &fence).await?;
    fence.since = (!late).then(Instant::now);
    Ok(Tx::new(Arc::clone(&store.shared), session, fence.lease.execution, Holds::Fence(fence)))
}

/// Ends the transaction of a step and fences another one, so that nothing of the step's effect is left. No work
/// follows, so it is at READ COMMITTED: a renewal that waited for the row and got it first is no conflict.
pub(crate) async fn fence_anew(shared: &Shared, session: &mut Session, fence: &Fence) -> Result<(), Error> {
    take(shared, session, &["ROLLBACK", &shared.begin_relaying], fence).await.map(drop)
}

/// Begins and fences. Told is whether the lease should be renewed with what the transaction does.
async fn take(shared: &Shared, session: &mut Session, commands: &[&str], fence: &Fence) -> Result<bool, Error> {
    let lease = &fence.lease;
    let point = lease.recovery_point.as_ref().map(RecoveryPoint::as_str);
    let run = fence.run().as_uuid().to_string();
    let params: [&dyn Parameter; 7] = [
        &lease.scope().tenant(),
        &lease.scope().operation(),
        &lease.key().as_str(),
        &lease.execution.as_uuid(),
        &lease.epoch,
        &point,
        &run,
    ];
    let lease_ms = interval_ms(lease.lease_for);
    let taken = match &fence.step {
        // A flow has no recovery point.
        Some(_) if shared.options.statements == Statements::Named => {
            let params = [&params[..5], &params[6..], &[&lease_ms]].concat();
            let rows = shared.begin_on(session, commands, FENCE_STEP_PLAIN, &params).await?;
            return rows.first().ok_or(Error::Fenced)?.try_get(0).map_err(classify);
        }
        Some(_) => shared.begin_on(session, commands, FENCE_STEP, &params).await,
        None => shared.begin_on(session, commands, FENCE, &params[..6]).await,
    };
    taken.map(|_| true)
}

pub(crate) async fn stuck(store: &Postgres) -> Result<u64, Error> {
    let row = store.call(STUCK, &[]).await?;
    Ok(u64::try_from(row.try_get::<_, i64>(0).map_err(classify)?).unwrap_or(0))
}

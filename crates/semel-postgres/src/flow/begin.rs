//! Beginning a flow, or going on with it because its client came back.

use std::time::Duration;

use semel::flow::{Journal, Start};
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution, Lease, LeaseTerms, OnExpiry};
use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use super::journal::journals;
use super::row::{get, unanswered};
use super::{ATTEMPTS, check_worker, no_flow, query_committed};
use crate::claim::{lock_of, read_refusal};
use crate::connect::Statements;
use crate::parameter::Parameter;
use crate::store::{LEASED_LOOK, Postgres, interval_ms};

const BEGIN: &str = include_str!("../sql/flow_begin.sql");
const BEGIN_PLAIN: &str = include_str!("../sql/flow_begin_plain.sql");

/// Asks, and asks again while the flow is in flight and the client waits.
pub(super) async fn begin(
    store: &Postgres,
    ask: &Ask,
    terms: &LeaseTerms,
    start: &Start,
) -> Result<Claim<Journal, Stored>, Error> {
    check_worker(terms)?;
    let ends = Instant::now() + ask.wait;
    loop {
        let claim = begin_once(store, ask, terms, start).await?;
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() || !matches!(claim, Claim::InFlight { .. }) {
            return Ok(claim);
        }
        tokio::time::sleep(LEASED_LOOK.min(left)).await;
    }
}

/// One statement that commits by itself. What is recorded comes with a takeover, in the same round trip.
async fn begin_once(
    store: &Postgres,
    ask: &Ask,
    terms: &LeaseTerms,
    start: &Start,
) -> Result<Claim<Journal, Stored>, Error> {
    let fingerprint = ask.fingerprint.as_bytes().as_slice();
    let (lease_ms, retain_ms) = (interval_ms(terms.lease_for), interval_ms(terms.retain));
    let resume = terms.on_expiry == OnExpiry::Resume;
    // Minted here, so that asking again after a lost answer finds the row that was committed as its own.
    let execution = Execution::mint().as_uuid();
    let (input, sealed_by) = (start.input.bytes.as_ref(), start.input.sealed_by.as_deref());
    let params: [&dyn Parameter; 12] = [
        &ask.scope.tenant(),
        &ask.scope.operation(),
        &ask.key.as_str(),
        &fingerprint,
        &terms.holder.as_str(),
        &lease_ms,
        &retain_ms,
        &resume,
        &execution,
        &start.flow.as_str(),
        &input,
        &sealed_by,
    ];
    let lock = lock_of(store, ask).await?;
    if store.shared.options.statements == Statements::Named && !store.shared.recent.knows(lock) {
        // Whatever goes wrong with it is told by the function, which also knows the row that was committed if only the
        // answer was lost.
        let plain: Vec<&dyn Parameter> = [&params[..7], &params[8..], &[&lock.0]].concat();
        if store.query(BEGIN_PLAIN, &plain).await.is_ok_and(|rows| !rows.is_empty()) {
            return Ok(Claim::Fresh(fresh(first_lease(execution, ask, terms), start)));
        }
    }
    let mut attempt = 1;
    let mut rows = loop {
        match store.query(BEGIN, &params).await {
            // The row that got in between, or our own whose answer was lost, is committed now: asking again sees it.
            Err(Error::Raced | Error::Conflict(_) | Error::Unavailable(_)) if attempt < ATTEMPTS => attempt += 1,
            other => break other?,
        }
    };
    store.shared.recent.remember(lock);
    if outcome(&rows)? == "abandoned" {
        rows = query_committed(store, BEGIN, &params).await?;
    }
    let row = rows.first().ok_or_else(unanswered)?;
    match outcome(&rows)? {
        "fresh" => Ok(Claim::Fresh(fresh(lease(row, ask, terms)?, start))),
        "resume" => {
            let journal = journals(&rows, |row| lease(row, ask, terms))?.pop();
            journal.map(Claim::Resume).ok_or_else(no_flow)
        }
        "no_flow" => Err(no_flow()),
        refused => read_refusal(refused, row, store.shared.options.retry_after),
    }
}

fn outcome(rows: &[Row]) -> Result<&str, Error> {
    get(rows.first().ok_or_else(unanswered)?, "outcome")
}

/// The lease of a flow that begins.
fn first_lease(execution: Uuid, ask: &Ask, terms: &LeaseTerms) -> Lease {
    Lease {
        ask: ask.clone(),
        execution: execution.into(),
        epoch: 1,
        recovery_point: None,
        lease_for: terms.lease_for,
        retain: terms.retain,
    }
}

fn lease(row: &Row, ask: &Ask, terms: &LeaseTerms) -> Result<Lease, Error> {
    let lease = first_lease(get(row, "execution")?, ask, terms);
    Ok(Lease { epoch: get(row, "epoch")?, ..lease })
}

/// A flow of which nothing is recorded but its beginning.
fn fresh(lease: Lease, start: &Start) -> Journal {
    Journal {
        lease,
        flow: start.flow.clone(),
        input: start.input.clone(),
        age: Duration::ZERO,
        lived: Duration::ZERO,
        failures: 0,
        unwinding: None,
        cancelled: false,
        restored: false,
        entries: Vec::new(),
    }
}

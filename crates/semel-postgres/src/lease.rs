//! Keys whose work outlives one transaction.

use std::sync::Arc;
use std::time::Duration;

use semel::lease::{Lease, LeaseTerms, OnExpiry, RecoveryPoint};
use semel::store::Stored;
use semel::{Ask, Claim, Error};
use uuid::Uuid;

use crate::error::classify;
use crate::flight::{Flight, Prepared};
use crate::parameter::Parameter;
use crate::store::{Postgres, interval_ms, read_refusal};
use crate::tx::{Holds, Tx, roll_back_later};

const LEASE: &str = include_str!("sql/lease.sql");
const RENEW: &str = include_str!("sql/renew.sql");
const RELEASE: &str = "SELECT semel.release($1, $2, $3, $4)";
const FENCE: &str = "SELECT semel.fence($1, $2, $3, $4)";
const STUCK: &str = include_str!("sql/stuck_leases.sql");

/// How often a lease is asked for again when another run's row got in between.
const ATTEMPTS: usize = 3;

pub(crate) async fn lease(store: &Postgres, ask: &Ask, terms: &LeaseTerms) -> Result<Claim<Lease, Stored>, Error> {
    let fingerprint = ask.fingerprint.as_bytes().as_slice();
    let (lease_ms, retain_ms) = (interval_ms(terms.lease_for), interval_ms(terms.retain));
    let resume = terms.on_expiry == OnExpiry::Resume;
    let params: [&dyn Parameter; 8] = [
        &ask.scope.tenant(),
        &ask.scope.operation(),
        &ask.key.as_str(),
        &fingerprint,
        &terms.holder.as_str(),
        &lease_ms,
        &retain_ms,
        &resume,
    ];
    let mut attempt = 1;
    let row = loop {
        match store.call(LEASE, &params).await {
            // The row that got in between is committed now, so asking again sees it.
            Err(Error::Raced | Error::Conflict(_)) if attempt < ATTEMPTS => attempt += 1,
            other => break other?,
        }
    };
    let outcome: &str = row.try_get("outcome").map_err(classify)?;
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

pub(crate) async fn renew(store: &Postgres, lease: &Lease, lease_for: Duration) -> Result<(), Error> {
    let (lease_ms, retain_ms) = (interval_ms(lease_for), interval_ms(lease.retain));
    let params: [&dyn Parameter; 6] = [
        &lease.scope().tenant(),
        &lease.scope().operation(),
        &lease.key().as_str(),
        &lease.epoch,
        &lease_ms,
        &retain_ms,
    ];
    store.call(RENEW, &params).await.map(drop)
}

pub(crate) async fn release(store: &Postgres, lease: &Lease) -> Result<(), Error> {
    let params: [&dyn Parameter; 4] =
        [&lease.scope().tenant(), &lease.scope().operation(), &lease.key().as_str(), &lease.epoch];
    store.call(RELEASE, &params).await.map(drop)
}

pub(crate) async fn begin_fenced(store: &Postgres, lease: &Lease) -> Result<Tx, Error> {
    let connection = store.client().await?;
    let params: [&dyn Parameter; 4] =
        [&lease.scope().tenant(), &lease.scope().operation(), &lease.key().as_str(), &lease.epoch];
    let answers = {
        let fence = Prepared::new(&connection, store.shared.options.statements, FENCE, params.into_iter());
        let fence = fence.await.map_err(classify)?;
        let mut flight = Flight::default();
        flight.command(&connection, &store.shared.begin);
        flight.statement(&connection, &fence);
        flight.fly().await
    };
    if let Some(error) = answers.into_iter().find_map(Result::err) {
        roll_back_later(connection);
        return Err(classify(error));
    }
    Ok(Tx::new(Arc::clone(&store.shared), connection, lease.execution, Holds::Fence(lease.clone())))
}

pub(crate) async fn stuck(store: &Postgres) -> Result<u64, Error> {
    let row = store.call(STUCK, &[]).await?;
    Ok(u64::try_from(row.try_get::<_, i64>(0).map_err(classify)?).unwrap_or(0))
}

//! Taking flows over whose leases have ended.

use semel::flow::Journal;
use semel::{Ask, Error, Fingerprint, Lease, LeaseTerms, OnExpiry, fingerprint};
use tokio_postgres::Row;
use uuid::Uuid;

use super::journal::journals;
use super::row::{get, key, scope, unreadable};
use super::{check_worker, query_committed};
use crate::parameter::Parameter;
use crate::store::{Postgres, interval_ms};

const TAKE: &str = include_str!("../sql/flow_take.sql");

/// What is taken is taken in one round trip, with all that its workers need to go on.
pub(super) async fn take(store: &Postgres, flow: &str, terms: &LeaseTerms, limit: u32) -> Result<Vec<Journal>, Error> {
    check_worker(terms)?;
    let (lease_ms, retain_ms) = (interval_ms(terms.lease_for), interval_ms(terms.retain));
    let resume = terms.on_expiry == OnExpiry::Resume;
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let params: [&dyn Parameter; 6] = [&flow, &terms.holder.as_str(), &lease_ms, &retain_ms, &resume, &limit];
    let rows = query_committed(store, TAKE, &params).await?;
    journals(&rows, |row| lease(row, terms))
}

fn lease(row: &Row, terms: &LeaseTerms) -> Result<Lease, Error> {
    let asked: &[u8] = get(row, "fingerprint")?;
    let asked: [u8; fingerprint::BYTES] = asked.try_into().map_err(|_| unreadable("fingerprint"))?;
    Ok(Lease {
        ask: Ask::new(&scope(row)?, &key(row)?, &Fingerprint::from_bytes(asked)),
        execution: get::<Uuid>(row, "execution")?.into(),
        epoch: get(row, "epoch")?,
        recovery_point: None,
        lease_for: terms.lease_for,
        retain: terms.retain,
    })
}

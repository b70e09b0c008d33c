//! Leases: work that outlives one transaction.

use std::time::Duration;

use rusqlite::Connection;
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution, Lease, LeaseTerms, OnExpiry, RecoveryPoint};

use crate::error::{classify, millis, violates_unique};
use crate::key::{Fence, replace_expired};
use crate::probe::Standing;
use crate::store::{Answer, Sqlite};
use crate::turn::Held;
use crate::tx::Tx;

const LEASE: &str = include_str!("sql/lease.sql");
const TAKE_OVER: &str = include_str!("sql/take_over.sql");
const HOLD: &str = include_str!("sql/hold.sql");
const STUCK_LEASES: &str = include_str!("sql/stuck_leases.sql");

/// The longest name of a holder, in bytes. The database checks the same bound (I12).
const MAX_HOLDER_BYTES: usize = 255;

impl Sqlite {
    /// What is read first only says whether to go on; the decision is made on the writer, where nobody can change it.
    pub(crate) async fn lease_key(&self, ask: &Ask, terms: &LeaseTerms) -> Result<Claim<Lease, Stored>, Error> {
        check_terms(terms)?;
        let guard = match self.ask(ask).await? {
            Answer::Free { guard, .. } | Answer::Lapsed { guard } => guard,
            Answer::Done(stored) => return Ok(Claim::Replay(stored)),
            Answer::InFlight { retry_after } => return Ok(Claim::InFlight { retry_after }),
            Answer::Mismatch => return Ok(Claim::Mismatch),
            Answer::Unknown => return Ok(Claim::Unknown),
        };
        self.transact(Some(Held::Key(guard)), |connection| {
            let now_ms = self.now_ms();
            Ok(match Standing::read(connection, ask, now_ms)? {
                Standing::Free { expired } => Claim::Fresh(insert(connection, ask, terms, None, expired, now_ms)?),
                Standing::Lapsed { flow: true, .. } => {
                    return Err(Error::Settings("the key belongs to a flow; run the flow, do not lease it".to_owned()));
                }
                Standing::Lapsed { execution, epoch, point, .. } => match terms.on_expiry {
                    OnExpiry::Resume => {
                        Claim::Resume(take_over(connection, ask, terms, (execution, epoch, point), now_ms)?)
                    }
                    OnExpiry::Hold => {
                        hold(connection, ask, epoch, now_ms.saturating_add(millis(terms.retain)))?;
                        Claim::Unknown
                    }
                },
                Standing::Done(stored) => Claim::Replay(stored),
                Standing::Leased { remaining } => Claim::InFlight { retry_after: remaining },
                Standing::Mismatch => Claim::Mismatch,
                Standing::Unknown => Claim::Unknown,
            })
        })
        .await
    }

    pub(crate) async fn renew_lease(&self, lease: &Lease, lease_for: Duration) -> Result<bool, Error> {
        self.transact(None, |connection| {
            let now_ms = self.now_ms();
            Fence::of(lease).renew(connection, now_ms.saturating_add(millis(lease_for)), now_ms)
        })
        .await
    }

    pub(crate) async fn release_lease(&self, lease: &Lease) -> Result<(), Error> {
        // If another worker has it, or the work is done, there is nothing of ours to end.
        let release = |connection: &Connection| Fence::of(lease).release(connection, self.now_ms());
        self.transact(Some(self.lease_held()), release).await.map(drop)
    }

    pub(crate) async fn abandon_lease(&self, lease: &Lease) -> Result<(), Error> {
        self.transact(Some(self.lease_held()), |connection| {
            let fence = Fence::of(lease);
            Ok(fence.abandon(connection)? || fence.release(connection, self.now_ms())?)
        })
        .await
        .map(drop)
    }

    /// The fence is checked now, to refuse early, and again on the writer at the first statement, where it holds.
    pub(crate) async fn fence(&self, lease: &Lease) -> Result<Tx, Error> {
        let checked = self.readers().read(|connection| Fence::of(lease).check(connection)).await;
        self.writer().check_settled()?;
        checked?;
        Ok(Tx::fenced(self.clone(), lease.clone()))
    }

    pub(crate) async fn count_stuck_leases(&self) -> Result<u64, Error> {
        let now_ms = self.now_ms();
        self.readers()
            .read(|connection| {
                let mut count = connection.prepare_cached(STUCK_LEASES).map_err(classify)?;
                count.query_row((now_ms,), |row| row.get::<_, i64>(0)).map_err(classify)
            })
            .await
            .map(i64::unsigned_abs)
    }
}

pub(crate) fn check_terms(terms: &LeaseTerms) -> Result<(), Error> {
    if terms.lease_for < Duration::from_millis(1) {
        return Err(Error::Settings("a lease must run for at least 1 ms".to_owned()));
    }
    if terms.retain < Duration::from_millis(1) {
        return Err(Error::Settings("leased work must be kept for at least 1 ms".to_owned()));
    }
    if !(1..=MAX_HOLDER_BYTES).contains(&terms.holder.len()) {
        return Err(Error::Settings(format!("the holder of a lease must be 1 to {MAX_HOLDER_BYTES} bytes")));
    }
    Ok(())
}

/// Writes the row of leased work that begins, in place of the expired one that was seen. A flow's key carries its name.
/// The UNIQUE constraint judges, as at a completion.
pub(crate) fn insert(
    connection: &Connection,
    ask: &Ask,
    terms: &LeaseTerms,
    flow: Option<&str>,
    expired: Option<Execution>,
    now_ms: i64,
) -> Result<Lease, Error> {
    if let Some(expired) = expired {
        replace_expired(connection, ask, expired, now_ms)?;
    }
    let execution = Execution::mint();
    let mut insert = connection.prepare_cached(LEASE).map_err(classify)?;
    let inserted = insert.execute((
        ask.scope.tenant(),
        ask.scope.operation(),
        ask.key.as_str(),
        execution.as_uuid().as_bytes(),
        ask.fingerprint.as_bytes(),
        now_ms,
        now_ms.saturating_add(millis(terms.retain)),
        &terms.holder,
        now_ms.saturating_add(millis(terms.lease_for)),
        flow,
    ));
    match inserted {
        Ok(_) => Ok(lease(ask, terms, execution, 1, None)),
        Err(error) if violates_unique(&error) => Err(Error::Raced),
        Err(error) => Err(classify(error)),
    }
}

/// Raises the epoch, so that the worker before cannot write any more (I7).
pub(crate) fn take_over(
    connection: &Connection,
    ask: &Ask,
    terms: &LeaseTerms,
    (execution, epoch, point): (Execution, i64, Option<RecoveryPoint>),
    now_ms: i64,
) -> Result<Lease, Error> {
    let mut update = connection.prepare_cached(TAKE_OVER).map_err(classify)?;
    update
        .execute((
            ask.scope.tenant(),
            ask.scope.operation(),
            ask.key.as_str(),
            epoch,
            &terms.holder,
            now_ms.saturating_add(millis(terms.lease_for)),
            now_ms.saturating_add(millis(terms.retain)),
        ))
        .map_err(classify)?;
    Ok(lease(ask, terms, execution, epoch + 1, point))
}

/// Keeps abandoned work for a person, until `expires_at` at least.
pub(crate) fn hold(connection: &Connection, ask: &Ask, epoch: i64, expires_at: i64) -> Result<(), Error> {
    let mut update = connection.prepare_cached(HOLD).map_err(classify)?;
    let params = (ask.scope.tenant(), ask.scope.operation(), ask.key.as_str(), epoch, expires_at);
    update.execute(params).map(drop).map_err(classify)
}

fn lease(ask: &Ask, terms: &LeaseTerms, execution: Execution, epoch: i64, point: Option<RecoveryPoint>) -> Lease {
    Lease {
        ask: ask.clone(),
        execution,
        epoch,
        recovery_point: point,
        lease_for: terms.lease_for,
        retain: terms.retain,
    }
}

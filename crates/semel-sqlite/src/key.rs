//! What is written about a key, always inside a turn or a transaction that the caller owns.

use rusqlite::{Connection, OptionalExtension};
use semel::lease::RecoveryPoint;
use semel::operator::KeyState;
use semel::store::Completion;
use semel::{Ask, Error, Execution, Lease};

use crate::error::{classify, millis, violates_unique};
use crate::probe::unreadable;

const COMPLETE: &str = include_str!("sql/complete.sql");
const REPLACE_EXPIRED: &str = include_str!("sql/replace_expired.sql");
const FENCE: &str = include_str!("sql/fence.sql");
const COMPLETE_FENCED: &str = include_str!("sql/complete_fenced.sql");
const ADVANCE: &str = include_str!("sql/advance.sql");
const RENEW: &str = include_str!("sql/renew.sql");
const ENDED: &str = include_str!("sql/ended.sql");
const RELEASE: &str = include_str!("sql/release.sql");
const ABANDON: &str = include_str!("sql/abandon.sql");
const PROLONG: &str = include_str!("sql/prolong.sql");
const HOLD_FENCED: &str = include_str!("sql/hold_fenced.sql");
const HELD_FOR: &str = include_str!("sql/held_for.sql");

/// Writes the completed row, in place of the expired one that the claim saw. The UNIQUE constraint judges: a violation
/// means that another run committed first.
pub(crate) fn complete(
    connection: &Connection,
    ask: &Ask,
    expired: Option<Execution>,
    completion: &Completion,
    now_ms: i64,
) -> Result<(), Error> {
    if let Some(execution) = expired {
        replace_expired(connection, ask, execution, now_ms)?;
    }
    let stored = &completion.stored;
    let mut insert = connection.prepare_cached(COMPLETE).map_err(classify)?;
    let inserted = insert.execute((
        ask.scope.tenant(),
        ask.scope.operation(),
        ask.key.as_str(),
        stored.execution.as_uuid().as_bytes(),
        ask.fingerprint.as_bytes(),
        state(completion),
        stored.status,
        &stored.headers[..],
        &stored.body[..],
        &stored.sealed_by,
        now_ms,
        now_ms.saturating_add(millis(completion.retain)),
    ));
    match inserted {
        Ok(_) => Ok(()),
        Err(error) if violates_unique(&error) => Err(Error::Raced),
        Err(error) => Err(classify(error)),
    }
}

/// Deletes the row of an expired run, if it is still there and still expired.
pub(crate) fn replace_expired(
    connection: &Connection,
    ask: &Ask,
    execution: Execution,
    now_ms: i64,
) -> Result<(), Error> {
    let mut delete = connection.prepare_cached(REPLACE_EXPIRED).map_err(classify)?;
    let name = (ask.scope.tenant(), ask.scope.operation(), ask.key.as_str());
    delete.execute((name.0, name.1, name.2, execution.as_uuid().as_bytes(), now_ms)).map_err(classify)?;
    Ok(())
}

fn state(completion: &Completion) -> &'static str {
    if completion.failed { KeyState::Failed.as_str() } else { KeyState::Completed.as_str() }
}

/// The row of leased work, as only the worker with the lease's execution and epoch may touch it (I7): a key that was
/// evicted and leased anew starts again at epoch 1. In SQLite the write transaction is the row lock: what is checked in
/// it holds until it ends.
pub(crate) struct Fence<'l> {
    lease: &'l Lease,
}

impl<'l> Fence<'l> {
    pub(crate) fn of(lease: &'l Lease) -> Fence<'l> {
        Fence { lease }
    }

    /// The first five parameters of every statement of a fence.
    fn name(&self) -> (&'l str, &'l str, &'l str, i64, [u8; 16]) {
        let Lease { ask, execution, epoch, .. } = self.lease;
        (ask.scope.tenant(), ask.scope.operation(), ask.key.as_str(), *epoch, execution.as_uuid().into_bytes())
    }

    /// [`Error::Fenced`] if another worker took over or the work is done, [`Error::Advanced`] if it stands elsewhere
    /// than the lease says.
    pub(crate) fn check(&self, connection: &Connection) -> Result<(), Error> {
        let mut probe = connection.prepare_cached(FENCE).map_err(classify)?;
        let found = probe.query_row(self.name(), |row| {
            let point: Option<String> = row.get(0)?;
            point.map(RecoveryPoint::new).transpose().map_err(|error| unreadable(0, error))
        });
        match found.optional().map_err(classify)? {
            None => Err(Error::Fenced),
            Some(point) if point != self.lease.recovery_point => Err(Error::Advanced(point)),
            Some(_) => Ok(()),
        }
    }

    /// Stores the reply of leased work.
    pub(crate) fn complete(&self, connection: &Connection, completion: &Completion, now_ms: i64) -> Result<(), Error> {
        let (stored, (tenant, operation, key, epoch, execution)) = (&completion.stored, self.name());
        let params = (
            tenant,
            operation,
            key,
            epoch,
            execution,
            state(completion),
            stored.status,
            &stored.headers[..],
            &stored.body[..],
            &stored.sealed_by,
            now_ms.saturating_add(millis(completion.retain)),
        );
        held(change(connection, COMPLETE_FENCED, params)?)
    }

    /// Moves the recovery point and renews the lease.
    pub(crate) fn advance(&self, connection: &Connection, point: &RecoveryPoint, now_ms: i64) -> Result<(), Error> {
        let (tenant, operation, key, epoch, execution) = self.name();
        let ends = now_ms.saturating_add(millis(self.lease.lease_for));
        let params = (tenant, operation, key, epoch, execution, point.as_str(), self.expires_at(now_ms), ends);
        held(change(connection, ADVANCE, params)?)
    }

    /// Lets the lease end at `ends`. False if the work has ended under this very lease.
    pub(crate) fn renew(&self, connection: &Connection, ends: i64, now_ms: i64) -> Result<bool, Error> {
        let (tenant, operation, key, epoch, execution) = self.name();
        let params = (tenant, operation, key, epoch, execution, ends, self.expires_at(now_ms));
        if change(connection, RENEW, params)? {
            return Ok(true);
        }
        let mut probe = connection.prepare_cached(ENDED).map_err(classify)?;
        let ended: bool = probe.query_row(self.name(), |row| row.get(0)).map_err(classify)?;
        held(ended).map(|()| false)
    }

    /// Lets the lease run on from now if a third of it is over: whoever held the writer kept others from renewing it.
    pub(crate) fn prolong(&self, connection: &Connection, now_ms: i64) -> Result<(), Error> {
        let (tenant, operation, key, epoch, execution) = self.name();
        let lease_ms = millis(self.lease.lease_for);
        let (ends, fresh) = (now_ms.saturating_add(lease_ms), now_ms.saturating_add(lease_ms - lease_ms / 3));
        let params = (tenant, operation, key, epoch, execution, ends, self.expires_at(now_ms), fresh);
        change(connection, PROLONG, params).map(drop)
    }

    /// Keeps the work for a person, until `expires_at` at least.
    pub(crate) fn hold(&self, connection: &Connection, expires_at: i64) -> Result<(), Error> {
        let (tenant, operation, key, epoch, execution) = self.name();
        held(change(connection, HOLD_FENCED, (tenant, operation, key, epoch, execution, expires_at))?)
    }

    /// Whether the flow is held for this reason, and was so under this very lease.
    pub(crate) fn is_held_for(&self, connection: &Connection, why: &str) -> Result<bool, Error> {
        let (tenant, operation, key, epoch, execution) = self.name();
        let mut probe = connection.prepare_cached(HELD_FOR).map_err(classify)?;
        probe.query_row((tenant, operation, key, epoch, execution, why), |row| row.get(0)).map_err(classify)
    }

    /// Ends the lease now. Says whether it was still held.
    pub(crate) fn release(&self, connection: &Connection, now_ms: i64) -> Result<bool, Error> {
        let (tenant, operation, key, epoch, execution) = self.name();
        let params = (tenant, operation, key, epoch, execution, now_ms, self.expires_at(now_ms));
        change(connection, RELEASE, params)
    }

    /// Deletes the row if nothing was done under the lease. Says whether it did.
    pub(crate) fn abandon(&self, connection: &Connection) -> Result<bool, Error> {
        change(connection, ABANDON, self.name())
    }

    fn expires_at(&self, now_ms: i64) -> i64 {
        now_ms.saturating_add(millis(self.lease.retain))
    }
}

/// Runs a statement on one row and says whether it was there.
fn change(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<bool, Error> {
    let mut statement = connection.prepare_cached(sql).map_err(classify)?;
    Ok(statement.execute(params).map_err(classify)? > 0)
}

fn held(found: bool) -> Result<(), Error> {
    if found { Ok(()) } else { Err(Error::Fenced) }
}

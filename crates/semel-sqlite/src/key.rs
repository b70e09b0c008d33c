//! What is written about a key, always inside a turn or a transaction that the caller owns.

use rusqlite::Connection;
use semel::lease::RecoveryPoint;
use semel::operator::KeyState;
use semel::store::Completion;
use semel::{Ask, Error, Execution, Lease};

use crate::error::{classify, millis, violates_unique};

const COMPLETE: &str = include_str!("sql/complete.sql");
const REPLACE_EXPIRED: &str = include_str!("sql/replace_expired.sql");
const FENCE: &str = include_str!("sql/fence.sql");
const COMPLETE_FENCED: &str = include_str!("sql/complete_fenced.sql");
const ADVANCE: &str = include_str!("sql/advance.sql");

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

/// The row of leased work, as only the worker with the lease's epoch may touch it (I7). In SQLite the write transaction
/// is the row lock: what is checked in it holds until it ends.
pub(crate) struct Fence<'l> {
    lease: &'l Lease,
}

impl<'l> Fence<'l> {
    pub(crate) fn of(lease: &'l Lease) -> Fence<'l> {
        Fence { lease }
    }

    fn tenant(&self) -> &'l str {
        self.lease.scope().tenant()
    }

    fn operation(&self) -> &'l str {
        self.lease.scope().operation()
    }

    fn key(&self) -> &'l str {
        self.lease.key().as_str()
    }

    /// [`Error::Fenced`] if another worker took over or the work is done.
    pub(crate) fn check(&self, connection: &Connection) -> Result<(), Error> {
        let execution = self.lease.execution.as_uuid();
        let mut probe = connection.prepare_cached(FENCE).map_err(classify)?;
        let params = (self.tenant(), self.operation(), self.key(), self.lease.epoch, execution.as_bytes());
        let ours: bool = probe.query_row(params, |row| row.get(0)).map_err(classify)?;
        if ours { Ok(()) } else { Err(Error::Fenced) }
    }

    /// Stores the reply of leased work.
    pub(crate) fn complete(&self, connection: &Connection, completion: &Completion, now_ms: i64) -> Result<(), Error> {
        let stored = &completion.stored;
        let execution = self.lease.execution.as_uuid();
        self.update(
            connection,
            COMPLETE_FENCED,
            (
                self.tenant(),
                self.operation(),
                self.key(),
                self.lease.epoch,
                execution.as_bytes(),
                state(completion),
                stored.status,
                &stored.headers[..],
                &stored.body[..],
                &stored.sealed_by,
                now_ms.saturating_add(millis(completion.retain)),
            ),
        )
    }

    /// Moves the recovery point.
    pub(crate) fn advance(&self, connection: &Connection, point: &RecoveryPoint, expires_at: i64) -> Result<(), Error> {
        self.update_lease(connection, ADVANCE, point.as_str(), expires_at)
    }

    /// Runs an update that takes the fence, a value and the new expiry.
    pub(crate) fn update_lease(
        &self,
        connection: &Connection,
        sql: &str,
        value: impl rusqlite::ToSql,
        expires_at: i64,
    ) -> Result<(), Error> {
        let execution = self.lease.execution.as_uuid();
        let fence = (self.tenant(), self.operation(), self.key(), self.lease.epoch, execution.as_bytes());
        self.update(connection, sql, (fence.0, fence.1, fence.2, fence.3, fence.4, value, expires_at))
    }

    fn update(&self, connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<(), Error> {
        let mut update = connection.prepare_cached(sql).map_err(classify)?;
        match update.execute(params).map_err(classify)? {
            0 => Err(Error::Fenced),
            _ => Ok(()),
        }
    }
}

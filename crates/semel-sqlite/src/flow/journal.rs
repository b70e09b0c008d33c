//! Reading what is recorded of a flow.

use std::time::Duration;

use rusqlite::{Connection, Row};
use semel::flow::{Journal, Kept};
use semel::{Error, Execution, Lease};

use super::job::STAGED;
use super::no_flow;
use super::row::{entry, kept, query_all, query_opt, since};
use crate::key::Fence;
use crate::store::Sqlite;

const FLOW: &str = include_str!("../sql/flow/flow.sql");
const ENTRIES: &str = include_str!("../sql/flow/entries.sql");

/// A flow without its steps, and what its next worker has to know of the one before.
pub(super) struct Head {
    flow: String,
    age: Duration,
    lived: Duration,
    pub(super) failures: u32,
    cancelled: bool,
    released: bool,
    paused: bool,
    restored: bool,
    input: Kept,
    unwinding: Option<Kept>,
    pub(super) holder: String,
}

impl Head {
    /// Reads it, inside a turn. [`Error::Settings`] if the run is no flow.
    pub(super) fn read(connection: &Connection, run: Execution, now_ms: i64) -> Result<Head, Error> {
        let head = query_opt(connection, FLOW, (run.as_uuid().as_bytes(),), |row| Head::of_row(row, now_ms))?;
        head.ok_or_else(no_flow)
    }

    fn of_row(row: &Row<'_>, now_ms: i64) -> rusqlite::Result<Head> {
        Ok(Head {
            flow: row.get(0)?,
            age: since(row.get(1)?, now_ms),
            lived: since(row.get(12)?, now_ms),
            failures: row.get(2)?,
            cancelled: row.get(3)?,
            released: row.get(4)?,
            paused: row.get(5)?,
            restored: row.get(6)?,
            input: kept(row, 7)?.ok_or(rusqlite::Error::InvalidQuery)?,
            unwinding: kept(row, 9)?,
            holder: row.get(11)?,
        })
    }

    /// Whether its worker is gone without having said so. One that paused, that an operator let go on, or that is a job
    /// which nobody has begun, waits for a worker and has not lost one.
    pub(super) fn is_abandoned(&self) -> bool {
        !self.paused && !self.released && !self.is_new_job()
    }

    /// Whether it is a job that nobody has begun.
    pub(super) fn is_new_job(&self) -> bool {
        self.holder == STAGED
    }

    /// Its life begins now.
    pub(super) fn begin(&mut self) {
        self.age = Duration::ZERO;
        self.lived = Duration::ZERO;
    }

    /// Reads the steps to it, in the order in which they were first recorded.
    pub(super) fn journal(self, connection: &Connection, lease: Lease, now_ms: i64) -> Result<Journal, Error> {
        let run = lease.execution.as_uuid();
        let mut entries = query_all(connection, ENTRIES, (run.as_bytes(),), |row| entry(row, now_ms))?;
        entries.sort_by_key(|(ordinal, _)| *ordinal);
        Ok(Journal {
            lease,
            flow: self.flow,
            input: self.input,
            age: self.age,
            lived: self.lived,
            failures: self.failures,
            unwinding: self.unwinding,
            cancelled: self.cancelled,
            restored: self.restored,
            entries: entries.into_iter().map(|(_, entry)| entry).collect(),
        })
    }
}

impl Sqlite {
    /// In a turn, after all that was done under the lease before, and told after its group's COMMIT. If that fails,
    /// nothing of what was read counts.
    pub(super) async fn read_journal(&self, lease: &Lease) -> Result<Journal, Error> {
        let read = self.transact(None, |connection| {
            let now_ms = self.now_ms();
            Fence::of(lease).check(connection)?;
            Head::read(connection, lease.execution, now_ms)?.journal(connection, lease.clone(), now_ms)
        });
        match read.await {
            // It was not this turn's to commit: nothing of it is in doubt.
            Err(Error::Ambiguous(cause)) => Err(Error::Unavailable(cause)),
            other => other,
        }
    }
}

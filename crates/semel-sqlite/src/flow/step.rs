//! Steps: what is recorded of each.

use rusqlite::{Connection, Error as SqliteError};
use semel::flow::{Attempt, Kind, Settled, State, letter_of};
use semel::intent::Fault;
use semel::{Error, Execution, Lease};

use super::cut;
use super::row::{execute, query_opt};
use crate::error::{classify, millis, violates_unique};
use crate::key::Fence;
use crate::store::Sqlite;

const STEP: &str = include_str!("../sql/flow/step.sql");
const RECORD_STEP: &str = include_str!("../sql/flow/record_step.sql");
const SETTLE_CALL: &str = include_str!("../sql/flow/settle_call.sql");
const INTEND_CALL: &str = include_str!("../sql/flow/intend_call.sql");
const COUNT_ATTEMPT: &str = include_str!("../sql/flow/count_attempt.sql");
const COUNT_AGAIN: &str = include_str!("../sql/flow/count_again.sql");
const GET_ON: &str = include_str!("../sql/flow/get_on.sql");
const IS_UNWANTED: &str = include_str!("../sql/flow/is_unwanted.sql");
const END_ATTEMPT: &str = include_str!("../sql/flow/end_attempt.sql");

/// Where a recorded step stands.
pub(super) struct Recorded {
    pub(super) kind: Kind,
    pub(super) state: State,
    /// How many attempts were counted.
    attempts: u32,
}

impl Recorded {
    /// Looks a step up, inside a turn.
    pub(super) fn find(connection: &Connection, run: Execution, step: &str) -> Result<Option<Recorded>, Error> {
        query_opt(connection, STEP, (run.as_uuid().as_bytes(), step), |row| {
            Ok(Recorded {
                kind: Kind::parse(row.get_ref(0)?.as_str()?).ok_or(SqliteError::InvalidQuery)?,
                state: State::parse(row.get_ref(1)?.as_str()?).ok_or(SqliteError::InvalidQuery)?,
                attempts: row.get(2)?,
            })
        })
    }
}

/// Records a step that ended in the turn in which it did, whose fence was seen to hold (I1, I7). [`Error::Raced`] if it
/// is recorded already: then the turn has to be rolled back, so that its effect is not committed a second time (I2).
pub(crate) fn record(connection: &Connection, lease: &Lease, settled: &Settled, now_ms: i64) -> Result<(), Error> {
    require_wanted(connection, lease)?;
    insert(connection, lease.execution, settled, now_ms)?;
    Fence::of(lease).prolong(connection, now_ms)
}

/// [`Error::Cancelled`] if an operator has asked for the flow to be undone and nobody has recorded yet that it is:
/// nothing new of it begins. Work that is no flow is always wanted.
pub(crate) fn require_wanted(connection: &Connection, lease: &Lease) -> Result<(), Error> {
    let unwanted = query_opt(connection, IS_UNWANTED, (lease.execution.as_uuid().as_bytes(),), |row| row.get(0))?;
    if unwanted == Some(true) { Err(Error::Cancelled) } else { Ok(()) }
}

impl Sqlite {
    /// A call that is pending gets its end; what has no row yet is recorded with its end.
    pub(super) async fn settle_call_or_pause(&self, lease: &Lease, settled: &Settled) -> Result<(), Error> {
        self.transact(None, |connection| {
            Fence::of(lease).check(connection)?;
            settle(connection, lease.execution, settled, self.now_ms())
        })
        .await
    }

    /// The call leaves after this COMMIT, so that whoever finds it without a result knows that it may have happened
    /// (I8).
    pub(super) async fn count_sending(&self, lease: &Lease, attempt: &Attempt<'_>) -> Result<(), Error> {
        self.transact(None, |connection| {
            Fence::of(lease).check(connection)?;
            require_wanted(connection, lease)?;
            count(connection, lease.execution, attempt, self.now_ms())
        })
        .await
    }

    pub(super) async fn end_sending(
        &self,
        lease: &Lease,
        step: &str,
        number: u32,
        fault: Fault,
        cause: &str,
    ) -> Result<(), Error> {
        self.transact(None, |connection| {
            Fence::of(lease).check(connection)?;
            let (run, letter) = (lease.execution.as_uuid(), letter_of(Some(fault)).to_string());
            match execute(connection, END_ATTEMPT, (run.as_bytes(), step, number, letter, cut(cause)))? {
                0 => Err(refused(step, &format!("attempt {number} was not counted"))),
                _ => Ok(()),
            }
        })
        .await
    }
}

fn settle(connection: &Connection, run: Execution, settled: &Settled, now_ms: i64) -> Result<(), Error> {
    match Recorded::find(connection, run, &settled.step)? {
        None => insert(connection, run, settled, now_ms),
        Some(found) if found.kind != settled.kind => Err(refused(&settled.step, "it is recorded as another kind")),
        Some(found) if found.state == settled.state => Ok(()),
        Some(Recorded { kind: Kind::Call, state: State::Pending, .. }) => {
            let (result, state) = (&settled.result, settled.state.as_str());
            let row = (run.as_uuid().into_bytes(), &settled.step, state, now_ms, &result.sealed_by, &result.bytes[..]);
            execute(connection, SETTLE_CALL, row)?;
            get_on(connection, run)
        }
        Some(found) => Err(refused(&settled.step, &format!("it is {} already", found.state.as_str()))),
    }
}

fn insert(connection: &Connection, run: Execution, settled: &Settled, now_ms: i64) -> Result<(), Error> {
    let Settled { step, kind, state, result } = settled;
    let mut insert = connection.prepare_cached(RECORD_STEP).map_err(classify)?;
    let inserted = insert.execute((
        run.as_uuid().as_bytes(),
        step,
        kind.as_str(),
        state.as_str(),
        now_ms,
        &result.sealed_by,
        &result.bytes[..],
    ));
    match inserted {
        Ok(_) => get_on(connection, run),
        Err(error) if violates_unique(&error) => Err(Error::Raced),
        Err(error) => Err(classify(error)),
    }
}

/// The first record of a step, or its end, is progress: what failed before does not count any more.
fn get_on(connection: &Connection, run: Execution) -> Result<(), Error> {
    execute(connection, GET_ON, (run.as_uuid().as_bytes(),)).map(drop)
}

/// The last attempt moves to now if it is counted again, because the call leaves after this answer; one whose
/// predecessor is missing is refused.
fn count(connection: &Connection, run: Execution, attempt: &Attempt<'_>, now_ms: i64) -> Result<(), Error> {
    let Attempt { step, provider, key, number, opened } = *attempt;
    let row = (run.as_uuid().into_bytes(), step, provider, key, now_ms.saturating_sub(millis(opened)), now_ms);
    match Recorded::find(connection, run, step)? {
        None if number == 1 => {
            execute(connection, INTEND_CALL, row)?;
            get_on(connection, run)
        }
        Some(found) if found.kind != Kind::Call => Err(refused(step, "it is recorded as another kind")),
        Some(found) if found.attempts >= number => {
            execute(connection, COUNT_AGAIN, (run.as_uuid().as_bytes(), step, number, now_ms)).map(drop)
        }
        Some(found) if found.state == State::Pending && found.attempts + 1 == number => {
            execute(connection, COUNT_ATTEMPT, row).map(drop)
        }
        Some(found) => {
            let (attempts, state) = (found.attempts, found.state.as_str());
            Err(refused(step, &format!("it is {state} with {attempts} attempts, and this would be number {number}")))
        }
        None => Err(refused(step, &format!("it is not recorded, and this would be attempt number {number}"))),
    }
}

/// What is recorded does not allow this, and asking again will not help.
fn refused(step: &str, why: &str) -> Error {
    Error::Statement(format!("step {step:?}: {why}").into())
}

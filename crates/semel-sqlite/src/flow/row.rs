//! Rows of flows and steps, as the library has them.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use semel::flow::{Entry, FlowRecord, FlowState, Intent, Kept, Kind, State, attempts_of};
use semel::operator::KeyState;
use semel::{Error, Key, Scope};

use crate::error::classify;
use crate::probe::{execution, unreadable};

/// How long ago something was, by the store's clock.
pub(super) fn since(then_ms: i64, now_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(now_ms.saturating_sub(then_ms)).unwrap_or(0))
}

/// Bytes and the column before them, which says what they are sealed with; nothing if there are none.
pub(super) fn kept(row: &Row<'_>, sealed_by: usize) -> rusqlite::Result<Option<Kept>> {
    let bytes: Option<Vec<u8>> = row.get(sealed_by + 1)?;
    let Some(bytes) = bytes else { return Ok(None) };
    Ok(Some(Kept { bytes: Bytes::from(bytes), sealed_by: row.get(sealed_by)? }))
}

/// The first thirteen columns of a step, and its ordinal.
pub(super) fn entry(row: &Row<'_>, now_ms: i64) -> rusqlite::Result<(u32, Entry)> {
    let entry = Entry {
        step: row.get(1)?,
        kind: Kind::parse(row.get_ref(2)?.as_str()?).ok_or(rusqlite::Error::InvalidQuery)?,
        state: State::parse(row.get_ref(3)?.as_str()?).ok_or(rusqlite::Error::InvalidQuery)?,
        result: kept(row, 10)?,
        intent: intent(row, now_ms)?,
        restored: row.get(12)?,
    };
    Ok((row.get(0)?, entry))
}

/// The intent of a call. A call that was never counted has none: nobody knows the provider.
fn intent(row: &Row<'_>, now_ms: i64) -> rusqlite::Result<Option<Intent>> {
    let provider: Option<String> = row.get(4)?;
    let Some(provider) = provider else { return Ok(None) };
    let ago = |column: usize| -> rusqlite::Result<Duration> {
        let then: Option<i64> = row.get(column)?;
        Ok(then.map_or(Duration::ZERO, |then| since(then, now_ms)))
    };
    Ok(Some(Intent {
        provider,
        key: row.get(5)?,
        attempts: attempts_of(row.get_ref(6)?.as_str()?).ok_or(rusqlite::Error::InvalidQuery)?,
        age: ago(7)?,
        since_attempt: ago(8)?,
        cause: row.get(9)?,
    }))
}

/// The first sixteen columns of a flow that an operator looks at.
pub(super) fn record(row: &Row<'_>, now_ms: i64) -> rusqlite::Result<FlowRecord> {
    let (tenant, operation, key): (String, String, String) = (row.get(2)?, row.get(3)?, row.get(4)?);
    let lease_expires_at_ms: Option<i64> = row.get(14)?;
    let state = match KeyState::parse(row.get_ref(5)?.as_str()?).ok_or(rusqlite::Error::InvalidQuery)? {
        KeyState::Completed => FlowState::Completed,
        KeyState::Failed => FlowState::Failed,
        KeyState::Unknown => FlowState::Held,
        KeyState::InProgress if lease_expires_at_ms.is_none_or(|ends| ends <= now_ms) => FlowState::Due,
        KeyState::InProgress if row.get(6)? => FlowState::Paused,
        KeyState::InProgress => FlowState::Running,
    };
    Ok(FlowRecord {
        execution: execution(row, 0)?,
        flow: row.get(1)?,
        scope: Scope::new(tenant, operation).map_err(|error| unreadable(2, error))?,
        key: Key::new(key).map_err(|error| unreadable(4, error))?,
        state,
        unwinding: row.get(7)?,
        holder: row.get(8)?,
        epoch: row.get(9)?,
        failures: row.get(10)?,
        cause: row.get(11)?,
        last_step: row.get(12)?,
        begun_at_ms: row.get(13)?,
        lease_expires_at_ms,
        status: row.get(15)?,
    })
}

/// Runs a statement and says how many rows it touched.
pub(super) fn execute(connection: &Connection, sql: &str, params: impl Params) -> Result<usize, Error> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(classify)
}

/// Runs a query and maps all its rows.
pub(super) fn query_all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    let mut statement = connection.prepare_cached(sql).map_err(classify)?;
    let rows = statement.query_map(params, map).map_err(classify)?;
    rows.collect::<rusqlite::Result<_>>().map_err(classify)
}

/// Runs a query and maps its first row, if it has one.
pub(super) fn query_opt<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, Error> {
    let mut statement = connection.prepare_cached(sql).map_err(classify)?;
    statement.query_row(params, map).optional().map_err(classify)
}

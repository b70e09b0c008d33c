//! Flows and steps as rows.

use std::time::Duration;

use bytes::Bytes;
use semel::flow::{Entry, FlowRecord, FlowState, Intent, Kept, Kind, State, attempts_of};
use semel::{Error, Key, Scope};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::error::classify;

/// Reads a column.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, Error> {
    row.try_get(column).map_err(classify)
}

/// Reads a count, which is never negative.
pub(super) fn count(row: &Row, column: &str) -> Result<u64, Error> {
    Ok(u64::try_from(get::<i64>(row, column)?).unwrap_or(0))
}

/// Reads a time span, which the database gives in milliseconds.
pub(super) fn millis(row: &Row, column: &str) -> Result<Duration, Error> {
    count(row, column).map(Duration::from_millis)
}

/// Bytes and what they are sealed with; nothing if there are none.
pub(super) fn kept(row: &Row, bytes: &str, sealed_by: &str) -> Result<Option<Kept>, Error> {
    let Some(bytes) = get::<Option<&[u8]>>(row, bytes)? else { return Ok(None) };
    Ok(Some(Kept { bytes: Bytes::copy_from_slice(bytes), sealed_by: get(row, sealed_by)? }))
}

/// Whose key it is.
pub(super) fn scope(row: &Row) -> Result<Scope, Error> {
    let (tenant, operation): (&str, &str) = (get(row, "tenant")?, get(row, "operation")?);
    Scope::new(tenant, operation).map_err(|_| unreadable("scope"))
}

/// The key.
pub(super) fn key(row: &Row) -> Result<Key, Error> {
    Key::new(get::<&str>(row, "key")?).map_err(|_| unreadable("key"))
}

/// A step.
pub(super) fn entry(row: &Row, step: String) -> Result<Entry, Error> {
    Ok(Entry {
        step,
        kind: Kind::parse(get(row, "kind")?).ok_or_else(|| unreadable("kind of a step"))?,
        state: State::parse(get(row, "state")?).ok_or_else(|| unreadable("state of a step"))?,
        result: kept(row, "kept", "kept_sealed_by")?,
        intent: intent(row)?,
        restored: get(row, "restored")?,
    })
}

/// The intent of a call. A call that was never counted has none: nobody knows its provider.
fn intent(row: &Row) -> Result<Option<Intent>, Error> {
    let Some(provider) = get(row, "provider")? else { return Ok(None) };
    Ok(Some(Intent {
        provider,
        key: get(row, "derived_key")?,
        attempts: attempts_of(get(row, "attempts")?).ok_or_else(|| unreadable("attempts of a call"))?,
        age: millis(row, "age_ms")?,
        since_attempt: millis(row, "since_attempt_ms")?,
        cause: get(row, "cause")?,
    }))
}

/// A flow as an operator sees it.
pub(super) fn record(row: &Row) -> Result<FlowRecord, Error> {
    Ok(FlowRecord {
        execution: get::<Uuid>(row, "execution")?.into(),
        flow: get(row, "flow")?,
        scope: scope(row)?,
        key: key(row)?,
        state: state(get(row, "state")?)?,
        unwinding: get(row, "unwinding")?,
        holder: get(row, "holder")?,
        epoch: get(row, "epoch")?,
        failures: get::<i32>(row, "failures")?.unsigned_abs(),
        cause: get(row, "cause")?,
        last_step: get(row, "last_step")?,
        begun_at_ms: get(row, "begun_at_ms")?,
        lease_expires_at_ms: get(row, "lease_expires_at_ms")?,
        status: get::<Option<i16>>(row, "status")?.and_then(|status| u16::try_from(status).ok()),
    })
}

/// Where a flow stands, by the name that the database has for it.
pub(super) fn state(name: &str) -> Result<FlowState, Error> {
    FlowState::parse(name).ok_or_else(|| Error::Schema(format!("a flow is {name:?}: run `semel migrate`")))
}

/// Something that no version of this schema writes.
pub(super) fn unreadable(what: &str) -> Error {
    Error::Statement(format!("a flow cannot be read: its {what} is none").into())
}

/// A function that did not answer.
pub(super) fn unanswered() -> Error {
    Error::Schema("a function of the schema semel did not answer for a flow: run `semel migrate`".to_owned())
}

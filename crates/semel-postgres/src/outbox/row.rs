//! Events and held keys as rows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use semel::event::EventId;
use semel::outbox::{Cursor, HeldEvent, HeldKey, HeldState, Written};
use semel::sink::Lane;
use semel::{Error, Event};
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

/// Headers as they are stored: a JSON array of names and values, or nothing.
pub(super) fn headers_json(event: &Event) -> Option<String> {
    let pairs = event.headers.iter().map(|(name, value)| serde_json::json!([name, value]));
    (!event.headers.is_empty()).then(|| serde_json::Value::Array(pairs.collect()).to_string())
}

/// An event with its place.
pub(super) fn written(row: &Row) -> Result<Written, Error> {
    let headers: Option<&str> = get(row, "headers")?;
    let headers = match headers {
        Some(json) => serde_json::from_str(json)
            .map_err(|error| Error::Statement(format!("the headers of an event cannot be read: {error}").into()))?,
        None => Vec::new(),
    };
    Ok(Written {
        cursor: Cursor { tick: get(row, "tick")?, seq: get(row, "seq")? },
        id: EventId::from(get::<Uuid>(row, "id")?),
        lane: lane(row)?,
        time_ms: millis(get(row, "created_at")?),
        event: Event {
            topic: get(row, "topic")?,
            ordering_key: get(row, "ordering_key")?,
            event_type: get(row, "event_type")?,
            content_type: get(row, "content_type")?,
            payload: Bytes::copy_from_slice(get(row, "payload")?),
            headers,
            traceparent: get(row, "traceparent")?,
            tracestate: get(row, "tracestate")?,
        },
    })
}

/// A held event with its sequence.
pub(super) fn held_event(row: &Row) -> Result<HeldEvent, Error> {
    Ok(HeldEvent { written: written(row)?, sequence: count(row, "sequence")? })
}

/// A held key.
pub(super) fn held_key(row: &Row) -> Result<HeldKey, Error> {
    let state: &str = get(row, "state")?;
    Ok(HeldKey {
        lane: lane(row)?,
        ordering_key: get(row, "ordering_key")?,
        state: HeldState::parse(state)
            .ok_or_else(|| Error::Schema(format!("a held key is {state:?}: run `semel migrate`")))?,
        attempts: u32::try_from(get::<i32>(row, "attempts")?).unwrap_or(0),
        retry_at_ms: millis(get(row, "retry_at")?),
        error: get(row, "error")?,
        since_ms: millis(get(row, "since")?),
        events: count(row, "events")?,
    })
}

/// The lane of a row.
pub(super) fn lane(row: &Row) -> Result<Lane, Error> {
    Ok(Lane(u16::try_from(get::<i16>(row, "lane")?).unwrap_or(0)))
}

/// A lane as the database has it.
pub(super) fn lane_number(lane: Lane) -> i16 {
    i16::try_from(lane.0).unwrap_or(i16::MAX)
}

/// Milliseconds since the Unix epoch.
pub(super) fn millis(at: SystemTime) -> i64 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    }
}

/// The time that a number of milliseconds since the Unix epoch means.
pub(super) fn time(millis: i64) -> SystemTime {
    let distance = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

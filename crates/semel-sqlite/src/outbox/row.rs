//! Rows of the outbox, as the library has them, and back.

use bytes::Bytes;
use rusqlite::{Connection, Params, Row};
use semel::Error;
use semel::event::{Event, EventId};
use semel::outbox::{Counts, Cursor, HeldEvent, HeldKey, HeldState, LaneState, Written};
use semel::sink::Lane;
use uuid::Uuid;

use crate::error::classify;
use crate::probe::unreadable;

/// The only tick: what is written in commit order needs no other.
const TICK: i64 = 1;

/// The seq that a cursor stands at.
pub(super) fn seq_of(cursor: Cursor) -> i64 {
    match cursor.tick {
        ..TICK => 0,
        TICK => cursor.seq,
        _ => i64::MAX,
    }
}

pub(super) fn cursor_at(seq: i64) -> Cursor {
    if seq == 0 { Cursor::START } else { Cursor { tick: TICK, seq } }
}

/// A bit for each of the lanes: there are as many as a number of SQLite has bits.
pub(super) fn mask(lanes: &[Lane]) -> i64 {
    lanes.iter().filter(|lane| lane.0 < 64).fold(0, |mask, lane| mask | 1_i64.wrapping_shl(u32::from(lane.0)))
}

pub(super) fn counts_to_json(counts: &Counts) -> String {
    // A map of strings and numbers is always written.
    serde_json::to_string(counts).unwrap_or_default()
}

pub(super) fn counts_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Counts> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| unreadable(column, error))
}

pub(super) fn headers_to_json(headers: &[(String, String)]) -> String {
    // So are pairs of strings.
    serde_json::to_string(headers).unwrap_or_default()
}

pub(super) fn lane_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Lane> {
    row.get(column).map(Lane)
}

pub(super) fn id_of(row: &Row<'_>, column: usize) -> rusqlite::Result<EventId> {
    Ok(EventId::from(Uuid::from_bytes(row.get(column)?)))
}

/// Lane, cursor and counts.
pub(super) fn lane_state(row: &Row<'_>) -> rusqlite::Result<LaneState> {
    Ok(LaneState { lane: lane_of(row, 0)?, cursor: cursor_at(row.get(1)?), counts: counts_of(row, 2)? })
}

/// The first twelve columns of an event, held or not.
pub(super) fn written(row: &Row<'_>) -> rusqlite::Result<Written> {
    let headers = serde_json::from_str(row.get_ref(8)?.as_str()?).map_err(|error| unreadable(8, error))?;
    Ok(Written {
        cursor: cursor_at(row.get(0)?),
        id: id_of(row, 1)?,
        lane: lane_of(row, 2)?,
        time_ms: row.get(3)?,
        event: Event {
            topic: row.get(4)?,
            ordering_key: row.get(5)?,
            event_type: row.get(6)?,
            content_type: row.get(7)?,
            headers,
            traceparent: row.get(9)?,
            tracestate: row.get(10)?,
            payload: Bytes::from(row.get::<_, Vec<u8>>(11)?),
        },
    })
}

/// An event and its sequence.
pub(super) fn held_event(row: &Row<'_>) -> rusqlite::Result<HeldEvent> {
    Ok(HeldEvent { written: written(row)?, sequence: row.get::<_, i64>(12)?.unsigned_abs() })
}

pub(super) fn held_key(row: &Row<'_>) -> rusqlite::Result<HeldKey> {
    Ok(HeldKey {
        lane: lane_of(row, 0)?,
        ordering_key: row.get(1)?,
        state: HeldState::parse(row.get_ref(2)?.as_str()?).ok_or(rusqlite::Error::InvalidQuery)?,
        attempts: row.get(3)?,
        retry_at_ms: row.get(4)?,
        error: row.get(5)?,
        since_ms: row.get(6)?,
        events: row.get::<_, i64>(7)?.unsigned_abs(),
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

/// Runs a query and maps its one row.
pub(super) fn query_row<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<T, Error> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.query_row(params, map)).map_err(classify)
}

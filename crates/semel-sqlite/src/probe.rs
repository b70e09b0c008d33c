//! Where a key stands, read from its row.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};
use semel::operator::KeyState;
use semel::store::Stored;
use semel::{Ask, Error, Execution, RecoveryPoint};
use uuid::Uuid;

use crate::error::classify;

const PROBE: &str = include_str!("sql/probe.sql");

/// Where a key stands for one who asks.
#[derive(Debug)]
pub(crate) enum Standing {
    /// There is no row, or one that has expired and whose run is named.
    Free { expired: Option<Execution> },
    /// It has run.
    Done(Stored),
    /// It was used for another request.
    Mismatch,
    /// Somebody works on it under a lease.
    Leased { remaining: Duration },
    /// Somebody worked on it, or on the flow that it is the key of, under a lease that has run out.
    Lapsed { execution: Execution, epoch: i64, point: Option<RecoveryPoint>, flow: bool },
    /// Somebody has to find out what happened.
    Unknown,
}

impl Standing {
    /// Reads the row. On the writer's connection, inside a turn, the answer holds until the turn ends.
    pub(crate) fn read(connection: &Connection, ask: &Ask, now_ms: i64) -> Result<Standing, Error> {
        let mut probe = connection.prepare_cached(PROBE).map_err(classify)?;
        let standing = probe
            .query_row((ask.scope.tenant(), ask.scope.operation(), ask.key.as_str()), |row| {
                Standing::of_row(row, ask, now_ms)
            })
            .optional()
            .map_err(classify)?;
        Ok(standing.unwrap_or(Standing::Free { expired: None }))
    }

    /// Whether a claim that saw the key free, with the row of `expired` or none, may still go on.
    pub(crate) fn is_still_free(&self, expired: Option<Execution>) -> bool {
        // The reaper may have taken the expired row in the meantime, but another run may not have put one there.
        matches!(self, Standing::Free { expired: now } if now.is_none() || *now == expired)
    }

    fn of_row(row: &Row<'_>, ask: &Ask, now_ms: i64) -> rusqlite::Result<Standing> {
        let execution = execution(row, 0)?;
        let state: String = row.get(2)?;
        let in_progress = state == KeyState::InProgress.as_str();
        if !in_progress && row.get::<_, i64>(3)? <= now_ms {
            return Ok(Standing::Free { expired: Some(execution) });
        }
        if row.get_ref(1)?.as_blob()? != ask.fingerprint.as_bytes() {
            return Ok(Standing::Mismatch);
        }
        if in_progress {
            let remaining_ms = row.get::<_, i64>(4)?.saturating_sub(now_ms);
            if remaining_ms > 0 {
                return Ok(Standing::Leased { remaining: Duration::from_millis(remaining_ms.unsigned_abs()) });
            }
            let point: Option<String> = row.get(6)?;
            let point = point.map(RecoveryPoint::new).transpose().map_err(|error| unreadable(6, error))?;
            return Ok(Standing::Lapsed { execution, epoch: row.get(5)?, point, flow: row.get(11)? });
        }
        if state == KeyState::Unknown.as_str() {
            return Ok(Standing::Unknown);
        }
        Ok(Standing::Done(Stored {
            execution,
            status: row.get(8)?,
            headers: Bytes::from(row.get::<_, Vec<u8>>(9)?),
            body: Bytes::from(row.get::<_, Vec<u8>>(10)?),
            sealed_by: row.get(7)?,
        }))
    }
}

/// Reads an execution id from a column.
pub(crate) fn execution(row: &Row<'_>, column: usize) -> rusqlite::Result<Execution> {
    Ok(Execution::from(Uuid::from_bytes(row.get(column)?)))
}

/// A column whose content this crate would not have written.
pub(crate) fn unreadable(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
}

//! What operators see of flows.

use rusqlite::{Connection, Row};
use semel::flow::{ChangeShown, Due, FlowFilter, FlowRecord, FlowShown, Pressure, StepShown};
use semel::{Error, Execution};

use super::row::{entry, query_all, query_opt, record, since};
use crate::error::classify;
use crate::store::Sqlite;

const PRESSURE: &str = include_str!("../sql/flow/pressure.sql");
const UNKNOWN_CALLS: &str = include_str!("../sql/flow/unknown_calls.sql");
const HELD_FLOWS: &str = include_str!("../sql/flow/held_flows.sql");
const LIST_FLOWS: &str = include_str!("../sql/flow/list_flows.sql");
const SHOW_FLOW: &str = include_str!("../sql/flow/show_flow.sql");
const SHOW_STEPS: &str = include_str!("../sql/flow/show_steps.sql");
const CHANGES: &str = include_str!("../sql/flow/changes.sql");

/// The most flows that are listed at once (I12).
const MAX_LISTED: u32 = 10_000;

impl Sqlite {
    pub(super) async fn measure_pressure(&self) -> Result<Pressure, Error> {
        let now_ms = self.now_ms();
        self.read_aside(move |connection| {
            let unknown = query_opt(connection, UNKNOWN_CALLS, (), |row| row.get::<_, i64>(0))?;
            let held = query_opt(connection, HELD_FLOWS, (), |row| row.get::<_, i64>(0))?;
            let due = query_all(connection, PRESSURE, (now_ms,), |row| {
                Ok(Due {
                    flow: row.get(0)?,
                    count: row.get::<_, i64>(1)?.unsigned_abs(),
                    oldest: since(row.get(2)?, now_ms),
                })
            })?;
            let counted = |found: Option<i64>| found.unwrap_or(0).unsigned_abs();
            Ok(Pressure { unknown: counted(unknown), held: counted(held), due })
        })
        .await
    }

    /// Which state a flow is in follows from its row, its key's and the time, so states are told apart while reading,
    /// which ends with the last flow that is asked for.
    pub(super) async fn find_flows(&self, filter: &FlowFilter) -> Result<Vec<FlowRecord>, Error> {
        let (now_ms, filter) = (self.now_ms(), filter.clone());
        self.read_aside(move |connection| {
            let mut list = connection.prepare_cached(LIST_FLOWS).map_err(classify)?;
            let rows = list.query_map((&filter.flow, &filter.tenant), |row| record(row, now_ms)).map_err(classify)?;
            let asked_for = |found: &rusqlite::Result<FlowRecord>| match (found, filter.state) {
                (Ok(found), Some(state)) => found.state == state,
                _ => true,
            };
            let most = usize::try_from(filter.limit.min(MAX_LISTED)).unwrap_or(usize::MAX);
            rows.filter(asked_for).take(most).collect::<rusqlite::Result<_>>().map_err(classify)
        })
        .await
    }

    pub(super) async fn find_flow(&self, run: Execution) -> Result<Option<FlowShown>, Error> {
        let now_ms = self.now_ms();
        self.read_aside(move |connection| {
            let id = run.as_uuid().into_bytes();
            let found = query_opt(connection, SHOW_FLOW, (id,), |row| {
                Ok((record(row, now_ms)?, row.get::<_, i64>(16)?.unsigned_abs()))
            })?;
            let Some((record, input_bytes)) = found else { return Ok(None) };
            let steps = query_all(connection, SHOW_STEPS, (id,), |row| step(row, now_ms))?;
            let changes = query_all(connection, CHANGES, (id,), change)?;
            Ok(Some(FlowShown { record, input_bytes, steps, changes }))
        })
        .await
    }
}

/// Looks one flow up, without what it has recorded.
pub(super) fn find(connection: &Connection, run: Execution, now_ms: i64) -> Result<Option<FlowRecord>, Error> {
    query_opt(connection, SHOW_FLOW, (run.as_uuid().as_bytes(),), |row| record(row, now_ms))
}

fn step(row: &Row<'_>, now_ms: i64) -> rusqlite::Result<StepShown> {
    let (_, entry) = entry(row, now_ms)?;
    Ok(StepShown {
        entry,
        result_bytes: row.get::<_, i64>(13)?.unsigned_abs(),
        recorded_at_ms: row.get(14)?,
        settled_at_ms: row.get(15)?,
    })
}

fn change(row: &Row<'_>) -> rusqlite::Result<ChangeShown> {
    Ok(ChangeShown { at_ms: row.get(0)?, action: row.get(1)?, actor: row.get(2)?, reason: row.get(3)? })
}

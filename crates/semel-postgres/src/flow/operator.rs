//! What operators see of flows.

use semel::flow::{ChangeShown, Due, FlowFilter, FlowRecord, FlowShown, FlowState, Pressure, StepShown};
use semel::{Error, Execution};
use tokio_postgres::Row;
use uuid::Uuid;

use super::row::{self, count, get, millis, unanswered};
use crate::parameter::Parameter;
use crate::store::Postgres;

pub(super) const LISTED: &str = include_str!("../sql/flow_listed.sql");
const STEPS: &str = include_str!("../sql/flow_steps_shown.sql");
const CHANGES: &str = include_str!("../sql/flow_changes.sql");
const PRESSURE: &str = include_str!("../sql/flow_pressure.sql");

/// The most flows that one listing returns (I12).
const MAX_LISTED: u32 = 10_000;

pub(super) async fn list(store: &Postgres, filter: &FlowFilter) -> Result<Vec<FlowRecord>, Error> {
    let any: Option<Uuid> = None;
    let (flow, tenant) = (filter.flow.as_deref(), filter.tenant.as_deref());
    let state = filter.state.map(FlowState::as_str);
    let limit = i64::from(filter.limit.min(MAX_LISTED));
    store.query(LISTED, &[&any, &flow, &tenant, &state, &limit]).await?.iter().map(row::record).collect()
}

/// The parameters of [`LISTED`] that find one flow.
pub(super) fn one(execution: &Uuid) -> Vec<&dyn Parameter> {
    const ANY: Option<&str> = None;
    const ONE: i64 = 1;
    let params: [&dyn Parameter; 5] = [execution, &ANY, &ANY, &ANY, &ONE];
    params.to_vec()
}

/// The flow, its steps and its changes, in one round trip.
pub(super) async fn show(store: &Postgres, flow: Execution) -> Result<Option<FlowShown>, Error> {
    let execution = flow.as_uuid();
    let by_execution: [&dyn Parameter; 1] = [&execution];
    let statements = [(LISTED, one(&execution)), (STEPS, by_execution.to_vec()), (CHANGES, by_execution.to_vec())];
    let answers = store.transact(&store.shared.begin_relaying, &statements).await?;
    let [record, steps, changes] = answers.as_slice() else { return Err(unanswered()) };
    let Some(record) = record.first() else { return Ok(None) };
    Ok(Some(FlowShown {
        record: row::record(record)?,
        input_bytes: count(record, "input_bytes")?,
        steps: steps.iter().map(step).collect::<Result<_, _>>()?,
        changes: changes.iter().map(change).collect::<Result<_, _>>()?,
    }))
}

fn step(row: &Row) -> Result<StepShown, Error> {
    Ok(StepShown {
        entry: row::entry(row, get(row, "step")?)?,
        result_bytes: count(row, "result_bytes")?,
        recorded_at_ms: get(row, "recorded_at_ms")?,
        settled_at_ms: get(row, "settled_at_ms")?,
    })
}

fn change(row: &Row) -> Result<ChangeShown, Error> {
    Ok(ChangeShown {
        at_ms: get(row, "at_ms")?,
        action: get(row, "action")?,
        actor: get(row, "actor")?,
        reason: get(row, "reason")?,
    })
}

pub(super) async fn pressure(store: &Postgres) -> Result<Pressure, Error> {
    let mut pressure = Pressure::default();
    for row in &store.query(PRESSURE, &[]).await? {
        pressure.unknown = count(row, "unknown")?;
        pressure.held = count(row, "held")?;
        if let Some(flow) = get(row, "flow")? {
            pressure.due.push(Due { flow, count: count(row, "flows")?, oldest: millis(row, "oldest_ms")? });
        }
    }
    Ok(pressure)
}

//! How a flow looks to an operator, as text and as JSON.

use semel::flow::{ChangeShown, FlowRecord, FlowState};
use serde_json::{Value, json};

use crate::commands::text::{facts, line, time};

/// The most characters of a cause that a line shows; `--json` has all of it.
pub(super) const CAUSE_SHOWN: usize = 160;

/// The most characters of a name or an actor that a line shows.
pub(super) const NAME_SHOWN: usize = 100;

/// A flow as a JSON object. Times are RFC 3339 in UTC.
pub(super) fn to_json(flow: &FlowRecord) -> Value {
    json!({
        "execution": flow.execution.to_string(),
        "flow": flow.flow,
        "tenant": flow.scope.tenant(),
        "operation": flow.scope.operation(),
        "key": flow.key.as_str(),
        "state": flow.state.as_str(),
        "unwinding": flow.unwinding,
        "holder": flow.holder,
        "epoch": flow.epoch,
        "failures": flow.failures,
        "cause": flow.cause,
        "last_step": flow.last_step,
        "begun_at": time(flow.begun_at_ms),
        "lease_expires_at": flow.lease_expires_at_ms.map(time),
        "status": flow.status,
    })
}

/// A flow as one line per fact.
pub(super) fn to_text(flow: &FlowRecord) -> String {
    let mut told = vec![
        ("execution", flow.execution.to_string()),
        ("flow", line(&flow.flow, NAME_SHOWN)),
        ("tenant", flow.scope.tenant().to_owned()),
        ("operation", flow.scope.operation().to_owned()),
        ("key", flow.key.to_string()),
        ("state", state(flow)),
        ("holder", flow.holder.as_deref().map_or_else(none, |holder| line(holder, NAME_SHOWN))),
        ("epoch", flow.epoch.to_string()),
        ("failures", flow.failures.to_string()),
        ("last step", flow.last_step.as_deref().map_or_else(none, |step| line(step, NAME_SHOWN))),
        ("begun", time(flow.begun_at_ms)),
    ];
    if let (Some(name), Some(at_ms)) = (what_ends_then(flow.state), flow.lease_expires_at_ms) {
        told.push((name, time(at_ms)));
    }
    told.extend(flow.status.map(|status| ("status", status.to_string())));
    told.extend(flow.cause.as_deref().map(|cause| ("cause", line(cause, CAUSE_SHOWN))));
    facts(&told)
}

/// A flow as cells under [`HEADING`].
pub(super) fn to_row(flow: &FlowRecord) -> Vec<String> {
    vec![
        flow.execution.to_string(),
        line(&flow.flow, NAME_SHOWN),
        flow.scope.tenant().to_owned(),
        flow.key.to_string(),
        state(flow),
        flow.last_step.as_deref().map_or_else(none, |step| line(step, NAME_SHOWN)),
        flow.status.map_or_else(none, |status| status.to_string()),
        time(flow.begun_at_ms),
        flow.cause.as_deref().map_or_else(none, |cause| line(cause, CAUSE_SHOWN)),
    ]
}

/// What the cells of [`to_row`] hold.
pub(super) const HEADING: [&str; 9] =
    ["EXECUTION", "FLOW", "TENANT", "KEY", "STATE", "LAST STEP", "STATUS", "BEGUN", "CAUSE"];

/// What an operator did, as a JSON object.
pub(super) fn change_to_json(change: &ChangeShown) -> Value {
    json!({
        "at": time(change.at_ms),
        "action": change.action,
        "actor": change.actor,
        "reason": change.reason,
    })
}

/// What an operator did, as a line.
pub(super) fn change_to_text(change: &ChangeShown) -> String {
    let (action, actor) = (line(&change.action, NAME_SHOWN), line(&change.actor, NAME_SHOWN));
    format!("{}  {action} by {actor}: {}\n", time(change.at_ms), line(&change.reason, usize::MAX))
}

fn state(flow: &FlowRecord) -> String {
    // One that was undone to its end says so by its state.
    let undone = flow.unwinding && !matches!(flow.state, FlowState::Completed | FlowState::Failed);
    flow.state.as_str().to_owned() + if undone { ", being undone" } else { "" }
}

/// What it means that the lease ends, where that means anything.
fn what_ends_then(state: FlowState) -> Option<&'static str> {
    match state {
        FlowState::Running => Some("lease ends"),
        FlowState::Paused => Some("paused until"),
        FlowState::Due => Some("due since"),
        FlowState::Held | FlowState::Completed | FlowState::Failed => None,
    }
}

fn none() -> String {
    "-".to_owned()
}

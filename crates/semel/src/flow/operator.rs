//! What operators see of flows, and what they may change.

use std::time::Duration;

use bytes::Bytes;

use super::journal::{Entry, Kind};
use crate::{Execution, Key, Scope};

/// Where a flow stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowState {
    /// A worker holds its lease.
    Running,
    /// Its lease ends in the future and nobody holds it: it sleeps, or it failed and waits.
    Paused,
    /// Its lease has ended: it was abandoned, its pause is over, or it is a job that waits for its first worker.
    Due,
    /// A person has to find out what happened.
    Held,
    /// It ended with a reply.
    Completed,
    /// It was undone, and its reply says why.
    Failed,
}

impl FlowState {
    /// The name that operators see.
    pub fn as_str(self) -> &'static str {
        match self {
            FlowState::Running => "running",
            FlowState::Paused => "paused",
            FlowState::Due => "due",
            FlowState::Held => "held",
            FlowState::Completed => "completed",
            FlowState::Failed => "failed",
        }
    }

    /// Reads the name back.
    pub fn parse(name: &str) -> Option<FlowState> {
        use FlowState::{Completed, Due, Failed, Held, Paused, Running};
        [Running, Paused, Due, Held, Completed, Failed].into_iter().find(|state| state.as_str() == name)
    }
}

/// Which flows to list.
#[derive(Debug, Clone, Default)]
pub struct FlowFilter {
    /// Only of this name.
    pub flow: Option<String>,
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only in this state.
    pub state: Option<FlowState>,
    /// At most this many; stores cap it at 10,000.
    pub limit: u32,
}

/// A flow as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRecord {
    /// The run, by which operators name it.
    pub execution: Execution,
    /// The registered function.
    pub flow: String,
    /// Whose key it is.
    pub scope: Scope,
    /// The client's key, or the derived one of a staged job.
    pub key: Key,
    /// Where it stands.
    pub state: FlowState,
    /// Whether it is being undone.
    pub unwinding: bool,
    /// Who works on it, or did so last.
    pub holder: Option<String>,
    /// How often it changed hands, counted from one.
    pub epoch: i64,
    /// How many runs in a row ended in an error that may pass, or with the loss of their worker.
    pub failures: u32,
    /// The last error, or what a person has to find out.
    pub cause: Option<String>,
    /// The step that was recorded last.
    pub last_step: Option<String>,
    /// When it began, in milliseconds since the Unix epoch.
    pub begun_at_ms: i64,
    /// When its lease ends, or its pause, likewise.
    pub lease_expires_at_ms: Option<i64>,
    /// The status of its reply, once there is one.
    pub status: Option<u16>,
}

/// A flow with all that is recorded of it. The bytes of inputs and results are left out: they are the tenant's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowShown {
    /// The flow.
    pub record: FlowRecord,
    /// How many bytes its input takes.
    pub input_bytes: u64,
    /// Its steps, in the order in which they were first recorded.
    pub steps: Vec<StepShown>,
    /// What operators did to it, oldest first.
    pub changes: Vec<ChangeShown>,
}

/// A step as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepShown {
    /// What is recorded. The result is emptied of its bytes.
    pub entry: Entry,
    /// How many bytes its result takes.
    pub result_bytes: u64,
    /// When it was first recorded, in milliseconds since the Unix epoch.
    pub recorded_at_ms: i64,
    /// When it was settled, likewise.
    pub settled_at_ms: Option<i64>,
}

/// What an operator did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeShown {
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// What: `flow_retried`, `flow_resolved` or `flow_cancelled`.
    pub action: String,
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// What a person found out about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It happened, and this JSON is its result, as the call would have returned it.
    Happened(Bytes),
    /// It did not happen: it is sent again, under the same key.
    DidNotHappen,
    /// It did not happen and is not to: the step fails, and the flow is undone unless it handles that.
    Failed(String),
}

/// Which flow an operator means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The flow.
    pub execution: Execution,
    /// Its epoch when they looked at it. If it has changed hands since, it may have called again, and what they found
    /// out is about a call before: nothing is changed. `None` for the flow as it is now.
    pub epoch: Option<i64>,
}

impl From<Execution> for Seen {
    fn from(execution: Execution) -> Seen {
        Seen { execution, epoch: None }
    }
}

/// What became of an operator's change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was made, or with `dry_run` would have been; this is the flow as it was before.
    Made(Box<FlowRecord>),
    /// There is no such flow.
    NotFound,
    /// The flow is not in a state in which this can be done; this is the state, and what can be done instead.
    Refused(FlowState, String),
}

/// How many flows wait, and for what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Calls that nobody knows the outcome of.
    pub unknown: u64,
    /// Flows that are held for a person: because of such a call, by their policy, or because something cannot be
    /// undone.
    pub held: u64,
    /// Flows whose lease has ended, by name, with how long the oldest has been waiting.
    pub due: Vec<Due>,
}

/// Flows of one name that nobody works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The registered function.
    pub flow: String,
    /// How many.
    pub count: u64,
    /// How long the oldest has been waiting.
    pub oldest: Duration,
}

impl StepShown {
    /// Whether somebody has to say what became of it.
    pub fn is_open(&self) -> bool {
        self.entry.kind == Kind::Call && self.entry.state == super::journal::State::Unknown
    }
}

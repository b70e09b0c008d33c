//! What operators may change of flows. Each change is one commit with its audit row, and is judged where it is made, on
//! the writer.

use rusqlite::Connection;
use semel::flow::{Change, FlowRecord, FlowState, Kind, MAX_KEPT_BYTES, Resolution, Seen, State};
use semel::operator::Audit;
use semel::{Error, Execution};

use super::operator::find;
use super::row::{execute, query_opt};
use super::step::Recorded;
use crate::operator::check_audit;
use crate::store::Sqlite;

const UNKNOWN_STEP: &str = include_str!("../sql/flow/unknown_step.sql");
const RELEASE_FLOW: &str = include_str!("../sql/flow/release_flow.sql");
const CANCEL_FLOW: &str = include_str!("../sql/flow/cancel_flow.sql");
const MAKE_DUE: &str = include_str!("../sql/flow/make_due.sql");
const RESOLVE_STEP: &str = include_str!("../sql/flow/resolve_step.sql");
const SEND_ANEW: &str = include_str!("../sql/flow/send_anew.sql");
const AUDIT: &str = include_str!("../sql/audit.sql");

/// Why a change cannot be made, and what can be done instead.
type Refusal = Option<String>;

impl Sqlite {
    pub(super) async fn let_go_on(&self, seen: Seen, audit: &Audit, dry_run: bool) -> Result<Change, Error> {
        let run = seen.execution;
        let judge = |connection: &Connection, flow: &FlowRecord| {
            Ok(match flow.state {
                FlowState::Paused | FlowState::Due => None,
                FlowState::Held => unknown_step(connection, run)?.map(|step| format!("resolve step {step} first")),
                FlowState::Running => Some("a worker holds its lease; it goes on by itself".to_owned()),
                FlowState::Completed | FlowState::Failed => Some(ended()),
            })
        };
        self.change_flow(seen, "flow_retried", audit, dry_run, judge, release).await
    }

    /// The flow goes on once no other call of it is in doubt.
    pub(super) async fn resolve_call(
        &self,
        seen: Seen,
        step: &str,
        resolution: &Resolution,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Change, Error> {
        check_resolution(resolution)?;
        let run = seen.execution;
        let judge = |connection: &Connection, flow: &FlowRecord| {
            if flow.state != FlowState::Held {
                return Ok(Some("only a step that a flow is held for can be resolved".to_owned()));
            }
            let is_open = |found: Recorded| found.kind == Kind::Call && found.state == State::Unknown;
            if Recorded::find(connection, run, step)?.is_some_and(is_open) {
                return Ok(None);
            }
            Ok(Some(match unknown_step(connection, run)? {
                Some(open) => format!("it is not held for step {step}; resolve step {open}"),
                None => "no step is in doubt; let it go on with `semel flows retry`".to_owned(),
            }))
        };
        let make = |connection: &Connection, flow: &FlowRecord, now_ms: i64| {
            settle(connection, run, step, resolution, now_ms)?;
            if unknown_step(connection, run)?.is_none() { release(connection, flow, now_ms) } else { Ok(()) }
        };
        self.change_flow(seen, "flow_resolved", audit, dry_run, judge, make).await
    }

    /// A worker that runs keeps its lease, to record what became of a call, and begins nothing new.
    pub(super) async fn ask_to_undo(&self, seen: Seen, audit: &Audit, dry_run: bool) -> Result<Change, Error> {
        let run = seen.execution;
        let judge = |connection: &Connection, flow: &FlowRecord| {
            Ok(match flow.state {
                FlowState::Running | FlowState::Paused | FlowState::Due => None,
                FlowState::Held => Some(match unknown_step(connection, run)? {
                    Some(step) => format!("resolve step {step} first"),
                    None => "let it go on with `semel flows retry` first".to_owned(),
                }),
                FlowState::Completed | FlowState::Failed => Some(ended()),
            })
        };
        let make = |connection: &Connection, flow: &FlowRecord, now_ms: i64| {
            execute(connection, CANCEL_FLOW, (run.as_uuid().as_bytes(),))?;
            if flow.state == FlowState::Running { Ok(()) } else { release(connection, flow, now_ms) }
        };
        self.change_flow(seen, "flow_cancelled", audit, dry_run, judge, make).await
    }

    /// Makes a change unless it is refused, and tells how the flow was before. Clients that wait for it look again.
    async fn change_flow(
        &self,
        seen: Seen,
        action: &str,
        audit: &Audit,
        dry_run: bool,
        judge: impl Fn(&Connection, &FlowRecord) -> Result<Refusal, Error> + Send + Sync,
        make: impl Fn(&Connection, &FlowRecord, i64) -> Result<(), Error> + Send + Sync,
    ) -> Result<Change, Error> {
        check_audit(audit)?;
        let run = seen.execution;
        let now_ms = self.now_ms();
        let judged = |connection: &Connection| {
            let Some(flow) = find(connection, run, now_ms)? else { return Ok(Change::NotFound) };
            if let Some(epoch) = seen.epoch.filter(|epoch| *epoch != flow.epoch) {
                return Ok(Change::Refused(flow.state, changed_hands(flow.epoch, epoch)));
            }
            Ok(match judge(connection, &flow)? {
                Some(instead) => Change::Refused(flow.state, instead),
                None => Change::Made(Box::new(flow)),
            })
        };
        if dry_run {
            return self.readers().read(judged).await;
        }
        self.transact(Some(self.lease_held()), |connection| {
            let judged = judged(connection)?;
            if let Change::Made(flow) = &judged {
                make(connection, flow, now_ms)?;
                let (id, name) = (run.as_uuid(), (flow.scope.tenant(), flow.scope.operation(), flow.key.as_str()));
                let row = (now_ms, &audit.actor, action, name.0, name.1, name.2, id.as_bytes(), &audit.reason);
                execute(connection, AUDIT, row)?;
            }
            Ok(judged)
        })
        .await
    }
}

/// Lets whoever looks next take the flow over, whatever its policy, and keeps its last worker out. The failures before
/// do not count any more.
fn release(connection: &Connection, flow: &FlowRecord, now_ms: i64) -> Result<(), Error> {
    let (run, key) = (flow.execution.as_uuid(), flow.key.as_str());
    execute(connection, MAKE_DUE, (flow.scope.tenant(), flow.scope.operation(), key, run.as_bytes(), now_ms))?;
    execute(connection, RELEASE_FLOW, (run.as_bytes(), now_ms)).map(drop)
}

fn settle(
    connection: &Connection,
    run: Execution,
    step: &str,
    resolution: &Resolution,
    now_ms: i64,
) -> Result<(), Error> {
    let id = run.as_uuid();
    let (state, result) = match resolution {
        Resolution::DidNotHappen => return execute(connection, SEND_ANEW, (id.as_bytes(), step)).map(drop),
        Resolution::Happened(result) => (State::Done, result.to_vec()),
        Resolution::Failed(reason) => (State::Failed, failure(step, reason)),
    };
    execute(connection, RESOLVE_STEP, (id.as_bytes(), step, state.as_str(), now_ms, result)).map(drop)
}

/// A failure as the flow reads it.
fn failure(step: &str, reason: &str) -> Vec<u8> {
    serde_json::json!({ "step": step, "code": "resolved", "reason": reason }).to_string().into_bytes()
}

/// Refuses what the flow could not read (I12).
fn check_resolution(resolution: &Resolution) -> Result<(), Error> {
    let problem = match resolution {
        Resolution::Happened(result) if result.len() > MAX_KEPT_BYTES => {
            format!("the result takes {} bytes and the limit is {MAX_KEPT_BYTES}", result.len())
        }
        Resolution::Happened(result) => match serde_json::from_slice::<serde_json::Value>(result) {
            Ok(_) => return Ok(()),
            Err(error) => format!("the result must be JSON, as the call would have returned it: {error}"),
        },
        Resolution::Failed(reason) if reason.len() > super::MAX_CAUSE_BYTES => {
            format!("the reason takes {} bytes and the limit is {}", reason.len(), super::MAX_CAUSE_BYTES)
        }
        Resolution::Failed(_) | Resolution::DidNotHappen => return Ok(()),
    };
    Err(Error::Settings(problem))
}

/// The first call of a flow that is in doubt.
fn unknown_step(connection: &Connection, run: Execution) -> Result<Option<String>, Error> {
    query_opt(connection, UNKNOWN_STEP, (run.as_uuid().as_bytes(),), |row| row.get(0))
}

fn changed_hands(epoch: i64, seen: i64) -> String {
    format!("it has changed hands since it was seen: its epoch is {epoch}, not {seen}; look at it again")
}

fn ended() -> String {
    "it has ended; nothing of it can be changed".to_owned()
}

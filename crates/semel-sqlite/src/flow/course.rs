//! How a flow goes on when its worker stops: after a pause, after a person has looked, or backwards.

use std::time::Duration;

use rusqlite::Connection;
use semel::flow::{Kept, Kind, UNDO};
use semel::{Error, Lease};

use super::row::{execute, query_opt};
use super::step::Recorded;
use super::{cut, held_until};
use crate::error::millis;
use crate::key::Fence;
use crate::store::Sqlite;

const PARK_FLOW: &str = include_str!("../sql/flow/park_flow.sql");
const HOLD_STEP: &str = include_str!("../sql/flow/hold_step.sql");
const HOLD_UNRECORDED: &str = include_str!("../sql/flow/hold_unrecorded.sql");
const NOTE_CAUSE: &str = include_str!("../sql/flow/note_cause.sql");
const UNWIND_FLOW: &str = include_str!("../sql/flow/unwind_flow.sql");

impl Sqlite {
    /// The lease ends when the pause does, so that nobody takes the flow over before. Clients that wait for it look
    /// again.
    pub(super) async fn pause_flow(&self, lease: &Lease, pause: Duration, cause: Option<&str>) -> Result<(), Error> {
        self.transact(Some(self.lease_held()), |connection| {
            let (fence, now_ms) = (Fence::of(lease), self.now_ms());
            fence.check(connection)?;
            let row = (lease.execution.as_uuid().into_bytes(), cause.map(cut));
            // One that is parked already keeps the end that its pause has, whoever has changed that since.
            let parked = query_opt(connection, PARK_FLOW, row, |row| row.get::<_, bool>(0))?;
            let Some(due) = parked else { return Ok(()) };
            let pause = if due { Duration::ZERO } else { pause };
            fence.renew(connection, now_ms.saturating_add(millis(pause)), now_ms).map(drop)
        })
        .await
    }

    /// Step, flow and key are held in one commit. If they are, for this reason and under this very lease, nothing is
    /// changed.
    pub(super) async fn hold_for_person(&self, lease: &Lease, step: &str, why: &str) -> Result<(), Error> {
        self.transact(Some(self.lease_held()), |connection| {
            let (fence, now_ms) = (Fence::of(lease), self.now_ms());
            match fence.check(connection) {
                Err(Error::Fenced) if fence.is_held_for(connection, cut(why))? => return Ok(()),
                checked => checked?,
            }
            hold_step(connection, lease, step, now_ms)?;
            execute(connection, NOTE_CAUSE, (lease.execution.as_uuid().as_bytes(), cut(why)))?;
            fence.hold(connection, held_until(now_ms))
        })
        .await
    }

    pub(super) async fn begin_unwinding(&self, lease: &Lease, failure: &Kept) -> Result<(), Error> {
        self.transact(None, |connection| {
            Fence::of(lease).check(connection)?;
            let row = (lease.execution.as_uuid().into_bytes(), &failure.bytes[..], &failure.sealed_by);
            execute(connection, UNWIND_FLOW, row).map(drop)
        })
        .await
    }
}

/// Makes a call *unknown*, so that a person can say what became of it. In a file that was restored it may be one that
/// has no row. A commit cannot be in doubt: what holds a flow because of one is undoing it, which is not recorded and
/// is simply tried again.
fn hold_step(connection: &Connection, lease: &Lease, step: &str, now_ms: i64) -> Result<(), Error> {
    let run = lease.execution.as_uuid();
    if execute(connection, HOLD_STEP, (run.as_bytes(), step))? > 0 {
        return Ok(());
    }
    let recorded = |step: &str| Recorded::find(connection, lease.execution, step);
    let undoes_commit = match step.strip_prefix(UNDO) {
        Some(undone) => recorded(undone)?.is_some_and(|found| found.kind == Kind::Commit),
        None => false,
    };
    if undoes_commit || recorded(step)?.is_some() {
        return Ok(());
    }
    execute(connection, HOLD_UNRECORDED, (run.as_bytes(), step, now_ms)).map(drop)
}

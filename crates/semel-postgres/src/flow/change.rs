//! What operators may change of flows. Each change is one commit with its audit row, and is judged where it is made,
//! under the lock of the key's row.

use semel::Error;
use semel::flow::{Change, MAX_KEPT_BYTES, Resolution, Seen};
use semel::operator::Audit;

use super::operator::{LISTED, one};
use super::row::{self, get, unanswered};
use crate::parameter::Parameter;
use crate::store::Postgres;

const LOCK: &str = "SELECT standing FROM semel.lock_flow($1)";
const RETRY: &str = "SELECT standing, refusal FROM semel.retry_flow($1, $2, $3, $4, $5)";
const RESOLVE: &str = "SELECT standing, refusal FROM semel.resolve_flow($1, $2, $3, $4, $5, $6, $7, $8)";
const CANCEL: &str = "SELECT standing, refusal FROM semel.cancel_flow($1, $2, $3, $4, $5)";

/// The most bytes that an audit row has of who changed something and why, and a failure of its reason (I12).
const MAX_ACTOR_BYTES: usize = 255;
const MAX_REASON_BYTES: usize = 1024;

pub(super) async fn retry(store: &Postgres, flow: Seen, audit: &Audit, dry_run: bool) -> Result<Change, Error> {
    check_audit(audit)?;
    change(store, flow, RETRY, &[&audit.actor.as_str(), &audit.reason.as_str(), &dry_run, &flow.epoch]).await
}

pub(super) async fn cancel(store: &Postgres, flow: Seen, audit: &Audit, dry_run: bool) -> Result<Change, Error> {
    check_audit(audit)?;
    change(store, flow, CANCEL, &[&audit.actor.as_str(), &audit.reason.as_str(), &dry_run, &flow.epoch]).await
}

pub(super) async fn resolve(
    store: &Postgres,
    flow: Seen,
    step: &str,
    resolution: &Resolution,
    audit: &Audit,
    dry_run: bool,
) -> Result<Change, Error> {
    check_audit(audit)?;
    let (found, result) = match resolution {
        Resolution::Happened(result) => ("happened", Some(checked(result)?.to_vec())),
        Resolution::DidNotHappen => ("did_not_happen", None),
        Resolution::Failed(reason) => ("failed", Some(failure(step, reason)?)),
    };
    let (actor, reason) = (audit.actor.as_str(), audit.reason.as_str());
    change(store, flow, RESOLVE, &[&step, &found, &result, &actor, &reason, &dry_run, &flow.epoch]).await
}

/// Locks the flow, reads it as it is before, and changes it, in one transaction and one round trip. A connection that
/// breaks meanwhile leaves it in doubt whether the change was made: [`Error::Ambiguous`].
async fn change(store: &Postgres, flow: Seen, sql: &str, own: &[&dyn Parameter]) -> Result<Change, Error> {
    let execution = flow.execution.as_uuid();
    let named: [&dyn Parameter; 1] = [&execution];
    let params: Vec<&dyn Parameter> = named.into_iter().chain(own.iter().copied()).collect();
    let statements = [(LOCK, named.to_vec()), (LISTED, one(&execution)), (sql, params)];
    let session = store.session().await?;
    let answers = match store.transact_on(session, &store.shared.begin_relaying, &statements).await {
        Err(Error::Unavailable(cause)) => return Err(Error::Ambiguous(cause)),
        answers => answers?,
    };
    let [_, before, changed] = answers.as_slice() else { return Err(unanswered()) };
    let changed = changed.first().ok_or_else(unanswered)?;
    let (Some(standing), Some(before)) = (get::<Option<&str>>(changed, "standing")?, before.first()) else {
        return Ok(Change::NotFound);
    };
    Ok(match get(changed, "refusal")? {
        Some(refusal) => Change::Refused(row::state(standing)?, refusal),
        None => Change::Made(Box::new(row::record(before)?)),
    })
}

/// Refuses a result that the flow could not read (I12).
fn checked(result: &[u8]) -> Result<&[u8], Error> {
    if result.len() > MAX_KEPT_BYTES {
        return Err(Error::Settings(format!(
            "the result takes {} bytes and the limit is {MAX_KEPT_BYTES}",
            result.len()
        )));
    }
    match serde_json::from_slice::<serde_json::Value>(result) {
        Ok(_) => Ok(result),
        Err(error) => {
            Err(Error::Settings(format!("the result must be JSON, as the call would have returned it: {error}")))
        }
    }
}

/// A failure as the flow reads it. It is told to the client, so it is kept short (I12).
fn failure(step: &str, reason: &str) -> Result<Vec<u8>, Error> {
    if reason.len() > MAX_REASON_BYTES {
        return Err(Error::Settings(format!(
            "the reason takes {} bytes and the limit is {MAX_REASON_BYTES}",
            reason.len()
        )));
    }
    Ok(serde_json::json!({ "step": step, "code": "resolved", "reason": reason }).to_string().into_bytes())
}

/// Refuses what no audit row can say, also where none is written.
fn check_audit(audit: &Audit) -> Result<(), Error> {
    if !(1..=MAX_ACTOR_BYTES).contains(&audit.actor.len()) || !(1..=MAX_REASON_BYTES).contains(&audit.reason.len()) {
        return Err(Error::Settings(format!(
            "a change by hand needs an actor of 1 to {MAX_ACTOR_BYTES} bytes and a reason of 1 to {MAX_REASON_BYTES}"
        )));
    }
    Ok(())
}

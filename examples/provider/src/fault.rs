//! What goes wrong on request.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use rusqlite::{OptionalExtension, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::answer::Answer;
use crate::kind::Kind;
use crate::shared::Shared;
use crate::{Error, dice, webhook};

/// The longest that a fault may hold a request up.
pub(crate) const MAX_SLOW_MS: u64 = 600_000;

/// The most requests that one fault may strike, and the most that it may let pass between.
const MAX_TIMES: u32 = 1_000_000;

/// The most faults that may wait.
const MAX_WAITING: i64 = 1_000;

/// What goes wrong with one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Fault {
    /// It is under way for so long before it is executed.
    Slow { ms: u64 },
    /// 500, not executed.
    ErrorBefore,
    /// 500, executed. The key keeps the success or, if it is sticky, the 500.
    ErrorAfter {
        #[serde(default)]
        sticky: bool,
    },
    /// No answer, not executed.
    CutBefore,
    /// No answer, executed.
    CutAfter,
    /// 429, not executed.
    Refuse,
    /// The webhook is sent twice, to this address if the charge names none.
    WebhookTwice {
        #[serde(default)]
        url: Option<String>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewFault {
    kind: Kind,
    fault: Fault,
    #[serde(default = "one")]
    times: u32,
    #[serde(default = "one")]
    every: u32,
}

fn one() -> u32 {
    1
}

impl NewFault {
    fn check(&self) -> Result<(), String> {
        if !(1..=MAX_TIMES).contains(&self.times) || !(1..=MAX_TIMES).contains(&self.every) {
            return Err(format!("`times` and `every` must be 1 to {MAX_TIMES}"));
        }
        match &self.fault {
            Fault::Slow { ms } if *ms > MAX_SLOW_MS => Err(format!("`ms` must be at most {MAX_SLOW_MS}")),
            Fault::WebhookTwice { .. } if self.kind != Kind::Charge => Err("only charges have webhooks".to_owned()),
            Fault::WebhookTwice { url: Some(url) } => webhook::require_loopback(url),
            _ => Ok(()),
        }
    }
}

/// `POST /faults`: puts a fault behind those that wait for requests of this kind. It strikes every so many of them, so
/// many times, and then the next one is first. When this is answered, it will strike, also after a crash.
pub(crate) async fn queue(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Answer, Answer> {
    let new: NewFault = serde_json::from_slice(&body).map_err(|error| Answer::invalid(&error.to_string()))?;
    new.check().map_err(|wrong| Answer::invalid(&wrong))?;
    let queued = shared.ledger.transact(move |tx| {
        let mut count = tx.prepare_cached(include_str!("../sql/faults_waiting.sql"))?;
        let waiting: i64 = count.query_row((), |row| row.get(0))?;
        if waiting >= MAX_WAITING {
            return Ok(None);
        }
        let row = (new.kind.as_str(), serde_json::to_string(&new.fault)?, new.every, new.times);
        tx.prepare_cached(include_str!("../sql/fault_queue.sql"))?.execute(row)?;
        Ok(Some(waiting + 1))
    });
    match queued.await? {
        Some(waiting) => Ok(Answer::new(StatusCode::CREATED, &json!({ "waiting": waiting }))),
        None => Err(Answer::invalid("too many faults wait already; clear them with DELETE /faults")),
    }
}

/// `DELETE /faults`: nothing goes wrong any more, in turn or at random.
pub(crate) async fn clear(State(shared): State<Arc<Shared>>) -> Result<StatusCode, Answer> {
    let cleared = shared.ledger.transact(|tx| Ok(tx.execute_batch(include_str!("../sql/faults_clear.sql"))?));
    cleared.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What goes wrong with the next request of this kind: what is queued, or else what the dice say. When `tx` commits it
/// is used up, and a crash does not bring it back.
pub(crate) fn take(tx: &Transaction<'_>, kind: Kind) -> Result<Option<Fault>, Error> {
    match take_queued(tx, kind)? {
        Some(fault) => Ok(Some(fault)),
        None => dice::throw(tx, kind),
    }
}

struct Queued {
    sequence: i64,
    fault: String,
    every: i64,
    seen: i64,
    remaining: i64,
}

fn take_queued(tx: &Transaction<'_>, kind: Kind) -> Result<Option<Fault>, Error> {
    let mut next = tx.prepare_cached(include_str!("../sql/fault_next.sql"))?;
    let next = next.query_row((kind.as_str(),), |row| {
        Ok(Queued {
            sequence: row.get("sequence")?,
            fault: row.get("fault")?,
            every: row.get("every")?,
            seen: row.get("seen")?,
            remaining: row.get("remaining")?,
        })
    });
    let Some(next) = next.optional()? else { return Ok(None) };
    let seen = next.seen + 1;
    let strikes = seen % next.every == 0;
    let remaining = next.remaining - i64::from(strikes);
    tx.prepare_cached(include_str!("../sql/fault_note.sql"))?.execute((next.sequence, seen, remaining))?;
    if strikes { Ok(Some(serde_json::from_str(&next.fault)?)) } else { Ok(None) }
}

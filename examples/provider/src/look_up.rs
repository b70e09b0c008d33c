//! What became of a request, asked by its key.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use rusqlite::{OptionalExtension, Transaction};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::kind::Kind;
use crate::shared::Shared;
use crate::{Error, Settings, requests};

/// Where look-ups are asked for.
pub(crate) const PATH: &str = "/operations";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    key: String,
    kind: Option<Kind>,
}

/// What the ledger says of a key.
enum Found {
    /// What was executed: the first time, if there are several.
    Execution {
        outcome: String,
        result: Value,
    },
    Nothing,
    /// Look-up is off.
    Off,
}

/// `GET /operations?key=K[&kind=charge]`: answers from the executions, so neither keys that are ignored nor a window
/// that is over keep a result from being found.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Answer, Answer> {
    let Query(Asked { key, kind }) = asked.map_err(|rejection| Answer::invalid(&rejection.body_text()))?;
    // Asked before the ledger: what is no longer under way by now is in the ledger if it was executed.
    let under_way = shared.under_way.holds(kind, &key);
    let found = shared.ledger.transact(move |tx| {
        requests::count(tx, PATH, Some(&key))?;
        if Settings::load(tx)?.look_up { find(tx, &key, kind) } else { Ok(Found::Off) }
    });
    match found.await? {
        Found::Execution { outcome, result } if outcome == "succeeded" => {
            Ok(Answer::new(StatusCode::OK, &json!({ "state": "done", "result": result })))
        }
        Found::Execution { result, .. } => {
            Ok(Answer::new(StatusCode::OK, &json!({ "state": "failed", "reason": result["code"] })))
        }
        Found::Nothing if under_way => Ok(Answer::new(StatusCode::OK, &json!({ "state": "under_way" }))),
        Found::Nothing => {
            Err(Answer::refusal(StatusCode::NOT_FOUND, "not_found", "Nothing was executed with this key."))
        }
        Found::Off => {
            let message = "This provider does not look results up.";
            Err(Answer::refusal(StatusCode::NOT_IMPLEMENTED, "no_look_up", message))
        }
    }
}

fn find(tx: &Transaction<'_>, key: &str, kind: Option<Kind>) -> Result<Found, Error> {
    let mut find = tx.prepare_cached(include_str!("../sql/execution_by_key.sql"))?;
    let row = find.query_row((key, kind.map(Kind::as_str)), |row| {
        let (outcome, result): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((outcome, result))
    });
    match row.optional()? {
        Some((outcome, result)) => Ok(Found::Execution { outcome, result: serde_json::from_str(&result)? }),
        None => Ok(Found::Nothing),
    }
}

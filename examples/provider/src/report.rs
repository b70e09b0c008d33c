//! What the ledger witnesses.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use rusqlite::{Row, Transaction};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Error;
use crate::answer::Answer;
use crate::shared::Shared;

/// One execution, with the members of its request.
#[derive(Debug, Serialize)]
pub(crate) struct Execution {
    id: String,
    kind: String,
    key: Option<String>,
    #[serde(flatten)]
    request: Map<String, Value>,
    outcome: String,
    result: Value,
    executed_at_ms: i64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    executions: Executions,
    /// Charges that were answered with 402.
    declined: i64,
    /// Keys with more than one execution, declined ones included.
    repeated_keys: i64,
}

/// How many succeeded, by kind.
#[derive(Debug, Serialize)]
struct Executions {
    charge: i64,
    refund: i64,
    mail: i64,
}

/// `GET /ledger`: every execution ever, in the order in which they were committed.
pub(crate) async fn ledger(State(shared): State<Arc<Shared>>) -> Result<Json<Vec<Execution>>, Answer> {
    Ok(Json(shared.ledger.transact(executions).await?))
}

/// `GET /ledger/summary`.
pub(crate) async fn summary(State(shared): State<Arc<Shared>>) -> Result<Json<Summary>, Answer> {
    Ok(Json(shared.ledger.transact(Summary::load).await?))
}

fn executions(tx: &Transaction<'_>) -> Result<Vec<Execution>, Error> {
    let mut executions = Vec::new();
    let mut all = tx.prepare_cached(include_str!("../sql/executions_all.sql"))?;
    let mut rows = all.query(())?;
    while let Some(row) = rows.next()? {
        executions.push(Execution::read(row)?);
    }
    Ok(executions)
}

impl Execution {
    fn read(row: &Row<'_>) -> Result<Execution, Error> {
        let (request, result): (String, String) = (row.get("request")?, row.get("result")?);
        Ok(Execution {
            id: row.get("id")?,
            kind: row.get("kind")?,
            key: row.get("key")?,
            request: serde_json::from_str(&request)?,
            outcome: row.get("outcome")?,
            result: serde_json::from_str(&result)?,
            executed_at_ms: row.get("executed_at_ms")?,
        })
    }
}

impl Summary {
    fn load(tx: &Transaction<'_>) -> Result<Summary, Error> {
        let mut load = tx.prepare_cached(include_str!("../sql/summary.sql"))?;
        let summary = load.query_row((), |row| {
            Ok(Summary {
                executions: Executions {
                    charge: row.get("charges")?,
                    refund: row.get("refunds")?,
                    mail: row.get("mails")?,
                },
                declined: row.get("declined")?,
                repeated_keys: row.get("repeated_keys")?,
            })
        });
        Ok(summary?)
    }
}

//! How many requests arrived. A repeat that executed nothing is counted here and nowhere else.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use rusqlite::Transaction;
use serde::Serialize;

use crate::Error;
use crate::answer::Answer;
use crate::look_up;
use crate::shared::Shared;

#[derive(Debug, Default, Serialize)]
pub(crate) struct Requests {
    total: i64,
    by_path: BTreeMap<String, i64>,
    by_key: BTreeMap<String, i64>,
    /// Look-ups change nothing, so they are no part of what stands above.
    look_ups: LookUps,
}

#[derive(Debug, Default, Serialize)]
struct LookUps {
    total: i64,
    by_key: BTreeMap<String, i64>,
}

/// Counts a request. When `tx` commits it is known to have arrived, also after a crash.
pub(crate) fn count(tx: &Transaction<'_>, path: &str, key: Option<&str>) -> Result<(), Error> {
    tx.prepare_cached(include_str!("../sql/request_count.sql"))?.execute((path, key.unwrap_or_default()))?;
    Ok(())
}

/// `GET /requests`.
pub(crate) async fn show(State(shared): State<Arc<Shared>>) -> Result<Json<Requests>, Answer> {
    Ok(Json(shared.ledger.transact(Requests::load).await?))
}

impl Requests {
    fn load(tx: &Transaction<'_>) -> Result<Requests, Error> {
        let mut counted = Requests::default();
        let mut all = tx.prepare_cached(include_str!("../sql/requests_all.sql"))?;
        let mut rows = all.query(())?;
        while let Some(row) = rows.next()? {
            let (path, key, received): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if path == look_up::PATH {
                counted.look_ups.total += received;
                counted.look_ups.by_key.insert(key, received);
                continue;
            }
            counted.total += received;
            *counted.by_path.entry(path).or_default() += received;
            if !key.is_empty() {
                *counted.by_key.entry(key).or_default() += received;
            }
        }
        Ok(counted)
    }
}

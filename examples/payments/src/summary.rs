//! The state of the books and of the service.

use axum::Json as Answer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use semel_tower::Problem;
use semel_tower::code::STORE_UNAVAILABLE;
use serde_json::json;

use crate::ledger::{Ledger, Summary};
use crate::problem::problem;
use crate::tokens::Tenant;

/// `GET /ledger/summary`: what the tenant's books hold at one moment. The sum is zero, or the books are broken.
pub(crate) async fn show<S: Ledger>(State(ledger): State<S>, tenant: Tenant) -> Result<Answer<Summary>, Problem> {
    Ok(Answer(ledger.summary(&tenant).await?))
}

/// `GET /healthz`: 200 when the store answers and has the schema that this version needs, 503 otherwise.
pub(crate) async fn health<S: Ledger>(State(ledger): State<S>) -> Response {
    match ledger.check().await {
        Ok(()) => Answer(json!({ "status": "ok" })).into_response(),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the health check failed");
            let detail = "The database cannot be asked, or its schema is not this version's.";
            problem(&STORE_UNAVAILABLE, detail).into_response()
        }
    }
}

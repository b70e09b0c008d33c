//! The state of the books and of the service.

use axum::Json as Answer;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use semel_tower::Problem;
use semel_tower::code::STORE_UNAVAILABLE;
use serde::Deserialize;
use serde_json::json;

use crate::ledger::{Consumed, Ledger, Summary};
use crate::problem::problem;
use crate::tokens::Tenant;
use crate::{code, consumers};

/// `GET /ledger/summary`: what the tenant's books hold at one moment. The sum is zero, or the books are broken.
pub(crate) async fn show<S: Ledger>(State(ledger): State<S>, tenant: Tenant) -> Result<Answer<Summary>, Problem> {
    Ok(Answer(ledger.summary(&tenant).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Whose {
    #[serde(default = "everything")]
    consumer: String,
}

fn everything() -> String {
    consumers::PAYMENTS.to_owned()
}

/// `GET /ledger/consumed?consumer=NAME`: what a consumer has made of the tenant's events, beside what the books say.
/// Once everything was applied there is a receipt for each charge, none was issued twice, and no account stands apart.
pub(crate) async fn consumed<S: Ledger>(
    State(ledger): State<S>,
    tenant: Tenant,
    whose: Result<Query<Whose>, QueryRejection>,
) -> Result<Answer<Consumed>, Problem> {
    let known = whose.ok().filter(|Query(whose)| consumers::NAMES.contains(&whose.consumer.as_str()));
    let Some(Query(whose)) = known else {
        let detail = format!("The consumers are {}.", consumers::NAMES.join(", "));
        return Err(problem(&code::NOT_FOUND, detail));
    };
    Ok(Answer(ledger.consumed(&tenant, &whose.consumer).await?))
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

//! What a caller is told.

use std::error::Error as _;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::Error;

/// A status and a body of JSON. The body is text, so that what is stored is what is sent, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    pub(crate) replayed: bool,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, body: &Value) -> Answer {
        Answer { status, body: body.to_string(), replayed: false }
    }

    /// A refusal: a code for programs and a message for people.
    pub(crate) fn refusal(status: StatusCode, code: &str, message: &str) -> Answer {
        Answer::new(status, &json!({ "code": code, "message": message }))
    }

    /// A refusal of what was sent. Nothing was executed and nothing is kept under the key.
    pub(crate) fn invalid(message: &str) -> Answer {
        Answer::refusal(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// The 500 that a fault asks for. It does not tell whether anything was executed.
    pub(crate) fn failure() -> Answer {
        Answer::refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "Something went wrong.")
    }
}

impl From<Error> for Answer {
    fn from(error: Error) -> Answer {
        let mut message = error.to_string();
        if let Some(source) = error.source() {
            message = format!("{message}: {source}");
        }
        Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, "ledger_unavailable", &message)
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let mut response = (self.status, json, self.body).into_response();
        if self.replayed {
            response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
        }
        response
    }
}

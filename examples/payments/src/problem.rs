//! Problems with the service's own codes.

use axum::http::StatusCode;
use semel_tower::Problem;
use semel_tower::code::Code;

/// A problem with the status and title that the code's table says.
pub(crate) fn problem(code: &Code, detail: impl Into<String>) -> Problem {
    let status = StatusCode::from_u16(code.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Problem::new(status, code.code, detail).title(code.title)
}

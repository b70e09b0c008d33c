//! The published policy: what a client can rely on, generated from the running configuration.

use axum::Json;
use axum::routing::{MethodRouter, get};
use semel::{OnExpiry, Settings, key};
use serde_json::{Value, json};

use crate::code;
use crate::policy::{Policy, Requirement};
use crate::replay;

/// What becomes of a flow's reply. The table of `stored_replies` is about routes without one.
const FLOW_REPLIES: &str = "the reply of a flow that has ended is stored; until then 409 key-in-flight";

/// The policy document of these routes (`"POST /charges"` or any other name) under these settings.
pub fn policy_document(routes: &[(&str, &Policy)], settings: &Settings) -> Value {
    let routes: Vec<Value> = routes.iter().map(|(name, policy)| route(name, policy)).collect();
    let codes: Vec<Value> = code::ALL
        .iter()
        .map(|code| json!({ "code": code.code, "status": code.status, "meaning": code.meaning, "do": code.what_to_do }))
        .collect();
    json!({
        "header": "Idempotency-Key",
        "key": {
            "max_characters": key::MAX_CHARACTERS,
            "characters": "visible ASCII (0x21 to 0x7E)",
            "scope": "the authenticated principal and the operation",
        },
        "retention_seconds": settings.retention.keep().as_secs_f64(),
        "client_retry_horizon_seconds": settings.retention.client_retry_horizon().as_secs_f64(),
        "fingerprint": {
            "of": ["method", "target with query", "media type", "body"],
            "json": "canonical form (RFC 8785); bodies with duplicate members, invalid UTF-8 or numbers beyond a \
                     double are compared byte by byte",
            "other": "byte by byte",
            "on_mismatch": "key-reused",
        },
        "stored_replies": {
            "2xx, 3xx": "stored with the effect",
            "4xx before execution began": "not stored; the key stays new",
            "4xx after execution began": "stored; the effect is rolled back unless the service keeps it",
            "408, 409, 425, 429": "not stored; the key stays new",
            "5xx": "not stored; the key stays new, unless the route marks the status terminal",
        },
        "replay": { "header": "Idempotent-Replayed: true", "reply_limit_bytes": settings.reply_limit },
        "transaction_deadline_seconds": settings.deadline.as_secs_f64(),
        "routes": routes,
        "problems": codes,
    })
}

/// Serves the document, at [`crate::problem::POLICY_PATH`].
pub fn policy_route<T: Clone + Send + Sync + 'static>(document: Value) -> MethodRouter<T> {
    get(move || std::future::ready(Json(document.clone())))
}

fn route(name: &str, policy: &Policy) -> Value {
    let methods: Vec<&str> = policy.methods.iter().map(http::Method::as_str).collect();
    let terminal: Vec<u16> = policy.terminal.iter().map(http::StatusCode::as_u16).collect();
    let headers: Vec<&str> =
        replay::ALLOWED.iter().copied().chain(policy.extra_headers.iter().map(String::as_str)).collect();
    let work = match (&policy.leased, policy.flow) {
        (None, None) => json!({ "kind": "transaction" }),
        (None, Some(answer_within)) => json!({
            "kind": "flow",
            "answer_within_seconds": answer_within.as_secs_f64(),
            "replies": FLOW_REPLIES,
        }),
        (Some(leased), _) => json!({
            "kind": "leased",
            "lease_seconds": leased.lease_for.as_secs_f64(),
            "limit_seconds": leased.limit.as_secs_f64(),
            "on_expiry": match leased.on_expiry {
                OnExpiry::Resume => "resume",
                OnExpiry::Hold => "hold",
            },
        }),
    };
    json!({
        "route": name,
        "operation": policy.operation.as_deref().unwrap_or("method and matched path"),
        "requirement": match policy.requirement {
            Requirement::Required => "required",
            Requirement::Optional => "optional",
            Requirement::Off => "off",
        },
        "header_mode": policy.mode.as_str(),
        "methods": methods,
        "min_key_characters": policy.min_key_length.max(1),
        "wait_seconds": policy.wait.as_secs_f64(),
        "request_body_limit_bytes": policy.body_limit,
        "stored_headers": headers,
        "terminal_statuses": terminal,
        "work": work,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Method, StatusCode};

    use super::*;
    use crate::{Leased, Mode};

    #[test]
    fn the_document_says_what_is_configured() {
        let strict = Policy::new()
            .header_mode(Mode::Strict)
            .methods([Method::PUT])
            .requirement(Requirement::Optional)
            .min_key_length(16)
            .wait(Duration::from_millis(1500))
            .allow_header("X-Cost")
            .terminal([StatusCode::NOT_IMPLEMENTED]);
        let leased = Policy::new().leased(Leased::new(Duration::from_secs(30)).on_expiry(OnExpiry::Hold));
        let flow = Policy::new().flow(Duration::from_secs(10));
        let routes = [("PUT /a", &strict), ("POST /b", &leased), ("POST /c", &flow)];
        let document = policy_document(&routes, &Settings::default());
        assert_eq!(document["retention_seconds"], 86400.0);
        let first = &document["routes"][0];
        assert_eq!(first["header_mode"], "strict");
        assert_eq!(first["methods"], json!(["PUT"]));
        assert_eq!(first["requirement"], "optional");
        assert_eq!(first["min_key_characters"], 16);
        assert_eq!(first["wait_seconds"], 1.5);
        assert_eq!(first["terminal_statuses"], json!([501]));
        assert!(first["stored_headers"].as_array().is_some_and(|names| names.contains(&json!("x-cost"))));
        assert_eq!(document["routes"][1]["work"]["on_expiry"], "hold");
        let work = json!({ "kind": "flow", "answer_within_seconds": 10.0, "replies": FLOW_REPLIES });
        assert_eq!(document["routes"][2]["work"], work);
    }
}

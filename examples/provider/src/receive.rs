//! A request for an operation, from its arrival to its answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::answer::Answer;
use crate::connection::Cut;
use crate::execution::{Attempt, Outcome};
use crate::fault::{self, Fault};
use crate::kind::Kind;
use crate::order::Order;
use crate::shared::Shared;
use crate::{Keys, Settings, key, requests, webhook};

/// The most bytes that a request may have.
const BODY_LIMIT: usize = 64 * 1024;

/// Answers a request for an operation. A request that has arrived is worked on to its end, also if whoever sent it has
/// hung up: that is why its outcome is unknown to them.
pub(crate) async fn receive(shared: Arc<Shared>, kind: Kind, request: Request) -> Response {
    let working = tokio::spawn(async move {
        let answered = answer(&shared, kind, request).await;
        answered.unwrap_or_else(IntoResponse::into_response)
    });
    working.await.unwrap_or_else(|_| Cut.into_response())
}

async fn answer(shared: &Arc<Shared>, kind: Kind, request: Request) -> Result<Response, Answer> {
    let received_at_ms = shared.clock.now_ms();
    let (parts, body) = request.into_parts();
    let key = key::read(&parts.headers);
    // Counted first, so that a request is known to have arrived whatever becomes of it.
    let counted = key.clone().ok().flatten();
    shared.ledger.transact(move |tx| requests::count(tx, kind.path(), counted.as_deref())).await?;

    // The body is read whatever is wrong, so that the connection can carry the next request.
    let body = to_bytes(body, BODY_LIMIT).await.map_err(|error| Answer::invalid(&error.to_string()))?;
    let key = key.map_err(|invalid| Answer::invalid(&invalid.to_string()))?;
    let order = Order::read(kind, &body).map_err(|wrong| Answer::invalid(&wrong))?;
    let asked = shared.ledger.transact(move |tx| Ok((Settings::load(tx)?.keys, fault::take(tx, kind)?)));
    let (keys, fault) = asked.await?;
    match fault {
        Some(Fault::CutBefore) => return Ok(Cut.into_response()),
        Some(Fault::ErrorBefore) => return Err(Answer::failure()),
        Some(Fault::Refuse) => {
            let message = "Too many requests; nothing was executed.";
            return Err(Answer::refusal(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message));
        }
        _ => {}
    }

    let under_way = match &key {
        Some(key) => Some(shared.under_way.enter(kind, key, keys != Keys::Off).ok_or_else(key_in_use)?),
        None => None,
    };
    if let Some(Fault::Slow { ms }) = fault
        && !shared.pause(Duration::from_millis(ms)).await
    {
        return Ok(Cut.into_response());
    }
    let attempt = Attempt { order, key, keys, fault: fault.clone(), received_at_ms };
    let clock = Arc::clone(&shared.clock);
    let outcome = shared.ledger.transact(move |tx| attempt.run(tx, clock.now_ms())).await?;
    // Only now that it is committed: whoever finds the key neither under way nor in the ledger may take it for new.
    drop(under_way);

    let answer = match outcome {
        Outcome::Executed { answer, event } => {
            if let Some(event) = event {
                webhook::deliver(shared, event);
            }
            answer
        }
        Outcome::Replayed(answer) => answer,
        Outcome::KeyReused => {
            let message = "This key came with another request before.";
            return Err(Answer::refusal(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", message));
        }
        Outcome::ChargeUnknown => {
            let message = "There is no such charge.";
            return Err(Answer::refusal(StatusCode::NOT_FOUND, "charge_unknown", message));
        }
    };
    match fault {
        Some(Fault::CutAfter) => Ok(Cut.into_response()),
        Some(Fault::ErrorAfter { .. }) => Err(Answer::failure()),
        _ => Ok(answer.into_response()),
    }
}

fn key_in_use() -> Answer {
    let message = "A request with this key is under way; nothing was executed.";
    Answer::refusal(StatusCode::CONFLICT, "key_in_use", message)
}

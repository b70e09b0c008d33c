//! A keyed request whose work is a flow.

use std::ops::Deref;
use std::time::Duration;

use axum::extract::{FromRequestParts, OptionalFromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use semel::{Ask, Outcome, flow, once};
use tracing::Instrument;

use crate::code;
use crate::extract::misused;
use crate::problem::{Problem, RETRY_AFTER};
use crate::replay;
use crate::run::{Inner, outcome_of};
use crate::tally::Tally;

/// What a handler runs a flow with: whose key it is, the key, and the fingerprint of the request. It derefs to [`Ask`].
///
/// The layer has read the key and authorised the request, and has asked the store nothing: the flow leases the key when
/// it begins. A handler that refuses the request before that leaves the key new.
///
/// ```
/// use axum::Json;
/// use axum::extract::State;
/// use semel::Flows;
/// use semel::flow::FlowStore;
/// use semel_tower::{FlowAnswer, FlowAsk};
///
/// async fn order<S: FlowStore>(
///     State(flows): State<Flows<S>>,
///     ask: FlowAsk,
///     Json(input): Json<serde_json::Value>,
/// ) -> FlowAnswer {
///     flows.run("order", &ask, &input).await.into()
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowAsk(Ask);

impl Deref for FlowAsk {
    type Target = Ask;

    fn deref(&self) -> &Ask {
        &self.0
    }
}

impl<T: Sync> FromRequestParts<T> for FlowAsk {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<FlowAsk, Problem> {
        let ask = parts.extensions.get::<FlowAsk>().cloned();
        ask.ok_or_else(|| {
            misused(
                "FlowAsk was taken where keys are not handed to flows; set Policy::flow, and take Option<FlowAsk> \
                 where keys are optional",
            )
        })
    }
}

impl<T: Sync> OptionalFromRequestParts<T> for FlowAsk {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<Option<FlowAsk>, Problem> {
        Ok(parts.extensions.get::<FlowAsk>().cloned())
    }
}

/// How a flow ended, or why it has not, as the answer to its request. A flow that has begun goes on by itself, whatever
/// the answer.
///
/// | the flow | answer |
/// |---|---|
/// | ended now | its reply |
/// | had ended before | the same reply, byte for byte, with `Idempotent-Replayed: true` (I3) |
/// | is under way, pauses, or failed in a way that may pass | 409 `key-in-flight` with Retry-After |
/// | is held for a person | 409 `outcome-unknown` |
/// | belongs to another request | 422 `key-reused` |
/// | does not fit the code of the service | 500 `flow-changed` |
/// | could not be begun because the store cannot be asked (I10) | 503 `store-unavailable` with Retry-After |
#[derive(Debug)]
pub struct FlowAnswer(Result<Outcome, once::Error<flow::Error>>);

impl From<Result<Outcome, once::Error<flow::Error>>> for FlowAnswer {
    fn from(result: Result<Outcome, once::Error<flow::Error>>) -> FlowAnswer {
        FlowAnswer(result)
    }
}

/// In a response's extensions: it is a flow's answer, and the request counts as this.
#[derive(Debug, Clone, Copy)]
struct Counted(&'static str);

impl IntoResponse for FlowAnswer {
    fn into_response(self) -> Response {
        let (outcome, mut response) = match self.0 {
            Ok(Outcome::Fresh(reply)) => {
                let mut response = replay::respond(&reply);
                replay::strip(&mut response);
                *response.body_mut() = crate::answer::body(reply.body().clone());
                ("fresh", response)
            }
            Ok(Outcome::Replayed(reply)) => ("replayed", replay::replayed(&reply)),
            Ok(Outcome::Forgotten(reply)) => {
                let mut response = replay::respond(&reply);
                replay::strip(&mut response);
                ("rolled_back", response)
            }
            Err(once::Error::InFlight { retry_after }) => {
                ("in_flight", Problem::under_way(retry_after).into_response())
            }
            Err(error) => (counted(&error), Problem::from(error).into_response()),
        };
        response.extensions_mut().insert(Counted(outcome));
        response
    }
}

/// What a request counts as whose flow gave no reply.
fn counted(error: &once::Error<flow::Error>) -> &'static str {
    match error {
        once::Error::Mismatch => "mismatch",
        once::Error::Store(error) | once::Error::Effect(flow::Error::Store(error)) => outcome_of(error),
        once::Error::Effect(flow::Error::Changed(_) | flow::Error::Retry(_)) => "rolled_back",
        _ => "in_flight",
    }
}

/// Runs the handler with the question that its flow asks the store. Nothing is claimed here.
///
/// It is a task of its own: a client that disconnects stops neither the handler nor the flow. A handler that does not
/// answer in time is dropped, and the flow, which has a task of its own as well, goes on; after a crash whoever takes
/// it over does.
pub(crate) async fn serve<I: Inner>(
    inner: I,
    answer_within: Duration,
    ask: Ask,
    request: Request,
    tally: Tally,
) -> Result<Response, I::Error> {
    let serving = tokio::spawn(answered(inner, answer_within, ask, request, tally).in_current_span());
    serving.await.unwrap_or_else(|stopped| {
        if !stopped.is_panic() {
            let detail = "the request was interrupted; ask again with the same key";
            return Ok(Problem::unavailable(detail).into_response());
        }
        tracing::error!("a handler panicked; a flow that it had begun goes on");
        let detail = "the service failed; work that had begun under this key goes on, ask again with the same key";
        Ok(Problem::of(&code::INTERNAL_ERROR, detail).into_response())
    })
}

async fn answered<I: Inner>(
    mut inner: I,
    answer_within: Duration,
    ask: Ask,
    mut request: Request,
    mut tally: Tally,
) -> Result<Response, I::Error> {
    request.extensions_mut().insert(FlowAsk(ask));
    let response = match tokio::time::timeout(answer_within, inner.call(request)).await {
        Ok(Ok(response)) => response.into_response(),
        Ok(Err(error)) => return Err(error),
        Err(_) => {
            tally.set("in_flight");
            return Ok(Problem::under_way(RETRY_AFTER).into_response());
        }
    };
    match response.extensions().get::<Counted>() {
        Some(&Counted(outcome)) => tally.set(outcome),
        None if (200..400).contains(&response.status().as_u16()) => {
            let detail = "the handler answered success without a flow's answer, so its effect may be in no flow; run a \
                          flow and answer with FlowAnswer";
            tracing::error!(operation = tally.operation(), "{detail}");
            return Ok(Problem::of(&code::EFFECT_OUTSIDE, detail).into_response());
        }
        None => tally.refused(&response),
    }
    Ok(response)
}

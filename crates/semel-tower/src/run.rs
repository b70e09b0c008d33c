//! Runs the handler and sorts its answer.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http::response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use semel::disposition::Mark;
use semel::{Claim, Disposition, Error, Recorded};
use tower::Service;

use crate::code;
use crate::policy::Policy;
use crate::problem::Problem;
use crate::replay;
use crate::tally::Tally;

/// What the layer needs of the service inside it.
pub(crate) trait Inner:
    Service<Request, Response: IntoResponse, Error: Send + 'static, Future: Send + 'static> + Send + 'static
{
}

impl<I> Inner for I where
    I: Service<Request, Response: IntoResponse, Error: Send + 'static, Future: Send + 'static> + Send + 'static
{
}

/// How a handler's run ended.
pub(crate) enum Ran<E> {
    /// It answered something that is stored, if it may be.
    Answered { parts: response::Parts, body: Bytes, mark: Mark },
    /// It answered something that is not stored.
    Refused(Response),
    /// It gave no answer that can be stored; this one goes out instead.
    Failed(Problem),
    /// The service inside failed.
    Error(E),
}

/// Runs the handler to its last byte, for at most `limit`. A panic, a broken body and an overlong reply become
/// problems. `may_have_begun` is asked once the status is known.
pub(crate) async fn run<I: Inner>(
    inner: I,
    request: Request,
    policy: &Policy,
    reply_limit: usize,
    limit: Duration,
    may_have_begun: impl Fn() -> bool,
) -> Ran<I::Error> {
    let answering = AssertUnwindSafe(answer(inner, request, policy, reply_limit, may_have_begun)).catch_unwind();
    match tokio::time::timeout(limit, answering).await {
        Ok(Ok(ran)) => ran,
        Ok(Err(panic)) => {
            tracing::error!(panic = panic_message(panic.as_ref()), "a handler panicked; all of it is rolled back");
            Ran::Failed(Problem::of(&code::INTERNAL_ERROR, "the service failed; everything was rolled back"))
        }
        Err(_) => {
            tracing::warn!(limit_ms = limit.as_millis(), "a handler took too long; all of it is rolled back");
            Ran::Failed(Problem::deadline(limit))
        }
    }
}

async fn answer<I: Inner>(
    mut inner: I,
    request: Request,
    policy: &Policy,
    reply_limit: usize,
    may_have_begun: impl Fn() -> bool,
) -> Ran<I::Error> {
    let (parts, body) = match inner.call(request).await {
        Ok(response) => response.into_response().into_parts(),
        Err(error) => return Ran::Error(error),
    };
    let mark = replay::mark_of(&parts, policy);
    let disposition = Disposition::of(parts.status.as_u16(), mark, may_have_begun());
    if replay::never_stored(&parts) || disposition == Disposition::Forget {
        return Ran::Refused(Response::from_parts(parts, body));
    }
    match Limited::new(body, reply_limit).collect().await {
        Ok(collected) => Ran::Answered { parts, body: collected.to_bytes(), mark },
        Err(error) if error.is::<LengthLimitError>() => {
            tracing::error!(reply_limit, "a reply is larger than the limit; its effect is rolled back");
            let detail = format!("the reply is larger than {reply_limit} bytes; its effect was rolled back");
            Ran::Failed(Problem::of(&code::REPLY_TOO_LARGE, detail))
        }
        Err(error) => {
            tracing::error!(error = error.as_ref() as &dyn std::error::Error, "a reply broke off; it is rolled back");
            Ran::Failed(Problem::of(&code::INTERNAL_ERROR, "the reply broke off; everything was rolled back"))
        }
    }
}

/// The answer to a request whose claim lets nothing run.
pub(crate) fn settled<T>(claim: Claim<T, Recorded>, tally: &mut Tally) -> Response {
    match claim {
        Claim::Replay(recorded) => {
            tally.set("replayed");
            replay::replayed(&recorded.reply)
        }
        Claim::InFlight { retry_after } => {
            tally.set("in_flight");
            Problem::in_flight(retry_after).into_response()
        }
        Claim::Mismatch => {
            tally.set("mismatch");
            Problem::reused().into_response()
        }
        Claim::Unknown | Claim::Fresh(_) | Claim::Resume(_) => {
            tally.set("in_flight");
            Problem::unknown().into_response()
        }
    }
}

/// The answer to a request that the store could not serve.
pub(crate) fn failed(error: Error, tally: &mut Tally) -> Response {
    tally.set(outcome_of(&error));
    Problem::from(error).into_response()
}

/// What a request counts as that the store could not serve.
pub(crate) fn outcome_of(error: &Error) -> &'static str {
    match error {
        Error::Unavailable(_) | Error::Conflict(_) | Error::Raced | Error::Ambiguous(_) | Error::RolledBack => {
            "unavailable"
        }
        Error::Fenced | Error::Cancelled => "in_flight",
        _ => "rolled_back",
    }
}

/// The first answer, as the handler gave it.
pub(crate) fn first_answer(mut parts: response::Parts, body: Bytes) -> Response {
    if parts.headers.contains_key(replay::IDEMPOTENT_REPLAYED) {
        parts.headers.remove(replay::IDEMPOTENT_REPLAYED);
    }
    Response::from_parts(parts, crate::answer::body(body))
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

//! Errors as `application/problem+json` (RFC 9457).

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use semel::{Reply, flow, once, reply};
use serde_json::{Value, json};

use crate::code::{self, Code};

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Where the policy document stands; every problem links to it.
pub const POLICY_PATH: &str = "/idempotency-policy";

/// When to try again where nothing better is known.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Every problem says where the policy document stands.
const LINK: &str = "</idempotency-policy>; rel=\"describedby\"";

/// An error for the client: `type` is `urn:semel:problem:<code>`, and `title`, `status`, `detail` and `code` say what
/// happened and what to do.
///
/// The layer answers with the codes in [`code::ALL`]; an application may use its own. As a handler's answer it
/// follows the same rules as any other reply of its status: a 4xx after the first statement is stored and replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    code: Cow<'static, str>,
    title: Option<Cow<'static, str>>,
    detail: String,
    retry_after: Option<Duration>,
    never_stored: bool,
}

/// In a response's extensions: whatever the route's policy says, this is not stored. It stands for a mistake in the
/// service or a passing failure of the store, and a retry must find the key new.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NeverStored {
    /// Whether the store could not be asked, as the request is then counted.
    pub(crate) unavailable: bool,
}

impl Problem {
    /// A problem with a code of the application's own. The title is the status's usual phrase, or the layer's where the
    /// code is one of [`code::ALL`].
    pub fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Problem {
        Problem {
            status,
            code: code.into(),
            title: None,
            detail: detail.into(),
            retry_after: None,
            never_stored: false,
        }
    }

    /// Sets the title: the same sentence whenever this code is answered.
    #[must_use]
    pub fn title(mut self, title: impl Into<Cow<'static, str>>) -> Problem {
        self.title = Some(title.into());
        self
    }

    /// Adds `Retry-After`, in whole seconds and at least one.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Problem {
        self.retry_after = Some(after);
        self
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The detail.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The problem as a reply, for a flow that ends with it: what is stored and replayed is what
    /// [`IntoResponse::into_response`] would have answered. Fails if the status is not one that can be stored.
    pub fn reply(&self) -> Result<Reply, reply::Invalid> {
        let reply = Reply::new(self.status.as_u16(), self.members().to_string())?;
        let reply = reply.header("content-type", MEDIA_TYPE)?.header("link", LINK)?;
        match self.retry_after {
            Some(after) => reply.header("retry-after", whole_seconds(after).to_string()),
            None => Ok(reply),
        }
    }

    fn members(&self) -> Value {
        let title: &str = match (&self.title, code::find(&self.code)) {
            (Some(title), _) => title,
            (None, Some(known)) => known.title,
            (None, None) => self.status.canonical_reason().unwrap_or("Error"),
        };
        json!({
            "type": format!("urn:semel:problem:{}", self.code),
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
        })
    }

    /// One of the layer's own problems.
    pub(crate) fn of(code: &Code, detail: impl Into<String>) -> Problem {
        let status = StatusCode::from_u16(code.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Problem { never_stored: true, ..Problem::new(status, code.code, detail) }
    }

    /// A run of the same key is going on.
    pub(crate) fn in_flight(retry_after: Duration) -> Problem {
        let detail = "another request with this key is running; send this one again later, with the same key";
        Problem::of(&code::KEY_IN_FLIGHT, detail).retry_after(retry_after)
    }

    /// A flow of the same key has begun and has not ended.
    pub(crate) fn under_way(retry_after: Duration) -> Problem {
        let detail = "the work under this key has begun and goes on by itself; send this request again later, with the \
                      same key, to get its reply";
        Problem::of(&code::KEY_IN_FLIGHT, detail).retry_after(retry_after)
    }

    /// The key belongs to another request.
    pub(crate) fn reused() -> Problem {
        let detail = "the key has been used for another request; use a new key for a new intent";
        Problem::of(&code::KEY_REUSED, detail)
    }

    /// Nobody knows what became of the work.
    pub(crate) fn unknown() -> Problem {
        let detail = "the work under this key was interrupted and whether it took effect is not known; do not use a \
                      new key, ask the operator";
        Problem::of(&code::OUTCOME_UNKNOWN, detail)
    }

    /// The store could not be asked, or a passing failure rolled everything back.
    pub(crate) fn unavailable(detail: &str) -> Problem {
        Problem::of(&code::STORE_UNAVAILABLE, detail).retry_after(RETRY_AFTER)
    }

    /// The work took longer than it may.
    pub(crate) fn deadline(limit: Duration) -> Problem {
        let detail = format!("the work took longer than {} ms and was rolled back", limit.as_millis());
        Problem::of(&code::DEADLINE_EXCEEDED, detail).retry_after(RETRY_AFTER)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.members().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(header::LINK, HeaderValue::from_static(LINK));
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        if self.never_stored {
            let unavailable = self.code == code::STORE_UNAVAILABLE.code;
            response.extensions_mut().insert(NeverStored { unavailable });
        }
        response
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.status.as_u16(), self.code, self.detail)
    }
}

impl std::error::Error for Problem {}

/// What a client is told about an error of the store. The cause goes to the log, never to the client.
impl From<semel::Error> for Problem {
    fn from(error: semel::Error) -> Problem {
        use semel::Error;
        match &error {
            Error::Unavailable(_) | Error::Conflict(_) | Error::Raced | Error::Ambiguous(_) | Error::RolledBack => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the store could not commit a keyed request");
                Problem::unavailable(&error.to_string())
            }
            Error::Deadline => {
                tracing::warn!("a keyed request took longer than the transaction deadline");
                Problem::of(&code::DEADLINE_EXCEEDED, error.to_string()).retry_after(RETRY_AFTER)
            }
            Error::Fenced | Error::Cancelled => Problem::in_flight(RETRY_AFTER),
            Error::Advanced(_) => {
                tracing::error!(%error, "a handler repeated a committed step; it must look at recovery_point first");
                let detail = "the service tried a step of this work a second time; the step was refused";
                Problem::of(&code::INTERNAL_ERROR, detail)
            }
            Error::ReplyTooLarge { .. } => {
                tracing::error!(%error, "a keyed request was rolled back");
                Problem::of(&code::REPLY_TOO_LARGE, error.to_string())
            }
            _ => {
                tracing::error!(error = &error as &dyn std::error::Error, "a keyed request failed");
                Problem::of(&code::INTERNAL_ERROR, "the service failed; everything was rolled back")
            }
        }
    }
}

/// What a client is told about a flow that gave no reply. The cause goes to the log, never to the client.
impl From<flow::Error> for Problem {
    fn from(error: flow::Error) -> Problem {
        match error {
            flow::Error::Store(error) => error.into(),
            flow::Error::Changed(changed) => {
                tracing::error!(error = &changed as &dyn std::error::Error, "a flow does not fit the service's code");
                let detail = "the work under this key cannot go on with the code that the service has now; what is \
                              recorded of it is kept, and it goes on once the service is mended";
                Problem::of(&code::FLOW_CHANGED, detail)
            }
            flow::Error::Retry(cause) => {
                tracing::error!(error = cause.as_ref() as &dyn std::error::Error, "a flow could not be begun");
                Problem::of(&code::INTERNAL_ERROR, "the service could not begin the work; nothing ran")
            }
            // Its worker was stopped: whoever takes it over goes on.
            _ => Problem::under_way(RETRY_AFTER),
        }
    }
}

impl<E: Into<Problem>> From<once::Error<E>> for Problem {
    fn from(error: once::Error<E>) -> Problem {
        match error {
            once::Error::InFlight { retry_after } => Problem::in_flight(retry_after),
            once::Error::Mismatch => Problem::reused(),
            once::Error::Unknown => Problem::unknown(),
            once::Error::Effect(error) => error.into(),
            once::Error::Store(error) => error.into(),
            _ => Problem::of(&code::INTERNAL_ERROR, "the service failed; everything was rolled back"),
        }
    }
}

fn whole_seconds(after: Duration) -> u64 {
    (after.as_secs() + u64::from(after.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_problem_has_its_five_members_and_links_to_the_policy() {
        let problem = Problem::of(&code::KEY_IN_FLIGHT, "wait").retry_after(Duration::from_millis(1500));
        let response = problem.into_response();
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()["content-type"], MEDIA_TYPE);
        assert_eq!(response.headers()["link"], format!("<{POLICY_PATH}>; rel=\"describedby\""));
        assert_eq!(response.headers()["retry-after"], "2");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let members: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            members,
            json!({
                "type": "urn:semel:problem:key-in-flight",
                "title": code::KEY_IN_FLIGHT.title,
                "status": 409,
                "detail": "wait",
                "code": "key-in-flight",
            })
        );
    }

    #[tokio::test]
    async fn a_problem_as_a_reply_is_what_it_would_have_answered() {
        for problem in [
            Problem::new(StatusCode::PAYMENT_REQUIRED, "card-declined", "no").title("The card was declined"),
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "later", "wait").retry_after(Duration::from_secs(3)),
            Problem::of(&code::KEY_REUSED, "other"),
        ] {
            let reply = problem.reply().unwrap();
            let response = problem.into_response();
            assert_eq!(reply.status(), response.status().as_u16());
            let mut stored: Vec<(&str, &[u8])> = reply.headers().collect();
            let mut answered: Vec<(&str, &[u8])> =
                response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
            stored.sort_unstable();
            answered.sort_unstable();
            assert_eq!(stored, answered);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), *reply.body());
        }
        assert!(Problem::new(StatusCode::CONTINUE, "odd", "").reply().is_err());
    }

    #[test]
    fn retry_after_is_at_least_one_second() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(30)), 30);
    }

    #[test]
    fn codes_are_distinct_and_their_statuses_valid() {
        for (position, known) in code::ALL.iter().enumerate() {
            assert!(code::ALL[..position].iter().all(|other| other.code != known.code), "{}", known.code);
            assert_eq!(Problem::of(known, "").status().as_u16(), known.status);
            assert_eq!(code::find(known.code), Some(known));
        }
    }

    #[test]
    fn the_cause_of_a_store_error_is_not_told_to_the_client() {
        let problem = Problem::from(semel::Error::Statement("password=secret".into()));
        assert_eq!((problem.status().as_u16(), problem.code()), (500, "internal-error"));
        assert!(!problem.to_string().contains("secret"));
    }

    #[test]
    fn a_flow_that_does_not_fit_the_code_is_told_by_a_code_of_its_own() {
        let vanished = flow::Changed::Vanished { step: "charge".to_owned(), flow: "order".to_owned() };
        let problem = Problem::from(flow::Error::from(vanished));
        assert_eq!((problem.status().as_u16(), problem.code()), (500, "flow-changed"));
        assert!(!problem.detail().contains("charge"), "{problem}");
        let problem = Problem::from(flow::Error::retry("password=secret"));
        assert_eq!((problem.status().as_u16(), problem.code()), (500, "internal-error"));
        assert!(!problem.detail().contains("secret"), "{problem}");
    }

    #[test]
    fn a_step_that_was_committed_before_is_a_mistake_of_the_service() {
        let point = semel::RecoveryPoint::new("reserved").unwrap();
        let problem = Problem::from(semel::Error::Advanced(Some(point)));
        assert_eq!((problem.status().as_u16(), problem.code()), (500, "internal-error"));
        assert!(problem.detail().contains("a second time") && !problem.detail().contains("reserved"), "{problem}");
    }

    #[test]
    fn an_application_may_use_its_own_code() {
        let problem = Problem::new(StatusCode::PAYMENT_REQUIRED, "insufficient-funds", "the balance is 3");
        assert_eq!(problem.into_response().status(), 402);
    }
}

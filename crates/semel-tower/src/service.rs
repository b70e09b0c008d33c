//! The service: from a request to the question it asks the store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{OriginalUri, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{Uri, header};
use semel::{Ask, Fingerprint, Key, Scope, Semel, Store, failpoint};
use tower::Service;

use crate::body::read_body;
use crate::code;
use crate::extract::Keyed;
use crate::flow::{self, FlowAsk};
use crate::header::{IDEMPOTENCY_KEY, Invalid, parse};
use crate::policy::{Policy, Requirement};
use crate::principal::Principal;
use crate::problem::Problem;
use crate::tally::Tally;
use crate::{leased, transaction};

/// What [`crate::IdempotencyLayer`] puts around a service.
#[derive(Debug)]
pub struct IdempotencyService<I, S> {
    inner: I,
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) semel: Semel<S>,
    pub(crate) policy: Policy,
}

impl<I, S> IdempotencyService<I, S> {
    pub(crate) fn new(inner: I, shared: Arc<Shared<S>>) -> IdempotencyService<I, S> {
        IdempotencyService { inner, shared }
    }
}

impl<I: Clone, S> Clone for IdempotencyService<I, S> {
    fn clone(&self) -> IdempotencyService<I, S> {
        IdempotencyService { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<I, S> Service<Request> for IdempotencyService<I, S>
where
    I: Service<Request> + Clone + Send + 'static,
    I::Response: IntoResponse,
    I::Error: Send + 'static,
    I::Future: Send + 'static,
    S: Store,
{
    type Response = Response;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, I::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(context)
    }

    /// The service that was polled ready serves this request; its clone waits for the next.
    fn call(&mut self, request: Request) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        if !self.shared.policy.protects(request.method()) {
            let passing = inner.call(request);
            return Box::pin(async move { passing.await.map(IntoResponse::into_response) });
        }
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let mut tally = Tally::new(&shared.policy.operation_of(&parts));
            match ask(&shared, parts, body, &mut tally).await {
                Ok(Asked::Keyed(ask, request)) => match (shared.policy.leased.clone(), shared.policy.flow) {
                    (Some(leased), _) => leased::serve(shared, inner, leased, ask, request, tally).await,
                    (None, Some(answer_within)) => flow::serve(inner, answer_within, ask, request, tally).await,
                    (None, None) => transaction::serve(&shared, inner, ask, request, tally).await,
                },
                Ok(Asked::Unkeyed(request)) => inner.call(request).await.map(IntoResponse::into_response),
                Err(refusal) => Ok(refusal),
            }
        })
    }
}

/// A request that may go on.
enum Asked {
    /// With the question for the store, and its body in memory.
    Keyed(Ask, Request),
    /// Without a key, where none is needed.
    Unkeyed(Request),
}

/// Turns a request into a question, or into the answer that refuses it. Nothing has asked the store yet.
async fn ask<S: Store>(shared: &Shared<S>, parts: Parts, body: Body, tally: &mut Tally) -> Result<Asked, Response> {
    let policy = &shared.policy;
    if policy.requirement == Requirement::Optional && !parts.headers.contains_key(IDEMPOTENCY_KEY) {
        tally.forget();
    }
    policy.authorised(&parts).await?;
    let Some(key) = key_of(&parts, policy, tally).map_err(IntoResponse::into_response)? else {
        return Ok(Asked::Unkeyed(Request::from_parts(parts, body)));
    };
    let scope = scope_of(&parts, tally).map_err(IntoResponse::into_response)?;
    let deadline = shared.semel.settings().deadline;
    // The whole body, because the fingerprint covers it.
    let body = read_body(&parts.headers, body, policy.body_limit, deadline).await.map_err(|problem| {
        tally.set("invalid");
        problem.into_response()
    })?;
    let fingerprint = fingerprint_of(&parts, &body);
    failpoint::reach(failpoint::PARSED).await;
    let ask = Ask::new(&scope, &key, &fingerprint).waiting(policy.wait);
    Ok(Asked::Keyed(ask, Request::from_parts(parts, Body::from(body))))
}

fn key_of(parts: &Parts, policy: &Policy, tally: &mut Tally) -> Result<Option<Key>, Problem> {
    let parsed = parse(&parts.headers, policy.mode).and_then(|key| match key {
        Some(key) if key.as_str().len() < policy.min_key_length => {
            Err(Invalid::TooShort { characters: key.as_str().len(), minimum: policy.min_key_length })
        }
        key => Ok(key),
    });
    match parsed {
        Ok(None) if policy.requirement == Requirement::Required => {
            tally.set("missing");
            let detail = "this route requires an Idempotency-Key header; mint one per intent, for example a UUID, and \
                          send the same on every retry";
            Err(Problem::of(&code::KEY_MISSING, detail))
        }
        Ok(key) => Ok(key),
        Err(invalid) => {
            tally.set("invalid");
            Err(Problem::of(&code::KEY_INVALID, invalid.to_string()))
        }
    }
}

/// Whose key it is. A scope is never optional: without a principal, one caller's replay could reach another (I11).
fn scope_of(parts: &Parts, tally: &Tally) -> Result<Scope, Problem> {
    let misplaced = |what: String| {
        tracing::error!(operation = tally.operation(), "{what}");
        Problem::of(&code::INTERNAL_ERROR, format!("the service is set up wrongly: {what}"))
    };
    if parts.extensions.get::<Keyed>().is_some() || parts.extensions.get::<FlowAsk>().is_some() {
        return Err(misplaced("IdempotencyLayer stands twice on this route; remove one".to_owned()));
    }
    let Some(principal) = parts.extensions.get::<Principal>() else {
        return Err(misplaced(
            "the request has no Principal: the layer must stand inside the authentication, which puts one into the \
             request's extensions"
                .to_owned(),
        ));
    };
    Scope::new(principal.as_str(), tally.operation()).map_err(|invalid| misplaced(invalid.to_string()))
}

/// The target is the one the client sent, whatever prefix a nested router has cut off.
fn fingerprint_of(parts: &Parts, body: &Bytes) -> Fingerprint {
    let uri: &Uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |original| &original.0);
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let content_type = parts.headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    Fingerprint::of_request(parts.method.as_str(), target, content_type.as_deref(), body)
}

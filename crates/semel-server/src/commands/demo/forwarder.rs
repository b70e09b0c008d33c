//! Stands between the relay and the consumer, passes every event on, counts, and on demand loses an acknowledgement.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::client::connector;
use crate::serve;
use crate::shutdown::Shutdown;

/// How long connections may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Which side of the consumer's commit an acknowledgement is held back on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// The consumer has acknowledged; the relay has not heard of it.
    Acknowledged,
    /// The event is on its way to the consumer.
    Sent,
}

/// An event whose acknowledgement is held back and will be lost.
#[derive(Debug)]
pub(super) struct Held {
    /// Its id.
    pub event: String,
    release: oneshot::Sender<()>,
}

impl Held {
    /// Tells the relay, if it lives, that nobody answered.
    pub(super) fn lose(self) {
        let _ = self.release.send(());
    }
}

/// The forwarder. It runs until this process ends.
#[derive(Debug)]
pub(super) struct Forwarder {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client<HttpConnector, Body>,
    /// Where the consumer is; it moves when it is started again.
    consumer: watch::Sender<Option<SocketAddr>>,
    deliveries: Mutex<HashMap<String, u32>>,
    trap: Mutex<Option<Trap>>,
}

#[derive(Debug)]
struct Trap {
    event_type: &'static str,
    hold: Hold,
    caught: oneshot::Sender<Held>,
}

impl Forwarder {
    pub(super) async fn start(stop: Shutdown) -> Result<Forwarder> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on a loopback port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            client: connector(),
            consumer: watch::Sender::new(None),
            deliveries: Mutex::default(),
            trap: Mutex::default(),
        });
        let router = Router::new().route("/events", post(pass_on)).with_state(Arc::clone(&shared));
        tokio::spawn(serve::serve(listener, router, stop, ENDS_WITHIN));
        Ok(Forwarder { address, shared })
    }

    /// Where the relay sends events.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where they are passed on to.
    pub(super) fn forward_to(&self, consumer: Option<SocketAddr>) {
        self.shared.consumer.send_replace(consumer);
    }

    /// Holds back the acknowledgement of the next event of a type.
    pub(super) fn hold_next(&self, event_type: &'static str, hold: Hold) -> oneshot::Receiver<Held> {
        let (caught, held) = oneshot::channel();
        *self.shared.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some(Trap { event_type, hold, caught });
        held
    }

    /// How often each event has reached the consumer.
    pub(super) fn deliveries(&self) -> HashMap<String, u32> {
        self.shared.deliveries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often an event has.
    pub(super) fn deliveries_of(&self, event: &str) -> u32 {
        self.deliveries().get(event).copied().unwrap_or_default()
    }
}

/// Passes an event on and its answer back. It runs to its end even if the relay is gone by then.
async fn pass_on(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let passed = tokio::spawn(async move { shared.pass_on(uri, headers, body).await });
    passed.await.unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
}

impl Shared {
    async fn pass_on(&self, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let (event, event_type) = (header("webhook-id"), header("ce-type"));
        let trap = self.trap.lock().unwrap_or_else(PoisonError::into_inner).take_if(|t| t.event_type == event_type);
        let Some(Trap { hold, caught, .. }) = trap else { return self.deliver(&event, uri, headers, body).await };
        let (release, released) = oneshot::channel();
        let held = Held { event: event.clone(), release };
        match hold {
            Hold::Acknowledged => {
                let answer = self.deliver(&event, uri, headers, body).await;
                if !answer.status().is_success() {
                    return answer;
                }
                let _ = caught.send(held);
                let _ = released.await;
            }
            Hold::Sent => {
                let _ = caught.send(held);
                let _ = tokio::join!(self.deliver(&event, uri, headers, body), released);
            }
        }
        StatusCode::BAD_GATEWAY.into_response()
    }

    async fn deliver(&self, event: &str, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
        let Some(consumer) = *self.consumer.borrow() else { return StatusCode::BAD_GATEWAY.into_response() };
        let mut request = axum::http::Request::new(Body::from(body));
        *request.method_mut() = axum::http::Method::POST;
        *request.headers_mut() = headers;
        let Ok(target) = format!("http://{consumer}{uri}").parse() else {
            return StatusCode::BAD_GATEWAY.into_response();
        };
        *request.uri_mut() = target;
        let answer = self.client.request(request).await;
        // What found nobody there was not delivered; anything else may have been.
        if !answer.as_ref().is_err_and(|error| error.is_connect()) {
            *self.deliveries.lock().unwrap_or_else(PoisonError::into_inner).entry(event.to_owned()).or_default() += 1;
        }
        match answer {
            Ok(answer) => answer.map(Body::new),
            Err(_) => StatusCode::BAD_GATEWAY.into_response(),
        }
    }
}

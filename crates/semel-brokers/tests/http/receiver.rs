//! A receiver of webhooks on a loopback port: it records what arrives, and answers as a test tells it.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use semel::sink::{Error, Lane, Outgoing, Position, Sink};
use semel::{Event, EventId};
use semel_brokers::http::{Addresses, HttpSink, Options, Resolve};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    /// The only value of a header, or nothing.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().expect("text"));
        assert!(values.next().is_none(), "{name} is there twice");
        value
    }

    pub(crate) fn key(&self) -> String {
        self.header("ce-partitionkey").expect("a key").to_owned()
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.header("semel-sequence").expect("a sequence").parse().expect("a number")
    }
}

/// A server that stops when it is dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    server: JoinHandle<()>,
}

impl Receiver {
    /// Starts one that answers as `answer` says.
    pub(crate) async fn start<F, A, R>(answer: F) -> Receiver
    where
        F: Fn(Seen) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = R> + Send + 'static,
        R: IntoResponse,
    {
        Receiver::on(listener(([127, 0, 0, 1], 0).into()).await, answer)
    }

    /// Starts one on a listener.
    pub(crate) fn on<L, F, A, R>(listener: L, answer: F) -> Receiver
    where
        L: axum::serve::Listener<Addr = SocketAddr>,
        F: Fn(Seen) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = R> + Send + 'static,
        R: IntoResponse,
    {
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = seen.clone();
        let router = Router::new().fallback(async move |request: Request| -> Response {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 4 << 20).await.expect("a body");
            let seen = Seen { method: head.method.to_string(), uri: head.uri, headers: head.headers, body };
            record.lock().expect("a lock").push(seen.clone());
            answer(seen).await.into_response()
        });
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("a server") });
        Receiver { address, seen, server }
    }

    /// Starts one that acknowledges everything.
    pub(crate) async fn acknowledging() -> Receiver {
        Receiver::start(async |_| StatusCode::NO_CONTENT).await
    }

    /// Stops it: when this returns, nobody listens on its port.
    pub(crate) async fn stop(mut self) {
        self.server.abort();
        let stopped = (&mut self.server).await;
        assert!(stopped.is_err_and(|error| error.is_cancelled()));
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("a lock").clone()
    }

    /// A URL with its address and port.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// A sink for it with these options, loopback allowed.
    pub(crate) fn sink(&self, options: Options) -> HttpSink {
        HttpSink::new(&self.url(), Options { allow_loopback: true, ..options }).expect("a sink")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A bound port.
pub(crate) async fn listener(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address).await.expect("a port")
}

/// Names become these addresses, a list for each time it is asked; the last list stays.
pub(crate) struct Script {
    answers: Vec<Vec<IpAddr>>,
    pub(crate) asked: AtomicUsize,
}

impl Script {
    pub(crate) fn new(answers: &[&[&str]]) -> Arc<Script> {
        let parsed = |list: &&[&str]| list.iter().map(|address| address.parse().expect("an address")).collect();
        Arc::new(Script { answers: answers.iter().map(parsed).collect(), asked: AtomicUsize::new(0) })
    }
}

impl Resolve for Script {
    fn resolve(&self, _: &str) -> Addresses {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst).min(self.answers.len() - 1);
        Box::pin(std::future::ready(Ok(self.answers[turn].clone())))
    }
}

/// An event of `key` whose payload names key and sequence.
pub(crate) fn outgoing(key: &str, sequence: u64) -> Outgoing {
    let payload = format!("{key} {sequence}");
    Outgoing {
        id: EventId::from(uuid::Uuid::from_u128(u128::from(sequence) + 1)),
        source: "/payments".to_owned(),
        time_ms: 1_700_000_000_123,
        lane: Lane(7),
        sequence,
        incarnation: "7301-1".to_owned(),
        event: Event::bytes("charges", key, "charge.created", "text/plain", payload).expect("an event"),
    }
}

/// Publishes a batch.
pub(crate) async fn publish(sink: &HttpSink, batch: &[Outgoing]) -> Vec<Result<(), Error>> {
    sink.publish(Lane(7), batch, &Position(Vec::new())).await
}

/// Publishes one event.
pub(crate) async fn publish_one(sink: &HttpSink, outgoing: &Outgoing) -> Result<(), Error> {
    publish(sink, std::slice::from_ref(outgoing)).await.pop().expect("one result")
}

/// An error with everything beneath it, as a person would read it.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

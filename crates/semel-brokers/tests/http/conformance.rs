//! The suite that every sink passes, on webhooks.
//!
//! The receiver keeps what it acknowledged in a list that outlives it, as a receiver with a database would. Names of
//! HTTP headers have no case, so `an_event_arrives_whole`, which sends two that differ in case only, has its own form
//! in `delivery`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::serve::Listener;
use percent_encoding::percent_decode_str;
use semel::Event;
use semel_brokers::http::HttpSink;
use semel_testkit::sinks::{Arrived, Harness};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::receiver::{Receiver, Seen, listener, outgoing, publish_one, told};

/// `user:secret`.
const CREDENTIALS: &str = "Basic dXNlcjpzZWNyZXQ=";

struct OnHttp {
    address: SocketAddr,
    kept: Arc<Mutex<Vec<Arrived>>>,
    server: Option<Server>,
}

/// A listener that tells when it is gone: its second field is dropped after the first.
struct Alive(TcpListener, #[allow(dead_code, reason = "it is there to be dropped")] oneshot::Sender<()>);

impl Listener for Alive {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        Listener::accept(&mut self.0).await
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A receiver in a runtime of its own, which ends with all its connections at once.
struct Server {
    runtime: Option<Runtime>,
    /// Closed when the receiver is gone and its port is free.
    ended: oneshot::Receiver<()>,
}

impl Server {
    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl OnHttp {
    async fn start(&mut self) {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (started, address) = oneshot::channel();
        let (alive, ended) = oneshot::channel();
        let (kept, wanted) = (self.kept.clone(), self.address);
        runtime.spawn(async move {
            let listener = Alive(listener(wanted).await, alive);
            let answer = move |seen: Seen| std::future::ready(keep(&kept, &seen));
            let receiver = Receiver::on(listener, answer);
            started.send(receiver.address).expect("somebody waits");
            std::future::pending::<()>().await;
        });
        self.address = address.await.expect("a receiver");
        self.server = Some(Server { runtime: Some(runtime), ended });
    }

    fn url(&self, password: &str) -> String {
        format!("http://user:{password}@{}/hook?semel_allow_loopback=true", self.address)
    }
}

impl Harness for OnHttp {
    type Sink = HttpSink;

    async fn shared() -> OnHttp {
        OnHttp::own().await
    }

    async fn own() -> OnHttp {
        let mut harness = OnHttp { address: ([127, 0, 0, 1], 0).into(), kept: Arc::default(), server: None };
        harness.start().await;
        harness
    }

    async fn connect(&self) -> HttpSink {
        HttpSink::from_url(&self.url("secret")).expect("a sink")
    }

    async fn connect_with_password(&self, password: &str) -> Result<(), String> {
        let sink = HttpSink::from_url(&self.url(password)).expect("a sink");
        publish_one(&sink, &outgoing("a", 1)).await.map_err(|error| format!("{} {error:?} {sink:?}", told(&error)))
    }

    fn topic(&self) -> String {
        "events".to_owned()
    }

    async fn refused(&self, key: &str) -> Vec<Event> {
        let event = |event_type: &str| Event::bytes("events", key, event_type, "c", "x").expect("an event");
        let unsendable = event("t").header("odd(name)", "x").expect("a header");
        ["400", "404", "410", "413", "422"].map(event).into_iter().chain([unsendable]).collect()
    }

    async fn arrived(&self) -> Vec<Arrived> {
        self.kept.lock().expect("a lock").clone()
    }

    fn kill(&mut self) {
        self.server.as_mut().expect("a server").kill();
    }

    async fn restart(&mut self) {
        let server = self.server.as_mut().expect("a server");
        assert!((&mut server.ended).await.is_err(), "it ends by being dropped");
        self.start().await;
    }
}

/// Keeps an event and acknowledges it, unless its type is a status to refuse it with.
fn keep(kept: &Mutex<Vec<Arrived>>, seen: &Seen) -> StatusCode {
    if seen.header("authorization") != Some(CREDENTIALS) {
        return StatusCode::UNAUTHORIZED;
    }
    if let Ok(status) = seen.header("ce-type").expect("a type").parse() {
        return status;
    }
    let text = |name: &str| {
        let value = seen.header(name).unwrap_or_else(|| panic!("no header {name}"));
        percent_decode_str(value).decode_utf8().expect("UTF-8").into_owned()
    };
    assert_eq!(text("ce-specversion"), "1.0");
    assert_eq!(text("webhook-id"), text("ce-id"));
    kept.lock().expect("a lock").push(Arrived {
        id: text("ce-id"),
        source: text("ce-source"),
        event_type: text("ce-type"),
        time: text("ce-time"),
        content_type: text("content-type"),
        ordering_key: text("ce-partitionkey"),
        lane: text("semel-lane").parse().expect("a lane"),
        sequence: seen.sequence(),
        incarnation: text("semel-incarnation"),
        traceparent: seen.header("traceparent").map(str::to_owned),
        tracestate: seen.header("tracestate").map(str::to_owned),
        headers: Vec::new(),
        payload: seen.body.to_vec(),
    });
    StatusCode::OK
}

semel_testkit::sink_tests! { @modules OnHttp,
    arrival {
        the_smallest_event_arrives,
        order_per_key_is_kept_over_many_keys_and_batches,
        lanes_publish_side_by_side,
        an_event_published_again_keeps_its_identity,
        what_was_acknowledged_is_there_after_close,
    }
    failure {
        a_refused_event_holds_back_its_key_and_no_other,
        a_broker_killed_in_the_middle_loses_nothing_and_keeps_order,
        wrong_credentials_are_refused_without_telling_them,
    }
}

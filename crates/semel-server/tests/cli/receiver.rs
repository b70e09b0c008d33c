//! A webhook receiver in the test's own process, and a relay that publishes to it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use semel_testkit::process::Service;
use tokio::net::TcpListener;

use crate::harness::{Home, SEMEL};

/// How long events may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An event as it arrived and was accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrived {
    pub(crate) topic: String,
    pub(crate) sequence: u64,
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) event_type: String,
}

/// Accepts events, apart from those that it was told to refuse.
pub(crate) struct Receiver {
    url: String,
    state: Arc<Mutex<Received>>,
}

#[derive(Default)]
struct Received {
    arrived: Vec<Arrived>,
    refused: Option<(String, String)>,
}

impl Receiver {
    pub(crate) async fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events?semel_allow_loopback=true", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(Received::default()));
        let router = Router::new().route("/events", post(receive)).with_state(Arc::clone(&state));
        // On a thread of its own it answers while the test waits for a command to end.
        let listener = listener.into_std().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { axum::serve(TcpListener::from_std(listener).unwrap(), router).await })
        });
        Receiver { url, state }
    }

    /// The sink that publishes here.
    pub(crate) fn sink(&self) -> &str {
        &self.url
    }

    /// Refuses events of this ordering key and, unless it is empty, this type.
    pub(crate) fn refuse(&self, key: &str, event_type: &str) {
        self.state.lock().unwrap().refused = Some((key.to_owned(), event_type.to_owned()));
    }

    /// Accepts everything again.
    pub(crate) fn accept(&self) {
        self.state.lock().unwrap().refused = None;
    }

    /// Waits for this many events, and returns them in the order in which they came.
    pub(crate) async fn arrived(&self, count: usize) -> Vec<Arrived> {
        let gives_up = Instant::now() + PATIENCE;
        loop {
            let arrived = self.state.lock().unwrap().arrived.clone();
            if arrived.len() >= count {
                return arrived;
            }
            assert!(Instant::now() < gives_up, "{count} events should have come: {arrived:?}");
            tokio::task::yield_now().await;
        }
    }
}

async fn receive(State(state): State<Arc<Mutex<Received>>>, headers: HeaderMap) -> StatusCode {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let arrived = Arrived {
        topic: header("semel-topic"),
        sequence: header("semel-sequence").parse().unwrap(),
        id: header("ce-id"),
        key: header("ce-partitionkey"),
        event_type: header("ce-type"),
    };
    let mut state = state.lock().unwrap();
    let refused = state.refused.as_ref().is_some_and(|(key, event_type)| {
        *key == arrived.key && (event_type.is_empty() || *event_type == arrived.event_type)
    });
    if refused {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    state.arrived.push(arrived);
    StatusCode::NO_CONTENT
}

/// A relay in a process of its own, which parks a key after two attempts.
pub(crate) async fn relay(home: &Home, sink: &str) -> Service {
    relay_keeping(home, sink, "1h").await
}

/// Like [`relay`], with another replay window.
pub(crate) async fn relay_keeping(home: &Home, sink: &str, window: &str) -> Service {
    let url = home.url();
    let arguments = ["run", "--roles", "relay", "--metrics-listen", "127.0.0.1:0", "--database-url", &url];
    let environment = [
        ("SEMEL_SINK", sink),
        ("SEMEL_RELAY_NAME", "the test's relay"),
        ("SEMEL_REPLAY_WINDOW", window),
        ("SEMEL_PUBLISH_ATTEMPTS", "2"),
        ("SEMEL_PUBLISH_BACKOFF_MIN", "1ms"),
        ("SEMEL_PUBLISH_BACKOFF_MAX", "10ms"),
    ];
    Service::spawn(SEMEL, &arguments, &environment).await
}

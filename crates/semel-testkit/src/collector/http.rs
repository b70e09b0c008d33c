//! A webhook's receiver, which may refuse.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{Arrival, topics_of, unique};

type Judge = dyn Fn(&Arrival) -> StatusCode + Send + Sync;

/// An HTTP server that keeps what it acknowledged. It stops when it is dropped.
pub struct Receiver {
    address: SocketAddr,
    topics: [String; 2],
    kept: Arc<Kept>,
    server: JoinHandle<()>,
}

struct Kept {
    arrived: Mutex<Vec<Arrival>>,
    judge: Mutex<Box<Judge>>,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a receiver on {}", self.address)
    }
}

impl Receiver {
    /// Starts one that acknowledges everything, on a free loopback port.
    pub async fn start() -> Receiver {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let judge: Box<Judge> = Box::new(|_| StatusCode::NO_CONTENT);
        let kept = Arc::new(Kept { arrived: Mutex::default(), judge: Mutex::new(judge) });
        let router = Router::new().fallback(receive).with_state(Arc::clone(&kept));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Receiver { address, topics: topics_of(&unique()), kept, server }
    }

    /// Answers as `judge` says from now on. What is not answered with success is not kept.
    pub fn answer(&self, judge: impl Fn(&Arrival) -> StatusCode + Send + Sync + 'static) {
        *self.kept.judge.lock().unwrap() = Box::new(judge);
    }

    pub(super) fn sink_url(&self) -> String {
        format!("http://{}/hook?semel_allow_loopback=true", self.address)
    }

    pub(super) fn topics(&self) -> &[String; 2] {
        &self.topics
    }

    /// What was acknowledged, in order.
    pub fn arrived(&self) -> Vec<Arrival> {
        self.kept.arrived.lock().unwrap().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(State(kept): State<Arc<Kept>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let arrival = Arrival {
        id: text("ce-id"),
        topic: text("semel-topic"),
        event_type: text("ce-type"),
        ordering_key: text("ce-partitionkey"),
        lane: text("semel-lane").parse().unwrap(),
        sequence: text("semel-sequence").parse().unwrap(),
        incarnation: text("semel-incarnation"),
        payload: body.to_vec(),
    };
    // Judged and kept under one lock, so that the order is that of the answers.
    let mut arrived = kept.arrived.lock().unwrap();
    let status = (kept.judge.lock().unwrap())(&arrival);
    if status.is_success() {
        arrived.push(arrival);
    }
    status
}

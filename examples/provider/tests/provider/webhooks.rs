//! Webhooks: at least once, twice on request, and never off this machine.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::{Directory, PATIENCE, Process, Running, new_charge};

/// Somebody who is told.
struct Receiver {
    address: SocketAddr,
    events: mpsc::UnboundedReceiver<Value>,
    serving: JoinHandle<()>,
}

impl Receiver {
    async fn start(refusals: usize) -> Receiver {
        Receiver::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), refusals)
    }

    /// Answers this many with 500, and 204 after that.
    fn on(listener: TcpListener, refusals: usize) -> Receiver {
        let (sender, events) = mpsc::unbounded_channel();
        let left = Arc::new(AtomicUsize::new(refusals));
        let told = move |Json(event): Json<Value>| {
            let (sender, left) = (sender.clone(), Arc::clone(&left));
            async move {
                sender.send(event).unwrap();
                let refused = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
                if refused { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::NO_CONTENT }
            }
        };
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/told", post(told));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Receiver { address, events, serving }
    }

    async fn next(&mut self) -> Value {
        timeout(PATIENCE, self.events.recv()).await.expect("an event arrives").unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn told_at(address: SocketAddr) -> Value {
    let mut body = new_charge();
    body["webhook"] = json!(format!("http://{address}/told"));
    body
}

/// Waits until nothing is left to be sent: what arrived until then is all that ever will.
async fn all_sent(ledger: &Path) {
    let file = rusqlite::Connection::open(ledger).unwrap();
    let sending = async {
        let left = "SELECT count(*) FROM webhooks WHERE remaining > 0";
        while file.query_row(left, (), |row| row.get::<_, i64>(0)).unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, sending).await.expect("everything is sent");
}

#[tokio::test]
async fn a_charge_is_told_once_and_not_by_its_repeats() {
    let provider = Running::start().await;
    let mut receiver = Receiver::start(0).await;
    let charge = provider.post("/charges", "k", &told_at(receiver.address)).await;
    charge.executed(201);
    provider.post("/charges", "k", &told_at(receiver.address)).await.replays(&charge);
    let event = receiver.next().await;
    assert!(event["id"].as_str().unwrap().starts_with("evt_"), "{event}");
    assert_eq!((&event["type"], &event["data"]), (&json!("charge.succeeded"), &charge.json()));
    all_sent(&provider.ledger_file()).await;
    assert!(receiver.events.try_recv().is_err());
}

#[tokio::test]
async fn the_same_event_is_sent_twice_on_request() {
    let provider = Running::start().await;
    let mut receiver = Receiver::start(0).await;
    let url = format!("http://{}/told", receiver.address);
    // To the address of the charge, or to the fault's if the charge has none.
    for body in [told_at(receiver.address), new_charge()] {
        provider.fault(json!({ "type": "webhook_twice", "url": url })).await;
        let key = format!("with webhook: {}", body["webhook"].is_string()).replace(' ', "-");
        let charge = provider.post("/charges", &key, &body).await;
        charge.executed(201);
        let (first, second) = (receiver.next().await, receiver.next().await);
        assert_eq!(first, second);
        assert_eq!(first["data"], charge.json());
        all_sent(&provider.ledger_file()).await;
        assert!(receiver.events.try_recv().is_err());
    }
}

#[tokio::test]
async fn a_charge_whose_answer_is_cut_is_told_and_one_that_is_declined_is_not() {
    let provider = Running::start().await;
    let mut receiver = Receiver::start(0).await;
    let mut declined = told_at(receiver.address);
    declined["card"] = json!("tok_declined");
    assert_eq!(provider.post("/charges", "declined", &declined).await.status, 402);
    provider.fault(json!({ "type": "cut_after" })).await;
    let body = told_at(receiver.address);
    assert!(provider.send(reqwest::Method::POST, "/charges", Some("cut"), Some(&body)).await.is_err());
    assert_eq!(receiver.next().await["data"], provider.look_up("cut").await.json()["result"]);
    all_sent(&provider.ledger_file()).await;
    assert!(receiver.events.try_recv().is_err());
}

#[tokio::test]
async fn an_event_that_is_refused_is_sent_again_with_the_same_id() {
    let provider = Running::start().await;
    let mut receiver = Receiver::start(2).await;
    provider.post("/charges", "k", &told_at(receiver.address)).await.executed(201);
    let events = [receiver.next().await, receiver.next().await, receiver.next().await];
    assert!(events.iter().all(|event| event == &events[0]), "{events:?}");
    all_sent(&provider.ledger_file()).await;
    assert!(receiver.events.try_recv().is_err());
}

#[tokio::test]
async fn an_event_that_a_killed_process_did_not_send_is_sent_by_the_next() {
    let directory = Directory::make();
    // Bound and not listening: the address is taken, and whoever connects is refused.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let mut provider = Process::start(&directory, &[]);
    let charge = provider.post("/charges", "k", &told_at(address)).await;
    charge.executed(201);
    provider.kill9();

    let mut receiver = Receiver::on(socket.listen(16).unwrap(), 0);
    let _provider = Process::start(&directory, &[]);
    assert_eq!(receiver.next().await["data"], charge.json());
}

#[tokio::test]
async fn a_webhook_off_this_machine_is_refused() {
    let provider = Running::start().await;
    for url in ["http://example.com/", "http://localhost.example.com/", "https://127.0.0.1/", "file:///etc", "told"] {
        let mut body = new_charge();
        body["webhook"] = json!(url);
        provider.post("/charges", "k", &body).await.is_refusal(400, "invalid_request");
    }
    assert_eq!(provider.executions().await, 0);
}

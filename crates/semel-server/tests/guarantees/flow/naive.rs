//! The control: a service that charges without a key and notes it afterwards.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use semel::failpoint::{self, FLOW_CALLED};
use semel_testkit::control::{CONTROL_VARIABLE, Control};
use semel_testkit::poll::PATIENCE;
use semel_testkit::process::Service;
use serde_json::json;

use super::outside::Outside;
use crate::world::client;

/// The variables that make such a service of this program: where it charges, and the folder of its notes.
const CHARGES_AT: &str = "TEST_NAIVE_CHARGES_AT";
const NOTES_IN: &str = "TEST_NAIVE_NOTES_IN";
const BODY: &str = "flow::naive::a_naive_service_of_its_own";

/// The same kill and the same retry, without an intent that is recorded first and without a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_charges_and_notes_afterwards_charges_twice() {
    let (outside, notes) = (Outside::start(&[]).await, tempfile::tempdir().unwrap());
    let (charges_at, notes_in) = (format!("{}/charges", outside.url()), notes.path().to_str().unwrap().to_owned());
    let told = [(CHARGES_AT, charges_at.as_str()), (NOTES_IN, &notes_in)];
    let mut control = Control::listen().await;
    let (armed, address) = (format!("{FLOW_CALLED}=1*return"), control.address().to_string());
    let armed = [told.as_slice(), &[("FAILPOINTS", armed.as_str()), (CONTROL_VARIABLE, &address)]].concat();

    let mut doomed = start(&armed).await;
    let url = doomed.url("/orders/k");
    let unanswered = tokio::spawn(async move { client().post(url).send().await });
    let parked = control.reached(FLOW_CALLED, PATIENCE).await;
    doomed.kill9().await;
    drop(parked);
    assert!(unanswered.await.unwrap().is_err(), "nobody answers from the grave");

    let successor = start(&told).await;
    for _ in 0..2 {
        let answer = client().post(successor.url("/orders/k")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    let charged = outside.count("charge").await;
    assert_eq!(charged, 2, "a kill that does not make this charge twice proves nothing");
}

async fn start(environment: &[(&str, &str)]) -> Service {
    let arguments = ["--exact", BODY, "--nocapture", "--test-threads=1"];
    Service::spawn(std::env::current_exe().unwrap(), &arguments, environment).await
}

struct Naive {
    charges_at: String,
    notes_in: PathBuf,
}

/// The body of the naive service's process; alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout)]
async fn a_naive_service_of_its_own() {
    let (Ok(charges_at), Ok(notes_in)) = (std::env::var(CHARGES_AT), std::env::var(NOTES_IN)) else { return };
    failpoint::setup();
    let naive = Arc::new(Naive { charges_at, notes_in: notes_in.into() });
    let router = Router::new().route("/orders/{key}", post(order)).with_state(naive);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("naive listening on http://{}", listener.local_addr().unwrap());
    axum::serve(listener, router).await.unwrap();
}

/// Looks for a note, charges, and notes it.
async fn order(State(naive): State<Arc<Naive>>, Path(key): Path<String>) -> String {
    let note = naive.notes_in.join(key);
    if let Ok(charge) = std::fs::read_to_string(&note) {
        return charge;
    }
    let wanted = json!({ "amount": 1000, "currency": "EUR", "card": "tok_visa" });
    let charge = client().post(&naive.charges_at).json(&wanted).send().await.unwrap().text().await.unwrap();
    failpoint::reach(FLOW_CALLED).await;
    std::fs::write(&note, &charge).unwrap();
    charge
}

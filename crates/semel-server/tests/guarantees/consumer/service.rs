//! A service whose clients retry, in a process of its own.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use semel::failpoint::{self, COMMIT_ACKNOWLEDGED};
use semel::once::Error as OnceError;
use semel::sink::{Lane, Outgoing, Position};
use semel::{Error, Event, EventId, Fingerprint, Key, Outcome, Reply, Scope, Semel, Sink, Tx};
use semel_brokers::{AnySink, connect};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::process::Service;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::process::{armed, spawn};
use super::stage::{Applying, Effect};

/// The variable that makes a service of this program, as JSON.
const PLAN: &str = "TEST_SERVICE_PLAN";
const BODY: &str = "consumer::service::a_service_of_its_own";

/// What a service is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) database: String,
    pub(crate) topic: String,
    /// Where it publishes by itself, after its commit; `None` if it has an outbox.
    pub(crate) publishes_to: Option<String>,
}

impl Plan {
    pub(crate) async fn start(&self) -> Service {
        spawn(BODY, PLAN, &serde_json::to_string(self).unwrap(), &[]).await
    }

    /// Starts one that stops after the commit of its charge number `passed + 1`, before it does anything else.
    pub(crate) async fn start_armed(&self, passed: u32, control: &Control) -> Service {
        let environment = armed(COMMIT_ACKNOWLEDGED, passed, control);
        spawn(BODY, PLAN, &serde_json::to_string(self).unwrap(), &environment).await
    }
}

/// The body of a service's process; alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_of_its_own() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let plan: Plan = serde_json::from_str(&plan).unwrap();
    failpoint::setup();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    match plan.database.starts_with("sqlite:") {
        true => serve::<Sqlite>(&plan).await,
        false => serve::<Postgres>(&plan).await,
    }
}

struct Charges<S> {
    semel: Semel<S>,
    topic: String,
    sink: Option<AnySink>,
}

#[allow(clippy::print_stdout)]
async fn serve<S: Applying>(plan: &Plan) {
    let store = S::open_url(&plan.database, Duration::from_secs(30)).await;
    let sink = match &plan.publishes_to {
        Some(url) => Some(connect(url, "the service itself").await.unwrap()),
        None => None,
    };
    let charges = Arc::new(Charges { semel: Semel::new(store), topic: plan.topic.clone(), sink });
    let router = Router::new().route("/charges/{intent}/{key}", post(charge::<S>)).with_state(charges);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("service listening on http://{}", listener.local_addr().unwrap());
    axum::serve(listener, router).await.unwrap();
}

/// Charges for an intent under a key.
async fn charge<S: Applying>(
    State(charges): State<Arc<Charges<S>>>,
    Path((intent, key)): Path<(u64, String)>,
) -> StatusCode {
    let scope = Scope::new("tenant", "charge").unwrap();
    let fingerprint = Fingerprint::of_bytes(&intent.to_be_bytes());
    let event = Event::new(&charges.topic, account(intent), "charge.created", &json!({ "n": intent })).unwrap();
    let has_outbox = charges.sink.is_none();
    let emitted = event.clone();
    let work = async move |tx: &mut S::Tx| {
        let effect = Effect { generation: 0, id: intent.to_string(), key: account(intent), n: intent };
        S::apply(tx, &effect).await?;
        if has_outbox {
            tx.emit(emitted.clone());
        }
        Ok::<Reply, Error>(Reply::new(201, "charged").unwrap())
    };
    match charges.semel.once(&scope, &Key::new(key).unwrap(), &fingerprint, work).await {
        Ok(Outcome::Fresh(_)) => {
            failpoint::reach(COMMIT_ACKNOWLEDGED).await;
            if let Some(sink) = &charges.sink {
                publish(sink, event).await;
            }
            StatusCode::CREATED
        }
        Ok(_) => StatusCode::CREATED,
        Err(OnceError::InFlight { .. }) => StatusCode::CONFLICT,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Publishes without an outbox, as often as it takes: only a crash before this loses the event.
async fn publish(sink: &AnySink, event: Event) {
    let lane = Lane::of(&event.ordering_key);
    let outgoing = Outgoing {
        id: EventId::from(uuid::Uuid::new_v4()),
        source: "service".to_owned(),
        time_ms: 0,
        lane,
        sequence: 1,
        incarnation: "none".to_owned(),
        event,
    };
    let mut retries = tokio::time::interval(Duration::from_millis(50));
    loop {
        retries.tick().await;
        let published = sink.publish(lane, std::slice::from_ref(&outgoing), &Position(Vec::new())).await;
        if published.iter().all(Result::is_ok) {
            return;
        }
    }
}

/// Whose intent it is.
fn account(intent: u64) -> String {
    format!("account-{}", intent % 4)
}

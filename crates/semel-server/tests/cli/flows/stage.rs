//! Flows in every state an operator may find them in, written by the stores themselves.

use std::time::{Duration, Instant};

use bytes::Bytes;
use semel::flow::{Attempt, FlowStore, Kept, Kind, Settled, Start, State};
use semel::intent::Fault;
use semel::{Ask, Claim, Completion, Execution, Fingerprint, Key, Lease, LeaseTerms, OnExpiry, Scope, Stored, Tx};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;

use crate::harness::{Home, semel};

/// The key under which the calls of held flows were made.
pub(crate) const DERIVED: &str = "53195d6c-4591-803d-9c61-d698fc980001";

/// What the held flows wait for.
pub(crate) const WHY: &str = "it may have happened; the provider may have forgotten the key";

/// What no command may print.
pub(crate) const SECRET: &str = "hunter2";

/// How long anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The ids of the flows, in the order in which they began. Where nothing else is said they are of the flow `order` and
/// the tenant `a`.
pub(crate) struct Flows {
    /// Held for their call `charge`.
    pub(crate) held: [String; 3],
    /// It failed and waits for an hour.
    pub(crate) paused: String,
    /// Its lease runs.
    pub(crate) running: String,
    /// Of the flow `mail`, and nobody works on it.
    pub(crate) due: String,
    /// The tenant `b`'s, with a reply.
    pub(crate) completed: String,
    /// Held as a whole, because its policy is not to resume.
    pub(crate) abandoned: String,
}

impl Flows {
    /// Makes the tables and the flows.
    pub(crate) async fn prepare(home: &Home) -> Flows {
        semel(&["migrate", "--database-url", &home.url()]).succeeded();
        match home {
            Home::Sqlite(file) => {
                prepare(&Sqlite::open(file.path(), semel_sqlite::Options::default()).await.unwrap()).await
            }
            Home::Postgres(database) => {
                prepare(&Postgres::connect(&database.url(), semel_postgres::Options::default()).await.unwrap()).await
            }
        }
    }

    /// All of them, the newest first.
    pub(crate) fn newest_first(&self) -> Vec<&str> {
        let [first, second, third] = &self.held;
        let all = [first, second, third, &self.paused, &self.running, &self.due, &self.completed, &self.abandoned];
        all.into_iter().rev().map(String::as_str).collect()
    }
}

async fn prepare<S: FlowStore>(store: &S) -> Flows {
    let held = [
        held(store, "held-1").await.to_string(),
        held(store, "held-2").await.to_string(),
        held(store, "held-3").await.to_string(),
    ];
    let paused = begin(store, "a", "order", "paused").await;
    store.park_flow(&paused, HOUR, Some("the stock is away")).await.unwrap();
    let running = begin(store, "a", "order", "running").await;
    let due = begin(store, "a", "mail", "due").await;
    store.park_flow(&due, Duration::ZERO, None).await.unwrap();
    let completed = begin(store, "b", "order", "completed").await;
    complete(store, &completed).await;
    Flows {
        held,
        paused: paused.execution.to_string(),
        running: running.execution.to_string(),
        due: due.execution.to_string(),
        completed: completed.execution.to_string(),
        abandoned: abandoned(store).await.to_string(),
    }
}

/// Takes a flow that is due over, as a completer does.
pub(crate) async fn take<S: FlowStore>(store: &S, flow: &str, execution: &str) -> Lease {
    let taken = store.take_flows(flow, &terms(HOUR, OnExpiry::Resume), 10).await.unwrap();
    let mut leases = taken.into_iter().map(|journal| journal.lease);
    leases.find(|lease| lease.execution.to_string() == execution).expect("it is due")
}

/// Tries the call `charge` three times, without a certain answer, and holds the flow for it.
pub(crate) async fn hold<S: FlowStore>(store: &S, lease: &Lease) {
    for (number, fault) in (1..).zip([Fault::Unknown, Fault::Retryable, Fault::Unknown]) {
        let (step, provider, key) = ("charge", "card-processor", DERIVED);
        store.count_attempt(lease, &Attempt { step, provider, key, number, opened: Duration::ZERO }).await.unwrap();
        store.end_attempt(lease, step, number, fault, "no answer came").await.unwrap();
    }
    store.hold_flow(lease, "charge", WHY).await.unwrap();
}

async fn held<S: FlowStore>(store: &S, key: &str) -> Execution {
    let lease = begin(store, "a", "order", key).await;
    let reserved = Settled {
        step: "reserve".to_owned(),
        kind: Kind::Commit,
        state: State::Done,
        result: Kept { bytes: SECRET.into(), sealed_by: None },
    };
    store.begin_step(&lease, "reserve").await.unwrap().record(&reserved).await.unwrap();
    hold(store, &lease).await;
    lease.execution
}

async fn complete<S: FlowStore>(store: &S, lease: &Lease) {
    let stored =
        Stored { execution: lease.execution, status: 201, headers: Bytes::new(), body: SECRET.into(), sealed_by: None };
    let completion = Completion { stored, keep_effect: true, failed: false, retain: HOUR };
    store.begin_step(lease, "finish").await.unwrap().complete(&completion).await.unwrap();
}

/// A worker's lease runs out, and the next one may not resume.
async fn abandoned<S: FlowStore>(store: &S) -> Execution {
    let (ask, start) = (ask("a", "abandoned"), start("order"));
    let terms = terms(Duration::from_millis(1), OnExpiry::Hold);
    let Claim::Fresh(journal) = store.begin_flow(&ask, &terms, &start).await.unwrap() else { panic!("it is new") };
    let gives_up = Instant::now() + PATIENCE;
    while !matches!(store.begin_flow(&ask, &terms, &start).await.unwrap(), Claim::Unknown) {
        assert!(Instant::now() < gives_up, "its lease does not end");
    }
    journal.lease.execution
}

async fn begin<S: FlowStore>(store: &S, tenant: &str, flow: &str, key: &str) -> Lease {
    let claim = store.begin_flow(&ask(tenant, key), &terms(HOUR, OnExpiry::Resume), &start(flow)).await.unwrap();
    let Claim::Fresh(journal) = claim else { panic!("it is new") };
    journal.lease
}

fn ask(tenant: &str, key: &str) -> Ask {
    let scope = Scope::new(tenant, "POST /orders").unwrap();
    Ask::new(&scope, &Key::new(key).unwrap(), &Fingerprint::of_bytes(b"x"))
}

fn start(flow: &str) -> Start {
    Start { flow: flow.to_owned(), input: Kept { bytes: SECRET.into(), sealed_by: None } }
}

fn terms(lease_for: Duration, on_expiry: OnExpiry) -> LeaseTerms {
    LeaseTerms { lease_for, holder: "the test".to_owned(), on_expiry, retain: 2 * HOUR }
}

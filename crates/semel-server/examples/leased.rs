//! A service whose work outlives one transaction: `POST /jobs` runs in two committed steps under a lease of one second.
//!
//! `cargo run -p semel-server --example leased -- sqlite:jobs.db` (or `postgres://…`). Kill it between the steps and
//! send the request again with the same key: it goes on at the second step. The tests stop it for longer than its lease
//! and see its late write refused.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use semel::{Error, RecoveryPoint, Semel, Store};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_tower::{IdempotencyLayer, LeaseHandle, Leased, Policy, Principal, Problem};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS jobs (execution TEXT NOT NULL, step TEXT NOT NULL)";
const LEASE: Duration = Duration::from_secs(1);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    #[cfg(feature = "failpoints")]
    semel::failpoint::setup();
    let url = std::env::args().nth(1).ok_or("usage: leased sqlite:PATH | postgres://…")?;
    match url.strip_prefix("sqlite:") {
        Some(path) => {
            let store = Sqlite::open(path, semel_sqlite::Options::default()).await?;
            store.migrate().await?;
            let mut tx = store.begin().await?;
            tx.execute(TABLE, ()).await?;
            tx.commit().await?;
            serve(store).await
        }
        None => {
            let store = Postgres::open(&url, semel_postgres::Options::default())?;
            store.migrate().await?;
            store.client().await?.batch_execute(TABLE).await?;
            serve(store).await
        }
    }
}

async fn serve<S: Jobs>(store: S) -> Result<(), Failure> {
    let policy = Policy::new().leased(Leased::new(LEASE));
    let app = Router::new()
        .route("/jobs", post(job::<S>))
        .layer(IdempotencyLayer::new(Semel::new(store), policy)?)
        .layer(Extension(Principal::new("demo")));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("leased listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

/// Reserves, then delivers. A run that takes over skips what its predecessor committed.
async fn job<S: Jobs>(lease: LeaseHandle<S>) -> Result<Json<&'static str>, Problem> {
    const STEPS: [&str; 2] = ["reserved", "delivered"];
    let point = lease.recovery_point();
    let reached = point.and_then(|point| STEPS.iter().position(|step| *step == point.as_str()));
    for step in STEPS.into_iter().skip(reached.map_or(0, |position| position + 1)) {
        let failed = |error: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "step-failed", error);
        let point = RecoveryPoint::new(step).map_err(|invalid| failed(invalid.to_string()))?;
        let (execution, step) = (lease.lease().execution.to_string(), step.to_owned());
        let committed =
            lease.advance(&point, async move |tx| S::record(tx, execution.clone(), step.clone()).await).await;
        committed.map_err(|error| failed(error.to_string()))?;
    }
    Ok(Json("delivered"))
}

/// What a job writes, in either database.
trait Jobs: Store {
    fn record(tx: &mut Self::Tx, execution: String, step: String) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Jobs for Postgres {
    async fn record(tx: &mut semel_postgres::Tx, execution: String, step: String) -> Result<(), Error> {
        tx.execute("INSERT INTO jobs VALUES ($1, $2)", &[&execution, &step]).await.map(drop)
    }
}

impl Jobs for Sqlite {
    async fn record(tx: &mut semel_sqlite::Tx, execution: String, step: String) -> Result<(), Error> {
        tx.execute("INSERT INTO jobs VALUES (?1, ?2)", (execution, step)).await.map(drop)
    }
}

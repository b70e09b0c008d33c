//! The control: an idempotency key the way articles warn about, which doubles under a race.
//!
//! Looking for the key, charging and noting the key are separate statements without a transaction, and nothing in the
//! schema forbids two notes of one key. A race test that cannot make *this* charge twice proves nothing about Semel.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use deadpool_postgres::{Manager, Pool};
use tokio::net::TcpListener;
use tokio_postgres::NoTls;

use crate::process;

const CONNECTIONS: usize = 16;

/// Tables: `naive_charges` (id, key, amount) is the effect, `naive_keys` (key, charge) is what is looked up.
const SCHEMA: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(7600);
    CREATE TABLE IF NOT EXISTS naive_charges (id bigserial PRIMARY KEY, key text NOT NULL, amount bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS naive_keys (key text NOT NULL, charge bigint NOT NULL);
    COMMIT";

/// Listens on a free loopback port and serves `POST /charges {"amount": n}` with an `Idempotency-Key`.
///
/// Returns where it listens; the service runs until its runtime ends.
pub async fn serve(database_url: &str) -> Result<SocketAddr, Box<dyn std::error::Error + Send + Sync>> {
    let manager = Manager::new(database_url.parse()?, NoTls);
    let pool = Pool::builder(manager).max_size(CONNECTIONS).build()?;
    pool.get().await?.batch_execute(SCHEMA).await?;
    let router = Router::new().route("/charges", post(charge)).with_state(Arc::new(pool));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// The path of the binary `naive`, which is built first if the test run has not done so.
pub fn binary() -> PathBuf {
    process::built("semel-testkit", "naive")
}

#[derive(Debug, serde::Deserialize)]
struct NewCharge {
    amount: i64,
}

async fn charge(State(pool): State<Arc<Pool>>, headers: HeaderMap, Json(new): Json<NewCharge>) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    match check_then_insert(&pool, key, new.amount).await {
        Ok(id) => (StatusCode::CREATED, Json(serde_json::json!({"id": id, "amount": new.amount}))).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

async fn check_then_insert(
    pool: &Pool,
    key: &str,
    amount: i64,
) -> Result<i64, Box<dyn std::error::Error + Send + Sync>> {
    let client = pool.get().await?;
    if let Some(row) = client.query_opt("SELECT charge FROM naive_keys WHERE key = $1 LIMIT 1", &[&key]).await? {
        return Ok(row.get(0));
    }
    let insert = "INSERT INTO naive_charges (key, amount) VALUES ($1, $2) RETURNING id";
    let id: i64 = client.query_one(insert, &[&key, &amount]).await?.get(0);
    client.execute("INSERT INTO naive_keys (key, charge) VALUES ($1, $2)", &[&key, &id]).await?;
    Ok(id)
}

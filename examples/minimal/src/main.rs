//! An axum service whose charges happen once, however often a client sends them.

use axum::{Extension, Json, Router, http::StatusCode, routing::post};
use semel::Semel;
use semel_sqlite::{Options, Sqlite};
use semel_tower::{IdempotencyLayer, Policy, Principal, Problem, Tx};

#[derive(serde::Deserialize, serde::Serialize)]
struct Charge {
    account: String,
    amount: u32,
}

// The layer has claimed the key in `tx`. The row and this answer commit together, or neither does.
async fn charge(mut tx: Tx<Sqlite>, Json(charge): Json<Charge>) -> Result<(StatusCode, Json<Charge>), Problem> {
    tx.execute("INSERT INTO charges (account, amount) VALUES (?1, ?2)", (&charge.account, charge.amount)).await?;
    Ok((StatusCode::CREATED, Json(charge)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let store = Sqlite::open("minimal.db", Options::default()).await?;
    store.migrate().await?;
    let mut tx = store.begin().await?;
    tx.execute("CREATE TABLE IF NOT EXISTS charges (account TEXT, amount INTEGER)", ()).await?;
    tx.commit().await?;

    let app = Router::new()
        .route("/charges", post(charge))
        .layer(IdempotencyLayer::new(Semel::new(store), Policy::new())?)
        .layer(Extension(Principal::new("demo"))); // from your authentication: whose key it is
    let address = std::env::var("LISTEN").unwrap_or("127.0.0.1:7601".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

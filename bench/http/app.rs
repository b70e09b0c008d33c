//! The service that is asked: a handler, and what stands around it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt as _;
use axum::{Extension, Json, Router};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use http::StatusCode;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, SessionLayer};
use semel::Semel;
use semel_postgres::Postgres;
use semel_tower::{IdempotencyLayer, Policy, Principal, Tx};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_cookies::CookieManagerLayer;

use crate::case::Service;
use crate::charge::{Charge, Receipt, SESSION};

const LEDGER: &str = include_str!("../keys/sql/ledger.sql");
const BALANCE: &str = include_str!("../keys/sql/balance.sql");

/// A service that listens on a port of its own until it is dropped.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    serving: JoinHandle<std::io::Result<()>>,
}

impl App {
    pub(crate) async fn serve(service: Service, store: Postgres) -> Result<App> {
        let router = match service {
            Service::Bare => bare(store),
            Service::Layer { events } => layer(store, events)?,
            Service::AxumIdempotent => axum_idempotent(bare(store)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // An answer does not wait until the one before it is acknowledged.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        Ok(App { address, serving: tokio::spawn(axum::serve(listener, router).into_future()) })
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn bare(store: Postgres) -> Router {
    Router::new().route("/charges", post(charge)).with_state(store)
}

/// As the README sets it up: the authentication says whose key it is, and here it is always the same one's.
fn layer(store: Postgres, events: u32) -> Result<Router> {
    let keyed = Router::new().route("/charges", post(charge_once)).with_state(events);
    let layer = IdempotencyLayer::new(Semel::new(store), Policy::new())?;
    Ok(keyed.layer(layer).layer(Extension(Principal::new("bench"))))
}

/// As its own README sets it up: answers stay in memory for five minutes.
fn axum_idempotent(router: Router) -> Router {
    let options = IdempotentOptions::default().use_idempotency_key_header(Some("idempotency-key"), true);
    let sessions = SessionLayer::new(Arc::new(MokaStore::builder().build()));
    router
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .layer(sessions.with_cookie_options(CookieOptions::build().name(SESSION)))
        .layer(CookieManagerLayer::new())
}

type Answer = (StatusCode, Json<Receipt>);

/// BEGIN, two statements, COMMIT, each awaited, as people write it.
async fn charge(State(store): State<Postgres>, Json(charge): Json<Charge>) -> Result<Answer, Failed> {
    let client = store.client().await?;
    let (ledger, balance) = (client.prepare_cached(LEDGER).await?, client.prepare_cached(BALANCE).await?);
    client.batch_execute("BEGIN").await?;
    client.execute(&ledger, &[&charge.account, &charge.amount]).await?;
    client.execute(&balance, &[&charge.account, &charge.amount]).await?;
    client.batch_execute("COMMIT").await?;
    Ok((StatusCode::CREATED, Json(charge.receipt())))
}

/// The same in the layer's transaction.
async fn charge_once(
    State(events): State<u32>,
    mut tx: Tx<Postgres>,
    Json(charge): Json<Charge>,
) -> Result<Answer, Failed> {
    tx.execute(LEDGER, &[&charge.account, &charge.amount]).await?;
    tx.execute(BALANCE, &[&charge.account, &charge.amount]).await?;
    let receipt = charge.receipt();
    for _ in 0..events {
        tx.emit(receipt.event()?);
    }
    Ok((StatusCode::CREATED, Json(receipt)))
}

/// Something failed, which ends the benchmark.
struct Failed(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{:#}", self.0)).into_response()
    }
}

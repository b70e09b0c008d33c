//! The routes that the contract is tried on.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use axum::{Json, Router};
use http::StatusCode;
use semel::{RecoveryPoint, Semel, Store};
use semel_tower::{IdempotencyLayer, Keyed, LeaseHandle, Policy, Problem, Tx, policy_document, policy_route};
use serde_json::Value;

use super::backend::Backend;
use super::script::World;

pub fn router<B: Backend>(semel: Semel<B::Store>, policy: Policy, world: Arc<World>) -> Router {
    let document = policy_document(&[("any", &policy)], semel.settings());
    let layer = IdempotencyLayer::new(semel, policy).unwrap();
    Router::new()
        .route("/act", any(act::<B>))
        .route("/act/{id}", any(act::<B>))
        .route("/json", post(json::<B>))
        .route("/outside", post(outside))
        .route("/away", post(away::<B>))
        .route("/panic", post(panics::<B>))
        .route("/twice", post(twice::<B>))
        .route("/counted", post(counted::<B>))
        .route("/leased", post(leased::<B>))
        .route("/leased-json", post(leased_json::<B>))
        .route("/leased-outside", post(leased_outside::<B>))
        .route("/leased-twice", post(leased_twice::<B>))
        .route("/two-stores", post(other_store))
        .route_layer(layer)
        .route("/bare", post(needs_tx::<B>))
        .route(semel_tower::problem::POLICY_PATH, policy_route(document))
        .with_state(world)
}

/// Does what the script says, in the transaction if there is one.
async fn act<B: Backend>(
    State(world): State<Arc<World>>,
    keyed: Option<Keyed>,
    tx: Option<Tx<B::Store>>,
    body: Bytes,
) -> Result<Response, Problem> {
    let (script, run) = world.begin();
    world.note_seen(String::from_utf8_lossy(&body).into_owned());
    match tx {
        Some(mut tx) => {
            let keyed = keyed.expect("a request with a transaction is keyed");
            assert_eq!(keyed.execution, semel::Tx::execution(&*tx));
            if let Some(hold) = script.before {
                hold.stop().await;
            }
            if script.acts {
                B::act(&mut tx, keyed.key.as_str()).await?;
            }
            if let Some(hold) = script.hold {
                hold.stop().await;
            }
        }
        None => world.note_unprotected(),
    }
    Ok((script.answer)(run))
}

/// Takes the transaction before the body is looked at.
async fn json<B: Backend>(
    State(world): State<Arc<World>>,
    mut tx: Tx<B::Store>,
    Json(_): Json<Value>,
) -> Result<StatusCode, Problem> {
    world.begin();
    B::act(&mut tx, "json").await?;
    Ok(StatusCode::CREATED)
}

async fn outside(State(world): State<Arc<World>>) -> Response {
    let (script, run) = world.begin();
    (script.answer)(run)
}

/// Moves the transaction into a task that outlives the answer.
async fn away<B: Backend>(State(world): State<Arc<World>>, mut tx: Tx<B::Store>) -> Result<Response, Problem> {
    let (script, run) = world.begin();
    B::act(&mut tx, "away").await?;
    tokio::spawn(async move {
        if let Some(hold) = script.hold {
            hold.stop().await;
        }
        drop(tx);
    });
    Ok((script.answer)(run))
}

async fn panics<B: Backend>(State(world): State<Arc<World>>, mut tx: Tx<B::Store>) -> Result<StatusCode, Problem> {
    let (_, run) = world.begin();
    B::act(&mut tx, "panics").await?;
    assert!(run > 1, "the first run panics");
    Ok(StatusCode::CREATED)
}

async fn twice<B: Backend>(_first: Tx<B::Store>, _second: Tx<B::Store>) -> StatusCode {
    StatusCode::CREATED
}

async fn needs_tx<B: Backend>(_tx: Tx<B::Store>) -> StatusCode {
    StatusCode::CREATED
}

/// Takes the transaction of a store that no layer here stands on.
async fn other_store(_tx: Tx<super::faulty::Faulty<super::faulty::Faulty<semel_sqlite::Sqlite>>>) -> StatusCode {
    StatusCode::CREATED
}

/// Counts the effects, stops, and adds one: two of these at a time cannot both be serialized. The error is swallowed,
/// so that the layer alone can tell.
async fn counted<B: Backend>(State(world): State<Arc<World>>, mut tx: Tx<B::Store>) -> Result<Response, Problem> {
    let (script, run) = world.begin();
    B::count(&mut tx).await?;
    if let Some(hold) = script.before {
        hold.stop().await;
    }
    let _ = B::act(&mut tx, "counted").await;
    Ok((script.answer)(run))
}

/// Two steps: the first is committed with a recovery point, the answer completes the key.
async fn leased<B: Backend>(
    State(world): State<Arc<World>>,
    lease: LeaseHandle<B::Store>,
) -> Result<Response, Problem> {
    let (script, run) = world.begin();
    world.note_point(lease.recovery_point().map(|point| point.to_string()));
    if lease.recovery_point().is_none() && script.acts {
        lease.advance(&point("reserved"), async |tx| B::act(tx, "reserve").await).await?;
    }
    if let Some(hold) = script.hold {
        hold.stop().await;
    }
    Ok((script.answer)(run).into_response())
}

/// Takes the lease before the body is looked at.
async fn leased_json<B: Backend>(
    State(world): State<Arc<World>>,
    lease: LeaseHandle<B::Store>,
    Json(_): Json<Value>,
) -> Result<StatusCode, Problem> {
    world.begin();
    lease.advance(&point("reserved"), async |tx| B::act(tx, "json").await).await?;
    Ok(StatusCode::CREATED)
}

/// Commits no step, as a handler does that calls somebody else, and says when it begins.
async fn leased_outside<B: Backend>(State(world): State<Arc<World>>, lease: LeaseHandle<B::Store>) -> Response {
    let (script, run) = world.begin();
    if script.acts {
        lease.begin();
    }
    (script.answer)(run)
}

/// Takes two steps that are asked for at once, and then repeats one of them as if it stood at the start.
async fn leased_twice<B: Backend>(
    State(world): State<Arc<World>>,
    lease: LeaseHandle<B::Store>,
) -> Result<StatusCode, Problem> {
    world.begin();
    let (first, second) = (point("first"), point("second"));
    let first = lease.advance(&first, async |tx| B::act(tx, "first").await);
    let second = lease.advance(&second, async |tx| B::act(tx, "second").await);
    let (first, second) = tokio::join!(first, second);
    first.and(second)?;
    world.note_point(lease.recovery_point().map(|point| point.to_string()));
    let at_start = semel::Lease { recovery_point: None, ..lease.lease() };
    let mut tx = lease.semel().store().begin_fenced(&at_start).await?;
    B::act(&mut tx, "first").await?;
    semel::Tx::advance(tx, &point("first")).await?;
    Ok(StatusCode::CREATED)
}

fn point(name: &str) -> RecoveryPoint {
    RecoveryPoint::new(name).expect("a valid point")
}

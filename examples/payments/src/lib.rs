//! The reference service: accounts, charges, transfers and bank webhooks, on either store.
//!
//! It shows the two ways to make a write count once. `POST /charges` and `POST /transfers` carry an Idempotency-Key:
//! the layer of `semel-tower` claims it, the handler works in the claim's transaction, and books and reply commit
//! together (I1, I2). `PUT /accounts/{id}`, `PUT /charges/{id}` and `POST /webhooks/bank` carry a natural key: a UNIQUE
//! constraint on it decides, and no other key is needed.
//!
//! [`consumers`] are the other end: they make receipts and balances of the events, each message once.
//!
//! The books are double entry, so whatever races, crashes or retries, the sum over all entries is zero. What moves
//! money also emits the events of [`event`], in the same transaction.

pub mod code;
pub mod consumers;
pub mod event;
pub mod ledger;
pub mod tokens;

mod account;
mod charge;
mod natural;
mod postgres;
mod problem;
mod request;
mod sqlite;
mod summary;
mod transfer;
mod webhook;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};
use semel::Semel;
use semel_tower::problem::POLICY_PATH;
use semel_tower::{IdempotencyLayer, Policy, Problem, policy, policy_document, policy_route};

pub use consumers::PaymentsConsumer;
pub use ledger::Ledger;
pub use tokens::Tokens;

use crate::problem::problem;

/// The routes that need an Idempotency-Key, as the published policy names them.
const KEYED: [&str; 2] = ["POST /charges", "POST /transfers"];

/// What a host decides about the service.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Who may use it.
    pub tokens: Tokens,
    /// How idempotency keys are treated on `POST /charges` and `POST /transfers`.
    pub policy: Policy,
}

/// Creates the service's own tables where they are missing. Semel's tables are another matter: migrate the store first.
pub async fn install<S: Ledger>(store: &S) -> Result<(), semel::Error> {
    store.install().await
}

/// All routes of the service. `/idempotency-policy` and `/healthz` need no token, all others do. Fails if the policy
/// cannot work.
pub fn router<S: Ledger>(semel: Semel<S>, options: Options) -> Result<Router, policy::Invalid> {
    let Options { tokens, policy } = options;
    let document = policy_document(&KEYED.map(|route| (route, &policy)), semel.settings());
    let ledger = semel.store().clone();

    let keyed = Router::new()
        .route("/charges", post(charge::create::<S>))
        .route("/transfers", post(transfer::create::<S>))
        .route_layer(IdempotencyLayer::new(semel, policy)?);
    let natural = Router::new()
        .route("/accounts/{id}", put(account::open::<S>).get(account::show::<S>))
        .route("/charges/{id}", put(charge::put::<S>))
        .route("/webhooks/bank", post(webhook::bank::<S>))
        .route("/ledger/summary", get(summary::show::<S>))
        .route("/ledger/consumed", get(summary::consumed::<S>));
    let open = Router::new().route(POLICY_PATH, policy_route(document)).route("/healthz", get(summary::health::<S>));

    let router = keyed
        .merge(natural)
        .route_layer(from_fn_with_state(tokens, tokens::authenticate))
        .merge(open)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .with_state(ledger);
    Ok(router)
}

async fn unknown_route() -> Problem {
    problem(&code::NOT_FOUND, "There is nothing at this path.")
}

async fn wrong_method() -> Problem {
    let detail = "This path does not take this method; see the Allow header.";
    problem(&code::METHOD_NOT_ALLOWED, detail)
}

/// The Rust in the documentation, compiled.
#[cfg(doctest)]
mod documentation {
    #[doc = include_str!("../../../docs/guides/axum-and-sqlx.md")]
    struct Guide;

    #[doc = include_str!("../../../docs/operating/encryption.md")]
    struct Encryption;

    #[doc = include_str!("../../../docs/guides/events.md")]
    struct Events;

    #[doc = include_str!("../../../docs/guides/consuming.md")]
    struct Consuming;
}

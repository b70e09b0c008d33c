//! The reference service: accounts, charges, transfers, orders and bank webhooks, on either store.
//!
//! It shows the three ways to make a write count once. `POST /charges` and `POST /transfers` carry an Idempotency-Key:
//! the layer of `semel-tower` claims it, the handler works in the claim's transaction, and books and reply commit
//! together (I1, I2). `POST /orders` carries one as well, and calls a card processor, which no transaction can hold: it
//! is a flow, whose steps are recorded and whose calls carry derived keys (I8). `PUT /accounts/{id}`,
//! `PUT /charges/{id}`, `PUT /stock/{sku}` and `POST /webhooks/bank` carry a natural key: a UNIQUE constraint on it
//! decides, and no other key is needed.
//!
//! [`completer`] goes on with orders that a crash interrupted, and sends their mails. [`consumers`] are the other end:
//! they make receipts, balances and referrals of the events, each message once.
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
mod flows;
mod natural;
mod order;
mod outside;
mod postgres;
mod problem;
mod request;
mod sqlite;
mod stock;
mod summary;
mod transfer;
mod webhook;

use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};
use semel::{Semel, flow};
use semel_tower::problem::POLICY_PATH;
use semel_tower::{IdempotencyLayer, Policy, Problem, policy, policy_document, policy_route};

pub use consumers::PaymentsConsumer;
pub use flows::{FLOWS, completer};
pub use ledger::Ledger;
pub use outside::Outside;
pub use tokens::Tokens;

use crate::problem::problem;

/// The routes that need an Idempotency-Key, as the published policy and the metrics name them.
pub const KEYED: [&str; 3] = ["POST /charges", "POST /transfers", "POST /orders"];

/// How long `POST /orders` waits for its flow before the client is told to come back.
const ORDERED_WITHIN: Duration = Duration::from_secs(30);

/// What a host decides about the service.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Who may use it.
    pub tokens: Tokens,
    /// How idempotency keys are treated on `POST /charges`, `POST /transfers` and `POST /orders`; a bounded wait is
    /// only for the first two.
    pub policy: Policy,
    /// The card processor and mailer that orders call. Without one `POST /orders` is answered 503.
    pub outside: Option<Outside>,
    /// How flows are worked on.
    pub flows: flow::Settings,
}

/// Why the service cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The policy cannot work.
    #[error(transparent)]
    Policy(#[from] policy::Invalid),
    /// The card processor cannot be called.
    #[error("the provider's URL cannot be used: {0}")]
    Outside(String),
    /// The flows cannot work.
    #[error(transparent)]
    Flows(#[from] flow::Invalid),
}

/// Creates the service's own tables where they are missing. Semel's tables are another matter: migrate the store first.
pub async fn install<S: Ledger>(store: &S) -> Result<(), semel::Error> {
    store.install().await
}

/// All routes of the service. `/idempotency-policy` and `/healthz` need no token, all others do. Fails if the policy or
/// the flows cannot work.
///
/// Run the [`completer`] beside it: orders that are interrupted, and the mails of all others, wait for it.
pub fn router<S: Ledger>(semel: Semel<S>, options: Options) -> Result<Router, Invalid> {
    let flows = flows::flows(&semel, &options)?;
    let Options { tokens, policy, .. } = options;
    let ordering = policy.clone().wait(Duration::ZERO).flow(ORDERED_WITHIN);
    let [charges, transfers, orders] = KEYED;
    let routes = [(charges, &policy), (transfers, &policy), (orders, &ordering)];
    let document = policy_document(&routes, semel.settings());
    let ledger = semel.store().clone();

    let keyed = Router::new()
        .route("/charges", post(charge::create::<S>))
        .route("/transfers", post(transfer::create::<S>))
        .route_layer(IdempotencyLayer::new(semel.clone(), policy)?);
    let ordered: Router<S> = Router::new()
        .route("/orders", post(order::create::<S>))
        .route_layer(IdempotencyLayer::new(semel, ordering)?)
        .with_state(flows);
    let natural = Router::new()
        .route("/accounts/{id}", put(account::open::<S>).get(account::show::<S>))
        .route("/charges/{id}", put(charge::put::<S>))
        .route("/stock/{sku}", put(stock::put::<S>).get(stock::show::<S>))
        .route("/orders/{id}", get(order::show::<S>))
        .route("/webhooks/bank", post(webhook::bank::<S>))
        .route("/ledger/summary", get(summary::show::<S>))
        .route("/ledger/consumed", get(summary::consumed::<S>));
    let open = Router::new().route(POLICY_PATH, policy_route(document)).route("/healthz", get(summary::health::<S>));

    let router = keyed
        .merge(ordered)
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

    #[doc = include_str!("../../../docs/guides/external-calls.md")]
    struct ExternalCalls;
}

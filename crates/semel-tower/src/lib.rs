//! Semel over HTTP: a tower layer that claims an `Idempotency-Key` and stores the reply, and axum extractors that hand
//! the claim's transaction to the handler.
//!
//! A protected request runs in one database transaction. The layer claims the key, the handler does its work in the
//! transaction that [`Tx`] gives it, and the layer commits effect and reply together (I1). A retry with the same key
//! gets the stored reply byte for byte, with `Idempotent-Replayed: true` (I2, I3). If the store cannot be asked, the
//! handler does not run (I10).
//!
//! ```
//! use axum::{Router, http::StatusCode, routing::post};
//! use semel::{Semel, Store};
//! use semel_tower::{IdempotencyLayer, Policy, Problem, Tx, policy};
//!
//! async fn charge<S: Store>(_tx: Tx<S>) -> Result<StatusCode, Problem> {
//!     // Statements run through the transaction that `_tx` derefs to.
//!     Ok(StatusCode::CREATED)
//! }
//!
//! fn router<S: Store>(semel: Semel<S>) -> Result<Router, policy::Invalid> {
//!     let layer = IdempotencyLayer::new(semel, Policy::new().operation("charges.create"))?;
//!     Ok(Router::new().route("/charges", post(charge::<S>)).route_layer(layer))
//! }
//! ```
//!
//! Work that outlives one transaction leases its key ([`Policy::leased`], [`LeaseHandle`]) or is a flow: with
//! [`Policy::flow`] the layer claims nothing, and the handler runs a registered flow with the [`FlowAsk`] it is given.
//!
//! The application's authentication stands outside the layer and puts a [`Principal`] into the request's extensions:
//! a key always belongs to somebody (I11).

pub mod code;
pub mod extract;
pub mod header;
pub mod policy;
pub mod problem;
pub mod replay;

mod answer;
mod body;
mod document;
mod flow;
mod handle;
mod layer;
mod leased;
mod principal;
mod run;
mod service;
mod slot;
mod tally;
mod transaction;

pub use body::read_body;
pub use document::{policy_document, policy_route};
pub use extract::{Keyed, Tx};
pub use flow::{FlowAnswer, FlowAsk};
pub use handle::LeaseHandle;
pub use header::Mode;
pub use layer::IdempotencyLayer;
pub use policy::{Leased, Policy, Requirement};
pub use principal::Principal;
pub use problem::Problem;
pub use replay::{keep, respond, terminal};
pub use service::IdempotencyService;

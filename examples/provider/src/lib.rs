//! Somebody else's API: a card processor and a mailer, in a process of their own, that fail as they are told.
//!
//! Tests let a flow call it over HTTP and kill both sides. It is their *witness*: whatever the caller believes, the
//! provider's own ledger says what was executed and how often. So the ledger is a SQLite file that is synced at every
//! commit, an execution and the answer under its key are one commit, and no answer leaves before that. It depends on no
//! crate of Semel.
//!
//! | request | answer |
//! |---|---|
//! | `POST /charges` `{"amount","currency","card","reference"?,"webhook"?}` | 201; the card `tok_declined`: 402 |
//! | `POST /refunds` `{"charge","reference"?}` | 201, each time it is executed; 404 for an unknown charge |
//! | `POST /mails` `{"to","subject","text","reference"?}` | 202 |
//! | `GET /operations?key=K[&kind=charge]` | what became of the request with this key; 404, or 501 if look-up is off |
//! | `GET /ledger`, `GET /ledger/summary` | every execution ever; how many, and how many keys more than once |
//! | `GET /requests` | how many requests arrived, executed or not, by path and by key |
//! | `GET /settings`, `PUT /settings` `{"keys"?,"look_up"?}` | how it treats keys, and whether it looks results up |
//! | `POST /faults`, `POST /faults/random`, `DELETE /faults` | what goes wrong next, or at random; nothing any more |
//!
//! **Keys.** `Idempotency-Key` is read bare or quoted. A repeat within the window gets the stored status and body and
//! `Idempotent-Replayed: true`; while the first is under way, 409 `key_in_use`; with another body, 422 `key_reused`.
//! Charges and refunds share one set of keys, mails have another. Keys may be `"on"`, `"off"` (every request executes),
//! or `{"window_ms":N}`, counted from when a key first arrived. A decline is kept like a success; what was refused
//! before anything was executed (400, 404, 409, 422, 429) is not kept.
//!
//! **Faults.** A well-formed request takes the next fault that is queued for its kind, a repeat included, and if none
//! strikes, throws the dice. *Before* means that nothing was executed, *after* that it was, or that it had been. A
//! cut closes the connection without one byte of an answer.
//!
//! | fault | what happens |
//! |---|---|
//! | `{"type":"slow","ms":N}` | it is under way for so long, then executed, also if the caller has hung up |
//! | `{"type":"error_before"}`, `{"type":"refuse"}` | 500, or 429; not executed |
//! | `{"type":"error_after"}` | executed, then 500; the key keeps the success, or, with `"sticky":true`, the 500 |
//! | `{"type":"cut_before"}`, `{"type":"cut_after"}` | the connection is cut; not executed, or executed |
//! | `{"type":"webhook_twice","url"?}` | the webhook of the charge, or one to `url`, is sent twice with the same id |
//!
//! **A crash.** Ledger, keys, settings, counted requests, queued faults, the dice's throws and webhooks that are still
//! to be sent survive a kill. What was under way and not committed never happened, and its key is new.

mod answer;
mod clock;
mod connection;
mod dice;
mod error;
mod execution;
mod fault;
mod key;
mod kind;
mod ledger;
mod look_up;
mod order;
mod provider;
mod receive;
mod report;
mod requests;
mod settings;
mod shared;
mod under_way;
mod webhook;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::{get, post};

pub use clock::{Clock, SystemClock};
pub use error::Error;
pub use provider::{Provider, serve};
pub use settings::{Keys, Settings};

use kind::Kind;
use shared::Shared;

/// What a host decides about the provider.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file of the ledger. It is made if it is not there.
    pub ledger: PathBuf,
    /// How a *new* ledger's provider behaves. One that is there keeps the settings that it has.
    pub settings: Settings,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// A provider with this ledger that keeps keys without end and looks results up.
    pub fn new(ledger: impl Into<PathBuf>) -> Options {
        Options { ledger: ledger.into(), settings: Settings::default(), clock: Arc::new(SystemClock) }
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new()
        .route("/operations", get(look_up::show))
        .route("/ledger", get(report::ledger))
        .route("/ledger/summary", get(report::summary))
        .route("/requests", get(requests::show))
        .route("/settings", get(settings::show).put(settings::change))
        .route("/faults", post(fault::queue).delete(fault::clear))
        .route("/faults/random", post(dice::choose));
    for kind in Kind::ALL {
        let handler =
            move |State(shared): State<Arc<Shared>>, request: Request| receive::receive(shared, kind, request);
        router = router.route(kind.path(), post(handler));
    }
    router.with_state(shared)
}

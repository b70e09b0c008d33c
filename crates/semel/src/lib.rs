//! Exactly-once *effect* for services.
//!
//! A client that gets no answer must retry, so every write arrives more than once. Semel makes it count once: the
//! claim on an idempotency key, the effect and the stored reply become visible in one commit of the service's own
//! database transaction, or none of them does (I1).
//!
//! This crate holds the nouns and the state machines. It opens no connection and knows no SQL, HTTP or broker:
//! `semel-postgres` and `semel-sqlite` are the stores, `semel-tower` is the HTTP layer.
//!
//! Start at [`Semel::once`]; [`Store`] and [`Tx`] are what a store implements. Work of several steps, with calls to
//! somebody else's API, is a [`flow`].

pub mod claim;
pub mod clock;
pub mod consume;
pub mod disposition;
pub mod error;
pub mod event;
pub mod execution;
pub mod failpoint;
pub mod fingerprint;
pub mod flow;
pub mod inbox;
pub mod intent;
pub mod key;
pub mod lease;
pub mod letter;
pub mod observe;
pub mod once;
pub mod operator;
pub mod outbox;
pub mod provider;
pub mod reaper;
pub mod relay;
pub mod reply;
pub mod retention;
pub mod runner;
pub mod scope;
pub mod seal;
pub mod sink;
pub mod source;
pub mod store;
pub mod tier;

mod backoff;
mod canonical;

pub use claim::{Ask, Claim, Recorded};
pub use clock::{Clock, SystemClock};
pub use consume::{Consumed, Fate};
pub use disposition::Disposition;
pub use error::{Error, Next};
pub use event::{Event, EventId};
pub use execution::Execution;
pub use fingerprint::Fingerprint;
pub use flow::{Flow, Flows};
pub use inbox::{Consumer, Delivery, Inbox};
pub use key::Key;
pub use lease::{Lease, LeaseTerms, OnExpiry, RecoveryPoint};
pub use once::{Finished, Outcome, Semel, Settings};
pub use outbox::Outbox;
pub use reply::Reply;
pub use retention::Retention;
pub use runner::{Handler, Runner};
pub use scope::Scope;
pub use seal::{Keyring, SealingKey};
pub use sink::Sink;
pub use source::{Message, Source};
pub use store::{Completion, Join, Store, Stored, Tx};

//! What handlers take from a protected request.

use std::fmt;
use std::ops::{Deref, DerefMut};

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::request::Parts;
use semel::{Event, Execution, Key, Scope, Store};

use crate::code;
use crate::flow::FlowAsk;
use crate::problem::Problem;
use crate::slot::Slot;

/// The transaction that holds the claim. Statements run through the store's own transaction type, which this derefs to.
///
/// Whatever runs in it commits together with the reply, or not at all (I1): the layer commits after the handler has
/// answered, by the answer's status. Dropping it gives it back to the layer. A handler that moves it elsewhere, such
/// as into a task that outlives the answer, commits nothing and is answered 500 `effect-outside`.
///
/// On a route where keys are optional, take `Option<Tx<S>>`: it is `None` where the request has no key.
pub struct Tx<S: Store> {
    tx: Option<S::Tx>,
    slot: Slot<S>,
}

impl<S: Store> Tx<S> {
    fn take(parts: &Parts) -> Result<Option<Tx<S>>, Problem> {
        let Some(slot) = parts.extensions.get::<Slot<S>>() else { return Ok(None) };
        match slot.take() {
            Some(tx) => Ok(Some(Tx { tx: Some(tx), slot: slot.clone() })),
            None => Err(misused("the transaction was taken twice; take Tx once per handler and pass it on")),
        }
    }

    /// Emits an event. It is published if and only if the answer commits the effect (I4): not after a 4xx or 5xx that
    /// rolls it back, and not again for a replay.
    pub fn emit(&mut self, event: Event) {
        semel::Tx::emit(&mut **self, event);
    }
}

impl<S: Store, T: Sync> FromRequestParts<T> for Tx<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<Tx<S>, Problem> {
        Tx::take(parts)?.ok_or_else(|| {
            misused(match parts.extensions.get::<Keyed>() {
                None if parts.extensions.get::<FlowAsk>().is_some() => {
                    "the route hands its keys to flows; take FlowAsk instead of Tx"
                }
                None => {
                    "Tx was taken outside a protected request; put IdempotencyLayer on the route, and take \
                         Option<Tx> where keys are optional"
                }
                Some(keyed) if keyed.leased => "the route leases its keys; take LeaseHandle instead of Tx",
                Some(_) => "Tx was taken for another store than the layer's; name the layer's store in Tx<_>",
            })
        })
    }
}

impl<S: Store, T: Sync> OptionalFromRequestParts<T> for Tx<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<Option<Tx<S>>, Problem> {
        Tx::take(parts)
    }
}

impl<S: Store> Deref for Tx<S> {
    type Target = S::Tx;

    fn deref(&self) -> &S::Tx {
        match &self.tx {
            Some(tx) => tx,
            None => unreachable!("the transaction is only taken out when this is dropped"),
        }
    }
}

impl<S: Store> DerefMut for Tx<S> {
    fn deref_mut(&mut self) -> &mut S::Tx {
        match &mut self.tx {
            Some(tx) => tx,
            None => unreachable!("the transaction is only taken out when this is dropped"),
        }
    }
}

impl<S: Store> Drop for Tx<S> {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take() {
            self.slot.give_back(tx);
        }
    }
}

impl<S: Store> fmt::Debug for Tx<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tx")
    }
}

/// The key a request carries, and the run it belongs to. `Option<Keyed>` is `None` for a request without protection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyed {
    /// Whose key it is.
    pub scope: Scope,
    /// The key.
    pub key: Key,
    /// The run. It stays the same when leased work is resumed; a key that runs again after it expired has a new one.
    pub execution: Execution,
    pub(crate) leased: bool,
}

impl<T: Sync> FromRequestParts<T> for Keyed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<Keyed, Problem> {
        let keyed = parts.extensions.get::<Keyed>().cloned();
        keyed.ok_or_else(|| misused("Keyed was taken outside a protected request; take Option<Keyed> there"))
    }
}

impl<T: Sync> OptionalFromRequestParts<T> for Keyed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<Option<Keyed>, Problem> {
        Ok(parts.extensions.get::<Keyed>().cloned())
    }
}

/// A mistake in the service, told at once: to the log with what to change, to the client without.
pub(crate) fn misused(what: &str) -> Problem {
    tracing::error!("{what}");
    Problem::of(&code::INTERNAL_ERROR, format!("the service is set up wrongly: {what}"))
}

//! What handlers take from a protected request.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::request::Parts;
use semel::{Execution, Key, Lease, RecoveryPoint, Scope, Semel, Store, once};

use crate::code;
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
}

impl<S: Store, T: Sync> FromRequestParts<T> for Tx<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<Tx<S>, Problem> {
        Tx::take(parts)?.ok_or_else(|| {
            misused(match parts.extensions.get::<Keyed>() {
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

/// The lease that holds the key of a leased route, renewed while the handler runs.
///
/// Work is done in steps, each committed with its recovery point by [`LeaseHandle::advance`]. A handler that lost its
/// lease is stopped, and a step it still tries is refused inside its transaction (I7). The handler's answer completes
/// the key: 2xx, 3xx and 4xx are stored; after any other answer the lease is given up, and by the route's policy a
/// retry goes on at the recovery point, or is told that the outcome is unknown. A client that disconnects does not
/// stop leased work.
pub struct LeaseHandle<S> {
    held: Arc<(Semel<S>, Lease)>,
}

impl<S: Store> LeaseHandle<S> {
    pub(crate) fn new(semel: Semel<S>, lease: Lease) -> LeaseHandle<S> {
        LeaseHandle { held: Arc::new((semel, lease)) }
    }

    /// The lease.
    pub fn lease(&self) -> &Lease {
        &self.held.1
    }

    /// Where an earlier worker got to, if this run goes on with its work.
    pub fn recovery_point(&self) -> Option<&RecoveryPoint> {
        self.held.1.recovery_point.as_ref()
    }

    /// Semel on the layer's store.
    pub fn semel(&self) -> &Semel<S> {
        &self.held.0
    }

    /// Runs `step` in a fenced transaction and moves the recovery point with it, in one commit. See
    /// [`Semel::advance`].
    pub async fn advance<T, E, F>(&self, point: &RecoveryPoint, step: F) -> Result<T, once::Error<E>>
    where
        F: AsyncFn(&mut S::Tx) -> Result<T, E>,
    {
        self.semel().advance(self.lease(), point, step).await
    }
}

impl<S: Store, T: Sync> FromRequestParts<T> for LeaseHandle<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<LeaseHandle<S>, Problem> {
        let handle = parts.extensions.get::<LeaseHandle<S>>().cloned();
        handle.ok_or_else(|| misused("LeaseHandle was taken on a route that does not lease; set Policy::leased"))
    }
}

impl<S> Clone for LeaseHandle<S> {
    fn clone(&self) -> LeaseHandle<S> {
        LeaseHandle { held: Arc::clone(&self.held) }
    }
}

impl<S> fmt::Debug for LeaseHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseHandle({})", self.held.1.execution)
    }
}

/// A mistake in the service, told at once: to the log with what to change, to the client without.
fn misused(what: &str) -> Problem {
    tracing::error!("{what}");
    Problem::of(&code::INTERNAL_ERROR, format!("the service is set up wrongly: {what}"))
}

//! What a handler holds while its key is leased.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::FromRequestParts;
use http::request::Parts;
use semel::{Lease, RecoveryPoint, Semel, Store, once};

use crate::extract::misused;
use crate::problem::Problem;

/// The lease that holds the key of a leased route, renewed while the handler runs.
///
/// Work is done in steps, each committed with its recovery point by [`LeaseHandle::advance`]. A handler that lost its
/// lease is stopped, and a step it still tries is refused inside its transaction (I7). A client that disconnects does
/// not stop leased work.
///
/// Execution begins when the handler first calls [`LeaseHandle::advance`], [`LeaseHandle::lease`],
/// [`LeaseHandle::semel`] or [`LeaseHandle::begin`], or is told a recovery point to go on from: from then on something
/// may have been done. That the handle was extracted begins nothing, because another extractor may still refuse the
/// request. A handler that acts outside the database without any of these calls [`LeaseHandle::begin`] first.
///
/// | answer | before execution began | after |
/// |---|---|---|
/// | 2xx, 3xx, a terminal 5xx, a 4xx marked *keep* | stored | stored |
/// | another 4xx | not stored, the key stays new | stored beside the steps |
/// | 408, 409, 425, 429, another 5xx, a panic, the limit | not stored, the key stays new | not stored, lease given up |
///
/// When the lease is given up, by the route's policy a retry goes on at the recovery point, or is told that the outcome
/// is unknown. A run that goes on with another's work leaves that work as it was instead of a new key.
pub struct LeaseHandle<S> {
    held: Arc<Held<S>>,
}

struct Held<S> {
    semel: Semel<S>,
    /// Never locked while something is awaited, so that a step may look at the lease it runs under.
    lease: Mutex<Lease>,
    /// Held by the step that runs, or by the completion.
    turn: tokio::sync::Mutex<()>,
    begun: AtomicBool,
}

impl<S: Store> LeaseHandle<S> {
    pub(crate) fn new(semel: Semel<S>, lease: Lease) -> LeaseHandle<S> {
        let (lease, turn) = (Mutex::new(lease), tokio::sync::Mutex::new(()));
        LeaseHandle { held: Arc::new(Held { semel, lease, turn, begun: AtomicBool::new(false) }) }
    }

    /// The lease as it stands now.
    pub fn lease(&self) -> Lease {
        self.begin();
        self.current()
    }

    /// Where the work stands: the last step that was committed, by this run or by the one it goes on with.
    pub fn recovery_point(&self) -> Option<RecoveryPoint> {
        let point = self.held.lock().recovery_point.clone();
        if point.is_some() {
            self.begin();
        }
        point
    }

    /// Semel on the layer's store.
    pub fn semel(&self) -> &Semel<S> {
        self.begin();
        &self.held.semel
    }

    /// Says that execution begins: something outside the database is about to be done.
    pub fn begin(&self) {
        self.held.begun.store(true, Ordering::SeqCst);
    }

    /// Runs `step` in a fenced transaction and moves the recovery point with it, in one commit. See
    /// [`Semel::advance`].
    ///
    /// The steps of one handler run one after another, whichever task they are called from; a step must not call
    /// another. A step that was committed before is refused with [`semel::Error::Advanced`].
    pub async fn advance<T, E, F>(&self, point: &RecoveryPoint, step: F) -> Result<T, once::Error<E>>
    where
        F: AsyncFn(&mut S::Tx) -> Result<T, E>,
    {
        self.begin();
        let _turn = self.held.turn.lock().await;
        let mut lease = self.current();
        let advanced = self.held.semel.advance(&mut lease, point, step).await;
        *self.held.lock() = lease;
        advanced
    }

    /// Waits for the step that runs, if any, and keeps others from running: what the lease then says is final.
    pub(crate) async fn last_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.held.turn.lock().await
    }

    /// The lease, looked at by the layer: this begins nothing.
    pub(crate) fn current(&self) -> Lease {
        self.held.lock().clone()
    }

    /// Whether something may have been done.
    pub(crate) fn begun(&self) -> bool {
        self.held.begun.load(Ordering::SeqCst)
    }
}

impl<S> Held<S> {
    /// No foreign code runs under the lock, so a poisoned one still guards a sound lease.
    fn lock(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
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
        write!(f, "LeaseHandle({})", self.held.lock().execution)
    }
}

//! Where the transaction waits between the layer and the handler.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel::{Store, Tx as _};

/// Where the transaction waits: the layer puts it in, the extractor takes it out and gives it back, and the layer
/// closes the slot when the handler has answered. A transaction given back after that is dropped, which rolls it back.
#[derive(Debug)]
pub(crate) struct Slot<S: Store>(Arc<Mutex<State<S::Tx>>>);

#[derive(Debug)]
enum State<T> {
    /// Here. `taken` tells whether a handler ever had it.
    Home { tx: T, taken: bool },
    /// With the handler.
    Away,
    /// The layer has closed the slot.
    Closed,
}

/// What the layer finds when it closes the slot.
#[derive(Debug)]
pub(crate) enum Closed<T> {
    /// The transaction is back, or never left.
    Home { tx: T, taken: bool },
    /// The handler answered without giving it back.
    Away,
}

impl<S: Store> Slot<S> {
    pub(crate) fn holding(tx: S::Tx) -> Slot<S> {
        Slot(Arc::new(Mutex::new(State::Home { tx, taken: false })))
    }

    /// Takes the transaction; `None` if it is away or the slot is closed.
    pub(crate) fn take(&self) -> Option<S::Tx> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Away) {
            State::Home { tx, .. } => Some(tx),
            State::Away => None,
            State::Closed => {
                *state = State::Closed;
                None
            }
        }
    }

    /// Gives the transaction back. After [`Slot::close`] it is rolled back by being dropped, outside the lock.
    pub(crate) fn give_back(&self, tx: S::Tx) {
        let mut state = self.lock();
        if matches!(*state, State::Away) {
            *state = State::Home { tx, taken: true };
        } else {
            drop(state);
            drop(tx);
        }
    }

    /// Whether execution has begun, as far as can be told: a transaction that is away may have begun.
    pub(crate) fn may_have_begun(&self) -> bool {
        match &*self.lock() {
            State::Home { tx, .. } => tx.begun(),
            State::Away => true,
            State::Closed => false,
        }
    }

    /// Takes the transaction for good.
    pub(crate) fn close(&self) -> Closed<S::Tx> {
        match std::mem::replace(&mut *self.lock(), State::Closed) {
            State::Home { tx, taken } => Closed::Home { tx, taken },
            State::Away | State::Closed => Closed::Away,
        }
    }

    /// The lock is never held while foreign code runs, so a poisoned one still guards a sound state.
    fn lock(&self) -> MutexGuard<'_, State<S::Tx>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> Clone for Slot<S> {
    fn clone(&self) -> Slot<S> {
        Slot(Arc::clone(&self.0))
    }
}

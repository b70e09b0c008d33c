//! One run of one keyed operation.

use std::fmt;

use uuid::Uuid;

use crate::event::derive_uuid;
use crate::lease::RecoveryPoint;

/// The identity of one run of a keyed operation, minted when its claim is fresh and stored with the key.
///
/// A key that runs again after it expired gets a new execution. Everything that follows from a run (its events, and
/// the entries that consumers make of them) derives its identity from this.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Execution(Uuid);

impl Execution {
    /// A new identity. Stores call this, or their database's equivalent, when a claim is fresh.
    pub fn mint() -> Execution {
        Execution(Uuid::new_v4())
    }

    /// The identity that events of one step of leased work derive theirs from. A step is committed once per recovery
    /// point it starts at, so its events can count from zero.
    #[must_use]
    pub fn step(&self, starts_at: Option<&RecoveryPoint>) -> Execution {
        let starts_at = starts_at.map_or("", RecoveryPoint::as_str);
        Execution(derive_uuid("semel step 1", self.0, starts_at.as_bytes()))
    }

    /// The identity that events and jobs of a named step of a flow derive theirs from.
    #[must_use]
    pub fn named_step(&self, step: &str) -> Execution {
        Execution(derive_uuid("semel flow step 1", self.0, step.as_bytes()))
    }

    /// The identity as a UUID.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for Execution {
    fn from(id: Uuid) -> Execution {
        Execution(id)
    }
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Execution({})", self.0)
    }
}

impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

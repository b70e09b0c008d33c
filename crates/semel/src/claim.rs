//! What asking for a key returns.

use std::time::Duration;

use crate::{Execution, Fingerprint, Key, Reply, Scope};

/// The longest wait for a run in flight (I12).
pub const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// The question a request asks before it may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Whose key it is.
    pub scope: Scope,
    /// The client's key.
    pub key: Key,
    /// What the client asked for, to tell a retry from a reused key.
    pub fingerprint: Fingerprint,
    /// How long to wait for a run in flight to end before answering [`Claim::InFlight`]. Zero answers at once.
    pub wait: Duration,
}

impl Ask {
    /// Asks without waiting.
    pub fn new(scope: &Scope, key: &Key, fingerprint: &Fingerprint) -> Ask {
        Ask { scope: scope.clone(), key: key.clone(), fingerprint: *fingerprint, wait: Duration::ZERO }
    }

    /// Asks, and waits up to `wait`, at most [`MAX_WAIT`], for a run in flight to end.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Ask {
        self.wait = wait.min(MAX_WAIT);
        self
    }
}

/// What asking for a key returns. `T` is what a fresh claim hands over, `R` what a replay holds.
#[derive(Debug)]
pub enum Claim<T, R = Recorded> {
    /// The key is new or expired, and this caller alone may run it.
    Fresh(T),
    /// Leased work whose worker is gone: this caller took it over and goes on at the recovery point in `T`.
    Resume(T),
    /// The key has run; this is what it answered.
    Replay(R),
    /// Another caller is running it now.
    InFlight {
        /// When asking again makes sense.
        retry_after: Duration,
    },
    /// The key has been used for another request. The record is untouched.
    Mismatch,
    /// Leased work whose worker is gone and that must not be resumed: somebody has to find out what happened.
    Unknown,
}

impl<T, R> Claim<T, R> {
    /// Changes what a replay holds; all else stays.
    pub fn try_map_replay<U, E>(self, change: impl FnOnce(R) -> Result<U, E>) -> Result<Claim<T, U>, E> {
        Ok(match self {
            Claim::Fresh(held) => Claim::Fresh(held),
            Claim::Resume(held) => Claim::Resume(held),
            Claim::Replay(recorded) => Claim::Replay(change(recorded)?),
            Claim::InFlight { retry_after } => Claim::InFlight { retry_after },
            Claim::Mismatch => Claim::Mismatch,
            Claim::Unknown => Claim::Unknown,
        })
    }
}

/// A stored reply and the run that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The run that made the reply.
    pub execution: Execution,
    /// What it answered, byte for byte (I3).
    pub reply: Reply,
}

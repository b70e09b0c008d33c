//! What operators see of keys, and what they may change.

use std::time::Duration;

use crate::{Execution, Key, Scope};

/// The state of a stored key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Leased work that has not finished.
    InProgress,
    /// Effect and reply are committed.
    Completed,
    /// A terminal failure is stored; the effect was rolled back.
    Failed,
    /// Leased work whose outcome somebody has to find out.
    Unknown,
}

impl KeyState {
    /// The name that databases and operators see.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyState::InProgress => "in_progress",
            KeyState::Completed => "completed",
            KeyState::Failed => "failed",
            KeyState::Unknown => "unknown",
        }
    }

    /// Reads the name back.
    pub fn parse(name: &str) -> Option<KeyState> {
        [KeyState::InProgress, KeyState::Completed, KeyState::Failed, KeyState::Unknown]
            .into_iter()
            .find(|state| state.as_str() == name)
    }
}

/// Which keys to list.
#[derive(Debug, Clone, Default)]
pub struct KeyFilter {
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only this operation's.
    pub operation: Option<String>,
    /// Only keys in this state.
    pub state: Option<KeyState>,
    /// At most this many; stores cap it at 10,000.
    pub limit: u32,
}

/// A key as an operator sees it. The reply's bytes are left out: they are the tenant's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Whose key it is.
    pub scope: Scope,
    /// The key.
    pub key: Key,
    /// The run that the row stands for.
    pub execution: Execution,
    /// Where it stands.
    pub state: KeyState,
    /// The stored status, once there is one.
    pub status: Option<u16>,
    /// How many bytes the stored reply takes.
    pub reply_bytes: u64,
    /// The sealing key of the reply, if it is sealed.
    pub sealed_by: Option<String>,
    /// The fingerprint's bytes, in hexadecimal.
    pub fingerprint: String,
    /// When the row was written, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// When the key expires, likewise.
    pub expires_at_ms: i64,
    /// Whether it has expired already and only awaits the reaper.
    pub expired: bool,
    /// The lease, for leased work.
    pub lease: Option<LeaseRecord>,
}

/// A lease as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it.
    pub holder: String,
    /// How often the work changed hands, counted from one.
    pub epoch: i64,
    /// Where the work would be resumed.
    pub recovery_point: Option<String>,
    /// When the lease ends, in milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
    /// How long it still runs; zero once it has expired.
    pub remaining: Duration,
}

/// Who changes something by hand, and why. Stored in the commit that makes the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// What became of an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eviction {
    /// The key was removed, or with `dry_run` would have been.
    Evicted(Box<KeyRecord>),
    /// There is no such key.
    NotFound,
    /// The key is in flight; nothing was changed.
    InFlight,
    /// The key has run again since the operator looked; nothing was changed.
    Changed,
}

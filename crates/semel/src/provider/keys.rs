//! How long a provider recognises what it has seen.

use std::time::Duration;

/// How long a provider recognises a key, counted from when it first received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Not at all: sending again may do it again.
    None,
    /// For at least this long.
    Kept(Duration),
    /// Without end.
    Forever,
}

/// What it allows if a look-up finds nothing, once that is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Absent {
    /// A person decides. A worker that was suspended between its last check and the socket may still send.
    #[default]
    Hold,
    /// Sending it again.
    Resend,
}

impl Keys {
    /// How long before the end of the window nothing is sent any more: five minutes, or a twentieth of the window if
    /// that is more. It covers clocks that were set and workers that were suspended on the way to the socket.
    pub fn margin(&self) -> Duration {
        match self {
            Keys::Kept(window) => (*window / 20).max(Duration::from_mins(5)),
            Keys::None | Keys::Forever => Duration::ZERO,
        }
    }

    /// Whether the provider recognises the key in a request that is sent when the first attempt is `age` ago and that
    /// arrives within `timeout`, with the [margin](Keys::margin) kept (I8). A window that is no longer than timeout and
    /// margin is as good as none.
    pub fn recognise(&self, age: Duration, timeout: Duration) -> bool {
        match self {
            Keys::None => false,
            Keys::Kept(window) => age.saturating_add(timeout).saturating_add(self.margin()) < *window,
            Keys::Forever => true,
        }
    }
}

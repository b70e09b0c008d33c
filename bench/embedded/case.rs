//! Who runs the operation, and how.

use std::fmt;

/// One who runs the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contestant {
    /// The business transaction alone, on a connection behind a lock.
    Bare,
    /// A table of keys and an outbox as articles write them, on a connection behind a lock.
    ByHand,
    /// The same on a thread that has the connection for itself, so that nobody waits to be woken between two commits.
    ByHandOnThread,
    /// `once` with one event, and no two operations in a commit.
    OnceAlone,
    /// `once` with one event, and two awaited statements.
    Once,
    /// The same, its statements deferred to the completion.
    OnceDeferred,
}

impl Contestant {
    /// Everybody.
    pub(crate) const ALL: [Contestant; 6] = [
        Contestant::Bare,
        Contestant::ByHand,
        Contestant::ByHandOnThread,
        Contestant::OnceAlone,
        Contestant::Once,
        Contestant::OnceDeferred,
    ];

    /// Whether each operation leaves a key and an event.
    pub(crate) fn is_protected(self) -> bool {
        self != Contestant::Bare
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Contestant::Bare => "bare, a commit each",
            Contestant::ByHand => "by hand, a commit each",
            Contestant::ByHandOnThread => "by hand, a commit each, own thread",
            Contestant::OnceAlone => "once, one event, a commit each",
            Contestant::Once => "once, one event",
            Contestant::OnceDeferred => "once, one event, deferred",
        })
    }
}

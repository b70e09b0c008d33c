//! Who runs the operation, and how.

use std::fmt;

/// One who runs the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contestant {
    /// The business transaction alone: BEGIN, two statements, COMMIT, each awaited.
    Bare,
    /// The same, all sent before the first answer is awaited.
    BarePipelined,
    /// A table of keys and an outbox as articles write them, a statement each.
    ByHand,
    /// `once` with so many events, and two awaited statements.
    Once { events: u32 },
    /// `once` with one event, its statements deferred to the completion.
    OnceDeferred,
    /// The SQL functions, one event, in one call.
    OneCall,
    /// The business transaction alone, by another way to the server.
    BareBy(Way),
    /// `once` with one event and two awaited statements, by another way to the server.
    OnceBy(Way),
}

/// A way to the server that is not a direct connection with statements prepared by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A direct connection, statements without names.
    Unnamed,
    /// pgbouncer in session mode, statements prepared by name.
    Session,
    /// pgbouncer in transaction mode, where statements must not have names.
    Transaction,
}

impl Contestant {
    /// Everybody.
    pub(crate) const ALL: [Contestant; 8] = [
        Contestant::Bare,
        Contestant::BarePipelined,
        Contestant::ByHand,
        Contestant::Once { events: 0 },
        Contestant::Once { events: 1 },
        Contestant::Once { events: 4 },
        Contestant::OnceDeferred,
        Contestant::OneCall,
    ];

    /// Those that take another way.
    pub(crate) const BY_OTHER_WAYS: [Contestant; 5] = [
        Contestant::OnceBy(Way::Unnamed),
        Contestant::BareBy(Way::Session),
        Contestant::OnceBy(Way::Session),
        Contestant::BareBy(Way::Transaction),
        Contestant::OnceBy(Way::Transaction),
    ];

    /// How it gets to the server, if not directly and with names.
    pub(crate) fn way(self) -> Option<Way> {
        match self {
            Contestant::BareBy(way) | Contestant::OnceBy(way) => Some(way),
            _ => None,
        }
    }

    /// How many keys and events one operation leaves.
    pub(crate) fn leaves(self) -> (u64, u64) {
        match self {
            Contestant::Bare | Contestant::BarePipelined | Contestant::BareBy(_) => (0, 0),
            Contestant::Once { events } => (1, events.into()),
            Contestant::ByHand | Contestant::OnceDeferred | Contestant::OneCall | Contestant::OnceBy(_) => (1, 1),
        }
    }

    /// How often its client waits for an answer.
    pub(crate) fn round_trips(self) -> u32 {
        match self {
            Contestant::Bare | Contestant::Once { .. } | Contestant::BareBy(_) | Contestant::OnceBy(_) => 4,
            Contestant::BarePipelined | Contestant::OneCall => 1,
            Contestant::ByHand => 7,
            Contestant::OnceDeferred => 2,
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contestant::Bare => f.write_str("bare"),
            Contestant::BarePipelined => f.write_str("bare, pipelined"),
            Contestant::ByHand => f.write_str("keys and outbox by hand"),
            Contestant::Once { events: 0 } => f.write_str("once, no event"),
            Contestant::Once { events: 1 } => f.write_str("once, one event"),
            Contestant::Once { events } => write!(f, "once, {events} events"),
            Contestant::OnceDeferred => f.write_str("once, one event, deferred"),
            Contestant::OneCall => f.write_str("one SQL call, one event"),
            Contestant::BareBy(way) => write!(f, "bare, {way}"),
            Contestant::OnceBy(way) => write!(f, "once, one event, {way}"),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Unnamed => "unnamed",
            Way::Session => "named, pgbouncer by session",
            Way::Transaction => "unnamed, pgbouncer by transaction",
        })
    }
}

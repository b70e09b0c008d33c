//! Who runs the flow, and where.

use std::fmt;

/// Where the flow, its steps and its lines are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Postgres,
    Sqlite,
}

/// One who runs the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contestant {
    /// Semel: two `commit` steps, and a third with the reply. A statement is awaited, or deferred to the commit.
    Semel { store: Store, deferred: bool },
    /// Somebody else, in a process of its own.
    Peer(Peer),
}

/// Somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// durare: three transactions, each committed with its record, and the result.
    Durare(Store),
    /// DBOS for Rust: three steps, each with a commit of its own and one for its record, and the result.
    DbosRust,
    /// DBOS for Python: the same, or with transactions that keep a record of their own beside DBOS's.
    DbosPython { transactions: bool },
}

impl Contestant {
    /// Everybody.
    pub(crate) const ALL: [Contestant; 9] = [
        Contestant::Semel { store: Store::Postgres, deferred: false },
        Contestant::Semel { store: Store::Postgres, deferred: true },
        Contestant::Peer(Peer::Durare(Store::Postgres)),
        Contestant::Peer(Peer::DbosRust),
        Contestant::Peer(Peer::DbosPython { transactions: false }),
        Contestant::Peer(Peer::DbosPython { transactions: true }),
        Contestant::Semel { store: Store::Sqlite, deferred: false },
        Contestant::Semel { store: Store::Sqlite, deferred: true },
        Contestant::Peer(Peer::Durare(Store::Sqlite)),
    ];

    /// Where it keeps everything.
    pub(crate) fn store(self) -> Store {
        match self {
            Contestant::Semel { store, .. } | Contestant::Peer(Peer::Durare(store)) => store,
            Contestant::Peer(Peer::DbosRust | Peer::DbosPython { .. }) => Store::Postgres,
        }
    }

    /// Who it is, if not Semel.
    pub(crate) fn peer(self) -> Option<Peer> {
        match self {
            Contestant::Semel { .. } => None,
            Contestant::Peer(peer) => Some(peer),
        }
    }
}

impl Peer {
    /// Whether it is a Python program.
    pub(crate) fn is_python(self) -> bool {
        matches!(self, Peer::DbosPython { .. })
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Store::Postgres => "PostgreSQL",
            Store::Sqlite => "SQLite",
        })
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store();
        match self {
            Contestant::Semel { deferred: false, .. } => write!(f, "Semel, {store}"),
            Contestant::Semel { deferred: true, .. } => write!(f, "Semel, {store}, deferred"),
            Contestant::Peer(peer) => match peer {
                Peer::Durare(_) => write!(f, "durare, {store}"),
                Peer::DbosRust => write!(f, "DBOS for Rust, {store}"),
                Peer::DbosPython { transactions: false } => write!(f, "DBOS for Python, {store}"),
                Peer::DbosPython { transactions: true } => write!(f, "DBOS for Python, {store}, transactions"),
            },
        }
    }
}

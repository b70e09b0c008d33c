//! What can go wrong with the provider itself. What goes wrong on request is a fault.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the provider cannot start, or cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else on the network could reach it.
    #[error("refusing to listen on {0}: the provider obeys everybody; use a loopback address such as 127.0.0.1:0")]
    NotLoopback(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {address}; stop what uses it, or choose another address with --listen")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// A listener that was handed over does not say where it listens.
    #[error("the listener has no address")]
    Listener(#[source] io::Error),
    /// The ledger is on a file system on which SQLite cannot keep it as it must be kept.
    #[error("{} cannot use a write-ahead log (SQLite answered {mode:?}); put it elsewhere", .path.display())]
    NoLog {
        /// The ledger.
        path: PathBuf,
        /// What SQLite uses instead.
        mode: String,
    },
    /// The ledger cannot be read or written. What was to be committed is not, unless COMMIT itself failed.
    #[error("the ledger cannot be used")]
    Ledger(#[from] rusqlite::Error),
    /// The ledger holds something that this version did not write.
    #[error("the ledger holds something that cannot be read")]
    Stored(#[from] serde_json::Error),
    /// There is no client to send webhooks with.
    #[error("webhooks cannot be sent")]
    Webhooks(#[from] reqwest::Error),
    /// Work on the ledger panicked, or its runtime is ending.
    #[error("work on the ledger was broken off")]
    BrokenOff,
}

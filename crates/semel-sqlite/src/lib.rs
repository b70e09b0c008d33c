//! Semel's store in one SQLite file: the embedded default.
//!
//! Keys, replies, effects, events, flows and what consumers have seen live in the service's own file, in write-ahead
//! mode with an fsync at every commit. One writer commits waiting operations as a group, each in its own savepoint, so
//! that many operations share one fsync; no answer and no replay leaves before its group's COMMIT (I1), no event is
//! read before it (I4), and no message is called a duplicate (I6). Several processes may use the file, such as a relay
//! or an operator's command beside the service.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use semel::{Fingerprint, Key, Reply, Scope, Semel};
//! use semel_sqlite::{Options, Sqlite};
//!
//! semel_sqlite::migrate("shop.db").await?;
//! let semel = Semel::new(Sqlite::open("shop.db", Options::default()).await?);
//!
//! let scope = Scope::new("tenant-7", "charges.create")?;
//! let key = Key::new("5f0c7a1e")?; // from the client
//! let outcome = semel
//!     .once(&scope, &key, &Fingerprint::of_bytes(b"42 EUR"), async move |tx| {
//!         tx.execute("INSERT INTO charges (amount) VALUES (?1)", (42,)).await?;
//!         Ok::<Reply, Box<dyn std::error::Error + Send + Sync>>(Reply::json(201, &"captured")?)
//!     })
//!     .await;
//! # drop(outcome);
//! # Ok(())
//! # }
//! ```

mod barrier;
mod connect;
mod deferred;
mod error;
mod flow;
mod inbox;
mod inflight;
mod join;
mod key;
mod lease;
mod migrate;
mod operator;
mod options;
mod outbox;
mod probe;
mod queue;
mod readers;
mod reap;
mod seals;
mod statement;
mod store;
mod turn;
mod tx;
mod writer;

pub use deferred::Deferred;
pub use error::{is_unique_violation, sqlite_error};
pub use migrate::{migrate, migrations, schema_sql};
pub use options::Options;
pub use store::Sqlite;
pub use tx::Tx;

pub use rusqlite;

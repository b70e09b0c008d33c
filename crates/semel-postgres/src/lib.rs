//! Semel's store on PostgreSQL.
//!
//! Everything that keeps a promise is a function in the schema `semel`, so that a driver in any language keeps it
//! inside its own transaction; see `functions/`. This crate adds what a Rust service wants on top: a pool, a
//! transaction whose BEGIN travels with the claim and whose COMMIT travels with the completion, and errors that say
//! what to do next.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use semel::{Fingerprint, Key, Reply, Scope, Semel};
//! use semel_postgres::{Options, Postgres};
//!
//! let store = Postgres::connect("postgres://localhost/shop", Options::default()).await?;
//! let semel = Semel::new(store);
//!
//! let scope = Scope::new("tenant-7", "charges.create")?;
//! let key = Key::new("5f0c7a1e")?; // from the client
//! let outcome = semel
//!     .once(&scope, &key, &Fingerprint::of_bytes(b"42 EUR"), async move |tx| {
//!         tx.execute("INSERT INTO charges (amount) VALUES ($1)", &[&42_i64]).await?;
//!         Ok::<Reply, Box<dyn std::error::Error + Send + Sync>>(Reply::json(201, &"captured")?)
//!     })
//!     .await;
//! # drop(outcome);
//! # Ok(())
//! # }
//! ```

mod claim;
mod complete;
mod connect;
mod deferred;
mod error;
mod failure;
mod flight;
mod flow;
mod inbox;
mod join;
mod lease;
mod migrate;
mod operator;
mod outbox;
mod parameter;
mod reap;
mod recent;
mod record;
mod seals;
mod session;
mod store;
mod tls;
mod tx;

#[cfg(feature = "sqlx")]
mod sqlx;

pub use connect::{Isolation, Options, Statements};
pub use deferred::Deferred;
pub use error::sql_state;
pub use migrate::{Migration, functions, migrations, schema_sql};
pub use parameter::{Parameter, Typed};
pub use store::Postgres;
pub use tx::Tx;

pub use deadpool_postgres;
pub use tokio_postgres;

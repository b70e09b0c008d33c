//! The database that was configured, whichever store it takes.

use anyhow::{Context, Result, ensure};
use semel::{Outbox, Store};
use semel_postgres::Postgres;
use semel_postgres::tokio_postgres::SimpleQueryMessage;
use semel_sqlite::Sqlite;

use crate::config::{Config, DatabaseUrl};

/// An open database. Use [`with_store!`](crate::database::with_store) to run the same code on either store.
#[derive(Debug)]
pub(crate) enum Database {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// Runs an expression with the store inside a [`Database`], whatever its type.
macro_rules! with_store {
    ($database:expr, $store:ident => $body:expr) => {
        match $database {
            $crate::database::Database::Sqlite($store) => $body,
            $crate::database::Database::Postgres($store) => $body,
        }
    };
}
pub(crate) use with_store;

/// Whether a database file that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

impl Database {
    /// Opens the configured database without looking at its tables. Errors name it without its password.
    pub(crate) async fn open(config: &Config, missing: Missing) -> Result<Database> {
        let url = &config.database_url;
        let opened = match url {
            DatabaseUrl::Sqlite(path) => {
                ensure!(
                    missing == Missing::Create || path.exists(),
                    "there is no database file {}; create it with `semel migrate --database-url {url}`, or name \
                     another database with --database-url",
                    path.display()
                );
                let options =
                    semel_sqlite::Options { deadline: config.transaction_deadline, ..semel_sqlite::Options::default() };
                Sqlite::open(path, options).await.map(Database::Sqlite)
            }
            DatabaseUrl::Postgres(url) => {
                let options = semel_postgres::Options {
                    pool_size: config.postgres.pool_size,
                    deadline: config.transaction_deadline,
                    isolation: config.postgres.isolation,
                    statements: config.postgres.statements,
                    connect_timeout: config.postgres.connect_timeout,
                    ..semel_postgres::Options::default()
                };
                Postgres::open(url, options).map(Database::Postgres)
            }
        };
        opened.with_context(|| format!("cannot open the database {url}"))
    }

    /// Opens the configured database and makes sure that it answers and has this version's tables.
    pub(crate) async fn open_migrated(config: &Config) -> Result<Database> {
        let database = Database::open(config, Missing::Refuse).await?;
        let checked = with_store!(&database, store => store.check().await);
        checked.with_context(|| format!("cannot use the database {}", config.database_url))?;
        Ok(database)
    }

    /// Brings Semel's tables up to this version, and names what was applied.
    pub(crate) async fn migrate(&self, url: &DatabaseUrl) -> Result<Vec<String>> {
        let applied = with_store!(self, store => store.migrate().await);
        applied.with_context(|| format!("cannot migrate the database {url}"))
    }

    /// Names the database whose events are published, the same on every start. Transactional sinks fence by it, so two
    /// databases that publish to one broker must not share it.
    pub(crate) async fn installation(&self) -> Result<String> {
        match self {
            Database::Sqlite(store) => Ok(store.outbox_status().await?.incarnation),
            Database::Postgres(store) => {
                // Nothing is prepared by name, which a pooler in transaction mode would not bear.
                let answer = store.client().await?.simple_query(include_str!("sql/installation.sql")).await?;
                let named = answer.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                });
                named.context("the database does not tell its identity")
            }
        }
    }
}

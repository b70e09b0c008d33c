//! The file in which the provider remembers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::{Error, Settings};

/// How long to wait for another process that has the file, such as one that is being killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many prepared statements are kept: all of them.
const STATEMENTS: usize = 64;

/// One connection, used by one transaction at a time. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    connection: Arc<Mutex<Connection>>,
}

impl Ledger {
    /// Opens the ledger, or makes one that begins with these settings.
    pub(crate) async fn open(path: PathBuf, initial: Settings) -> Result<Ledger, Error> {
        let opened = tokio::task::spawn_blocking(move || open(&path, initial)).await;
        let connection = opened.map_err(|_| Error::BrokenOff)??;
        Ok(Ledger { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Runs `work` in a transaction of its own. When this returns `Ok`, everything it did is on the disk; after an
    /// error of `work`, or a crash before that, nothing of it is. Work that has begun ends, also if nobody waits.
    pub(crate) async fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let connection = Arc::clone(&self.connection);
        let transaction = move || -> Result<T, Error> {
            // A transaction that panicked was rolled back, so the connection behind a poisoned lock is as good as new.
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        tokio::task::spawn_blocking(transaction).await.map_err(|_| Error::BrokenOff)?
    }
}

fn open(path: &Path, initial: Settings) -> Result<Connection, Error> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(Error::NoLog { path: path.to_owned(), mode });
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(include_str!("../sql/schema.sql"))?;
    initial.begin(&transaction)?;
    transaction.commit()?;
    Ok(connection)
}

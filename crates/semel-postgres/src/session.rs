//! A connection while it may be inside a transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How long a transaction that was given up may take to roll back before its statement is cancelled.
const ROLLBACK_PATIENCE: Duration = Duration::from_millis(500);

/// How many statements a connection keeps prepared (I12). Services whose statements are made up as they go would
/// otherwise fill the server's memory.
const MAX_PREPARED: usize = 500;

/// How connections are encrypted; a request to cancel must be, too.
#[derive(Clone)]
pub(crate) enum Connector {
    Plain,
    Tls(MakeRustlsConnect),
}

impl Connector {
    async fn cancel(&self, token: CancelToken) -> Result<(), Error> {
        match self {
            Connector::Plain => token.cancel_query(NoTls).await,
            Connector::Tls(tls) => token.cancel_query(tls.clone()).await,
        }
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Connector::Plain => "Plain",
            Connector::Tls(_) => "Tls",
        })
    }
}

/// A pooled connection that goes back to the pool only when nothing is open on it.
///
/// Whoever drops it on the way, by an error or because a future was cancelled at any await, rolls back: a connection in
/// the middle of a transaction never reaches another request, which would commit what is not its own.
#[derive(Debug)]
pub(crate) struct Session {
    /// Gone once the session has ended.
    connection: Option<Object>,
    connector: Arc<Connector>,
    /// Whether the connection is to be closed rather than used again.
    spoilt: bool,
    /// Whether a COMMIT is on its way.
    committing: AtomicBool,
}

impl Session {
    pub(crate) fn new(connection: Object, connector: &Arc<Connector>) -> Session {
        if connection.statement_cache.size() > MAX_PREPARED {
            connection.statement_cache.clear();
        }
        Session {
            connection: Some(connection),
            connector: Arc::clone(connector),
            spoilt: false,
            committing: AtomicBool::new(false),
        }
    }

    /// The connection; an error once the session has ended.
    pub(crate) fn connection(&self) -> Result<&Object, semel::Error> {
        self.connection.as_ref().ok_or_else(|| semel::Error::Statement("the transaction has ended".into()))
    }

    /// Looks at an error for signs that the connection's prepared statements no longer fit the database.
    pub(crate) fn note(&mut self, error: &Error) {
        let stale = [SqlState::FEATURE_NOT_SUPPORTED, SqlState::INVALID_SQL_STATEMENT_NAME];
        self.spoilt |= error.code().is_some_and(|code| stale.contains(code));
    }

    /// While a COMMIT is on its way, whoever drops the session closes its connection and cancels nothing: a cancelled
    /// COMMIT that waits for a standby is visible here all the same, and lost if that standby takes over.
    pub(crate) fn commits(&self, committing: bool) {
        self.committing.store(committing, Ordering::Relaxed);
    }

    /// Gives the connection back: its transaction has ended, and the server said so.
    pub(crate) fn release(mut self) {
        let connection = self.connection.take();
        if self.spoilt {
            drop(connection.map(Object::take));
        }
    }

    /// Closes the connection: nobody knows what is open on it.
    pub(crate) fn discard(mut self) {
        drop(self.connection.take().map(Object::take));
    }

    /// Rolls back, and returns when the server has said so or the connection is closed. The rollback goes on by itself
    /// if the caller does not wait for it.
    pub(crate) async fn roll_back(mut self) {
        if let Some(rolling) = self.roll_back_later() {
            let _ = rolling.await;
        }
    }

    fn roll_back_later(&mut self) -> Option<tokio::task::JoinHandle<()>> {
        let connection = self.connection.take()?;
        // Without a runtime the connection is closed, which rolls back too.
        let runtime = tokio::runtime::Handle::try_current().ok().filter(|_| !self.committing.load(Ordering::Relaxed));
        let Some(runtime) = runtime else {
            drop(Object::take(connection));
            return None;
        };
        Some(runtime.spawn(roll_back(connection, Arc::clone(&self.connector), self.spoilt)))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.roll_back_later();
    }
}

/// Rolls back. A statement that still runs is cancelled, and a connection that does not answer is closed: either way
/// the server ends the transaction and frees the key.
async fn roll_back(connection: Object, connector: Arc<Connector>, spoilt: bool) {
    let answered = matches!(timeout(ROLLBACK_PATIENCE, connection.batch_execute("ROLLBACK")).await, Ok(Ok(())));
    if answered && !spoilt {
        return;
    }
    let token = connection.cancel_token();
    let client = Object::take(connection);
    if !answered && let Err(error) = connector.cancel(token).await {
        tracing::debug!(%error, "a statement that was given up could not be cancelled; its deadline will end it");
    }
    drop(client);
}

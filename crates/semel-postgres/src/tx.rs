//! The transaction that claims, acts and stores.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use semel::lease::{Lease, RecoveryPoint};
use semel::{Ask, Completion, Error, Execution, failpoint};
use tokio::time::timeout;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::deferred::Deferred;
use crate::error::{classify, is_aborted, is_conflict, is_connection_lost};
use crate::flight::{Flight, Prepared};
use crate::parameter::Parameter;
use crate::store::{Shared, interval_ms};

const COMPLETE: &str = include_str!("sql/complete.sql");
const COMPLETE_LEASED: &str = include_str!("sql/complete_leased.sql");
const ADVANCE: &str = include_str!("sql/advance.sql");

/// How long a transaction that was given up may take to roll back before its statement is cancelled.
const ROLLBACK_PATIENCE: Duration = Duration::from_millis(500);

/// A transaction on PostgreSQL that holds a claim, a fence, or nothing.
///
/// What it does becomes visible with the reply when Semel completes it, and vanishes when it is rolled back or dropped,
/// or when the process dies (I1). A statement that fails leaves PostgreSQL refusing all further ones; answer with an
/// error.
pub struct Tx {
    shared: Arc<Shared>,
    /// Gone once the transaction has ended.
    connection: Option<Object>,
    execution: Execution,
    holds: Holds,
    begun: bool,
    has_savepoint: bool,
    conflicted: bool,
    deferred: Vec<Deferred>,
}

/// What a transaction holds.
pub(crate) enum Holds {
    /// The claim on a key, and the expired row it may replace.
    Claim { ask: Ask, replaces: Option<Uuid> },
    /// The fence of leased work.
    Fence(Lease),
    /// Nothing: an ordinary transaction.
    Nothing,
}

impl Tx {
    pub(crate) fn new(shared: Arc<Shared>, connection: Object, execution: Execution, holds: Holds) -> Tx {
        Tx {
            shared,
            connection: Some(connection),
            execution,
            holds,
            begun: false,
            has_savepoint: false,
            conflicted: false,
            deferred: Vec::new(),
        }
    }

    /// Runs a statement and returns its rows.
    pub async fn query(&mut self, sql: &str, params: &[&dyn Parameter]) -> Result<Vec<Row>, Error> {
        let first = self.begin_execution();
        let result = self.send(first, sql, params).await;
        self.note(result).await
    }

    /// Runs a statement that returns one row. Any other number is an error.
    pub async fn query_one(&mut self, sql: &str, params: &[&dyn Parameter]) -> Result<Row, Error> {
        match self.query_opt(sql, params).await? {
            Some(row) => Ok(row),
            None => Err(Error::Statement(format!("a statement that must return one row returned none: {sql}").into())),
        }
    }

    /// Runs a statement that returns at most one row. More is an error.
    pub async fn query_opt(&mut self, sql: &str, params: &[&dyn Parameter]) -> Result<Option<Row>, Error> {
        let mut rows = self.query(sql, params).await?;
        if rows.len() > 1 {
            let problem = format!("a statement that must return one row returned {}: {sql}", rows.len());
            return Err(Error::Statement(problem.into()));
        }
        Ok(rows.pop())
    }

    /// Runs a statement and returns how many rows it touched.
    pub async fn execute(&mut self, sql: &str, params: &[&dyn Parameter]) -> Result<u64, Error> {
        let first = self.begin_execution();
        let result = self.send_counting(first, sql, params).await;
        self.note(result).await
    }

    /// Defers a statement to the completion, with which it travels in one flight. It is not run at all when the effect
    /// is rolled back.
    pub fn defer(&mut self, statement: Deferred) {
        self.begun = true;
        self.deferred.push(statement);
    }

    /// The driver's client, for what this type does not offer. Statements run on it are part of the transaction.
    pub async fn client(&mut self) -> Result<&tokio_postgres::Client, Error> {
        if self.begin_execution() {
            let result = self.connection()?.batch_execute("SAVEPOINT semel_effect").await;
            self.note(result).await?;
        }
        Ok(self.connection()?)
    }

    /// Commits an ordinary transaction, one that [`crate::Postgres::begin`] opened.
    pub async fn commit(mut self) -> Result<(), Error> {
        if !matches!(self.holds, Holds::Nothing) {
            return Err(Error::Settings("a transaction with a key is committed by completing it".to_owned()));
        }
        let answers = self.fly_with_commit(None).await?;
        first_failure(answers).map_or(Ok(()), Err)
    }

    fn connection(&self) -> Result<&Object, Error> {
        self.connection.as_ref().ok_or_else(|| Error::Statement("the transaction has ended".into()))
    }

    /// Notes that execution begins, and says whether the savepoint is still to be set. It goes out with the first
    /// statement, so that it costs no round trip, and a transaction without statements has none.
    fn begin_execution(&mut self) -> bool {
        self.begun = true;
        !std::mem::replace(&mut self.has_savepoint, true)
    }

    async fn send(&self, first: bool, sql: &str, params: &[&dyn Parameter]) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(connection) = &self.connection else { return Ok(Vec::new()) };
        let prepared = Prepared::new(connection, self.shared.options.statements, sql, params.iter().copied()).await?;
        if !first || matches!(self.holds, Holds::Nothing) {
            return prepared.query(connection).await;
        }
        let mut flight = Flight::default();
        flight.command(connection, "SAVEPOINT semel_effect");
        flight.statement(connection, &prepared);
        let mut rows = Vec::new();
        for answer in flight.fly().await {
            rows = answer?;
        }
        Ok(rows)
    }

    async fn send_counting(
        &self,
        first: bool,
        sql: &str,
        params: &[&dyn Parameter],
    ) -> Result<u64, tokio_postgres::Error> {
        let Some(connection) = &self.connection else { return Ok(0) };
        let prepared = Prepared::new(connection, self.shared.options.statements, sql, params.iter().copied()).await?;
        if !first || matches!(self.holds, Holds::Nothing) {
            return prepared.execute(connection).await;
        }
        let (savepoint, count) =
            futures_util::join!(connection.batch_execute("SAVEPOINT semel_effect"), prepared.execute(connection));
        savepoint.and(count)
    }

    /// Remembers a conflict, so that the work can be run again.
    async fn note<T>(&mut self, result: Result<T, tokio_postgres::Error>) -> Result<T, Error> {
        match result {
            Ok(value) => {
                if !matches!(self.holds, Holds::Nothing) {
                    failpoint::reach(failpoint::FIRST_STATEMENT_DONE).await;
                }
                Ok(value)
            }
            Err(error) => {
                self.conflicted |= is_conflict(&error);
                Err(classify(error))
            }
        }
    }

    /// Sends the deferred statements, `last` and COMMIT in one flight.
    ///
    /// A COMMIT that follows a failed statement is answered with success although the server rolled back, so the caller
    /// must look at every answer. When the connection breaks or the time is over, nothing tells what became of the
    /// COMMIT that had already left: that is [`Error::Ambiguous`].
    async fn fly_with_commit(&mut self, last: Option<(&str, &[&dyn Parameter])>) -> Result<Answers, Error> {
        let connection = self.connection.take().ok_or_else(|| Error::Statement("the transaction has ended".into()))?;
        let statements = self.shared.options.statements;
        let deferred = std::mem::take(&mut self.deferred);
        let prepare = async {
            let mut prepared = Vec::with_capacity(deferred.len() + 1);
            for statement in &deferred {
                let params = statement.params.iter().map(|value| value.as_ref() as &dyn Parameter);
                prepared.push(Prepared::new(&connection, statements, &statement.sql, params).await?);
            }
            if let Some((sql, params)) = last {
                prepared.push(Prepared::new(&connection, statements, sql, params.iter().copied()).await?);
            }
            Ok::<_, tokio_postgres::Error>(prepared)
        };
        let prepared = match prepare.await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.conflicted |= is_conflict(&error);
                roll_back_later(connection);
                return Err(classify(error));
            }
        };
        let mut flight = Flight::default();
        for statement in &prepared {
            flight.statement(&connection, statement);
        }
        flight.command(&connection, "COMMIT");
        let sent = last.is_some().then_some(failpoint::COMMIT_SENT);
        let flown = timeout(self.shared.options.commit_timeout, flight.fly_past(sent)).await;
        drop(prepared);
        match flown {
            Ok(answers) => {
                let lost = answers.iter().any(|answer| answer.as_ref().is_err_and(is_connection_lost));
                if lost {
                    // A connection in an unknown state must not go back to the pool.
                    drop(Object::take(connection));
                }
                Ok(answers)
            }
            Err(_) => {
                drop(Object::take(connection));
                Err(Error::Ambiguous("COMMIT was not answered in time".into()))
            }
        }
    }

    async fn end(&mut self, sql: &str, params: &[&dyn Parameter]) -> Result<(), Error> {
        let answers = self.fly_with_commit(Some((sql, params))).await?;
        // The completion is the last statement before COMMIT; success means that it returned its row.
        let completed = answers.iter().rev().nth(1).is_some_and(|answer| matches!(answer, Ok(rows) if rows.len() == 1));
        match first_failure(answers) {
            Some(error) => {
                self.conflicted |= matches!(error, Error::Conflict(_));
                Err(error)
            }
            None if completed => Ok(()),
            None => Err(Error::Statement("the completion returned no row".into())),
        }
    }

    async fn roll_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            roll_back(connection).await;
        }
    }
}

type Answers = Vec<Result<Vec<Row>, tokio_postgres::Error>>;

/// The error that decides: a broken connection makes the outcome ambiguous; otherwise it is the first that is not a
/// mere consequence of an earlier one.
fn first_failure(answers: Answers) -> Option<Error> {
    let mut failures: Vec<tokio_postgres::Error> = answers.into_iter().filter_map(Result::err).collect();
    let decides = failures.iter().position(|error| !is_connection_lost(error) && !is_aborted(error));
    if let Some(position) = decides {
        return Some(classify(failures.swap_remove(position)));
    }
    let error = failures.into_iter().next()?;
    if is_connection_lost(&error) { Some(Error::Ambiguous(error.into())) } else { Some(classify(error)) }
}

impl semel::Tx for Tx {
    fn execution(&self) -> Execution {
        self.execution
    }

    fn begun(&self) -> bool {
        self.begun
    }

    fn conflicted(&self) -> bool {
        self.conflicted
    }

    async fn complete(mut self, completion: &Completion) -> Result<(), Error> {
        if !completion.keep_effect {
            self.deferred.clear();
            if self.has_savepoint {
                let back = self.connection()?.batch_execute("ROLLBACK TO SAVEPOINT semel_effect").await;
                if let Err(error) = back {
                    self.roll_back().await;
                    return Err(classify(error));
                }
            }
        }
        let stored = &completion.stored;
        let status = i32::from(stored.status);
        let (headers, body) = (stored.headers.as_ref(), stored.body.as_ref());
        let retain_ms = interval_ms(completion.retain);
        let sealed_by = stored.sealed_by.as_deref();
        match std::mem::replace(&mut self.holds, Holds::Nothing) {
            Holds::Claim { ask, replaces } => {
                let fingerprint = ask.fingerprint.as_bytes().as_slice();
                let params: [&dyn Parameter; 12] = [
                    &ask.scope.tenant(),
                    &ask.scope.operation(),
                    &ask.key.as_str(),
                    &fingerprint,
                    &self.execution.as_uuid(),
                    &replaces,
                    &status,
                    &headers,
                    &body,
                    &retain_ms,
                    &completion.failed,
                    &sealed_by,
                ];
                self.end(COMPLETE, &params).await
            }
            Holds::Fence(lease) => {
                let params: [&dyn Parameter; 10] = [
                    &lease.scope().tenant(),
                    &lease.scope().operation(),
                    &lease.key().as_str(),
                    &lease.epoch,
                    &status,
                    &headers,
                    &body,
                    &retain_ms,
                    &completion.failed,
                    &sealed_by,
                ];
                self.end(COMPLETE_LEASED, &params).await
            }
            Holds::Nothing => {
                self.roll_back().await;
                Err(Error::Settings("a transaction without a key has nothing to complete".to_owned()))
            }
        }
    }

    async fn advance(mut self, point: &RecoveryPoint) -> Result<(), Error> {
        let Holds::Fence(lease) = std::mem::replace(&mut self.holds, Holds::Nothing) else {
            self.roll_back().await;
            return Err(Error::Settings("only leased work has a recovery point".to_owned()));
        };
        let retain_ms = interval_ms(lease.retain);
        let params: [&dyn Parameter; 6] = [
            &lease.scope().tenant(),
            &lease.scope().operation(),
            &lease.key().as_str(),
            &lease.epoch,
            &point.as_str(),
            &retain_ms,
        ];
        self.end(ADVANCE, &params).await
    }

    async fn rollback(mut self) {
        self.roll_back().await;
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            roll_back_later(connection);
        }
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("execution", &self.execution).field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// Rolls back without keeping anybody waiting. Without a runtime the connection is closed, which rolls back too.
pub(crate) fn roll_back_later(connection: Object) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(roll_back(connection))),
        Err(_) => drop(Object::take(connection)),
    }
}

/// Rolls back. A statement that still runs is cancelled, and a connection that does not answer is closed: either way
/// the server ends the transaction and frees the key.
async fn roll_back(connection: Object) {
    if matches!(timeout(ROLLBACK_PATIENCE, connection.batch_execute("ROLLBACK")).await, Ok(Ok(()))) {
        return;
    }
    let cancel = connection.cancel_token();
    let client = Object::take(connection);
    if let Err(error) = cancel.cancel_query(tokio_postgres::NoTls).await {
        tracing::debug!(%error, "a statement that was given up could not be cancelled; its deadline will end it");
    }
    drop(client);
}

//! The transaction that claims, acts and stores.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use deadpool_postgres::Object;
use semel::flow::{Job, Settled};
use semel::lease::RecoveryPoint;
use semel::{Ask, Claim, Completion, Error, Event, Execution, failpoint};
use tokio::time::timeout;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::claim::{self, LockId};
use crate::connect::Statements;
use crate::deferred::Deferred;
use crate::error::{classify, is_conflict};
use crate::failure::{Failure, first_failure};
use crate::flight::{Flight, Flown, Prepared};
use crate::flow::job::{STAGE, Staging};
use crate::flow::step::{Ended, RECORD, RECORD_PLAIN};
use crate::inbox::Isolated;
use crate::lease::{self, Fence};
use crate::outbox::emit::{EMIT, Emission};
use crate::parameter::Parameter;
use crate::session::Session;
use crate::store::{Shared, interval_ms};

const COMPLETE: &str = include_str!("sql/complete.sql");
const COMPLETE_LEASED: &str = include_str!("sql/complete_leased.sql");
const COMPLETE_LEASED_PLAIN: &str = include_str!("sql/complete_leased_plain.sql");
const ADVANCE: &str = include_str!("sql/advance.sql");

/// Fails in a transaction that has failed, where a COMMIT would be answered with success.
const STILL_GOOD: &str = "SELECT 1";

/// A transaction on PostgreSQL that holds a claim, a fence, or nothing.
///
/// What it does becomes visible with the reply when Semel completes it, and vanishes when it is rolled back or dropped,
/// or when the process dies (I1). A statement that fails leaves PostgreSQL refusing all further ones; answer with an
/// error.
pub struct Tx {
    pub(crate) shared: Arc<Shared>,
    /// Gone once the transaction has ended.
    session: Option<Session>,
    pub(crate) execution: Execution,
    holds: Holds,
    begun: bool,
    /// Whether a statement of the work was sent, or was about to be.
    touched: bool,
    conflicted: bool,
    /// A statement was sent, or was about to be, and nobody waited for its answer: what it did is not known to the
    /// work.
    unanswered: bool,
    /// The same of a statement after which others were answered. Only a rollback makes it good.
    given_up: bool,
    /// Whether a statement failed, or some may have that this type did not see.
    doubtful: bool,
    pub(crate) deferred: Vec<Deferred>,
    /// What was emitted, to be written at the completion.
    pub(crate) events: Vec<Event>,
    /// What was staged, likewise.
    pub(crate) jobs: Vec<Job>,
    /// Where the last message began that was accepted behind a savepoint, while that is there.
    pub(crate) isolated: Option<Isolated>,
}

/// What a transaction holds.
pub(crate) enum Holds {
    /// The claim on a key, its lock, and the expired row it may replace.
    Claim { ask: Ask, lock: LockId, replaces: Option<Uuid> },
    /// The fence of leased work.
    Fence(Fence),
    /// Nothing: an ordinary transaction.
    Nothing,
}

impl Tx {
    pub(crate) fn new(shared: Arc<Shared>, session: Session, execution: Execution, holds: Holds) -> Tx {
        Tx {
            shared,
            session: Some(session),
            execution,
            holds,
            begun: false,
            touched: false,
            conflicted: false,
            unanswered: false,
            given_up: false,
            doubtful: false,
            deferred: Vec::new(),
            events: Vec::new(),
            jobs: Vec::new(),
            isolated: None,
        }
    }

    /// Runs a statement and returns its rows.
    pub async fn query(&mut self, sql: &str, params: &[&dyn Parameter]) -> Result<Vec<Row>, Error> {
        self.begin_execution();
        let result = self.send(sql, params).await;
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
        self.begin_execution();
        let result = self.send_counting(sql, params).await;
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
        self.begin_execution();
        self.doubtful = true;
        self.note(Ok(())).await?;
        Ok(self.connection()?)
    }

    /// Commits an ordinary transaction, one that [`crate::Postgres::begin`] opened.
    pub async fn commit(mut self) -> Result<(), Error> {
        if !matches!(self.holds, Holds::Nothing) {
            return Err(Error::Settings("a transaction with a key is committed by completing it".to_owned()));
        }
        // Where every statement was answered with success, nothing is left to be asked.
        let last = self.doubtful.then_some(Last { sql: STILL_GOOD, params: &[], emits: false });
        self.end(self.execution, last, None).await
    }

    pub(crate) fn connection(&self) -> Result<&Object, Error> {
        match &self.session {
            Some(session) => session.connection(),
            None => Err(Error::Statement("the transaction has ended".into())),
        }
    }

    /// Notes that execution begins. Until [`Tx::note`] has seen the answer, the statement counts as unanswered: a
    /// caller may drop the future of a statement that was sent, and must not get it committed behind its back.
    fn begin_execution(&mut self) {
        self.begun = true;
        self.expect_answer();
    }

    /// Something is about to be sent, whose answer [`Tx::note`] is to see.
    pub(crate) fn expect_answer(&mut self) {
        self.touched = true;
        self.given_up |= self.unanswered;
        self.unanswered = true;
    }

    /// Everything that was given up is about to be undone; the answers to it come before the next one.
    pub(crate) fn forgive(&mut self) {
        (self.unanswered, self.given_up) = (false, false);
    }

    /// Whether a statement was sent, or was about to be, and nobody waited for its answer.
    pub(crate) fn has_given_up(&self) -> bool {
        self.unanswered || self.given_up
    }

    async fn send(&mut self, sql: &str, params: &[&dyn Parameter]) -> Result<Vec<Row>, Failure> {
        let connection = self.connection()?;
        let prepared = Prepared::new(connection, self.shared.options.statements, sql, params.iter().copied()).await?;
        Ok(prepared.query(connection).await?)
    }

    async fn send_counting(&mut self, sql: &str, params: &[&dyn Parameter]) -> Result<u64, Failure> {
        let connection = self.connection()?;
        let prepared = Prepared::new(connection, self.shared.options.statements, sql, params.iter().copied()).await?;
        Ok(prepared.execute(connection).await?)
    }

    /// Takes note of an answer: a conflict lets the work be run again.
    pub(crate) async fn note<T>(&mut self, result: Result<T, Failure>) -> Result<T, Error> {
        self.unanswered = false;
        self.doubtful |= result.is_err();
        match result {
            Ok(value) => {
                if !matches!(self.holds, Holds::Nothing) {
                    failpoint::reach(failpoint::FIRST_STATEMENT_DONE).await;
                }
                Ok(value)
            }
            Err(Failure::Ours(error)) => Err(error),
            Err(Failure::Driver(error)) => {
                self.conflicted |= is_conflict(&error);
                if let Some(session) = &mut self.session {
                    session.note(&error);
                }
                Err(classify(error))
            }
        }
    }

    /// Sends the deferred statements, the jobs and events of the run `emitting`, `last` and COMMIT in one flight, and
    /// takes it as success only if every one of them succeeded and `last` returned its row: a COMMIT that follows a
    /// failed statement is answered with success although the server rolled back. Without `last`, every statement
    /// before the flight must have succeeded.
    ///
    /// The events come after every statement of the work, because they lock their ordering keys: whoever waits for
    /// those holds what it needs already.
    ///
    /// When the connection breaks or the time is over, nothing tells what became of a COMMIT that had already left:
    /// that is [`Error::Ambiguous`].
    pub(crate) async fn end(
        &mut self,
        emitting: Execution,
        last: Option<Last<'_>>,
        sent: Option<&'static str>,
    ) -> Result<(), Error> {
        let session = self.session.take().ok_or_else(|| Error::Statement("the transaction has ended".into()))?;
        if self.has_given_up() {
            session.roll_back().await;
            return Err(Error::Statement("a statement was given up before its answer came; all is rolled back".into()));
        }
        let (deferred, events) = (std::mem::take(&mut self.deferred), std::mem::take(&mut self.events));
        let jobs = std::mem::take(&mut self.jobs);
        let buffered =
            Staging::new(emitting, &jobs).and_then(|jobs| Ok((jobs, Emission::new(Some(emitting), &events)?)));
        let (staging, emission) = match buffered {
            Ok((staging, emission)) => {
                ((!jobs.is_empty()).then_some(staging), (!events.is_empty()).then_some(emission))
            }
            Err(error) => {
                session.roll_back().await;
                return Err(error);
            }
        };
        let connection = session.connection()?;
        let flown = async {
            let statements = self.shared.options.statements;
            let mut prepared = Vec::with_capacity(deferred.len() + 3);
            for statement in &deferred {
                let params = statement.params.iter().map(|value| value.as_ref() as &dyn Parameter);
                prepared.push(Prepared::new(connection, statements, &statement.sql, params).await?);
            }
            if let Some(staging) = &staging {
                prepared.push(Prepared::new(connection, statements, STAGE, staging.params().into_iter()).await?);
            }
            if let Some(emission) = &emission {
                prepared.push(Prepared::new(connection, statements, EMIT, emission.params().into_iter()).await?);
            }
            if let Some(last) = &last {
                prepared.push(Prepared::new(connection, statements, last.sql, last.params.iter().copied()).await?);
            }
            let mut flight = Flight::default();
            for statement in &prepared {
                flight.statement(connection, statement);
            }
            flight.command(connection, "COMMIT");
            session.commits(true);
            Ok(timeout(self.shared.options.commit_timeout, flight.fly_past(sent)).await)
        };
        let flown = flown.await;
        session.commits(false);
        let emits = emission.is_some() || last.as_ref().is_some_and(|last| last.emits);
        let wrote = (emits, staging.is_some());
        let answers = match flown {
            Ok(Ok(Flown::Answered(answers))) => answers,
            // COMMIT was not sent. Unless the server does not answer, the key is new when its caller hears of it.
            Ok(Ok(Flown::Grounded(error))) | Err(error) => {
                session.roll_back().await;
                return Err(self.classified(error));
            }
            Ok(Err(_)) => {
                session.discard();
                self.tell(wrote);
                return Err(Error::Ambiguous("COMMIT was not answered in time".into()));
            }
        };
        // `last` is the last statement before COMMIT; success means that it returned its row.
        let one_row = |answer: &Result<Vec<Row>, _>| matches!(answer, Ok(rows) if rows.len() == 1);
        let completed = last.is_none() || answers.iter().rev().nth(1).is_some_and(one_row);
        match first_failure(answers) {
            None if completed => {
                session.release();
                self.tell(wrote);
                Ok(())
            }
            None => Err(Error::Statement("the completion returned no row".into())),
            Some(error) => {
                if matches!(error, Error::Ambiguous(_)) {
                    session.discard();
                    self.tell(wrote);
                }
                self.conflicted |= matches!(error, Error::Conflict(_));
                Err(error)
            }
        }
    }

    /// Whether statements have names, so that plain ones cost less than functions: they are not planned each time.
    fn has_names(&self) -> bool {
        self.shared.options.statements == Statements::Named
    }

    /// Takes the effect back and holds the key or the fence once more, in a new transaction. If somebody else has got
    /// hold of the key in between, all is rolled back and it is [`Error::Raced`].
    async fn take_back(&mut self) -> Result<(), Error> {
        self.deferred.clear();
        self.events.clear();
        self.jobs.clear();
        if !self.touched {
            return Ok(());
        }
        self.forgive();
        let held = self.hold_anew().await;
        if held.is_err() {
            self.roll_back().await;
        }
        held
    }

    async fn hold_anew(&mut self) -> Result<(), Error> {
        let session = self.session.as_mut().ok_or_else(|| Error::Statement("the transaction has ended".into()))?;
        claim::require_held(&self.shared, session, self.execution).await?;
        match &mut self.holds {
            Holds::Claim { ask, lock, replaces } => {
                let Claim::Fresh(granted) =
                    claim::begin_anew(&self.shared, session, ask, *lock, self.execution).await?
                else {
                    return Err(Error::Raced);
                };
                *replaces = granted.replaces;
                Ok(())
            }
            Holds::Fence(fence) => lease::fence_anew(&self.shared, session, fence).await,
            Holds::Nothing => Ok(()),
        }
    }

    /// Tells whoever waits for events or jobs that some were committed, or may have been.
    fn tell(&self, (emitted, staged): (bool, bool)) {
        if emitted {
            self.shared.emitted.notify_one();
        }
        if staged {
            self.shared.staged.notify_one();
        }
    }

    pub(crate) fn classified(&mut self, error: tokio_postgres::Error) -> Error {
        self.conflicted |= is_conflict(&error);
        classify(error)
    }

    pub(crate) async fn roll_back(&mut self) {
        if let Some(session) = self.session.take() {
            session.roll_back().await;
        }
    }
}

/// The last statement before COMMIT.
pub(crate) struct Last<'a> {
    pub(crate) sql: &'a str,
    pub(crate) params: &'a [&'a dyn Parameter],
    /// Whether it writes an event, too.
    pub(crate) emits: bool,
}

pub(crate) fn last<'a>(sql: &'a str, params: &'a [&'a dyn Parameter]) -> Option<Last<'a>> {
    Some(Last { sql, params, emits: false })
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

    fn emit(&mut self, event: Event) {
        self.begun = true;
        self.events.push(event);
    }

    fn stage(&mut self, job: Job) {
        self.begun = true;
        self.jobs.push(job);
    }

    async fn complete(mut self, completion: &Completion) -> Result<(), Error> {
        if !completion.keep_effect {
            self.take_back().await?;
        }
        let stored = &completion.stored;
        let status = i32::from(stored.status);
        let (headers, body) = (stored.headers.as_ref(), stored.body.as_ref());
        let retain_ms = interval_ms(completion.retain);
        let sealed_by = stored.sealed_by.as_deref();
        match std::mem::replace(&mut self.holds, Holds::Nothing) {
            Holds::Claim { ask, lock, replaces: None } if self.has_names() => {
                self.complete_plain(&ask, completion).await?;
                self.shared.recent.remember(lock);
                Ok(())
            }
            Holds::Claim { ask, lock, replaces } => {
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
                self.end(self.execution, last(COMPLETE, &params), Some(failpoint::COMMIT_SENT)).await?;
                self.shared.recent.remember(lock);
                Ok(())
            }
            Holds::Fence(fence) => {
                let lease = &fence.lease;
                let params: [&dyn Parameter; 11] = [
                    &lease.scope().tenant(),
                    &lease.scope().operation(),
                    &lease.key().as_str(),
                    &lease.execution.as_uuid(),
                    &lease.epoch,
                    &status,
                    &headers,
                    &body,
                    &retain_ms,
                    &completion.failed,
                    &sealed_by,
                ];
                let sql = if self.has_names() { COMPLETE_LEASED_PLAIN } else { COMPLETE_LEASED };
                self.end(fence.run(), last(sql, &params), Some(failpoint::COMMIT_SENT)).await
            }
            Holds::Nothing => {
                self.roll_back().await;
                Err(Error::Settings("a transaction without a key has nothing to complete".to_owned()))
            }
        }
    }

    async fn advance(mut self, point: &RecoveryPoint) -> Result<(), Error> {
        let Holds::Fence(fence @ Fence { step: None, .. }) = std::mem::replace(&mut self.holds, Holds::Nothing) else {
            self.roll_back().await;
            return Err(Error::Settings("only leased work that is no flow has a recovery point".to_owned()));
        };
        let lease = &fence.lease;
        let (lease_ms, retain_ms) = (interval_ms(lease.lease_for), interval_ms(lease.retain));
        let params: [&dyn Parameter; 8] = [
            &lease.scope().tenant(),
            &lease.scope().operation(),
            &lease.key().as_str(),
            &lease.execution.as_uuid(),
            &lease.epoch,
            &point.as_str(),
            &lease_ms,
            &retain_ms,
        ];
        self.end(fence.run(), last(ADVANCE, &params), Some(failpoint::COMMIT_SENT)).await
    }

    async fn record(mut self, settled: &Settled) -> Result<(), Error> {
        let fence = match std::mem::replace(&mut self.holds, Holds::Nothing) {
            Holds::Fence(fence) if fence.step.as_ref() == Some(&settled.step) => fence,
            _ => {
                self.roll_back().await;
                return Err(Error::Settings("a step of a flow is recorded in the transaction begun for it".to_owned()));
            }
        };
        let ended = Ended::new(&fence.lease, settled);
        // A renewal that waited for this step, and no longer than this, is in time. Otherwise the record renews the
        // lease itself.
        let in_time = |since: Instant| since.elapsed() < fence.lease.lease_for / 4;
        if self.has_names() && fence.since.is_some_and(in_time) {
            return self.end(fence.run(), last(RECORD_PLAIN, &ended.plain()), Some(failpoint::COMMIT_SENT)).await;
        }
        self.end(fence.run(), last(RECORD, &ended.params()), Some(failpoint::COMMIT_SENT)).await
    }

    async fn rollback(mut self) {
        self.roll_back().await;
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("execution", &self.execution).field("begun", &self.begun).finish_non_exhaustive()
    }
}

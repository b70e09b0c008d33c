//! A transaction on the writer.

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Batch, Connection, OptionalExtension, Params, Row};
use semel::flow::{Job, Settled};
use semel::lease::RecoveryPoint;
use semel::store::Completion;
use semel::{Ask, Error, Event, Execution, Lease, failpoint};

use crate::deferred::Deferred;
use crate::error::classify;
use crate::flow::job::Staged;
use crate::flow::step::{self, require_wanted};
use crate::inbox::isolated::Message;
use crate::inflight::Guard;
use crate::key::{self, Fence};
use crate::outbox::emit::Emitted;
use crate::probe::Standing;
use crate::queue::News;
use crate::statement;
use crate::store::Sqlite;
use crate::turn::{Held, Turn};

/// The most statements that one transaction defers (I12).
const MAX_DEFERRED: usize = 1000;

/// A transaction that holds a claim, a fence, or neither. Dropping it rolls it back.
///
/// It takes its turn on the writer at its first statement, not before, so that work which parses, checks or calls out
/// first holds nobody up. From then on until it ends, no other operation of this file can write: keep what lies between
/// the first statement and the answer short. A turn past the deadline is rolled back and passed on; what is run in it
/// later gets [`Error::Deadline`] and changes nothing.
///
/// Statements run on the caller's thread. Pass parameters as tuples, arrays or [`rusqlite::params_from_iter`]: the
/// slice that `rusqlite::params!` makes is not `Send`, so a future that holds it cannot be spawned.
#[derive(Debug)]
pub struct Tx {
    // Dropped first, so that the savepoint is rolled back before the key is free.
    pub(crate) turn: Option<Turn>,
    held: Option<Held>,
    store: Sqlite,
    purpose: Purpose,
    execution: Execution,
    deferred: Vec<Deferred>,
    emitted: Emitted,
    staged: Staged,
    /// The message that was accepted last, while it can be taken back.
    pub(crate) message: Option<Message>,
    begun: bool,
    conflicted: bool,
    over: Option<Over>,
}

#[derive(Debug)]
enum Purpose {
    /// The key was free, with the row of an expired run or none.
    Claim {
        ask: Ask,
        expired: Option<Execution>,
    },
    /// Leased work, at its recovery point or in a step of its flow.
    Fence {
        lease: Lease,
        step: Option<String>,
    },
    Business,
}

/// Why nothing more can be run.
#[derive(Debug, Clone)]
enum Over {
    Deadline,
    /// The key was given to another run while this one waited for the writer.
    Overtaken,
    Conflict,
    Raced,
    Fenced,
    Advanced(Option<RecoveryPoint>),
}

impl Tx {
    pub(crate) fn claimed(store: Sqlite, ask: Ask, expired: Option<Execution>, guard: Guard) -> Tx {
        let execution = Execution::mint();
        Tx::new(store, Purpose::Claim { ask, expired }, execution, Some(Held::Key(guard)))
    }

    pub(crate) fn fenced(store: Sqlite, lease: Lease) -> Tx {
        let (execution, held) = (lease.execution, store.lease_held());
        Tx::new(store, Purpose::Fence { lease, step: None }, execution, Some(held))
    }

    pub(crate) fn step(store: Sqlite, lease: Lease, step: String) -> Tx {
        let (execution, held) = (lease.execution, store.lease_held());
        Tx::new(store, Purpose::Fence { lease, step: Some(step) }, execution, Some(held))
    }

    pub(crate) fn business(store: Sqlite) -> Tx {
        Tx::new(store, Purpose::Business, Execution::mint(), None)
    }

    fn new(store: Sqlite, purpose: Purpose, execution: Execution, held: Option<Held>) -> Tx {
        Tx {
            turn: None,
            held,
            store,
            purpose,
            execution,
            deferred: Vec::new(),
            emitted: Emitted::default(),
            staged: Staged::default(),
            message: None,
            begun: false,
            conflicted: false,
            over: None,
        }
    }

    /// Runs a statement that returns no rows, and says how many it touched.
    pub async fn execute(&mut self, sql: &str, params: impl Params) -> Result<usize, Error> {
        self.run(sql, |connection| connection.prepare_cached(sql)?.execute(params)).await
    }

    /// Runs a query and maps its first row; a query without rows is an error
    /// ([`rusqlite::Error::QueryReturnedNoRows`]).
    pub async fn query_row<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.run(sql, |connection| connection.prepare_cached(sql)?.query_row(params, map)).await
    }

    /// Runs a query and maps its first row, if it has one.
    pub async fn query_opt<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        self.run(sql, |connection| connection.prepare_cached(sql)?.query_row(params, map).optional()).await
    }

    /// Runs a query and maps all its rows.
    pub async fn query_all<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        self.run(sql, |connection| connection.prepare_cached(sql)?.query_map(params, map)?.collect()).await
    }

    /// Runs several statements, as a migration has them. They stop at the first that fails.
    pub async fn execute_batch(&mut self, sql: &str) -> Result<(), Error> {
        self.run_checked(|connection| {
            let mut batch = Batch::new(connection, sql);
            while let Some(mut next) = batch.next().map_err(classify)? {
                statement::check(&next.expanded_sql().unwrap_or_default())?;
                let mut rows = next.raw_query();
                while rows.next().map_err(classify)?.is_some() {}
            }
            Ok(())
        })
        .await
    }

    /// Runs the statement at the completion, and enforces there how many rows it declared to touch.
    pub fn defer(&mut self, statement: Deferred) {
        self.begun = true;
        match &mut self.message {
            Some(message) => message.deferred.push(statement),
            None => self.deferred.push(statement),
        }
    }

    /// Commits a transaction from [`Sqlite::begin`]. After `Ok` it is durable; after an error but [`Error::Ambiguous`]
    /// nothing of it is there. A transaction that holds a claim or a fence is refused: it ends with its reply or its
    /// recovery point.
    pub async fn commit(mut self) -> Result<(), Error> {
        if !matches!(self.purpose, Purpose::Business) {
            return Err(misuse("a transaction with a claim or a fence ends with its reply; return one"));
        }
        if !self.begun {
            return Ok(());
        }
        let news = self.run_buffered().await?;
        self.finish(news).await
    }

    /// Refuses statements that are not for the work to run, then runs it.
    async fn run<T>(&mut self, sql: &str, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        statement::check(sql)?;
        self.run_checked(|connection| work(connection).map_err(classify)).await
    }

    pub(crate) async fn run_checked<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.enter().await?;
        let first = !std::mem::replace(&mut self.begun, true);
        let result = self.on_turn(work);
        if first && !matches!(self.purpose, Purpose::Business) {
            failpoint::reach(failpoint::FIRST_STATEMENT_DONE).await;
        }
        result
    }

    /// Takes the turn, and checks in the write transaction that the claim or the fence still holds: nobody can change
    /// that before this transaction ends (I2, I7).
    async fn enter(&mut self) -> Result<(), Error> {
        self.check_over()?;
        if self.turn.is_some() {
            return Ok(());
        }
        if !self.keeps_key() {
            return self.noted(Err(Error::Deadline));
        }
        let turn = self.store.writer().enter().await?;
        if !self.keeps_key() {
            // Others held the writer for so long; nothing of this one ran.
            self.over = Some(Over::Overtaken);
            return Err(overtaken());
        }
        self.turn = Some(turn);
        let now_ms = self.store.now_ms();
        let Some(turn) = &self.turn else { return Err(Error::Deadline) };
        let checked = match &self.purpose {
            Purpose::Claim { ask, expired } => turn.run(|connection| {
                let standing = Standing::read(connection, ask, now_ms)?;
                if standing.is_still_free(*expired) { Ok(()) } else { Err(Error::Raced) }
            }),
            Purpose::Fence { lease, .. } => turn.run(|connection| Fence::of(lease).check(connection)),
            Purpose::Business => Ok(()),
        };
        let checked = self.noted(checked);
        if checked.is_err() {
            // No statement may run in a turn whose claim or fence was not seen to hold.
            self.turn = None;
        }
        checked
    }

    /// Keeps the key in flight for another deadline, unless it was given to somebody else because the last one passed.
    fn keeps_key(&self) -> bool {
        match &self.held {
            Some(Held::Key(guard)) => guard.extend(self.store.deadline()),
            _ => true,
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.store.now_ms()
    }

    fn on_turn<T>(&mut self, work: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        self.check_over()?;
        let result = match &self.turn {
            Some(turn) => turn.run(work),
            None => Err(Error::Deadline),
        };
        self.noted(result)
    }

    /// Remembers whether an error ended the transaction, so that what is run after it is refused.
    fn noted<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        let Err(error) = &result else { return result };
        // A run that was overtaken may start again too: asking for the key then tells what the other one answered.
        self.conflicted |= matches!(error, Error::Conflict(_) | Error::Raced);
        let over = match error {
            Error::Deadline => Some(Over::Deadline),
            Error::Conflict(_) => Some(Over::Conflict),
            Error::Raced => Some(Over::Raced),
            Error::Fenced => Some(Over::Fenced),
            Error::Advanced(point) => Some(Over::Advanced(point.clone())),
            // SQLite rolled everything back because of this error.
            _ if self.turn.as_ref().is_some_and(Turn::is_over) => Some(Over::Conflict),
            _ => None,
        };
        if over.is_some() {
            self.over = over;
            self.turn = None;
        }
        result
    }

    fn check_over(&self) -> Result<(), Error> {
        match &self.over {
            None => Ok(()),
            Some(Over::Deadline) => Err(Error::Deadline),
            Some(Over::Overtaken) => Err(overtaken()),
            Some(Over::Conflict) => Err(Error::Conflict("an earlier statement was rolled back".into())),
            Some(Over::Raced) => Err(Error::Raced),
            Some(Over::Fenced) => Err(Error::Fenced),
            Some(Over::Advanced(point)) => Err(Error::Advanced(point.clone())),
        }
    }

    /// Runs what was deferred and writes what was emitted and staged, in one go. Says what others may wait for.
    async fn run_buffered(&mut self) -> Result<News, Error> {
        if let Some(message) = self.message.take() {
            message.check()?;
            self.deferred.extend(message.deferred);
            message.events.into_iter().for_each(|event| self.emitted.push(event));
            message.jobs.into_iter().for_each(|job| self.staged.push(job));
        }
        let deferred = std::mem::take(&mut self.deferred);
        let emitted = std::mem::take(&mut self.emitted);
        let staged = std::mem::take(&mut self.staged);
        let news = News { events: !emitted.is_empty(), jobs: !staged.is_empty() };
        if deferred.is_empty() && !news.events && !news.jobs {
            return Ok(news);
        }
        check_deferred(&deferred)?;
        let first = self.turn.is_none();
        self.enter().await?;
        let (execution, now_ms) = (self.emitting_run(), self.store.now_ms());
        self.on_turn(|connection| {
            deferred.iter().try_for_each(|statement| statement.run(connection))?;
            emitted.write(connection, execution, now_ms)?;
            staged.write(connection, execution, now_ms)
        })?;
        if first && !matches!(self.purpose, Purpose::Business) {
            failpoint::reach(failpoint::FIRST_STATEMENT_DONE).await;
        }
        Ok(news)
    }

    /// The run that events and jobs are numbered in: each step of leased work commits once, so it has one of its own.
    fn emitting_run(&self) -> Execution {
        match &self.purpose {
            Purpose::Fence { step: Some(step), .. } => self.execution.named_step(step),
            Purpose::Fence { lease, step: None } => self.execution.step(lease.recovery_point.as_ref()),
            Purpose::Claim { .. } | Purpose::Business => self.execution,
        }
    }

    /// Leaves the turn and waits for the group's COMMIT.
    async fn finish(mut self, news: News) -> Result<(), Error> {
        self.check_over()?;
        let held = self.held.take();
        match self.turn.take() {
            Some(turn) => turn.finish(held, news)?.done().await,
            None => Err(Error::Deadline),
        }
    }
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
        match &mut self.message {
            Some(message) => message.emit(event),
            None => self.emitted.push(event),
        }
    }

    fn stage(&mut self, job: Job) {
        self.begun = true;
        match &mut self.message {
            Some(message) => message.stage(job),
            None => self.staged.push(job),
        }
    }

    async fn complete(mut self, completion: &Completion) -> Result<(), Error> {
        self.check_over()?;
        if !completion.keep_effect {
            self.deferred.clear();
            self.emitted = Emitted::default();
            self.staged = Staged::default();
            self.message = None;
            if let Some(turn) = &self.turn {
                turn.undo()?;
            }
        }
        let news = self.run_buffered().await?;
        self.enter().await?;
        let now_ms = self.store.now_ms();
        let Some(turn) = &self.turn else { return Err(Error::Deadline) };
        match &self.purpose {
            Purpose::Claim { ask, expired } => {
                turn.run(|connection| key::complete(connection, ask, *expired, completion, now_ms))?;
            }
            Purpose::Fence { lease, .. } => turn.run(|connection| {
                require_wanted(connection, lease)?;
                Fence::of(lease).complete(connection, completion, now_ms)
            })?,
            Purpose::Business => return Err(misuse("a transaction without a key has no reply to store; commit it")),
        }
        self.finish(news).await
    }

    async fn advance(mut self, point: &RecoveryPoint) -> Result<(), Error> {
        let Purpose::Fence { lease, step: None } = &self.purpose else {
            return Err(misuse("only leased work that is no flow has a recovery point; lease the key"));
        };
        let lease = lease.clone();
        let news = self.run_buffered().await?;
        self.enter().await?;
        let now_ms = self.store.now_ms();
        self.on_turn(|connection| Fence::of(&lease).advance(connection, point, now_ms))?;
        self.finish(news).await
    }

    async fn record(mut self, settled: &Settled) -> Result<(), Error> {
        let lease = match &self.purpose {
            Purpose::Fence { lease, step: Some(step) } if *step == settled.step => lease.clone(),
            _ => return Err(misuse("only the step that a transaction was begun for can be recorded with it")),
        };
        let news = self.run_buffered().await?;
        self.enter().await?;
        let now_ms = self.store.now_ms();
        self.on_turn(|connection| step::record(connection, &lease, settled, now_ms))?;
        self.finish(news).await
    }

    async fn rollback(self) {}
}

/// Refuses more statements than may be run in one go (I12).
pub(crate) fn check_deferred(deferred: &[Deferred]) -> Result<(), Error> {
    if deferred.len() > MAX_DEFERRED {
        return Err(misuse(&format!("a transaction may defer {MAX_DEFERRED} statements, not {}", deferred.len())));
    }
    Ok(())
}

fn overtaken() -> Error {
    Error::Unavailable("the key was given to another run while this one waited for the writer".into())
}

pub(crate) fn misuse(what: &str) -> Error {
    Error::Settings(what.to_owned())
}

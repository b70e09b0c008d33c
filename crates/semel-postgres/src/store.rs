//! The store: asks for keys.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use semel::lease::{Lease, LeaseTerms};
use semel::operator::{Audit, Eviction, KeyFilter, KeyRecord};
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution, Key, Scope, Store};
use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::claim::{Installation, Secret};
use crate::connect::{self, Options};
use crate::error::{classify, of_pool};
use crate::failure::Failure;
use crate::flight::{Flight, Prepared};
use crate::parameter::Parameter;
use crate::recent::Recent;
use crate::session::{Connector, Session};
use crate::tx::{Holds, Tx};
use crate::{claim, lease, migrate, operator, reap, seals};

/// How often leased work is looked at while a request waits for it: it holds no lock that could wake the waiting.
pub(crate) const LEASED_LOOK: Duration = Duration::from_millis(200);

/// Semel's store on PostgreSQL. Cheap to clone; clones share a pool.
#[derive(Debug, Clone)]
pub struct Postgres {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) connector: Arc<Connector>,
    pub(crate) options: Options,
    /// BEGIN with its isolation level and its deadlines, so that a process that stops or vanishes frees its key.
    pub(crate) begin: String,
    /// The same at READ COMMITTED, for what relays do: it judges by what is there once a lock is had.
    pub(crate) begin_relaying: String,
    /// BEGIN with its isolation level alone: the claim in the same flight sets the deadlines.
    pub(crate) begin_claiming: String,
    pub(crate) deadline_ms: String,
    /// What the locks of keys are keyed with, once it has been read.
    pub(crate) secret: OnceCell<Secret>,
    /// What those of ordering keys are keyed with, once an event was emitted.
    pub(crate) installation: OnceLock<Installation>,
    pub(crate) recent: Recent,
    pub(crate) waiting: Semaphore,
    /// Told when a transaction of this process that wrote events has ended.
    pub(crate) emitted: Notify,
    /// The same of one that staged jobs.
    pub(crate) staged: Notify,
}

impl Postgres {
    /// Connects, and checks that the database has this version's schema.
    pub async fn connect(url: &str, options: Options) -> Result<Postgres, Error> {
        let store = Postgres::open(url, options)?;
        store.check().await?;
        Ok(store)
    }

    /// Prepares a pool without connecting, for a database that may be down or not migrated yet.
    pub fn open(url: &str, options: Options) -> Result<Postgres, Error> {
        let (pool, connector) = connect::pool(url, &options)?;
        let deadline_ms = options.deadline.as_millis().max(1);
        let bounds = format!(
            "SET LOCAL idle_in_transaction_session_timeout = {deadline_ms}; SET LOCAL statement_timeout = {deadline_ms}"
        );
        let begin_claiming = format!("BEGIN ISOLATION LEVEL {}", options.isolation.sql());
        let begin = format!("{begin_claiming}; {bounds}");
        let begin_relaying = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {bounds}");
        let shared = Shared {
            pool,
            connector: Arc::new(connector),
            begin,
            begin_relaying,
            begin_claiming,
            deadline_ms: deadline_ms.to_string(),
            secret: OnceCell::new(),
            installation: OnceLock::new(),
            recent: Recent::default(),
            waiting: Semaphore::new(options.max_waiting),
            emitted: Notify::new(),
            staged: Notify::new(),
            options,
        };
        Ok(Postgres { shared: Arc::new(shared) })
    }

    /// Brings the schema up to this version. Safe to run from several processes at once; changes nothing when there is
    /// nothing to do. Returns the names of what was applied.
    pub async fn migrate(&self) -> Result<Vec<String>, Error> {
        migrate::run(self).await
    }

    /// A connection from the pool, for reads and for statements that need no key. A transaction begun on it is yours to
    /// end before it is dropped; [`Postgres::begin`] sees to that by itself.
    pub async fn client(&self) -> Result<Object, Error> {
        self.shared.pool.get().await.map_err(of_pool)
    }

    /// Begins an ordinary transaction without a key. End it with [`Tx::commit`]; dropping it rolls it back.
    pub async fn begin(&self) -> Result<Tx, Error> {
        let session = self.session().await?;
        session.connection()?.batch_execute(&self.shared.begin).await.map_err(classify)?;
        Ok(Tx::new(Arc::clone(&self.shared), session, Execution::mint(), Holds::Nothing))
    }

    /// A connection on which a transaction may be begun.
    pub(crate) async fn session(&self) -> Result<Session, Error> {
        Ok(Session::new(self.client().await?, &self.shared.connector))
    }

    /// Runs one statement that commits by itself, and returns its only row.
    pub(crate) async fn call(&self, sql: &str, params: &[&dyn Parameter]) -> Result<Row, Error> {
        let rows = self.query(sql, params).await?;
        rows.into_iter().next().ok_or_else(|| Error::Statement(format!("no row came back from {sql}").into()))
    }

    /// Runs one statement that commits by itself, and returns its rows.
    pub(crate) async fn query(&self, sql: &str, params: &[&dyn Parameter]) -> Result<Vec<Row>, Error> {
        let mut session = self.session().await?;
        let connection = session.connection()?;
        let queried = async {
            let prepared = Prepared::new(connection, self.shared.options.statements, sql, params.iter().copied());
            prepared.await?.query(connection).await
        };
        match queried.await {
            Ok(rows) => {
                session.release();
                Ok(rows)
            }
            Err(error) => {
                session.note(&error);
                Err(classify(error))
            }
        }
    }

    /// Runs statements in a transaction of their own, in one flight: all of them, or none. Returns the rows of each.
    pub(crate) async fn transact(
        &self,
        begin: &str,
        statements: &[(&str, Vec<&dyn Parameter>)],
    ) -> Result<Vec<Vec<Row>>, Error> {
        self.transact_on(self.session().await?, begin, statements).await
    }

    /// The same on a connection that is there. If that breaks, nothing says whether the transaction was committed.
    pub(crate) async fn transact_on(
        &self,
        mut session: Session,
        begin: &str,
        statements: &[(&str, Vec<&dyn Parameter>)],
    ) -> Result<Vec<Vec<Row>>, Error> {
        let connection = session.connection()?;
        let mut prepared = Vec::with_capacity(statements.len());
        for (sql, params) in statements {
            let statement = Prepared::new(connection, self.shared.options.statements, sql, params.iter().copied());
            prepared.push(statement.await.map_err(classify)?);
        }
        let mut flight = Flight::default();
        flight.command(connection, begin);
        for statement in &prepared {
            flight.statement(connection, statement);
        }
        flight.command(connection, "COMMIT");
        // A COMMIT after a failed statement answers with success, so each of them is looked at; the first tells why.
        match flight.answers().await {
            Ok(mut answers) => {
                session.release();
                answers.truncate(statements.len() + 1);
                answers.remove(0);
                Ok(answers)
            }
            Err(error) => {
                session.note(&error);
                Err(classify(error))
            }
        }
    }

    /// Begins a transaction and runs its first statement, in one flight.
    pub(crate) async fn begin_with(&self, sql: &str, params: &[&dyn Parameter]) -> Result<(Session, Vec<Row>), Error> {
        let mut session = self.session().await?;
        let rows = self.shared.begin_on(&mut session, &[&self.shared.begin], sql, params).await?;
        Ok((session, rows))
    }
}

impl Shared {
    /// Runs commands and the first statement of the transaction that they begin, in one flight.
    pub(crate) async fn begin_on(
        &self,
        session: &mut Session,
        commands: &[&str],
        sql: &str,
        params: &[&dyn Parameter],
    ) -> Result<Vec<Row>, Error> {
        self.try_begin_on(session, commands, sql, params).await.map_err(Failure::classified)
    }

    /// The same for a caller who looks at the failure himself.
    pub(crate) async fn try_begin_on(
        &self,
        session: &mut Session,
        commands: &[&str],
        sql: &str,
        params: &[&dyn Parameter],
    ) -> Result<Vec<Row>, Failure> {
        let connection = session.connection()?;
        let flown = async {
            let prepared = Prepared::new(connection, self.options.statements, sql, params.iter().copied()).await?;
            let mut flight = Flight::default();
            for command in commands {
                flight.command(connection, command);
            }
            flight.statement(connection, &prepared);
            flight.fly().await
        };
        Ok(flown.await.inspect_err(|error| session.note(error))?)
    }
}

impl Store for Postgres {
    type Tx = Tx;

    async fn claim(&self, ask: &Ask) -> Result<Claim<Tx, Stored>, Error> {
        let ends = Instant::now() + ask.wait;
        loop {
            let claim = claim::claim(self, ask).await?;
            let Claim::InFlight { retry_after } = claim else { return Ok(claim) };
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(claim);
            }
            // Leased work says how long its lease runs; anything else holds the lock that `wait` waits for.
            let leased = retry_after != self.shared.options.retry_after;
            if leased {
                tokio::time::sleep(LEASED_LOOK.min(left)).await;
            } else if !claim::wait(self, ask, left).await? {
                return Ok(claim);
            }
        }
    }

    async fn lease(&self, ask: &Ask, terms: &LeaseTerms) -> Result<Claim<Lease, Stored>, Error> {
        lease::lease(self, ask, terms).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<bool, Error> {
        lease::renew(self, lease, lease_for).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        lease::release(self, lease).await
    }

    async fn abandon(&self, lease: &Lease) -> Result<(), Error> {
        lease::abandon(self, lease).await
    }

    async fn begin_fenced(&self, lease: &Lease) -> Result<Tx, Error> {
        lease::begin_fenced(self, lease).await
    }

    async fn reap(&self, limit: u32) -> Result<u64, Error> {
        reap::reap(self, limit).await
    }

    async fn stuck_leases(&self) -> Result<u64, Error> {
        lease::stuck(self).await
    }

    async fn check(&self) -> Result<(), Error> {
        migrate::check(self).await
    }

    async fn check_seals(&self, known: &[String]) -> Result<(), Error> {
        seals::check(self, known).await
    }

    async fn list_keys(&self, filter: &KeyFilter) -> Result<Vec<KeyRecord>, Error> {
        operator::list(self, filter).await
    }

    async fn show_key(&self, scope: &Scope, key: &Key) -> Result<Option<KeyRecord>, Error> {
        operator::show(self, scope, key).await
    }

    async fn evict_key(
        &self,
        scope: &Scope,
        key: &Key,
        expected: Option<Execution>,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Eviction, Error> {
        operator::evict(self, scope, key, expected, audit, dry_run).await
    }
}

/// A duration in milliseconds, as the functions take it.
pub(crate) fn interval_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

//! The store: asks for keys.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::{Object, Pool};
use semel::lease::{Lease, LeaseTerms};
use semel::operator::{Audit, Eviction, KeyFilter, KeyRecord};
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution, Key, Scope, Store};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connect::{self, Options};
use crate::error::{classify, of_pool};
use crate::flight::{Flight, Flown, Prepared};
use crate::parameter::Parameter;
use crate::session::{Connector, Session};
use crate::tx::{Holds, Tx};
use crate::{lease, migrate, operator, reap, seals};

const CLAIM: &str = include_str!("sql/claim.sql");
const WAIT: &str = "SELECT semel.wait($1, $2, $3)";

/// How often leased work is looked at while a request waits for it: it holds no lock that could wake the waiting.
const LEASED_LOOK: Duration = Duration::from_millis(200);

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
    waiting: Semaphore,
    /// Told when a transaction of this process that wrote events has ended.
    pub(crate) emitted: Notify,
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
        let begin = format!("BEGIN ISOLATION LEVEL {}; {bounds}", options.isolation.sql());
        let begin_relaying = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {bounds}");
        let waiting = Semaphore::new(options.max_waiting);
        let connector = Arc::new(connector);
        let emitted = Notify::new();
        let shared = Shared { pool, connector, options, begin, begin_relaying, waiting, emitted };
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
        let mut session = self.session().await?;
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
        let answers = match flight.fly_past(None).await {
            Flown::Answered(answers) => answers,
            Flown::Grounded(error) => return Err(classify(error)),
        };
        // A COMMIT after a failed statement answers with success, so each of them is looked at; the first tells why.
        match answers.into_iter().collect::<Result<Vec<_>, _>>() {
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
        let connection = session.connection()?;
        let flown = async {
            let prepared = Prepared::new(connection, self.shared.options.statements, sql, params.iter().copied());
            let prepared = prepared.await?;
            let mut flight = Flight::default();
            flight.command(connection, &self.shared.begin);
            flight.statement(connection, &prepared);
            flight.fly().await
        };
        match flown.await {
            Ok(rows) => Ok((session, rows)),
            Err(error) => {
                session.note(&error);
                Err(classify(error))
            }
        }
    }

    async fn claim_now(&self, ask: &Ask) -> Result<Claim<Tx, Stored>, Error> {
        let mut asked_before = false;
        loop {
            match self.claim_once(ask).await {
                // A pooled connection may have died while it was idle, or a table changed under its statements. A claim
                // alone changes nothing, so it is asked once more on another one.
                Err(Error::Unavailable(_) | Error::Conflict(_)) if !asked_before => asked_before = true,
                other => return other,
            }
        }
    }

    async fn claim_once(&self, ask: &Ask) -> Result<Claim<Tx, Stored>, Error> {
        let fingerprint = ask.fingerprint.as_bytes().as_slice();
        let params: [&dyn Parameter; 4] =
            [&ask.scope.tenant(), &ask.scope.operation(), &ask.key.as_str(), &fingerprint];
        let (session, rows) = self.begin_with(CLAIM, &params).await?;
        let [row] = rows.as_slice() else {
            return Err(Error::Statement("semel.claim returned no row".into()));
        };
        // Whatever is not fresh leaves nothing open: dropping the session rolls back, and nobody waits for it.
        Ok(match read_claim(row, self.shared.options.retry_after)? {
            Claim::Fresh(Granted { execution, replaces }) => {
                let holds = Holds::Claim { ask: ask.clone(), replaces };
                Claim::Fresh(Tx::new(Arc::clone(&self.shared), session, execution, holds))
            }
            Claim::Replay(stored) => Claim::Replay(stored),
            Claim::InFlight { retry_after } => Claim::InFlight { retry_after },
            Claim::Mismatch => Claim::Mismatch,
            Claim::Resume(_) | Claim::Unknown => Claim::Unknown,
        })
    }

    /// Waits until the transaction that runs the key has ended. `false` when the time is over, or when too many wait
    /// already. The server watches the time; the transaction's own deadlines bound a process that stops here.
    async fn wait(&self, ask: &Ask, left: Duration) -> Result<bool, Error> {
        let Ok(_permit) = self.shared.waiting.try_acquire() else { return Ok(false) };
        let session = self.session().await?;
        let connection = session.connection()?;
        let wait_ms = left.as_millis().max(1);
        let begin =
            format!("{}; SET LOCAL lock_timeout = {wait_ms}; SET LOCAL statement_timeout = 0", self.shared.begin);
        connection.batch_execute(&begin).await.map_err(classify)?;
        let params: [&dyn Parameter; 3] = [&ask.scope.tenant(), &ask.scope.operation(), &ask.key.as_str()];
        let waited = async {
            let prepared = Prepared::new(connection, self.shared.options.statements, WAIT, params.into_iter());
            prepared.await?.query(connection).await
        };
        let waited = waited.await.map_err(classify);
        session.roll_back().await;
        match waited {
            Ok(_) => Ok(true),
            Err(error) if is_lock_timeout(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Store for Postgres {
    type Tx = Tx;

    async fn claim(&self, ask: &Ask) -> Result<Claim<Tx, Stored>, Error> {
        let ends = Instant::now() + ask.wait;
        loop {
            let claim = self.claim_now(ask).await?;
            let Claim::InFlight { retry_after } = claim else { return Ok(claim) };
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(claim);
            }
            // Leased work says how long its lease runs; anything else holds the lock that `wait` waits for.
            let leased = retry_after != self.shared.options.retry_after;
            if leased {
                tokio::time::sleep(LEASED_LOOK.min(left)).await;
            } else if !self.wait(ask, left).await? {
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

/// What a fresh claim brings.
pub(crate) struct Granted {
    pub(crate) execution: Execution,
    /// The expired row that the completion may replace.
    pub(crate) replaces: Option<Uuid>,
}

/// Reads the row that `semel.claim` returns.
pub(crate) fn read_claim(row: &Row, retry_after: Duration) -> Result<Claim<Granted, Stored>, Error> {
    let outcome: &str = row.try_get("outcome").map_err(classify)?;
    Ok(match outcome {
        "fresh" => Claim::Fresh(Granted {
            execution: row.try_get::<_, Uuid>("execution").map_err(classify)?.into(),
            replaces: row.try_get("replaces").map_err(classify)?,
        }),
        other => read_refusal(other, row, retry_after)?,
    })
}

/// Reads what `semel.claim` and `semel.lease` have in common.
pub(crate) fn read_refusal<T>(outcome: &str, row: &Row, retry_after: Duration) -> Result<Claim<T, Stored>, Error> {
    Ok(match outcome {
        "replay" => Claim::Replay(Stored {
            execution: row.try_get::<_, Uuid>("execution").map_err(classify)?.into(),
            status: u16::try_from(row.try_get::<_, i16>("status").map_err(classify)?).unwrap_or(0),
            headers: Bytes::from(row.try_get::<_, Vec<u8>>("headers").map_err(classify)?),
            body: Bytes::from(row.try_get::<_, Vec<u8>>("body").map_err(classify)?),
            sealed_by: row.try_get("sealed_by").map_err(classify)?,
        }),
        "in_flight" => {
            let lease_ms: Option<i64> = row.try_get("retry_after_ms").map_err(classify)?;
            let lease = lease_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0).max(1)));
            Claim::InFlight { retry_after: lease.unwrap_or(retry_after) }
        }
        "mismatch" => Claim::Mismatch,
        "unknown" => Claim::Unknown,
        other => return Err(Error::Schema(format!("semel.claim answered {other:?}: run `semel migrate`"))),
    })
}

/// A duration in milliseconds, as the functions take it.
pub(crate) fn interval_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn is_lock_timeout(error: &Error) -> bool {
    crate::error::sql_state(error) == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE)
}

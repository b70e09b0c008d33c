//! The store: asks for keys.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::{Object, Pool};
use semel::lease::{Lease, LeaseTerms};
use semel::operator::{Audit, Eviction, KeyFilter, KeyRecord};
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution, Key, Scope, Store};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connect::{self, Options};
use crate::error::{classify, of_pool};
use crate::flight::{Flight, Prepared};
use crate::parameter::Parameter;
use crate::tx::{Holds, Tx, roll_back_later};
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
    pub(crate) options: Options,
    /// BEGIN with its isolation level and its deadlines, so that a process that stops or vanishes frees its key.
    pub(crate) begin: String,
    waiting: Semaphore,
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
        let pool = connect::pool(url, &options)?;
        let deadline_ms = options.deadline.as_millis().max(1);
        let begin = format!(
            "BEGIN ISOLATION LEVEL {}; SET LOCAL idle_in_transaction_session_timeout = {deadline_ms}; \
             SET LOCAL statement_timeout = {deadline_ms}",
            options.isolation.sql()
        );
        let waiting = Semaphore::new(options.max_waiting);
        Ok(Postgres { shared: Arc::new(Shared { pool, options, begin, waiting }) })
    }

    /// Brings the schema up to this version. Safe to run from several processes at once; changes nothing when there is
    /// nothing to do. Returns the names of what was applied.
    pub async fn migrate(&self) -> Result<Vec<String>, Error> {
        migrate::run(self).await
    }

    /// A connection from the pool, for reads and for statements that need no key.
    pub async fn client(&self) -> Result<Object, Error> {
        self.shared.pool.get().await.map_err(of_pool)
    }

    /// Begins an ordinary transaction without a key. End it with [`Tx::commit`]; dropping it rolls it back.
    pub async fn begin(&self) -> Result<Tx, Error> {
        let connection = self.client().await?;
        connection.batch_execute(&self.shared.begin).await.map_err(classify)?;
        Ok(Tx::new(Arc::clone(&self.shared), connection, Execution::mint(), Holds::Nothing))
    }

    /// Runs one statement that commits by itself, and returns its only row.
    pub(crate) async fn call(&self, sql: &str, params: &[&dyn Parameter]) -> Result<Row, Error> {
        let connection = self.client().await?;
        let rows = query(&connection, &self.shared.options, sql, params).await?;
        rows.into_iter().next().ok_or_else(|| Error::Statement(format!("no row came back from {sql}").into()))
    }

    async fn claim_now(&self, ask: &Ask) -> Result<Claim<Tx, Stored>, Error> {
        let mut fresh_connection_tried = false;
        loop {
            let connection = self.client().await?;
            match self.claim_on(connection, ask).await {
                // A pooled connection may have died while it was idle. A claim alone changes nothing, so it is asked
                // once more on another one.
                Err(Error::Unavailable(_)) if !fresh_connection_tried => fresh_connection_tried = true,
                other => return other,
            }
        }
    }

    async fn claim_on(&self, connection: Object, ask: &Ask) -> Result<Claim<Tx, Stored>, Error> {
        let fingerprint = ask.fingerprint.as_bytes().as_slice();
        let params: [&dyn Parameter; 4] =
            [&ask.scope.tenant(), &ask.scope.operation(), &ask.key.as_str(), &fingerprint];
        let answers = {
            let claim = Prepared::new(&connection, self.shared.options.statements, CLAIM, params.into_iter());
            let claim = claim.await.map_err(classify)?;
            let mut flight = Flight::default();
            flight.command(&connection, &self.shared.begin);
            flight.statement(&connection, &claim);
            flight.fly().await
        };
        let mut rows = Vec::new();
        for answer in answers {
            match answer {
                Ok(answered) => rows.extend(answered),
                Err(error) => {
                    roll_back_later(connection);
                    return Err(classify(error));
                }
            }
        }
        let [row] = rows.as_slice() else {
            roll_back_later(connection);
            return Err(Error::Statement("semel.claim returned no row".into()));
        };
        let claim = read_claim(row, self.shared.options.retry_after);
        match claim {
            Ok(Claim::Fresh(Granted { execution, replaces })) => {
                let holds = Holds::Claim { ask: ask.clone(), replaces };
                Ok(Claim::Fresh(Tx::new(Arc::clone(&self.shared), connection, execution, holds)))
            }
            other => {
                roll_back_later(connection);
                Ok(match other? {
                    Claim::Replay(stored) => Claim::Replay(stored),
                    Claim::InFlight { retry_after } => Claim::InFlight { retry_after },
                    Claim::Mismatch => Claim::Mismatch,
                    _ => Claim::Unknown,
                })
            }
        }
    }

    /// Waits until the transaction that runs the key has ended. `false` when the time is over.
    async fn wait(&self, ask: &Ask, left: Duration) -> Result<bool, Error> {
        let Ok(_permit) = self.shared.waiting.try_acquire() else { return Ok(false) };
        let connection = self.client().await?;
        let begin = format!("BEGIN; SET LOCAL lock_timeout = {}", left.as_millis().max(1));
        connection.batch_execute(&begin).await.map_err(classify)?;
        let params: [&dyn Parameter; 3] = [&ask.scope.tenant(), &ask.scope.operation(), &ask.key.as_str()];
        let waited = query(&connection, &self.shared.options, WAIT, &params).await;
        let ended = connection.batch_execute("ROLLBACK").await;
        match waited {
            Ok(_) => ended.map(|()| true).map_err(classify),
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
            } else if !timeout(left, self.wait(ask, left)).await.unwrap_or(Ok(false))? {
                return Ok(claim);
            }
        }
    }

    async fn lease(&self, ask: &Ask, terms: &LeaseTerms) -> Result<Claim<Lease, Stored>, Error> {
        lease::lease(self, ask, terms).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), Error> {
        lease::renew(self, lease, lease_for).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        lease::release(self, lease).await
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

    async fn evict_key(&self, scope: &Scope, key: &Key, audit: &Audit, dry_run: bool) -> Result<Eviction, Error> {
        operator::evict(self, scope, key, audit, dry_run).await
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

/// Runs a statement on a connection and returns its rows.
pub(crate) async fn query(
    connection: &Object,
    options: &Options,
    sql: &str,
    params: &[&dyn Parameter],
) -> Result<Vec<Row>, Error> {
    let prepared = Prepared::new(connection, options.statements, sql, params.iter().copied());
    prepared.await.map_err(classify)?.query(connection).await.map_err(classify)
}

/// A duration as PostgreSQL's interval, in text.
pub(crate) fn interval_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn is_lock_timeout(error: &Error) -> bool {
    crate::error::sql_state(error) == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE)
}

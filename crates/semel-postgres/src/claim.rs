//! Asks for a key. Decision 2 lists the interleavings behind every rule here.
//!
//! `semel.claim` does the same for callers in SQL. From here it is `semel.begin_claim`, which leaves together with
//! BEGIN: the lock, then the row, read by a *later* statement of the function, because one that did both would judge by
//! a snapshot that is older than the lock.

use std::fmt;
use std::iter::empty;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::Object;
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution};
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error as DriverError, Row};
use uuid::Uuid;

use crate::connect::Statements;
use crate::error::{classify, is_aborted, sql_state};
use crate::failure::Failure;
use crate::flight::Prepared;
use crate::parameter::Parameter;
use crate::record::{Columns, Record};
use crate::session::Session;
use crate::store::{Postgres, Shared};
use crate::tx::{Holds, Tx};

const HOLDS: &str = include_str!("sql/holds.sql");
const SECRET: &str = "SELECT i.secret FROM semel.installation i";
const INSTALLATION: &str = include_str!("sql/installation.sql");
const BEGIN_CLAIM: &str = include_str!("sql/begin_claim.sql");
/// The fields of what `semel.begin_claim` answers, in its order.
const ANSWER: [&str; 8] =
    ["locked", "outcome", "execution", "status", "headers", "body", "sealed_by", "retry_after_ms"];
const PROBE: &str = include_str!("sql/probe.sql");
const WAIT: &str = "SELECT pg_advisory_xact_lock_shared($1)";

/// What the locks of keys are keyed with, so that nobody can craft two keys that share a lock.
pub(crate) struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Which secret the locks of ordering keys are keyed with, and where: that of this table in this history of the
/// database. A schema that is made anew has another table, and a cluster that takes the place of another has another
/// history, where a table may have the same id.
#[derive(Debug)]
pub(crate) struct Installation {
    secret: Secret,
    pub(crate) table: u32,
    pub(crate) incarnation: String,
}

impl Installation {
    /// Asks in the transaction that runs: an answer of another session may be that of another server.
    pub(crate) async fn read(connection: &Object, statements: Statements) -> Result<Option<Installation>, DriverError> {
        let rows = Prepared::new(connection, statements, INSTALLATION, empty()).await?.query(connection).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let secret = Secret(row.try_get(0)?);
        Ok(Some(Installation { secret, table: row.try_get(1)?, incarnation: row.try_get(2)? }))
    }
}

/// What a fresh claim brings.
pub(crate) struct Granted {
    pub(crate) execution: Execution,
    /// The expired row that the completion may replace.
    pub(crate) replaces: Option<Uuid>,
}

/// The advisory lock of a key: the one that `semel.lock_id` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockId(pub(crate) i64);

impl LockId {
    fn of(ask: &Ask, secret: &Secret) -> LockId {
        let (tenant, operation) = (ask.scope.tenant(), ask.scope.operation());
        let mut hash = Sha256::new_with_prefix(&secret.0);
        for part in [tenant, operation] {
            hash.update((part.len() as u32).to_be_bytes());
            hash.update(part);
        }
        hash.update(ask.key.as_str());
        LockId::from_hash(hash)
    }

    /// The lock of an ordering key, which `semel.lock_ordering_keys` takes.
    pub(crate) fn of_ordering_key(ordering_key: &str, installation: &Installation) -> LockId {
        let hash = Sha256::new_with_prefix(&installation.secret.0);
        LockId::from_hash(hash.chain_update("ordering key ").chain_update(ordering_key))
    }

    fn from_hash(hash: Sha256) -> LockId {
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        LockId(i64::from_be_bytes(first))
    }
}

/// Asks for a key, at once and without waiting for anybody but a table that is locked, which the deadline bounds.
pub(crate) async fn claim(store: &Postgres, ask: &Ask) -> Result<Claim<Tx, Stored>, Error> {
    let mut asked_before = false;
    loop {
        // Dropped, a claim is rolled back and what still runs of it is cancelled.
        let claim = timeout(store.shared.options.deadline, claim_once(store, ask)).await;
        match claim.unwrap_or(Err(Error::Deadline)) {
            // A pooled connection may have died while it was idle, or a table changed under its statements. A claim
            // alone changes nothing, so it is asked once more on another one.
            Err(Error::Unavailable(_) | Error::Conflict(_)) if !asked_before => asked_before = true,
            other => return other,
        }
    }
}

async fn claim_once(store: &Postgres, ask: &Ask) -> Result<Claim<Tx, Stored>, Error> {
    let lock = lock_of(store, ask).await?;
    if store.shared.recent.knows(lock) {
        // If it fails, the claim itself will say why.
        if let Ok(Some(claim)) = look(store, ask).await {
            return Ok(claim);
        }
        store.shared.recent.forget(lock);
    }
    let (mut session, execution) = (store.session().await?, Execution::mint());
    let claim = begin(&store.shared, &mut session, ask, lock, execution).await?;
    if matches!(claim, Claim::Replay(_) | Claim::Mismatch) {
        store.shared.recent.remember(lock);
    }
    // Whatever is not fresh leaves nothing open: dropping the session rolls back, and nobody waits for it.
    Ok(match claim {
        Claim::Fresh(Granted { execution, replaces }) => {
            let holds = Holds::Claim { ask: ask.clone(), lock, replaces };
            Claim::Fresh(Tx::new(Arc::clone(&store.shared), session, execution, holds))
        }
        Claim::Replay(stored) => Claim::Replay(stored),
        Claim::InFlight { retry_after } => Claim::InFlight { retry_after },
        Claim::Mismatch => Claim::Mismatch,
        Claim::Resume(_) | Claim::Unknown => Claim::Unknown,
    })
}

/// Looks at the row alone, outside any transaction: a committed reply that lives is the truth, whoever holds the lock.
/// `None` if there is none.
async fn look(store: &Postgres, ask: &Ask) -> Result<Option<Claim<Tx, Stored>>, Error> {
    let fingerprint = ask.fingerprint.as_bytes().as_slice();
    let params: [&dyn Parameter; 4] = [&ask.scope.tenant(), &ask.scope.operation(), &ask.key.as_str(), &fingerprint];
    let rows = store.query(PROBE, &params).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    if !row.try_get(0).map_err(classify)? {
        return Ok(Some(Claim::Mismatch));
    }
    let stored = || {
        Ok(Stored {
            execution: row.try_get::<_, Uuid>(1)?.into(),
            status: u16::try_from(row.try_get::<_, i16>(2)?).unwrap_or(0),
            headers: Bytes::copy_from_slice(row.try_get(3)?),
            body: Bytes::copy_from_slice(row.try_get(4)?),
            sealed_by: row.try_get(5)?,
        })
    };
    stored().map(|stored| Some(Claim::Replay(stored))).map_err(classify)
}

/// Begins a transaction, tries the key's lock, and reads its row, in one flight.
async fn begin(
    shared: &Shared,
    session: &mut Session,
    ask: &Ask,
    lock: LockId,
    execution: Execution,
) -> Result<Claim<Granted, Stored>, Error> {
    let wish = Wish { ask, lock, execution, waits: false };
    match wish.fly(shared, session, &[shared.begin_claiming.as_str()]).await {
        Ok(row) => wish.read(shared, &row),
        // The lock is tried, so it was the table that somebody holds.
        Err(Failure::Driver(error)) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Err(Error::Deadline),
        Err(failure) => Err(failure.classified_own()),
    }
}

/// Ends the transaction of a run and claims its key once more in another, for the same run, so that nothing of its
/// effect is left.
///
/// It waits for the lock, as long as a transaction may stand still: those who waited for the run's end are let through
/// by its rollback, and must not keep the run from its key. Somebody who asks in between may get it, and then it is not
/// fresh. No work follows, so it is at READ COMMITTED, where the row is read as it is once the lock is had.
pub(crate) async fn begin_anew(
    shared: &Shared,
    session: &mut Session,
    ask: &Ask,
    lock: LockId,
    execution: Execution,
) -> Result<Claim<Granted, Stored>, Error> {
    let wish = Wish { ask, lock, execution, waits: true };
    match wish.fly(shared, session, &["ROLLBACK", shared.begin_relaying.as_str()]).await {
        Ok(answers) => wish.read(shared, &answers),
        // Somebody else has the lock for long.
        Err(Failure::Driver(error)) if error.code().is_some_and(|code| PATIENCE_IS_OVER.contains(code)) => {
            Err(Error::Raced)
        }
        Err(failure) => Err(failure.classified_own()),
    }
}

/// Fails unless the transaction is the one that the run began with, or was aborted: a run that has ended it may have
/// committed an effect that nothing can take back.
pub(crate) async fn require_held(shared: &Shared, session: &Session, execution: Execution) -> Result<(), Error> {
    let (connection, run) = (session.connection()?, execution.as_uuid().to_string());
    let params: [&dyn Parameter; 1] = [&run];
    let held = async {
        let prepared = Prepared::new(connection, shared.options.statements, HOLDS, params.into_iter()).await?;
        prepared.query(connection).await?.first().map_or(Ok(false), |row| row.try_get(0))
    };
    match held.await {
        Ok(true) => Ok(()),
        Err(error) if is_aborted(&error) => Ok(()),
        Ok(false) => Err(Error::Statement("the work has ended the transaction that Semel began for it".into())),
        Err(error) => Err(classify(error)),
    }
}

/// What ends a wait for a lock: `lock_timeout`, `statement_timeout`.
const PATIENCE_IS_OVER: [SqlState; 2] = [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED];

/// Who wants which key.
struct Wish<'a> {
    ask: &'a Ask,
    lock: LockId,
    execution: Execution,
    waits: bool,
}

impl Wish<'_> {
    /// Sends commands that begin a transaction, and the claim, in one flight. Returns the row that answers the claim.
    async fn fly(&self, shared: &Shared, session: &mut Session, commands: &[&str]) -> Result<Row, Failure> {
        let Wish { ask, lock, execution, waits } = self;
        let (fingerprint, run) = (ask.fingerprint.as_bytes().as_slice(), execution.as_uuid().to_string());
        let deadline_ms = shared.deadline_ms.as_str();
        let (tenant, operation, key) = (ask.scope.tenant(), ask.scope.operation(), ask.key.as_str());
        let params: [&dyn Parameter; 8] = [&lock.0, waits, &run, &deadline_ms, &tenant, &operation, &key, &fingerprint];
        let rows = shared.try_begin_on(session, commands, BEGIN_CLAIM, &params).await?;
        rows.into_iter().next().ok_or_else(|| Error::Statement("a claim was not answered".into()).into())
    }

    fn read(&self, shared: &Shared, row: &Row) -> Result<Claim<Granted, Stored>, Error> {
        let Some(answer) = row.try_get::<_, Option<Record<'_>>>(0).map_err(classify)? else {
            return Ok(Claim::Fresh(Granted { execution: self.execution, replaces: None }));
        };
        let answer = answer.named(&ANSWER);
        match standing(&answer)? {
            Standing::Taken(outcome) => read_refusal(outcome, &answer, shared.options.retry_after),
            Standing::Free { replaces } if answer.column("locked")? => {
                Ok(Claim::Fresh(Granted { execution: self.execution, replaces }))
            }
            Standing::Free { .. } => Ok(Claim::InFlight { retry_after: shared.options.retry_after }),
        }
    }
}

/// Waits until the transaction that runs the key has ended. `false` when the time is over, or when too many wait
/// already. The server watches the time; the transaction's own deadlines bound a process that stops here. The lock is
/// shared, so that all who wait wake together.
pub(crate) async fn wait(store: &Postgres, ask: &Ask, left: Duration) -> Result<bool, Error> {
    let Ok(_permit) = store.shared.waiting.try_acquire() else { return Ok(false) };
    let lock = lock_of(store, ask).await?;
    let session = store.session().await?;
    let connection = session.connection()?;
    let wait_ms = left.as_millis().max(1);
    let begin = format!("{}; SET LOCAL lock_timeout = {wait_ms}; SET LOCAL statement_timeout = 0", store.shared.begin);
    connection.batch_execute(&begin).await.map_err(classify)?;
    let params: [&dyn Parameter; 1] = [&lock.0];
    let waited = async {
        let prepared = Prepared::new(connection, store.shared.options.statements, WAIT, params.into_iter());
        prepared.await?.query(connection).await
    };
    let waited = waited.await.map_err(classify);
    session.roll_back().await;
    match waited {
        Ok(_) => Ok(true),
        Err(error) if sql_state(&error) == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The lock of a key. The secret is read once: if the schema is made anew under a process that runs, that process and
/// others no longer exclude each other, and the constraint of `semel.keys` alone decides who commits (I2).
pub(crate) async fn lock_of(store: &Postgres, ask: &Ask) -> Result<LockId, Error> {
    let secret = store.shared.secret.get_or_try_init(async || {
        let row = store.call(SECRET, &[]).await?;
        row.try_get(0).map(Secret).map_err(classify)
    });
    Ok(LockId::of(ask, secret.await?))
}

/// Where a key stands.
enum Standing<'a> {
    /// It may be run by whoever has the lock, and replaces the row of this run.
    Free { replaces: Option<Uuid> },
    /// This outcome, whoever has the lock.
    Taken(&'a str),
}

fn standing(answer: &impl Columns) -> Result<Standing<'_>, Error> {
    Ok(match answer.column("outcome")? {
        None => Standing::Free { replaces: None },
        Some("expired") => Standing::Free { replaces: Some(answer.column("execution")?) },
        Some(outcome) => Standing::Taken(outcome),
    })
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

/// Reads what every way to ask for a key has in common.
pub(crate) fn read_refusal<T>(
    outcome: &str,
    row: &impl Columns,
    retry_after: Duration,
) -> Result<Claim<T, Stored>, Error> {
    Ok(match outcome {
        "replay" => Claim::Replay(Stored {
            execution: row.column::<Uuid>("execution")?.into(),
            status: u16::try_from(row.column::<i16>("status")?).unwrap_or(0),
            headers: Bytes::from(row.column::<Vec<u8>>("headers")?),
            body: Bytes::from(row.column::<Vec<u8>>("body")?),
            sealed_by: row.column("sealed_by")?,
        }),
        "in_flight" => {
            let lease_ms: Option<i64> = row.column("retry_after_ms")?;
            let lease = lease_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0).max(1)));
            Claim::InFlight { retry_after: lease.unwrap_or(retry_after) }
        }
        "mismatch" => Claim::Mismatch,
        "unknown" => Claim::Unknown,
        other => return Err(Error::Schema(format!("a claim was answered {other:?}: run `semel migrate`"))),
    })
}

//! What operators see and change.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row};
use semel::operator::{Audit, Eviction, KeyFilter, KeyRecord, KeyState, LeaseRecord};
use semel::{Error, Execution, Key, Scope};

use crate::error::classify;
use crate::probe::{execution, unreadable};
use crate::store::Sqlite;

const LIST_KEYS: &str = include_str!("sql/list_keys.sql");
const SHOW_KEY: &str = include_str!("sql/show_key.sql");
const EVICT_KEY: &str = include_str!("sql/evict_key.sql");
const HAS_STEPS: &str = include_str!("sql/flow/has_steps.sql");
const AUDIT: &str = include_str!("sql/audit.sql");

/// The most keys that are listed at once (I12).
const MAX_LISTED: u32 = 10_000;
/// The longest actor and reason, in bytes. The database checks the same bounds (I12).
const MAX_ACTOR_BYTES: usize = 255;
const MAX_REASON_BYTES: usize = 1024;

impl Sqlite {
    pub(crate) async fn list(&self, filter: &KeyFilter) -> Result<Vec<KeyRecord>, Error> {
        let now_ms = self.now_ms();
        self.readers()
            .read(|connection| {
                let params = (
                    &filter.tenant,
                    &filter.operation,
                    filter.state.map(KeyState::as_str),
                    filter.limit.min(MAX_LISTED),
                );
                let mut list = connection.prepare_cached(LIST_KEYS).map_err(classify)?;
                let rows = list.query_map(params, |row| record(row, now_ms)).map_err(classify)?;
                rows.collect::<rusqlite::Result<_>>().map_err(classify)
            })
            .await
    }

    pub(crate) async fn show(&self, scope: &Scope, key: &Key) -> Result<Option<KeyRecord>, Error> {
        let now_ms = self.now_ms();
        self.readers().read(|connection| find(connection, scope, key, now_ms)).await
    }

    /// The row goes and the audit row comes in one commit. A key that this process runs, or that a lease runs on, is
    /// refused; one that another process runs in mid-transaction has no row that could be evicted. The run is compared
    /// where it is deleted, on the writer.
    pub(crate) async fn evict(
        &self,
        scope: &Scope,
        key: &Key,
        expected: Option<Execution>,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Eviction, Error> {
        check_audit(audit)?;
        let now_ms = self.now_ms();
        let judge = |connection: &Connection| {
            if self.in_flight().runs(scope, key) {
                return Ok(Eviction::InFlight);
            }
            Ok(match find(connection, scope, key, now_ms)? {
                None => Eviction::NotFound,
                Some(found) if expected.is_some_and(|expected| expected != found.execution) => Eviction::Changed,
                Some(KeyRecord { state: KeyState::InProgress, lease: Some(lease), .. })
                    if !lease.remaining.is_zero() =>
                {
                    Eviction::InFlight
                }
                // The next run of a flow would do again what its steps have done.
                Some(found) if is_unfinished(found.state) && has_steps(connection, found.execution)? => {
                    Eviction::InFlight
                }
                Some(found) => Eviction::Evicted(Box::new(found)),
            })
        };
        let judged = self.readers().read(judge).await?;
        if dry_run || !matches!(judged, Eviction::Evicted(_)) {
            return Ok(judged);
        }
        self.transact(None, |connection| {
            let judged = judge(connection)?;
            if let Eviction::Evicted(found) = &judged {
                let run = found.execution.as_uuid();
                let (tenant, operation, key) = (scope.tenant(), scope.operation(), key.as_str());
                connection.execute(EVICT_KEY, (tenant, operation, key, run.as_bytes())).map_err(classify)?;
                let audit = (now_ms, &audit.actor, "keys evict", tenant, operation, key, run.as_bytes(), &audit.reason);
                connection.execute(AUDIT, audit).map_err(classify)?;
            }
            Ok(judged)
        })
        .await
    }
}

pub(crate) fn check_audit(audit: &Audit) -> Result<(), Error> {
    if !(1..=MAX_ACTOR_BYTES).contains(&audit.actor.len()) || !(1..=MAX_REASON_BYTES).contains(&audit.reason.len()) {
        return Err(Error::Settings(format!(
            "a change by hand needs an actor of 1 to {MAX_ACTOR_BYTES} bytes and a reason of 1 to {MAX_REASON_BYTES}"
        )));
    }
    Ok(())
}

fn find(connection: &Connection, scope: &Scope, key: &Key, now_ms: i64) -> Result<Option<KeyRecord>, Error> {
    let mut show = connection.prepare_cached(SHOW_KEY).map_err(classify)?;
    let name = (scope.tenant(), scope.operation(), key.as_str());
    show.query_row(name, |row| record(row, now_ms)).optional().map_err(classify)
}

fn is_unfinished(state: KeyState) -> bool {
    matches!(state, KeyState::InProgress | KeyState::Unknown)
}

/// Whether a flow has recorded anything under this run.
fn has_steps(connection: &Connection, run: Execution) -> Result<bool, Error> {
    let mut ask = connection.prepare_cached(HAS_STEPS).map_err(classify)?;
    ask.query_row((run.as_uuid().as_bytes(),), |row| row.get(0)).map_err(classify)
}

fn record(row: &Row<'_>, now_ms: i64) -> rusqlite::Result<KeyRecord> {
    let (tenant, operation, key): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let state: String = row.get(4)?;
    let state = KeyState::parse(&state).ok_or(rusqlite::Error::InvalidQuery)?;
    let expires_at_ms: i64 = row.get(10)?;
    let holder: Option<String> = row.get(11)?;
    let lease = match holder {
        None => None,
        Some(holder) => {
            let ends_ms: i64 = row.get(14)?;
            Some(LeaseRecord {
                holder,
                epoch: row.get(12)?,
                recovery_point: row.get(13)?,
                expires_at_ms: ends_ms,
                remaining: Duration::from_millis(u64::try_from(ends_ms.saturating_sub(now_ms)).unwrap_or(0)),
            })
        }
    };
    Ok(KeyRecord {
        scope: Scope::new(tenant, operation).map_err(|error| unreadable(0, error))?,
        key: Key::new(key).map_err(|error| unreadable(2, error))?,
        execution: execution(row, 3)?,
        state,
        status: row.get(5)?,
        reply_bytes: row.get::<_, i64>(6)?.unsigned_abs(),
        sealed_by: row.get(7)?,
        fingerprint: row.get(8)?,
        created_at_ms: row.get(9)?,
        expires_at_ms,
        expired: state != KeyState::InProgress && expires_at_ms <= now_ms,
        lease,
    })
}

//! What operators see of keys, and what they may change.

use std::time::Duration;

use semel::operator::{Audit, Eviction, KeyFilter, KeyRecord, KeyState, LeaseRecord};
use semel::{Error, Execution, Key, Scope};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::classify;
use crate::store::Postgres;

const LIST: &str = include_str!("sql/list_keys.sql");
const EVICT: &str = "SELECT semel.evict($1, $2, $3, $4, $5, $6, $7)";

/// The most keys that one listing returns (I12).
const MAX_LISTED: u32 = 10_000;

pub(crate) async fn list(store: &Postgres, filter: &KeyFilter) -> Result<Vec<KeyRecord>, Error> {
    let state = filter.state.map(KeyState::as_str);
    let limit = i64::from(filter.limit.min(MAX_LISTED));
    select(store, filter.tenant.as_deref(), filter.operation.as_deref(), None, state, limit).await
}

pub(crate) async fn show(store: &Postgres, scope: &Scope, key: &Key) -> Result<Option<KeyRecord>, Error> {
    let found = select(store, Some(scope.tenant()), Some(scope.operation()), Some(key.as_str()), None, 1).await?;
    Ok(found.into_iter().next())
}

pub(crate) async fn evict(
    store: &Postgres,
    scope: &Scope,
    key: &Key,
    expected: Option<Execution>,
    audit: &Audit,
    dry_run: bool,
) -> Result<Eviction, Error> {
    // Looked up first, because an evicted row cannot be shown any more; the function compares the run.
    let record = show(store, scope, key).await?;
    let run = expected.or(record.as_ref().map(|record| record.execution)).map(|execution| execution.as_uuid());
    let row = store
        .call(
            EVICT,
            &[
                &scope.tenant(),
                &scope.operation(),
                &key.as_str(),
                &run,
                &audit.actor.as_str(),
                &audit.reason.as_str(),
                &dry_run,
            ],
        )
        .await?;
    let outcome: &str = row.try_get(0).map_err(classify)?;
    Ok(match (outcome, record) {
        ("evicted", Some(record)) => Eviction::Evicted(Box::new(record)),
        ("in_flight", _) => Eviction::InFlight,
        ("changed", _) => Eviction::Changed,
        _ => Eviction::NotFound,
    })
}

async fn select(
    store: &Postgres,
    tenant: Option<&str>,
    operation: Option<&str>,
    key: Option<&str>,
    state: Option<&str>,
    limit: i64,
) -> Result<Vec<KeyRecord>, Error> {
    let rows = store.query(LIST, &[&tenant, &operation, &key, &state, &limit]).await?;
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<KeyRecord, Error> {
    let get = |column: &str| row.try_get::<_, String>(column).map_err(classify);
    let unreadable = |what: String| Error::Reply(what.into());
    let status: Option<i16> = row.try_get("status").map_err(classify)?;
    let holder: Option<String> = row.try_get("holder").map_err(classify)?;
    let lease_expires_at_ms: Option<i64> = row.try_get("lease_expires_at_ms").map_err(classify)?;
    let lease_left_ms: Option<i64> = row.try_get("lease_left_ms").map_err(classify)?;
    let lease = match (holder, lease_expires_at_ms) {
        (Some(holder), Some(expires_at_ms)) => Some(LeaseRecord {
            holder,
            epoch: row.try_get::<_, Option<i64>>("epoch").map_err(classify)?.unwrap_or(0),
            recovery_point: row.try_get("recovery_point").map_err(classify)?,
            expires_at_ms,
            remaining: Duration::from_millis(u64::try_from(lease_left_ms.unwrap_or(0)).unwrap_or(0)),
        }),
        _ => None,
    };
    Ok(KeyRecord {
        scope: Scope::new(get("tenant")?, get("operation")?).map_err(|error| unreadable(error.to_string()))?,
        key: Key::new(get("key")?).map_err(|error| unreadable(error.to_string()))?,
        execution: row.try_get::<_, Uuid>("execution").map_err(classify)?.into(),
        state: KeyState::parse(&get("state")?).ok_or_else(|| unreadable("an unknown state".to_owned()))?,
        status: status.and_then(|status| u16::try_from(status).ok()),
        reply_bytes: u64::try_from(row.try_get::<_, i64>("reply_bytes").map_err(classify)?).unwrap_or(0),
        sealed_by: row.try_get("sealed_by").map_err(classify)?,
        fingerprint: get("fingerprint")?,
        created_at_ms: row.try_get("created_at_ms").map_err(classify)?,
        expires_at_ms: row.try_get("expires_at_ms").map_err(classify)?,
        expired: row.try_get("expired").map_err(classify)?,
        lease,
    })
}

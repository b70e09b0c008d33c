//! What operators see of the outbox, and what they may change.

use std::time::SystemTime;

use semel::Error;
use semel::event::EventId;
use semel::operator::Audit;
use semel::outbox::{
    Backlog, EventRecord, EventState, HeldKey, HeldState, Intervention, OutboxStatus, Rebased, RelayRecord,
};
use tokio_postgres::Row;

use super::row::{count, get, held_key, millis, written};
use super::tidy;
use crate::error::classify;
use crate::store::Postgres;

const BACKLOG: &str = include_str!("../sql/outbox_backlog.sql");
const STATUS: &str = include_str!("../sql/outbox_status.sql");
const RELAYS: &str = include_str!("../sql/outbox_relays.sql");
const SLOTS: &str = include_str!("../sql/outbox_slots.sql");
const LIST_HELD: &str = include_str!("../sql/list_held.sql");
const HELD_KEY: &str = include_str!("../sql/held_key.sql");
const SHOW: &str = include_str!("../sql/show_event.sql");
const REDRIVE: &str = "SELECT semel.redrive($1, $2, $3, $4)";
const SKIP: &str = "SELECT semel.skip_event($1, $2, $3, $4)";
const REBASE: &str = include_str!("../sql/rebase.sql");

/// The most keys that one listing returns (I12).
const MAX_LISTED: u32 = 10_000;

pub(super) async fn backlog(store: &Postgres) -> Result<Backlog, Error> {
    let row = store.call(BACKLOG, &[]).await?;
    Ok(Backlog {
        events: count(&row, "events")?,
        oldest_ms: get::<Option<SystemTime>>(&row, "oldest")?.map(millis),
        retrying_keys: count(&row, "retrying_keys")?,
        parked_keys: count(&row, "parked_keys")?,
        now_ms: millis(get(&row, "now")?),
    })
}

pub(super) async fn status(store: &Postgres) -> Result<OutboxStatus, Error> {
    let row = store.call(STATUS, &[]).await?;
    Ok(OutboxStatus {
        incarnation: get(&row, "incarnation")?,
        positions_of: get(&row, "positions_of")?,
        backlog: backlog(store).await?,
        relays: store.query(RELAYS, &[]).await?.iter().map(relay).collect::<Result<_, _>>()?,
        free_lanes: count(&row, "free_lanes")?,
        slots: store.query(SLOTS, &[]).await?.iter().map(|row| get(row, "slot")).collect::<Result<_, _>>()?,
        blockers: tidy::blockers(store).await?,
    })
}

fn relay(row: &Row) -> Result<RelayRecord, Error> {
    Ok(RelayRecord {
        id: get(row, "id")?,
        name: get(row, "name")?,
        lanes: count(row, "lanes")?,
        expires_at_ms: millis(get(row, "expires_at")?),
        expired: get(row, "expired")?,
    })
}

pub(super) async fn list_held(store: &Postgres, state: Option<HeldState>, limit: u32) -> Result<Vec<HeldKey>, Error> {
    let state = state.map(HeldState::as_str);
    let rows = store.query(LIST_HELD, &[&state, &i64::from(limit.min(MAX_LISTED))]).await?;
    rows.iter().map(held_key).collect()
}

pub(super) async fn show(store: &Postgres, id: EventId) -> Result<Option<EventRecord>, Error> {
    let rows = store.query(SHOW, &[&id.as_uuid()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let written = written(row)?;
    let held = match get(row, "held")? {
        true => {
            store.query(HELD_KEY, &[&written.event.ordering_key.as_str()]).await?.first().map(held_key).transpose()?
        }
        false => None,
    };
    let actor: Option<String> = get(row, "actor")?;
    let reason: Option<String> = get(row, "reason")?;
    let skipped = actor.zip(reason).map(|(actor, reason)| Audit { actor, reason });
    let state = match (&held, &skipped) {
        (Some(key), _) => match key.state {
            HeldState::Retrying => EventState::Retrying,
            HeldState::Parked => EventState::Parked,
            HeldState::Redriving => EventState::Redriving,
        },
        (None, Some(_)) => EventState::Skipped,
        (None, None) if get(row, "uncovered")? => EventState::Created,
        (None, None) => EventState::Published,
    };
    Ok(Some(EventRecord { written, state, held, skipped }))
}

pub(super) async fn redrive(
    store: &Postgres,
    ordering_key: Option<&str>,
    audit: &Audit,
    dry_run: bool,
) -> Result<Intervention, Error> {
    let row = store.call(REDRIVE, &[&ordering_key, &audit.actor.as_str(), &audit.reason.as_str(), &dry_run]).await?;
    let keys: Option<i64> = row.try_get(0).map_err(classify)?;
    Ok(match keys {
        Some(keys) => Intervention::Done(u64::try_from(keys).unwrap_or(0)),
        None => Intervention::NotFound,
    })
}

pub(super) async fn skip(store: &Postgres, id: EventId, audit: &Audit, dry_run: bool) -> Result<Intervention, Error> {
    let params: [&dyn crate::Parameter; 4] = [&id.as_uuid(), &audit.actor.as_str(), &audit.reason.as_str(), &dry_run];
    let skipped: Option<bool> = store.call(SKIP, &params).await?.try_get(0).map_err(classify)?;
    Ok(match skipped {
        Some(true) => Intervention::Done(1),
        Some(false) => Intervention::NotParked,
        None => Intervention::NotFound,
    })
}

pub(super) async fn rebase(store: &Postgres, audit: &Audit, dry_run: bool) -> Result<Rebased, Error> {
    let row = store.call(REBASE, &[&audit.actor.as_str(), &audit.reason.as_str(), &dry_run]).await?;
    let rebased = Rebased {
        from: get(&row, "from_incarnation")?,
        to: get(&row, "to_incarnation")?,
        events: count(&row, "events")?,
    };
    if !dry_run && rebased.from.as_ref() != Some(&rebased.to) {
        // The rebase itself is done; a switch that does not come about now comes about with the next tidying.
        tidy::switch_now(store).await?;
    }
    Ok(rebased)
}

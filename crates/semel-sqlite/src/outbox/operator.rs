//! What operators see of the outbox, and what they may change.

use rusqlite::{Connection, OptionalExtension};
use semel::Error;
use semel::event::EventId;
use semel::operator::Audit;
use semel::outbox::{
    Backlog, EventRecord, EventState, HeldKey, HeldState, Intervention, OutboxStatus, Rebased, RelayRecord, Written,
};
use semel::sink::Lane;

use super::held::free_key;
use super::relay::{incarnations, last_seq};
use super::row::{execute, held_key, lane_of, query_all, query_row, written};
use crate::error::classify;
use crate::operator::check_audit;
use crate::store::Sqlite;

const BACKLOG: &str = include_str!("../sql/outbox/backlog.sql");
const RELAYS: &str = include_str!("../sql/outbox/relays.sql");
const FREE_LANES: &str = include_str!("../sql/outbox/free_lanes.sql");
const SHOW_EVENT: &str = include_str!("../sql/outbox/show_event.sql");
const SHOW_HELD_EVENT: &str = include_str!("../sql/outbox/show_held_event.sql");
const SHOW_HELD_KEY: &str = include_str!("../sql/outbox/show_held_key.sql");
const SKIPPED: &str = include_str!("../sql/outbox/skipped.sql");
const AUDIT: &str = include_str!("../sql/outbox/audit.sql");
const PARKED_KEYS: &str = include_str!("../sql/outbox/parked_keys.sql");
const REDRIVE_KEY: &str = include_str!("../sql/outbox/redrive_key.sql");
const SKIP_EVENT: &str = include_str!("../sql/outbox/skip_event.sql");
const RUNNING_RELAYS: &str = include_str!("../sql/outbox/running_relays.sql");
const REBASE: &str = include_str!("../sql/outbox/rebase.sql");
const REBASE_LANES: &str = include_str!("../sql/outbox/rebase_lanes.sql");
const REBASE_RELAYS: &str = include_str!("../sql/outbox/rebase_relays.sql");
const REBASE_RENUMBERED: &str = include_str!("../sql/outbox/rebase_renumbered.sql");
const REBASE_REDRIVEN: &str = include_str!("../sql/outbox/rebase_redriven.sql");
const REBASE_HELD_EVENTS: &str = include_str!("../sql/outbox/rebase_held_events.sql");
const REBASE_HELD_KEYS: &str = include_str!("../sql/outbox/rebase_held_keys.sql");

/// How many keys one turn redrives (I12).
const REDRIVE_BATCH: i64 = 1000;

impl Sqlite {
    pub(crate) async fn count_backlog(&self) -> Result<Backlog, Error> {
        let now_ms = self.now_ms();
        self.read_aside(move |connection| backlog(connection, now_ms)).await
    }

    pub(crate) async fn read_status(&self) -> Result<OutboxStatus, Error> {
        let now_ms = self.now_ms();
        self.read_aside(move |connection| {
            let (incarnation, positions_of) = incarnations(connection)?;
            let relays = query_all(connection, RELAYS, (), |row| {
                let expires_at_ms = row.get(3)?;
                Ok(RelayRecord {
                    id: row.get(0)?,
                    name: row.get(1)?,
                    lanes: row.get::<_, i64>(2)?.unsigned_abs(),
                    expires_at_ms,
                    expired: expires_at_ms <= now_ms,
                })
            })?;
            Ok(OutboxStatus {
                incarnation,
                positions_of,
                backlog: backlog(connection, now_ms)?,
                relays,
                free_lanes: query_row(connection, FREE_LANES, (), |row| row.get::<_, i64>(0))?.unsigned_abs(),
                slots: Vec::new(),
                blockers: Vec::new(),
            })
        })
        .await
    }

    pub(crate) async fn find_event(&self, id: EventId) -> Result<Option<EventRecord>, Error> {
        self.read_aside(move |connection| find(connection, id)).await
    }

    /// In turns of bounded length, each with the audit rows of the keys that it changes. A key that is held but not
    /// parked is tried again anyway, and stays as it is.
    pub(crate) async fn redrive_keys(
        &self,
        ordering_key: Option<&str>,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Intervention, Error> {
        check_audit(audit)?;
        let waiting = self.readers().read(|connection| parked(connection, ordering_key, i64::MAX)).await?.len();
        if waiting == 0
            && let Some(key) = ordering_key
            && self.readers().read(|connection| key_row(connection, Lane::of(key), key)).await?.is_none()
        {
            return Ok(Intervention::NotFound);
        }
        if dry_run {
            return Ok(Intervention::Done(waiting as u64));
        }
        let mut redriven = 0;
        while redriven < waiting {
            let batch = self
                .transact(None, |connection| {
                    let keys = parked(connection, ordering_key, REDRIVE_BATCH)?;
                    for (lane, key) in &keys {
                        execute(connection, REDRIVE_KEY, (lane.0, key))?;
                        note(connection, audit, "outbox redrive", Some(key), None, self.now_ms())?;
                    }
                    Ok(keys.len())
                })
                .await?;
            if batch == 0 {
                break;
            }
            redriven += batch;
        }
        Ok(Intervention::Done(redriven as u64))
    }

    /// The event goes and the audit row comes in one commit.
    pub(crate) async fn skip_held_event(
        &self,
        id: EventId,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Intervention, Error> {
        check_audit(audit)?;
        if dry_run {
            let found = self.readers().read(|connection| skippable(connection, id)).await?;
            return Ok(found.map_or_else(|refused| refused, |_| Intervention::Done(1)));
        }
        self.transact(None, |connection| {
            let event = match skippable(connection, id)? {
                Ok(event) => event,
                Err(refused) => return Ok(refused),
            };
            let key = &event.event.ordering_key;
            execute(connection, SKIP_EVENT, (event.cursor.seq,))?;
            free_key(connection, event.lane.0, key)?;
            note(connection, audit, "outbox skip", Some(key), Some(id), self.now_ms())?;
            Ok(Intervention::Done(1))
        })
        .await
    }

    /// Takes the file's incarnation where positions are of another, and otherwise makes a new one: a copy cannot be
    /// told from its original. Events that no position covers stay where they are, and sequences count from one.
    pub(crate) async fn rebase_positions(&self, audit: &Audit, dry_run: bool) -> Result<Rebased, Error> {
        check_audit(audit)?;
        let judge = |connection: &Connection| {
            let running: i64 = query_row(connection, RUNNING_RELAYS, (self.now_ms(),), |row| row.get(0))?;
            if running > 0 {
                return Err(Error::Settings(format!(
                    "{running} relays have a lease that runs; stop them, or wait until it has run out"
                )));
            }
            let (now, from) = incarnations(connection)?;
            let to = match &from {
                Some(from) if *from != now => now,
                _ => uuid::Uuid::new_v4().simple().to_string(),
            };
            Ok(Rebased { from, to, events: backlog(connection, self.now_ms())?.events })
        };
        if dry_run {
            return self.readers().read(judge).await;
        }
        self.transact(None, |connection| {
            let rebased = judge(connection)?;
            execute(connection, REBASE, (&rebased.to, last_seq(connection)?))?;
            execute(connection, REBASE_LANES, (&rebased.to,))?;
            execute(connection, REBASE_RELAYS, ())?;
            execute(connection, REBASE_RENUMBERED, ())?;
            execute(connection, REBASE_REDRIVEN, ())?;
            execute(connection, REBASE_HELD_KEYS, ())?;
            execute(connection, REBASE_HELD_EVENTS, ())?;
            note(connection, audit, "outbox rebase", None, None, self.now_ms())?;
            Ok(rebased)
        })
        .await
    }
}

fn backlog(connection: &Connection, now_ms: i64) -> Result<Backlog, Error> {
    query_row(connection, BACKLOG, (), |row| {
        Ok(Backlog {
            events: row.get::<_, i64>(0)?.unsigned_abs(),
            oldest_ms: row.get(1)?,
            retrying_keys: row.get::<_, i64>(2)?.unsigned_abs(),
            parked_keys: row.get::<_, i64>(3)?.unsigned_abs(),
            now_ms,
        })
    })
}

/// A held event is held, whatever its lane's position says; otherwise the position tells.
fn find(connection: &Connection, id: EventId) -> Result<Option<EventRecord>, Error> {
    if let Some(written) = held_event(connection, id)? {
        let held = key_row(connection, written.lane, &written.event.ordering_key)?;
        let state = match held.as_ref().map(|held| held.state) {
            Some(HeldState::Parked) => EventState::Parked,
            Some(HeldState::Redriving) => EventState::Redriving,
            Some(HeldState::Retrying) | None => EventState::Retrying,
        };
        return Ok(Some(EventRecord { written, state, held, skipped: None }));
    }
    let mut show = connection.prepare_cached(SHOW_EVENT).map_err(classify)?;
    let found = show.query_row((id.as_uuid().as_bytes(),), |row| Ok((written(row)?, row.get::<_, i64>(12)?)));
    let Some((written, cursor)) = found.optional().map_err(classify)? else { return Ok(None) };
    let mut skipped = connection.prepare_cached(SKIPPED).map_err(classify)?;
    let audit = |row: &rusqlite::Row<'_>| Ok(Audit { actor: row.get(0)?, reason: row.get(1)? });
    let skipped = skipped.query_row((id.as_uuid().as_bytes(),), audit).optional().map_err(classify)?;
    let state = match &skipped {
        Some(_) => EventState::Skipped,
        None if written.cursor.seq <= cursor => EventState::Published,
        None => EventState::Created,
    };
    Ok(Some(EventRecord { written, state, held: None, skipped }))
}

fn held_event(connection: &Connection, id: EventId) -> Result<Option<Written>, Error> {
    let mut show = connection.prepare_cached(SHOW_HELD_EVENT).map_err(classify)?;
    show.query_row((id.as_uuid().as_bytes(),), written).optional().map_err(classify)
}

/// A held event of a parked key, or why it cannot be skipped.
fn skippable(connection: &Connection, id: EventId) -> Result<Result<Written, Intervention>, Error> {
    let Some(event) = held_event(connection, id)? else { return Ok(Err(Intervention::NotFound)) };
    let key = key_row(connection, event.lane, &event.event.ordering_key)?;
    let parked = key.is_some_and(|key| key.state == HeldState::Parked);
    Ok(if parked { Ok(event) } else { Err(Intervention::NotParked) })
}

fn key_row(connection: &Connection, lane: Lane, ordering_key: &str) -> Result<Option<HeldKey>, Error> {
    let mut show = connection.prepare_cached(SHOW_HELD_KEY).map_err(classify)?;
    show.query_row((lane.0, ordering_key), held_key).optional().map_err(classify)
}

fn parked(connection: &Connection, ordering_key: Option<&str>, most: i64) -> Result<Vec<(Lane, String)>, Error> {
    let lane = ordering_key.map(|key| Lane::of(key).0);
    query_all(connection, PARKED_KEYS, (ordering_key, lane, most), |row| Ok((lane_of(row, 0)?, row.get(1)?)))
}

/// Leaves who changed something, and why, in the commit that changes it.
fn note(
    connection: &Connection,
    audit: &Audit,
    action: &str,
    ordering_key: Option<&str>,
    event: Option<EventId>,
    now_ms: i64,
) -> Result<(), Error> {
    let event = event.map(|id| id.as_uuid().into_bytes());
    execute(connection, AUDIT, (now_ms, &audit.actor, action, ordering_key, event, &audit.reason)).map(drop)
}

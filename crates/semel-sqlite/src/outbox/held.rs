//! Keys that are held back because the first of their events was refused.

use rusqlite::Connection;
use semel::Error;
use semel::outbox::{HeldEvent, HeldKey, HeldState, Holding, LaneState, RelayId};
use semel::sink::Lane;

use super::relay::store;
use super::row::{counts_to_json, execute, headers_to_json, held_event, held_key, mask, query_all, seq_of};
use crate::store::Sqlite;

const HOLD_KEY: &str = include_str!("../sql/outbox/hold_key.sql");
const KEEP_KEY_HELD: &str = include_str!("../sql/outbox/keep_key_held.sql");
const HOLD_EVENT: &str = include_str!("../sql/outbox/hold_event.sql");
const UPDATE_HELD_KEY: &str = include_str!("../sql/outbox/update_held_key.sql");
const RELEASE_EVENTS: &str = include_str!("../sql/outbox/release_events.sql");
const FREE_KEY: &str = include_str!("../sql/outbox/free_key.sql");
const RETRY_KEY_NOW: &str = include_str!("../sql/outbox/retry_key_now.sql");
const RENUMBER_EVENT: &str = include_str!("../sql/outbox/renumber_event.sql");
const REMEMBER_REDRIVEN: &str = include_str!("../sql/outbox/remember_redriven.sql");
const REMEMBER_RENUMBERING: &str = include_str!("../sql/outbox/remember_renumbering.sql");
const HELD_KEYS: &str = include_str!("../sql/outbox/held_keys.sql");
const HELD_EVENTS: &str = include_str!("../sql/outbox/held_events.sql");

/// The most held keys that an operator is shown at once (I12).
const MAX_LISTED: u32 = 10_000;

/// How much is kept of why an event was refused, in bytes. The database checks the same bound (I12).
const MAX_ERROR_BYTES: usize = 1024;

impl Sqlite {
    /// One turn for all of it. After a crash either the lane stands past the events and they are held, or neither: none
    /// is lost between the two (I4).
    pub(crate) async fn store_holdings(
        &self,
        id: RelayId,
        lane: &LaneState,
        holdings: &[Holding],
    ) -> Result<(), Error> {
        self.transact(None, |connection| {
            let renumbered = holdings.iter().any(|holding| matches!(holding, Holding::Renumber { .. }));
            store(connection, id, std::slice::from_ref(lane), renumbered)?;
            holdings.iter().try_for_each(|holding| apply(connection, lane, holding, self.now_ms()))
        })
        .await
    }

    pub(crate) async fn read_held_keys(&self, lanes: &[Lane]) -> Result<Vec<HeldKey>, Error> {
        self.held(mask(lanes), None, i64::MAX).await
    }

    pub(crate) async fn list_held_keys(&self, state: Option<HeldState>, limit: u32) -> Result<Vec<HeldKey>, Error> {
        self.held(-1, state, limit.min(MAX_LISTED).into()).await
    }

    async fn held(&self, lanes: i64, state: Option<HeldState>, limit: i64) -> Result<Vec<HeldKey>, Error> {
        let params = (lanes, state.map(HeldState::as_str), limit);
        let keys = self.readers().read(|connection| query_all(connection, HELD_KEYS, params, held_key)).await?;
        self.writer().check_settled()?;
        Ok(keys)
    }

    pub(crate) async fn read_held_events(
        &self,
        lane: Lane,
        ordering_key: &str,
        limit: u32,
    ) -> Result<Vec<HeldEvent>, Error> {
        let params = (lane.0, ordering_key, limit);
        let events = self.readers().read(|connection| query_all(connection, HELD_EVENTS, params, held_event)).await?;
        self.writer().check_settled()?;
        Ok(events)
    }
}

fn apply(connection: &Connection, state: &LaneState, holding: &Holding, now_ms: i64) -> Result<(), Error> {
    let lane = state.lane.0;
    match holding {
        Holding::Hold { key, events } => {
            if let Some(key) = key {
                let row = (lane, &key.ordering_key, key.state.as_str(), key.attempts);
                let row = (row.0, row.1, row.2, row.3, key.retry_at_ms, shortened(&key.error), now_ms);
                execute(connection, HOLD_KEY, row)?;
            } else if let Some(first) = events.first() {
                execute(connection, KEEP_KEY_HELD, (lane, &first.written.event.ordering_key, now_ms))?;
            }
            events.iter().try_for_each(|event| hold_event(connection, lane, event))
        }
        Holding::Update(key) => {
            let row = (lane, &key.ordering_key, key.state.as_str(), key.attempts, key.retry_at_ms);
            execute(connection, UPDATE_HELD_KEY, (row.0, row.1, row.2, row.3, row.4, shortened(&key.error))).map(drop)
        }
        Holding::Release { ordering_key, upto_seq } => {
            execute(connection, RELEASE_EVENTS, (lane, ordering_key, upto_seq))?;
            if !free_key(connection, lane, ordering_key)? {
                execute(connection, RETRY_KEY_NOW, (lane, ordering_key, now_ms))?;
            }
            Ok(())
        }
        Holding::Renumber { ordering_key, sequences } => {
            for (seq, sequence) in sequences {
                let sequence = i64::try_from(*sequence).unwrap_or(i64::MAX);
                execute(connection, RENUMBER_EVENT, (lane, ordering_key, seq, sequence))?;
                execute(connection, REMEMBER_REDRIVEN, (lane, ordering_key, seq, sequence))?;
            }
            execute(connection, RETRY_KEY_NOW, (lane, ordering_key, now_ms))?;
            let row = (lane, seq_of(state.cursor), counts_to_json(&state.counts));
            execute(connection, REMEMBER_RENUMBERING, row).map(drop)
        }
    }
}

/// Frees a key of which no event is held any more, and says whether it did.
pub(super) fn free_key(connection: &Connection, lane: u16, ordering_key: &str) -> Result<bool, Error> {
    Ok(execute(connection, FREE_KEY, (lane, ordering_key))? > 0)
}

fn hold_event(connection: &Connection, lane: u16, held: &HeldEvent) -> Result<(), Error> {
    let HeldEvent { written, sequence } = held;
    let event = &written.event;
    let row = (
        written.cursor.seq,
        written.id.as_uuid().into_bytes(),
        lane,
        written.time_ms,
        &event.topic,
        &event.ordering_key,
        &event.event_type,
        &event.content_type,
        headers_to_json(&event.headers),
        &event.traceparent,
        &event.tracestate,
        i64::try_from(*sequence).unwrap_or(i64::MAX),
        &event.payload[..],
    );
    execute(connection, HOLD_EVENT, row).map(drop)
}

/// What of an error fits, whole characters only.
fn shortened(error: &str) -> &str {
    &error[..error.floor_char_boundary(MAX_ERROR_BYTES)]
}

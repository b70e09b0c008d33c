//! Deleting what is published and old enough.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use semel::Error;
use semel::outbox::{Counts, LANES, LaneState, Tidied};
use semel::sink::Lane;

use super::relay::last_seq;
use super::row::{counts_of, counts_to_json, execute, lane_of, lane_state, query_all, query_row, seq_of};
use crate::error::{classify, millis};
use crate::store::Sqlite;

const LANE_CURSORS: &str = include_str!("../sql/outbox/lane_cursors.sql");
const PLACES: &str = include_str!("../sql/outbox/places.sql");
const EVENT_AGE: &str = include_str!("../sql/outbox/event_age.sql");
const DELETE_EVENT: &str = include_str!("../sql/outbox/delete_event.sql");
const LANE: &str = include_str!("../sql/outbox/lane.sql");
const RENUMBERINGS: &str = include_str!("../sql/outbox/renumberings.sql");
const STORE_HISTORY: &str = include_str!("../sql/outbox/store_history.sql");
const FORGET_REDRIVEN: &str = include_str!("../sql/outbox/forget_redriven.sql");
const FORGET_RENUMBERINGS: &str = include_str!("../sql/outbox/forget_renumberings.sql");
const COVERED: &str = include_str!("../sql/outbox/covered.sql");
const FIRST_UNCOVERED: &str = include_str!("../sql/outbox/first_uncovered.sql");
const STORE_COVERED: &str = include_str!("../sql/outbox/store_covered.sql");

/// How much one turn deletes, give or take the last event (I12): every page of a payload has to be written to be freed.
const MAX_BATCH_EVENTS: usize = 1000;
const MAX_BATCH_BYTES: u64 = 8 * 1024 * 1024;

/// How many turns one call takes.
const MAX_BATCHES: u32 = 32;

/// How far lanes must have come to be worth a turn of its own that notes it.
const NOTED_EVERY: i64 = 1000;

/// What may go: events up to where each lane stood when the call began, and until when emitted. That a lane has come
/// further since does not count, so that what goes is always the first of a lane.
#[derive(Clone, Copy)]
struct Deletable {
    cursors: [i64; LANES as usize],
    emitted_until: i64,
    now_ms: i64,
}

impl Sqlite {
    /// Deletes in turns of its own, between which others have theirs; what to delete is looked for beside the writer.
    /// Events that their lane has not passed stay, however old (I4). A crash leaves whole batches, each with the counts
    /// at its edge, so that what is left keeps its sequences (I5).
    pub(crate) async fn delete_old_events(&self, keep: Duration) -> Result<Tidied, Error> {
        self.note_covered().await?;
        let now_ms = self.now_ms();
        let emitted_until = now_ms.saturating_sub(millis(keep));
        let cursors = self.readers().read(lane_cursors).await?;
        let deletable = Deletable { cursors, emitted_until, now_ms };
        let (mut tidied, mut after) = (Tidied::default(), 0);
        for _ in 0..MAX_BATCHES {
            let batch = self.read_aside(move |connection| deletable.find(connection, after)).await?;
            let Some((last, _)) = batch.last() else { break };
            after = *last;
            tidied.emptied += self.transact(None, |connection| delete(connection, &batch)).await?;
        }
        Ok(tidied)
    }

    /// Notes how far all lanes have come, for whoever counts what waits.
    async fn note_covered(&self) -> Result<(), Error> {
        let (before, covered) = self
            .read_aside(|connection| {
                let covered: i64 = query_row(connection, COVERED, (), |row| row.get(0))?;
                let mut select = connection.prepare_cached(FIRST_UNCOVERED).map_err(classify)?;
                let first = select.query_row((covered,), |row| row.get::<_, i64>(0)).optional().map_err(classify)?;
                Ok((covered, first.map_or_else(|| last_seq(connection), |first| Ok(first - 1))?))
            })
            .await?;
        if covered - before >= NOTED_EVERY {
            self.transact(None, |connection| execute(connection, STORE_COVERED, (covered,)).map(drop)).await?;
        }
        Ok(())
    }
}

fn lane_cursors(connection: &Connection) -> Result<[i64; LANES as usize], Error> {
    let mut cursors = [0; LANES as usize];
    for (lane, cursor) in query_all(connection, LANE_CURSORS, (), |row| Ok((lane_of(row, 0)?, row.get(1)?)))? {
        if let Some(place) = cursors.get_mut(usize::from(lane.0)) {
            *place = cursor;
        }
    }
    Ok(cursors)
}

impl Deletable {
    /// The seqs and lanes of the next batch.
    fn find(&self, connection: &Connection, after: i64) -> Result<Vec<(i64, Lane)>, Error> {
        let mut age = connection.prepare_cached(EVENT_AGE).map_err(classify)?;
        let mut select = connection.prepare_cached(PLACES).map_err(classify)?;
        let mut places = select.query((after,)).map_err(classify)?;
        let (mut batch, mut old, mut bytes) = (Vec::new(), 0, 0);
        while let Some(place) = places.next().map_err(classify)? {
            let (seq, lane): (i64, Lane) = (place.get(0).map_err(classify)?, lane_of(place, 1).map_err(classify)?);
            if self.cursors.get(usize::from(lane.0)).is_none_or(|cursor| seq > *cursor) {
                continue;
            }
            let aged = age.query_row((seq,), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
            let (emitted_at, length) = aged.map_err(classify)?;
            // A time that has not come yet was wrong: whether such an event is old is seen from those after it.
            if emitted_at > self.emitted_until && emitted_at <= self.now_ms {
                break;
            }
            batch.push((seq, lane));
            if emitted_at <= self.emitted_until {
                old = batch.len();
            }
            bytes += length.unsigned_abs();
            if batch.len() == MAX_BATCH_EVENTS || bytes >= MAX_BATCH_BYTES {
                break;
            }
        }
        batch.truncate(old);
        Ok(batch)
    }
}

/// What a lane has counted up to the last of its deleted events.
struct History {
    /// What is at or before it was counted already, or in the incarnation before.
    start: i64,
    counts: Counts,
    renumbered: std::iter::Peekable<std::vec::IntoIter<LaneState>>,
    edge: i64,
}

impl History {
    fn read(connection: &Connection, lane: Lane) -> Result<History, Error> {
        let (start, counts) = query_row(connection, LANE, (lane.0,), |row| Ok((row.get(0)?, counts_of(row, 1)?)))?;
        let renumbered = query_all(connection, RENUMBERINGS, (lane.0,), lane_state)?.into_iter().peekable();
        Ok(History { start, counts, renumbered, edge: 0 })
    }

    fn count(&mut self, seq: i64, topic: String) {
        self.edge = seq;
        if seq <= self.start {
            return;
        }
        while let Some(state) = self.renumbered.next_if(|state| seq_of(state.cursor) < seq) {
            self.counts = state.counts;
        }
        *self.counts.entry(topic).or_default() += 1;
    }

    fn store(&self, connection: &Connection, lane: Lane) -> Result<(), Error> {
        execute(connection, FORGET_REDRIVEN, (lane.0, self.edge))?;
        if self.edge > self.start {
            execute(connection, STORE_HISTORY, (lane.0, self.edge, counts_to_json(&self.counts)))?;
            execute(connection, FORGET_RENUMBERINGS, (lane.0, self.edge))?;
        }
        Ok(())
    }
}

/// Deletes a batch and counts it in its lanes' histories. Says how many events were still there: another process may
/// have deleted and counted some of them first.
fn delete(connection: &Connection, batch: &[(i64, Lane)]) -> Result<u64, Error> {
    let mut histories: BTreeMap<Lane, History> = BTreeMap::new();
    let mut delete = connection.prepare_cached(DELETE_EVENT).map_err(classify)?;
    let mut deleted = 0;
    for &(seq, lane) in batch {
        let topic = delete.query_row((seq,), |row| row.get::<_, String>(0)).optional().map_err(classify)?;
        let Some(topic) = topic else { continue };
        let history = match histories.entry(lane) {
            Entry::Occupied(history) => history.into_mut(),
            Entry::Vacant(none) => none.insert(History::read(connection, lane)?),
        };
        history.count(seq, topic);
        deleted += 1;
    }
    histories.iter().try_for_each(|(lane, history)| history.store(connection, *lane))?;
    Ok(deleted)
}

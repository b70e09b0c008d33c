//! The past of lanes, for publishing it again with the numbers it had.

use std::collections::BTreeSet;

use rusqlite::{Connection, Row};
use semel::Error;
use semel::event::EventId;
use semel::outbox::LaneHistory;
use semel::sink::Lane;

use super::row::{cursor_at, id_of, lane_state, query_all};
use crate::store::Sqlite;

const HISTORY: &str = include_str!("../sql/outbox/history.sql");
const REDRIVEN: &str = include_str!("../sql/outbox/redriven.sql");
const HELD_IDS: &str = include_str!("../sql/outbox/held_ids.sql");
const SKIPPED_EVENTS: &str = include_str!("../sql/outbox/skipped_events.sql");
const RENUMBERINGS: &str = include_str!("../sql/outbox/renumberings.sql");

impl Sqlite {
    /// In one snapshot: a deletion moves a lane's start and its renumberings together.
    pub(crate) async fn read_history(&self) -> Result<Vec<LaneHistory>, Error> {
        self.read_aside(read).await
    }
}

fn read(connection: &Connection) -> Result<Vec<LaneHistory>, Error> {
    let starts = query_all(connection, HISTORY, (), |row| Ok((lane_state(row)?, cursor_at(row.get(3)?))))?;
    let skipped = query_all(connection, SKIPPED_EVENTS, (), |row| Ok((lane_of_key(row)?, id_of(row, 1)?)))?;
    starts
        .into_iter()
        .map(|(from, upto)| {
            let lane = (from.lane.0,);
            let renumbered = query_all(connection, RENUMBERINGS, lane, lane_state)?;
            let redriven = query_all(connection, REDRIVEN, lane, |row| {
                Ok((id_of(row, 0)?, row.get::<_, i64>(1)?.unsigned_abs()))
            })?;
            let mut withheld: BTreeSet<EventId> =
                query_all(connection, HELD_IDS, lane, |row| id_of(row, 0))?.into_iter().collect();
            withheld.extend(skipped.iter().filter(|(lane, _)| *lane == from.lane).map(|(_, id)| *id));
            Ok(LaneHistory { from, upto, renumbered, redriven: redriven.into_iter().collect(), withheld })
        })
        .collect()
}

fn lane_of_key(row: &Row<'_>) -> rusqlite::Result<Lane> {
    Ok(Lane::of(row.get_ref(0)?.as_str()?))
}

//! Relays: who they are, which lanes they have, and where those stand. A position is written by the relay that has the
//! lane and by nobody else.

use std::time::Duration;

use rusqlite::Connection;
use semel::Error;
use semel::outbox::{Joined, LaneState, RelayId};

use super::row::{counts_to_json, execute, lane_of, lane_state, query_all, query_row, seq_of};
use crate::error::millis;
use crate::store::Sqlite;

const INCARNATIONS: &str = include_str!("../sql/outbox/incarnations.sql");
const JOIN_RELAYS: &str = include_str!("../sql/outbox/join_relays.sql");
const PRUNE_RELAYS: &str = include_str!("../sql/outbox/prune_relays.sql");
const IS_MEMBER: &str = include_str!("../sql/outbox/is_member.sql");
const STORE_POSITION: &str = include_str!("../sql/outbox/store_position.sql");
const LAST_SEQ: &str = include_str!("../sql/outbox/last_seq.sql");
const RENEW_RELAY: &str = include_str!("../sql/outbox/renew_relay.sql");
const RUNNING_RELAYS: &str = include_str!("../sql/outbox/running_relays.sql");
const TAKEABLE_LANES: &str = include_str!("../sql/outbox/takeable_lanes.sql");
const TAKE_LANE: &str = include_str!("../sql/outbox/take_lane.sql");
const LEAVE_LANE: &str = include_str!("../sql/outbox/leave_lane.sql");
const FREE_LANES_OF: &str = include_str!("../sql/outbox/free_lanes_of.sql");
const END_RELAY: &str = include_str!("../sql/outbox/end_relay.sql");

/// The longest name of a relay, in bytes. The database checks the same bound (I12).
const MAX_NAME_BYTES: usize = 255;

/// How long a relay without lanes stays listed after its lease has run out.
const PRUNED_AFTER: Duration = Duration::from_secs(60 * 60);

impl Sqlite {
    pub(crate) async fn join_as_relay(&self, name: &str, lease_for: Duration) -> Result<Joined, Error> {
        check_lease(lease_for)?;
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            return Err(Error::Settings(format!("the name of a relay must be 1 to {MAX_NAME_BYTES} bytes")));
        }
        self.transact(None, |connection| {
            let now_ms = self.now_ms();
            let (now, positions_of) = incarnations(connection)?;
            if let Some(positions_of) = positions_of.filter(|positions_of| *positions_of != now) {
                return Err(Error::Incarnation { positions_of, now });
            }
            execute(connection, PRUNE_RELAYS, (now_ms.saturating_sub(millis(PRUNED_AFTER)),))?;
            execute(connection, JOIN_RELAYS, (name, now_ms.saturating_add(millis(lease_for))))?;
            Ok(Joined { id: RelayId(connection.last_insert_rowid()), incarnation: now })
        })
        .await
    }

    /// A lease that has run out can be renewed for as long as nobody has put the relay out.
    pub(crate) async fn renew_membership(&self, id: RelayId, lease_for: Duration) -> Result<u32, Error> {
        check_lease(lease_for)?;
        self.transact(None, |connection| {
            let now_ms = self.now_ms();
            if execute(connection, RENEW_RELAY, (id.0, now_ms.saturating_add(millis(lease_for))))? == 0 {
                return Err(Error::Fenced);
            }
            query_row(connection, RUNNING_RELAYS, (now_ms,), |row| row.get(0))
        })
        .await
    }

    /// Relays whose lease has run out lose their membership and all their lanes in the same commit, but only if one of
    /// those is taken.
    pub(crate) async fn take_free_lanes(&self, id: RelayId, most: u16) -> Result<Vec<LaneState>, Error> {
        self.transact(None, |connection| {
            check_member(connection, id)?;
            let takeable = query_all(connection, TAKEABLE_LANES, (id.0, self.now_ms(), most), |row| {
                Ok((lane_of(row, 0)?, row.get::<_, Option<i64>>(1)?))
            })?;
            let mut taken = Vec::with_capacity(takeable.len());
            for (lane, relay) in takeable {
                if let Some(relay) = relay {
                    end(connection, RelayId(relay))?;
                }
                taken.push(query_row(connection, TAKE_LANE, (lane.0, id.0), lane_state)?);
            }
            Ok(taken)
        })
        .await
    }

    /// One turn for all lanes: all of them are stored or none is.
    pub(crate) async fn store_positions(&self, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
        self.transact(None, |connection| store(connection, id, lanes, false)).await
    }

    pub(crate) async fn store_and_free(&self, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
        self.transact(None, |connection| {
            store(connection, id, lanes, false)?;
            for state in lanes {
                execute(connection, LEAVE_LANE, (state.lane.0, id.0))?;
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn end_membership(&self, id: RelayId) -> Result<(), Error> {
        self.transact(None, |connection| end(connection, id)).await
    }
}

/// [`Error::Fenced`] if the relay was given up for dead (I7). In SQLite the write transaction is the row lock: what is
/// checked in it holds until it ends.
fn check_member(connection: &Connection, id: RelayId) -> Result<(), Error> {
    if query_row(connection, IS_MEMBER, (id.0,), |row| row.get(0))? { Ok(()) } else { Err(Error::Fenced) }
}

/// The last seq that was drawn.
pub(super) fn last_seq(connection: &Connection) -> Result<i64, Error> {
    query_row(connection, LAST_SEQ, (), |row| row.get(0))
}

/// Stores where these lanes stand. A state behind the stored one comes from a call that was overtaken, and is left out.
/// `renumbered` if the counts are to change where the lane stands.
pub(super) fn store(connection: &Connection, id: RelayId, lanes: &[LaneState], renumbered: bool) -> Result<(), Error> {
    check_member(connection, id)?;
    let last = last_seq(connection)?;
    for state in lanes {
        let seq = seq_of(state.cursor);
        // A file in which nothing was ever emitted does not tell its age.
        if seq > last && last > 0 {
            // Whatever is emitted up to there would never be published (I4).
            return Err(Error::Settings(format!(
                "lane {} would stand at {seq} and the file's last event is {last}: the file is older than its \
                 positions; run `semel outbox rebase`",
                state.lane.0
            )));
        }
        let position = (state.lane.0, id.0, seq, counts_to_json(&state.counts), renumbered);
        let stored = execute(connection, STORE_POSITION, position)?;
        if stored == 0 {
            return Err(Error::Fenced);
        }
    }
    Ok(())
}

/// Frees every lane of a relay and ends its membership, so that it cannot write any more (I7).
fn end(connection: &Connection, id: RelayId) -> Result<(), Error> {
    execute(connection, FREE_LANES_OF, (id.0,))?;
    execute(connection, END_RELAY, (id.0,)).map(drop)
}

/// The file's incarnation, and the one that positions were stored in.
pub(super) fn incarnations(connection: &Connection) -> Result<(String, Option<String>), Error> {
    query_row(connection, INCARNATIONS, (), |row| Ok((row.get(0)?, row.get(1)?)))
}

fn check_lease(lease_for: Duration) -> Result<(), Error> {
    if lease_for < Duration::from_millis(1) {
        return Err(Error::Settings("a relay's lease must run for at least 1 ms".to_owned()));
    }
    Ok(())
}

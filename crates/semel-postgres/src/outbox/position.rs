//! Where lanes stand, as rows.

use semel::Error;
use semel::outbox::{Counts, Cursor, LaneState, RelayId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::row::{get, lane, lane_number};
use crate::parameter::{Parameter, Typed};

/// Where some lanes stand, as `semel.checkpoint` and `semel.leave_lanes` take it.
pub(super) struct Positions {
    relay: i64,
    lanes: Typed<Vec<i16>>,
    ticks: Vec<i64>,
    seqs: Vec<i64>,
    counts: Vec<String>,
}

impl Positions {
    pub(super) fn new(relay: RelayId, lanes: &[LaneState]) -> Result<Positions, Error> {
        let counts = lanes.iter().map(|lane| serde_json::to_string(&lane.counts));
        Ok(Positions {
            relay: relay.0,
            lanes: Typed(lanes.iter().map(|state| lane_number(state.lane)).collect(), Type::INT2_ARRAY),
            ticks: lanes.iter().map(|state| state.cursor.tick).collect(),
            seqs: lanes.iter().map(|state| state.cursor.seq).collect(),
            counts: counts.collect::<Result<_, _>>().map_err(|error| Error::Statement(error.into()))?,
        })
    }

    pub(super) fn params(&self) -> [&dyn Parameter; 5] {
        [&self.relay, &self.lanes, &self.ticks, &self.seqs, &self.counts]
    }
}

/// Reads where a lane stands.
pub(super) fn state(row: &Row) -> Result<LaneState, Error> {
    let counts: &str = get(row, "counts")?;
    let counts: Counts = serde_json::from_str(counts)
        .map_err(|error| Error::Statement(format!("the counts of a lane cannot be read: {error}").into()))?;
    Ok(LaneState { lane: lane(row)?, cursor: Cursor { tick: get(row, "tick")?, seq: get(row, "seq")? }, counts })
}

//! The past of every lane, for a replay.

use std::collections::{BTreeMap, BTreeSet};

use semel::Error;
use semel::event::EventId;
use semel::outbox::{Cursor, LaneHistory};
use uuid::Uuid;

use super::position::state;
use super::row::{get, lane};
use crate::store::Postgres;

const HISTORY: &str = include_str!("../sql/outbox_history.sql");
const EXCEPTIONS: &str = include_str!("../sql/outbox_exceptions.sql");

pub(super) async fn history(store: &Postgres) -> Result<Vec<LaneHistory>, Error> {
    let mut lanes: BTreeMap<_, LaneHistory> = BTreeMap::new();
    for row in store.query(HISTORY, &[]).await? {
        let state = state(&row)?;
        if get(&row, "start")? {
            let upto = Cursor { tick: get(&row, "upto_tick")?, seq: get(&row, "upto_seq")? };
            let (redriven, withheld) = (BTreeMap::new(), BTreeSet::new());
            let history = LaneHistory { from: state, upto, renumbered: Vec::new(), redriven, withheld };
            lanes.insert(history.from.lane, history);
        } else if let Some(history) = lanes.get_mut(&state.lane) {
            history.renumbered.push(state);
        }
    }
    for row in store.query(EXCEPTIONS, &[]).await? {
        let id = EventId::from(get::<Uuid>(&row, "id")?);
        let Some(history) = lanes.get_mut(&lane(&row)?) else { continue };
        match get::<Option<i64>>(&row, "sequence")? {
            Some(sequence) => drop(history.redriven.insert(id, sequence.unsigned_abs())),
            None => drop(history.withheld.insert(id)),
        }
    }
    Ok(lanes.into_values().collect())
}

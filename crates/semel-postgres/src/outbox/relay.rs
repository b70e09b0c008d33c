//! Membership of the relays, and their lanes.

use std::time::Duration;

use semel::Error;
use semel::outbox::{Joined, LaneState, RelayId};

use super::position::{Positions, state};
use super::row::{count, get};
use crate::error::classify;
use crate::store::{Postgres, interval_ms};

const JOIN: &str = include_str!("../sql/join_relays.sql");
const RENEW: &str = include_str!("../sql/renew_relay.sql");
const TAKE: &str = "SELECT lane, tick, seq, counts FROM semel.take_lanes($1, $2)";
const LEAVE_LANES: &str = "SELECT semel.leave_lanes($1, $2, $3, $4, $5)";
const LEAVE: &str = "SELECT semel.leave_relays($1)";
const CHECKPOINT: &str = "SELECT semel.checkpoint($1, $2, $3, $4, $5)";

pub(super) async fn join(store: &Postgres, name: &str, lease_for: Duration) -> Result<Joined, Error> {
    let row = store.call(JOIN, &[&name, &interval_ms(lease_for)]).await?;
    Ok(Joined { id: RelayId(get(&row, "id")?), incarnation: get(&row, "incarnation")? })
}

pub(super) async fn renew(store: &Postgres, id: RelayId, lease_for: Duration) -> Result<u32, Error> {
    let row = store.call(RENEW, &[&id.0, &interval_ms(lease_for)]).await?;
    Ok(u32::try_from(count(&row, "relays")?).unwrap_or(u32::MAX))
}

pub(super) async fn take(store: &Postgres, id: RelayId, most: u16) -> Result<Vec<LaneState>, Error> {
    store.query(TAKE, &[&id.0, &i32::from(most)]).await?.iter().map(state).collect()
}

pub(super) async fn leave_lanes(store: &Postgres, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
    store.call(LEAVE_LANES, &Positions::new(id, lanes)?.params()).await.map(drop)
}

pub(super) async fn leave(store: &Postgres, id: RelayId) -> Result<(), Error> {
    let row = store.call(LEAVE, &[&id.0]).await?;
    row.try_get::<_, bool>(0).map(drop).map_err(classify)
}

pub(super) async fn checkpoint(store: &Postgres, id: RelayId, lanes: &[LaneState]) -> Result<(), Error> {
    store.call(CHECKPOINT, &Positions::new(id, lanes)?.params()).await.map(drop)
}

//! Keys whose first event was refused, and the events behind it.

use std::time::SystemTime;

use semel::outbox::{HeldEvent, HeldKey, Holding, LaneState, RelayId};
use semel::sink::Lane;
use semel::{Error, Event};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::position::Positions;
use super::row::{headers_json, held_event, held_key, lane_number, time};
use crate::parameter::{Parameter, Typed};
use crate::store::Postgres;

const CHECKPOINT: &str = "SELECT semel.checkpoint($1, $2, $3, $4, $5, true, $6)";
const HOLD_KEY: &str = "SELECT semel.hold_key($1, $2, $3, $4, $5, $6, $7)";
const HOLD_EVENTS: &str = include_str!("../sql/hold_events.sql");
const RELEASE: &str = "SELECT semel.release_key($1, $2)";
const RENUMBER: &str = "SELECT semel.renumber_key($1, $2, $3)";
const KEYS: &str = include_str!("../sql/held_keys.sql");
const EVENTS: &str = include_str!("../sql/held_events.sql");

type Bound = Box<dyn Parameter + Send>;

/// Stores where the lane stands and what becomes of its held keys, in one transaction and one round trip. The position
/// comes first, because it takes the fence.
pub(super) async fn hold(store: &Postgres, id: RelayId, lane: &LaneState, holdings: &[Holding]) -> Result<(), Error> {
    let positions = Positions::new(id, std::slice::from_ref(lane))?;
    let renumbered = holdings.iter().any(|holding| matches!(holding, Holding::Renumber { .. }));
    let fence = positions.params().into_iter().chain([&renumbered as &dyn Parameter]).collect();
    let bound: Vec<_> = holdings.iter().flat_map(|holding| statements(lane.lane, holding)).collect();
    let mut statements: Vec<(&str, Vec<&dyn Parameter>)> = vec![(CHECKPOINT, fence)];
    for (sql, params) in &bound {
        statements.push((sql, params.iter().map(|value| value.as_ref() as &dyn Parameter).collect()));
    }
    store.transact(&store.shared.begin_relaying, &statements).await.map(drop)
}

fn statements(lane: Lane, holding: &Holding) -> Vec<(&'static str, Vec<Bound>)> {
    match holding {
        Holding::Hold { key, events } => {
            let key = key.as_ref().map(|key| (HOLD_KEY, write_key(key, true)));
            let events = (!events.is_empty()).then(|| (HOLD_EVENTS, write_events(lane, events)));
            key.into_iter().chain(events).collect()
        }
        Holding::Update(key) => vec![(HOLD_KEY, write_key(key, false))],
        Holding::Release { ordering_key, upto_seq } => {
            vec![(RELEASE, vec![Box::new(ordering_key.clone()), Box::new(*upto_seq)])]
        }
        Holding::Renumber { ordering_key, sequences } => {
            let seqs: Vec<i64> = sequences.iter().map(|(seq, _)| *seq).collect();
            let numbers: Vec<i64> = sequences.iter().map(|(_, number)| sequence(*number)).collect();
            vec![(RENUMBER, vec![Box::new(ordering_key.clone()), Box::new(seqs), Box::new(numbers)])]
        }
    }
}

fn write_key(key: &HeldKey, new: bool) -> Vec<Bound> {
    vec![
        Box::new(lane_number(key.lane)),
        Box::new(key.ordering_key.clone()),
        Box::new(key.state.as_str().to_owned()),
        Box::new(i32::try_from(key.attempts).unwrap_or(i32::MAX)),
        Box::new(time(key.retry_at_ms)),
        Box::new(key.error.clone()),
        Box::new(new),
    ]
}

fn write_events(lane: Lane, held: &[HeldEvent]) -> Vec<Bound> {
    let all = || held.iter().map(|event| &event.written);
    let names =
        |name: fn(&Event) -> &String| all().map(|written| name(&written.event).clone()).collect::<Vec<String>>();
    let texts = |text: fn(&Event) -> Option<String>| {
        Typed(all().map(|written| text(&written.event)).collect::<Vec<_>>(), Type::TEXT_ARRAY)
    };
    let times: Vec<SystemTime> = all().map(|written| time(written.time_ms)).collect();
    let payloads: Vec<Vec<u8>> = all().map(|written| written.event.payload.to_vec()).collect();
    vec![
        Box::new(lane_number(lane)),
        Box::new(held.first().map(|event| event.written.event.ordering_key.clone())),
        Box::new(all().map(|written| written.cursor.tick).collect::<Vec<i64>>()),
        Box::new(all().map(|written| written.cursor.seq).collect::<Vec<i64>>()),
        Box::new(held.iter().map(|event| sequence(event.sequence)).collect::<Vec<i64>>()),
        Box::new(all().map(|written| written.id.as_uuid()).collect::<Vec<Uuid>>()),
        Box::new(Typed(times, Type::TIMESTAMPTZ_ARRAY)),
        Box::new(names(|event| &event.topic)),
        Box::new(names(|event| &event.event_type)),
        Box::new(names(|event| &event.content_type)),
        Box::new(Typed(payloads, Type::BYTEA_ARRAY)),
        Box::new(texts(headers_json)),
        Box::new(texts(|event| event.traceparent.clone())),
        Box::new(texts(|event| event.tracestate.clone())),
    ]
}

fn sequence(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) async fn keys(store: &Postgres, lanes: &[Lane]) -> Result<Vec<HeldKey>, Error> {
    let lanes: Vec<i16> = lanes.iter().copied().map(lane_number).collect();
    store.query(KEYS, &[&Typed(lanes, Type::INT2_ARRAY)]).await?.iter().map(held_key).collect()
}

pub(super) async fn events(
    store: &Postgres,
    lane: Lane,
    ordering_key: &str,
    limit: u32,
) -> Result<Vec<HeldEvent>, Error> {
    let rows = store.query(EVENTS, &[&ordering_key, &lane_number(lane), &i64::from(limit)]).await?;
    rows.iter().map(held_event).collect()
}

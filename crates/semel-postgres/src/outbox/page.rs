//! Reading on.

use semel::Error;
use semel::outbox::{Cursor, Page, PageLimit, Written};
use semel::sink::Lane;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::row::{get, lane_number, written};
use crate::parameter::{Parameter, Typed};
use crate::store::Postgres;

const PAGE: &str = include_str!("../sql/page.sql");
const WALK: &str = include_str!("../sql/walk.sql");
const HEAD: &str = "SELECT h.id FROM semel.head_tick() h";
const BEGIN_INCARNATION: &str = "SELECT semel.begin_incarnation()";

/// As in `semel.page`: by index, and with the slots as constants, so that only those are locked.
const PINNED: &str = "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = off; \
    SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; SET LOCAL jit = off; \
    SET LOCAL max_parallel_workers_per_gather = 0";

/// One call is one transaction, which has committed when the driver has read all of the answer: the tick that it may
/// have stored is durable before anything of it is returned.
pub(super) async fn read(
    store: &Postgres,
    after: Cursor,
    lanes: &[Lane],
    limit: PageLimit,
) -> Result<Option<Page>, Error> {
    let lanes = Typed(lanes.iter().copied().map(lane_number).collect::<Vec<i16>>(), Type::INT2_ARRAY);
    let events = i32::try_from(limit.events.max(1)).unwrap_or(i32::MAX);
    let bytes = i64::try_from(limit.bytes).unwrap_or(i64::MAX);
    let params: [&dyn Parameter; 5] = [&after.tick, &after.seq, &lanes, &events, &bytes];
    let rows = match store.query(PAGE, &params).await {
        // Nobody has read here before, or this is another incarnation: settle it, if that is safe.
        Err(Error::Incarnation { .. }) => {
            store.call(BEGIN_INCARNATION, &[]).await?;
            store.query(PAGE, &params).await?
        }
        rows => rows?,
    };
    let Some((last, rows)) = rows.split_last() else { return Ok(None) };
    if get::<Option<Uuid>>(last, "id")?.is_some() {
        return Err(Error::Schema("semel.page does not say how far it reaches: run `semel migrate`".to_owned()));
    }
    let upto = Cursor { tick: get(last, "tick")?, seq: get(last, "seq")? };
    if let Some(slots) = get::<Option<Vec<i16>>>(last, "slots")? {
        let bounds: (i64, i64) = (get(last, "seq_upto")?, get(last, "incarnation")?);
        let snapshots: (&str, &str) = (get(last, "previous")?, get(last, "snapshot")?);
        let slots = Typed(slots, Type::INT2_ARRAY);
        let events = i64::from(events);
        let params: Vec<&dyn Parameter> = vec![
            &upto.tick,
            &slots,
            &upto.seq,
            &bounds.0,
            &bounds.1,
            &lanes,
            &snapshots.0,
            &snapshots.1,
            &events,
            &bytes,
        ];
        return walk(store, upto.tick, params).await.map(Some);
    }
    Ok(Some(Page { events: rows.iter().map(written).collect::<Result<_, _>>()?, upto }))
}

/// Reads on in a large tick. Its events are there for as long as a lane has not passed them, so this may be another
/// transaction than the one that found the tick.
async fn walk(store: &Postgres, tick: i64, params: Vec<&dyn Parameter>) -> Result<Page, Error> {
    let begin = format!("{}; {PINNED}", store.shared.begin_relaying);
    let answers = store.transact(&begin, &[(WALK, params)]).await?;
    let events: Vec<Written> = answers.iter().flatten().map(written).collect::<Result<_, _>>()?;
    // It may have ended for want of bytes, so only when nothing is left is the tick passed.
    let upto = events.last().map_or(Cursor::end_of(tick), |event| event.cursor);
    Ok(Page { events, upto })
}

/// The end of the last tick: nothing is read beyond it before another one is stored.
pub(super) async fn head(store: &Postgres) -> Result<Cursor, Error> {
    Ok(Cursor::end_of(get(&store.call(HEAD, &[]).await?, "id")?))
}

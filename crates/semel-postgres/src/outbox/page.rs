//! Reading on.

use semel::Error;
use semel::outbox::{Cursor, Page, PageLimit};
use semel::sink::Lane;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::row::{get, lane_number, written};
use crate::parameter::{Parameter, Typed};
use crate::store::Postgres;

const PAGE: &str = include_str!("../sql/page.sql");
const HEAD: &str = "SELECT h.id FROM semel.head_tick() h";
const BEGIN_INCARNATION: &str = "SELECT semel.begin_incarnation()";

/// One call is one transaction, which has committed when the driver has read all of the answer: the tick that it may
/// have stored is durable before anything of it is returned.
pub(super) async fn read(
    store: &Postgres,
    after: Cursor,
    lanes: &[Lane],
    limit: PageLimit,
) -> Result<Option<Page>, Error> {
    let lanes: Vec<i16> = lanes.iter().copied().map(lane_number).collect();
    let events = i32::try_from(limit.events.max(1)).unwrap_or(i32::MAX);
    let bytes = i64::try_from(limit.bytes).unwrap_or(i64::MAX);
    let params: [&dyn Parameter; 5] = [&after.tick, &after.seq, &Typed(lanes, Type::INT2_ARRAY), &events, &bytes];
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
    Ok(Some(Page { events: rows.iter().map(written).collect::<Result<_, _>>()?, upto }))
}

/// The end of the last tick: nothing is read beyond it before another one is stored.
pub(super) async fn head(store: &Postgres) -> Result<Cursor, Error> {
    Ok(Cursor::end_of(get(&store.call(HEAD, &[]).await?, "id")?))
}

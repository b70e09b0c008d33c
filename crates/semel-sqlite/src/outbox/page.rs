//! Reading events, page by page.

use rusqlite::Connection;
use semel::Error;
use semel::outbox::{Cursor, Page, PageLimit, Written};
use semel::sink::Lane;

use super::row::{cursor_at, mask, query_row, seq_of, written};
use crate::error::classify;
use crate::store::Sqlite;

const PAGE_BOUNDS: &str = include_str!("../sql/outbox/page_bounds.sql");
const HEAD: &str = "SELECT max(seq) FROM semel_events";
const PAGE: &str = include_str!("../sql/outbox/page.sql");

/// How many seqs one page spans at most, whether or not their events are of the lanes asked for (I12).
const MAX_SPAN: i64 = 10_000;

impl Sqlite {
    /// Reads beside the writer, where nothing is seen before its group's COMMIT was synced to the disk. Nothing is
    /// handed out while it is not known what became of a COMMIT: an event must not be published that a crash could take
    /// back (I4).
    pub(crate) async fn read_page(
        &self,
        after: Cursor,
        lanes: &[Lane],
        limit: PageLimit,
    ) -> Result<Option<Page>, Error> {
        let (after, lanes) = (seq_of(after), mask(lanes));
        let page = self
            .readers()
            .read(|connection| {
                // One snapshot, so that no event lies between what was read and how far the page says it reaches.
                let snapshot = connection.unchecked_transaction().map_err(classify)?;
                read(&snapshot, after, lanes, limit)
            })
            .await?;
        self.writer().check_settled()?;
        Ok(page)
    }

    /// The last event there is. Those that are gone are covered by a position of every lane.
    pub(crate) async fn read_head(&self) -> Result<Cursor, Error> {
        let last: Option<i64> =
            self.readers().read(|connection| query_row(connection, HEAD, (), |row| row.get(0))).await?;
        Ok(last.map_or(Cursor::START, cursor_at))
    }
}

fn read(connection: &Connection, after: i64, lanes: i64, limit: PageLimit) -> Result<Option<Page>, Error> {
    let bounds = query_row(connection, PAGE_BOUNDS, (after,), |row| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, i64>(2)?))
    })?;
    let (Some(first), Some(last), began_after) = bounds else { return Ok(None) };
    let last = last.min(first.saturating_add(MAX_SPAN - 1));
    let most = limit.events.max(1);
    let mut select = connection.prepare_cached(PAGE).map_err(classify)?;
    let mut rows = select.query((first, last, lanes, most, began_after)).map_err(classify)?;
    let (mut events, mut bytes): (Vec<Written>, u64) = (Vec::new(), 0);
    let cut = loop {
        let Some(row) = rows.next().map_err(classify)? else { break false };
        let payload = row.get_ref(11).and_then(|value| Ok(value.as_blob()?.len() as u64)).map_err(classify)?;
        if !events.is_empty() && bytes + payload > limit.bytes {
            break true;
        }
        bytes += payload;
        events.push(written(row).map_err(classify)?);
        if events.len() as u64 == u64::from(most) {
            break true;
        }
    };
    let upto = match events.last() {
        Some(event) if cut => event.cursor,
        _ => cursor_at(last),
    };
    Ok(Some(Page { events, upto }))
}

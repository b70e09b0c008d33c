//! Making room: switching slots, and emptying those that everybody has passed.
//!
//! Every step is a transaction of its own, and whoever dies between two leaves something that the next one settles.

use std::time::Duration;

use semel::outbox::{Blocker, Tidied};
use semel::{Error, failpoint};
use tokio_postgres::error::SqlState;

use super::row::{get, millis};
use crate::error::{classify, sql_state};
use crate::parameter::Parameter;
use crate::store::{Postgres, interval_ms};

const PREPARE: &str = include_str!("../sql/prepare_slot.sql");
const SWITCH: &str = "SELECT semel.switch_slot()";
const RECORD: &str = "SELECT semel.record_switch()";
const EMPTY: &str = include_str!("../sql/empty_slot.sql");
const BLOCKERS: &str = include_str!("../sql/outbox_blockers.sql");

/// How long a slot is written to at least. Otherwise it is a quarter of what is kept, so that what is kept too long is
/// kept a quarter longer, and about six slots of eight are in use.
const OPEN_FOR: Duration = Duration::from_secs(1);

/// The most slots that one call empties; databases from before migration 9 may have so many.
const MAX_SLOTS: usize = 64;

/// How long a slot is written to before the next one is. Whoever keeps nothing wants it gone at once.
fn open_for(keep: Duration) -> Duration {
    if keep.is_zero() { keep } else { (keep / 4).max(OPEN_FOR) }
}

pub(super) async fn tidy(store: &Postgres, keep: Duration) -> Result<Tidied, Error> {
    let mut tidied = Tidied::default();
    let prepared = step(store, PREPARE, &[&interval_ms(open_for(keep))]).await?;
    tidied.full = prepared.as_deref() == Some("full");
    if prepared.as_deref() == Some("ready") {
        tidied.switched = switch(store).await?;
    }
    store.call(RECORD, &[]).await?;
    for _ in 0..MAX_SLOTS {
        match step(store, EMPTY, &[&interval_ms(keep)]).await?.as_deref() {
            Some("emptied") => tidied.emptied += 1,
            Some("blocked") => {
                tidied.blockers = blockers(store).await?;
                break;
            }
            _ => break,
        }
    }
    Ok(tidied)
}

/// Switches to another slot whatever the time. What is left in the old one is of another incarnation, and readers shall
/// not have to look through it for long.
pub(super) async fn switch_now(store: &Postgres) -> Result<(), Error> {
    if step(store, PREPARE, &[&0_i64]).await?.as_deref() == Some("ready") {
        switch(store).await?;
    }
    store.call(RECORD, &[]).await.map(drop)
}

async fn switch(store: &Postgres) -> Result<bool, Error> {
    let switched = match store.call(SWITCH, &[]).await {
        Err(error) if is_busy(&error) => return Ok(false),
        row => row?.try_get(0).map_err(classify)?,
    };
    failpoint::reach(failpoint::RELAY_ROTATING).await;
    Ok(switched)
}

/// Runs a step; `None` if somebody was in the way for longer than it waits.
async fn step(store: &Postgres, sql: &str, params: &[&dyn Parameter]) -> Result<Option<String>, Error> {
    match store.call(sql, params).await {
        Err(error) if is_busy(&error) => Ok(None),
        row => Ok(Some(row?.try_get(0).map_err(classify)?)),
    }
}

fn is_busy(error: &Error) -> bool {
    sql_state(error) == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Who keeps a closed slot from being emptied, the longest first.
pub(super) async fn blockers(store: &Postgres) -> Result<Vec<Blocker>, Error> {
    let rows = store.query(BLOCKERS, &[]).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(Blocker {
            holds: get(row, "holds")?,
            pid: get(row, "pid")?,
            who: get(row, "who")?,
            since_ms: millis(get(row, "since")?),
            state: get(row, "state")?,
            query: get(row, "query")?,
        })
    };
    rows.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_open_for_a_quarter_of_what_is_kept() {
        let seconds = Duration::from_secs;
        assert_eq!(open_for(Duration::ZERO), Duration::ZERO);
        assert_eq!(open_for(Duration::from_millis(10)), seconds(1));
        assert_eq!(open_for(seconds(60)), seconds(15));
        assert_eq!(open_for(seconds(7 * 24 * 3600)), seconds(7 * 6 * 3600));
    }
}

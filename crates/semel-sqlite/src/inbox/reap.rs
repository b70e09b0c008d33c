//! Forgetting messages that no broker will bring again.

use std::time::Duration;

use rusqlite::Connection;
use semel::Error;

use crate::error::{classify, millis};
use crate::store::Sqlite;

const ANY_OLD_ID: &str = include_str!("../sql/inbox/any_old_id.sql");
const ANY_OLD_LETTER: &str = include_str!("../sql/inbox/any_old_letter.sql");
const FORGET_LETTERS: &str = include_str!("../sql/inbox/forget_letters.sql");
const OLD_IDS: &str = include_str!("../sql/inbox/old_ids.sql");
const FORGET_ID: &str = include_str!("../sql/inbox/forget_id.sql");

/// How many ids one turn deletes, which bounds how long others wait for it (I12).
const MAX_TURN_IDS: u32 = 1_000;

impl Sqlite {
    /// Deletes in turns of its own, the oldest first. What was seen within `keep` stays (I9), and so do marks and
    /// offsets, which are proofs for ever, and dead letters that were not applied. A crash leaves the turns that were
    /// committed, and the next call goes on.
    pub(crate) async fn forget_old_ids(&self, consumer: &str, keep: Duration, limit: u32) -> Result<u64, Error> {
        let seen_before = self.now_ms().saturating_sub(millis(keep));
        let mut left = limit;
        while left > 0 && self.any_old(ANY_OLD_ID, consumer, seen_before).await? {
            let batch = left.min(MAX_TURN_IDS);
            let forgotten = self.transact(None, |connection| forget(connection, consumer, seen_before, batch)).await?;
            if forgotten == 0 {
                // Another process was here first.
                break;
            }
            left = left.saturating_sub(forgotten);
        }
        if left > 0 && self.any_old(ANY_OLD_LETTER, consumer, seen_before).await? {
            let batch = left.min(MAX_TURN_IDS);
            let deleted = self.transact(None, |connection| {
                let mut delete = connection.prepare_cached(FORGET_LETTERS).map_err(classify)?;
                delete.execute((consumer, seen_before, batch)).map_err(classify)
            });
            left = left.saturating_sub(u32::try_from(deleted.await?).unwrap_or(u32::MAX));
        }
        Ok(u64::from(limit - left))
    }

    async fn any_old(&self, probe: &'static str, consumer: &str, seen_before: i64) -> Result<bool, Error> {
        self.readers()
            .read(|connection| {
                let mut probe = connection.prepare_cached(probe).map_err(classify)?;
                probe.query_row((consumer, seen_before), |row| row.get(0)).map_err(classify)
            })
            .await
    }
}

/// Deletes one by one, because SQLite would look for many at once by walking all ids of their generation.
fn forget(connection: &Connection, consumer: &str, seen_before: i64, limit: u32) -> Result<u32, Error> {
    let mut select = connection.prepare_cached(OLD_IDS).map_err(classify)?;
    let old = select
        .query_map((consumer, seen_before, limit), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .and_then(Iterator::collect::<rusqlite::Result<Vec<(i64, u32, String)>>>)
        .map_err(classify)?;
    let mut delete = connection.prepare_cached(FORGET_ID).map_err(classify)?;
    let mut forgotten = 0;
    for id in &old {
        delete.execute((id.0, id.1, &id.2)).map_err(classify)?;
        forgotten += 1;
    }
    Ok(forgotten)
}

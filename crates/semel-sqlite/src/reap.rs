//! Forgetting what has expired.

use semel::Error;

use crate::error::classify;
use crate::store::Sqlite;

const ANY_EXPIRED: &str = include_str!("sql/any_expired.sql");
const REAP: &str = include_str!("sql/reap.sql");

/// How much of replies and flows one turn deletes, give or take the last one (I12). Every page of them has to be
/// written to be freed, so a batch of large ones would otherwise hold the writer past its deadline, again and again.
const MAX_BATCH_BYTES: i64 = 8 * 1024 * 1024;

impl Sqlite {
    /// Deletes in turns of its own, so that it waits like everybody else and its batch bounds how long others wait for
    /// it. Claims read beside the writer and do not wait at all. Work in progress is never deleted.
    pub(crate) async fn reap_keys(&self, limit: u32) -> Result<u64, Error> {
        let now_ms = self.now_ms();
        let mut left = limit;
        // Fewer than `limit` means that nothing is left, so a batch that its bytes cut short is followed by another.
        while left > 0 && self.any_expired(now_ms).await? {
            let batch = self.transact(None, |connection| {
                let mut delete = connection.prepare_cached(REAP).map_err(classify)?;
                delete.execute((now_ms, left, MAX_BATCH_BYTES)).map_err(classify)
            });
            match u32::try_from(batch.await?) {
                // Another process was here first.
                Ok(0) | Err(_) => break,
                Ok(count) => left = left.saturating_sub(count),
            }
        }
        Ok(u64::from(limit - left))
    }

    async fn any_expired(&self, now_ms: i64) -> Result<bool, Error> {
        self.readers()
            .read(|connection| {
                let mut probe = connection.prepare_cached(ANY_EXPIRED).map_err(classify)?;
                probe.query_row((now_ms,), |row| row.get(0)).map_err(classify)
            })
            .await
    }
}

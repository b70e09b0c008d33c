//! Forgetting what has expired.

use semel::Error;

use crate::error::classify;
use crate::store::Sqlite;

const ANY_EXPIRED: &str = include_str!("sql/any_expired.sql");
const REAP: &str = include_str!("sql/reap.sql");

impl Sqlite {
    /// Deletes in a turn of its own, so that it waits like everybody else and its batch bounds how long others wait for
    /// it. Claims read beside the writer and do not wait at all. Work in progress is never deleted.
    pub(crate) async fn reap_keys(&self, limit: u32) -> Result<u64, Error> {
        let now_ms = self.now_ms();
        let any = self.readers().read(|connection| {
            let mut probe = connection.prepare_cached(ANY_EXPIRED).map_err(classify)?;
            probe.query_row((now_ms,), |row| row.get::<_, bool>(0)).map_err(classify)
        });
        if !any.await? {
            return Ok(0);
        }
        self.transact(None, |connection| {
            let mut delete = connection.prepare_cached(REAP).map_err(classify)?;
            delete.execute((now_ms, limit)).map(|count| count as u64).map_err(classify)
        })
        .await
    }
}

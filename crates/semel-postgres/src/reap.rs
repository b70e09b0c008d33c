//! Forgets keys whose time is over.

use semel::Error;

use crate::error::classify;
use crate::store::Postgres;

/// Each batch is a commit of its own. One that flows cut short is followed by another, so that fewer than `limit` means
/// that nothing is left.
pub(crate) async fn reap(store: &Postgres, limit: u32) -> Result<u64, Error> {
    let (limit, mut reaped) = (u64::from(limit), 0);
    while reaped < limit {
        let left = i32::try_from(limit - reaped).unwrap_or(i32::MAX);
        let row = store.call("SELECT semel.reap($1)", &[&left]).await?;
        match u64::try_from(row.try_get::<_, i64>(0).map_err(classify)?) {
            Ok(0) | Err(_) => break,
            Ok(batch) => reaped += batch,
        }
    }
    Ok(reaped)
}

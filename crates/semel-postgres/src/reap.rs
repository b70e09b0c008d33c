//! Forgets keys whose time is over.

use semel::Error;

use crate::error::classify;
use crate::store::Postgres;

pub(crate) async fn reap(store: &Postgres, limit: u32) -> Result<u64, Error> {
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let row = store.call("SELECT semel.reap($1)", &[&limit]).await?;
    Ok(u64::try_from(row.try_get::<_, i64>(0).map_err(classify)?).unwrap_or(0))
}

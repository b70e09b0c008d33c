//! Forgets ids that cannot come again.

use std::time::Duration;

use semel::Error;

use crate::error::classify;
use crate::store::{Postgres, interval_ms};

const REAP: &str = include_str!("../sql/reap_inbox.sql");

/// A thousand years. Whoever keeps ids for longer keeps them for ever, and the database has no time before its first.
pub(super) const LONGEST: Duration = Duration::from_secs(1_000 * 366 * 24 * 3600);

pub(super) async fn reap(store: &Postgres, consumer: &str, keep: Duration, limit: u32) -> Result<u64, Error> {
    let keep_ms = interval_ms(keep.min(LONGEST));
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let row = store.call(REAP, &[&consumer, &keep_ms, &limit]).await?;
    Ok(u64::try_from(row.try_get::<_, i64>(0).map_err(classify)?).unwrap_or(0))
}

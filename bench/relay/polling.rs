//! The relay as most people write it: take unpublished rows with `FOR UPDATE SKIP LOCKED`, publish, update them.

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use futures_util::future::try_join_all;

use crate::client::Client;
use crate::database;
use crate::ledger::Ledger;
use crate::load::{self, Numbered};

/// The table, as it stands in countless articles.
pub(crate) const SCHEMA: &str = include_str!("sql/polling_schema.sql");

const TAKE: &str = include_str!("sql/polling_take.sql");
const MARK: &str = "UPDATE outbox SET published_at = now() WHERE id = ANY ($1)";

/// The pause when nothing was found.
const IDLE: Duration = Duration::from_millis(10);

/// Relays in `loops` loops of their own connections until the ledger has all of `count`, or the time is over.
pub(crate) async fn relay(
    url: &str,
    client: &Client,
    ledger: &Ledger,
    loops: u16,
    batch: i64,
    (count, limit): (u64, Duration),
) -> Result<()> {
    let until = Instant::now() + limit;
    try_join_all((0..loops).map(|_| relay_one(url, client, ledger, batch, (count, until)))).await?;
    Ok(())
}

async fn relay_one(
    url: &str,
    client: &Client,
    ledger: &Ledger,
    batch: i64,
    (count, until): (u64, Instant),
) -> Result<()> {
    let mut session = database::session(url).await?;
    let (take, mark) = (session.prepare(TAKE).await?, session.prepare(MARK).await?);
    while ledger.done() < count && Instant::now() < until {
        let transaction = session.transaction().await?;
        let rows = transaction.query(&take, &[&batch]).await?;
        if rows.is_empty() {
            transaction.rollback().await?;
            tokio::time::sleep(IDLE).await;
            continue;
        }
        let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            ids.push(row.try_get(0)?);
            let payload = Bytes::copy_from_slice(row.try_get(2)?);
            let number = load::number(&payload).unwrap_or_default();
            events.push(Numbered { number, key: row.try_get(1)?, payload });
        }
        client.publish(&events).await?;
        transaction.execute(&mark, &[&ids]).await?;
        transaction.commit().await?;
        // A crash before the commit publishes again, so only now is it done with.
        ledger.acknowledge_all(events.iter().map(|event| event.payload.as_ref()));
    }
    Ok(())
}

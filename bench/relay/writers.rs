//! Services that write events.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ledger::Ledger;
use crate::load::Load;
use crate::table::Table;

/// How many write at once.
const WRITERS: u32 = 8;

/// How many events a transaction writes when a backlog is made.
const FILL_BATCH: usize = 100;

/// Writes the first `count` events, as fast as it goes.
pub(crate) async fn fill(url: &str, table: Table, load: Load, count: u64) -> Result<()> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let session = table.writer(url).await?;
        writers.spawn(async move {
            let numbers: Vec<u64> = load.share(count, writer, WRITERS).collect();
            for numbers in numbers.chunks(FILL_BATCH) {
                let events: Vec<_> = numbers.iter().map(|number| load.event(*number)).collect();
                session.emit(&events).await?;
            }
            anyhow::Ok(())
        });
    }
    all(writers).await
}

/// How fast events are written, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Events per second; as many as there can be if `None`.
    pub(crate) rate: Option<f64>,
    pub(crate) lasts: Duration,
    /// The number of the first event.
    pub(crate) first: u64,
    pub(crate) per_transaction: usize,
}

/// Writes at a steady pace, whether or not anybody keeps up, and notes every commit.
pub(crate) async fn write(url: &str, table: Table, load: Load, pace: Pace, ledger: &Arc<Ledger>) -> Result<()> {
    let begun = Instant::now();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let session = table.writer(url).await?;
        let ledger = Arc::clone(ledger);
        writers.spawn(async move {
            let mut numbers = load.share(ledger.capacity(), writer, WRITERS).skip_while(|number| *number < pace.first);
            loop {
                let events: Vec<_> =
                    numbers.by_ref().take(pace.per_transaction).map(|number| load.event(number)).collect();
                let (Some(last), true) = (events.last(), begun.elapsed() < pace.lasts) else { return Ok(()) };
                if let Some(rate) = pace.rate {
                    let due = begun + Duration::from_secs_f64((last.number - pace.first) as f64 / rate);
                    if due >= begun + pace.lasts {
                        return Ok(());
                    }
                    tokio::time::sleep_until(due).await;
                }
                session.emit(&events).await?;
                events.iter().for_each(|event| ledger.commit(event.number));
            }
        });
    }
    all(writers).await
}

async fn all(mut writers: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    Ok(())
}

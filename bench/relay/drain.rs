//! How fast a backlog gets out.

use std::sync::Arc;

use anyhow::{Result, bail};
use semel_bench::processor::{PerEvent, Used};

use crate::alone;
use crate::bench::Bench;
use crate::case::{Case, Publisher, SinkKind};
use crate::client::Client;
use crate::database::Database;
use crate::ledger::Ledger;
use crate::ours::Running;
use crate::polling;
use crate::table::Table;

/// What a bare client gets to send to Kafka at least.
const LEAST_FROM_MEMORY: u64 = 200_000;

/// What one drain came to.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Drained {
    pub(crate) events_per_second: f64,
    /// How many were acknowledged before the time was over.
    pub(crate) events: u64,
    /// How many came after a later event of their key.
    pub(crate) overtaken: u64,
    /// How many came more than once.
    pub(crate) repeated: u64,
    /// Dead rows of the event tables afterwards.
    pub(crate) dead_rows: Option<i64>,
    #[serde(flatten)]
    pub(crate) processor: PerEvent,
}

/// Publishes one backlog, from memory or from a fresh copy of a filled database.
pub(crate) async fn drain(bench: &Bench, case: Case) -> Result<Drained> {
    let ledger = Ledger::new(bench.load, events(bench, case));
    let postmaster = bench.postmaster().await?;
    let finished = match case.publisher {
        Publisher::Bare | Publisher::BareOnePerKey => bare(bench, case, ledger, postmaster).await?,
        Publisher::SinkAlone => alone(bench, case, ledger, postmaster).await?,
        Publisher::Semel | Publisher::Polling(_) => stored(bench, case, ledger, postmaster).await?,
    };
    let ledger = &finished.ledger;
    Ok(Drained {
        events_per_second: ledger.rate(),
        events: ledger.done(),
        overtaken: ledger.overtaken(),
        repeated: ledger.repeated(),
        dead_rows: finished.dead_rows,
        processor: finished.used.since(finished.before, ledger.done()),
    })
}

/// A drain that is over.
struct Finished {
    ledger: Arc<Ledger>,
    before: Used,
    used: Used,
    dead_rows: Option<i64>,
}

/// How many events to publish. A bare client sends a small backlog to Kafka in one breath, so it gets more.
fn events(bench: &Bench, case: Case) -> u64 {
    let events = bench.options.events();
    match (case.publisher, case.sink) {
        (Publisher::Bare, SinkKind::Kafka | SinkKind::KafkaTransactional(_)) => events.max(LEAST_FROM_MEMORY),
        _ => events,
    }
}

async fn bare(bench: &Bench, case: Case, ledger: Ledger, postmaster: i32) -> Result<Finished> {
    let client = Client::connect(&bench.servers, case.sink).await?;
    let one_per_key = case.publisher == Publisher::BareOnePerKey;
    let events: Vec<_> = (0..ledger.capacity()).map(|number| bench.load.event(number)).collect();
    let before = Used::now(postmaster);
    let ledger = ledger.restarted();
    client.drain((bench.load, &events), &ledger, one_per_key, bench.options.limit()).await?;
    ledger.close();
    let used = Used::now(postmaster);
    client.end().await?;
    Ok(Finished { ledger: Arc::new(ledger), before, used, dead_rows: None })
}

async fn alone(bench: &Bench, case: Case, ledger: Ledger, postmaster: i32) -> Result<Finished> {
    let (Some(sink), stream) = alone::connect(&bench.servers, case.sink).await? else { bail!("nothing to measure") };
    let lanes = alone::prepare(bench.load, ledger.capacity())?;
    let before = Used::now(postmaster);
    let ledger = Arc::new(ledger.restarted());
    alone::drain(sink, lanes, &ledger, bench.options.limit()).await?;
    let used = Used::now(postmaster);
    if let Some(stream) = stream {
        stream.delete().await?;
    }
    Ok(Finished { ledger, before, used, dead_rows: None })
}

async fn stored(bench: &Bench, case: Case, ledger: Ledger, postmaster: i32) -> Result<Finished> {
    let table = if case.publisher == Publisher::Semel { Table::Semel } else { Table::Polling };
    let database = bench.backlog(table).await?.copy(&bench.servers).await?;
    let held = if case.held { Some(database.hold().await?) } else { None };
    let before = Used::now(postmaster);
    let ledger = Arc::new(ledger.restarted());
    relay(bench, case, &database, &ledger).await?;
    let used = Used::now(postmaster);
    let dead_rows = Some(database.dead_rows(table).await?);
    drop(held);
    database.end().await?;
    Ok(Finished { ledger, before, used, dead_rows })
}

async fn relay(bench: &Bench, case: Case, database: &Database, ledger: &Arc<Ledger>) -> Result<()> {
    let (count, limit) = (ledger.capacity(), bench.options.limit());
    match case.publisher {
        Publisher::Polling(loops) => {
            let client = Client::connect(&bench.servers, case.sink).await?;
            let batch = bench.options.polling_batch;
            polling::relay(&database.url(), &client, ledger, loops, batch, (count, limit)).await?;
            ledger.close();
            client.end().await
        }
        _ => {
            let running = Running::start(bench, &database.url(), case.sink, ledger).await?;
            ledger.wait_for(count, limit).await;
            ledger.close();
            running.stop().await
        }
    }
}

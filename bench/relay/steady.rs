//! How long events take while others are being written.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use semel_bench::aim::median;
use semel_bench::processor::{PerEvent, Used};

use crate::bench::Bench;
use crate::case::{Case, Publisher};
use crate::client::Client;
use crate::database::Database;
use crate::ledger::{Latency, Ledger};
use crate::ours::Running;
use crate::polling;
use crate::table::Table;
use crate::writers::{self, Pace};

/// What comes before the measurement: connections, plans, caches.
const WARM_UP: Duration = Duration::from_secs(2);

/// How long writers and relay run flat out to find what both can do at once.
const FLAT_OUT: Duration = Duration::from_secs(4);

/// The most events per second there is room for.
const MOST_PER_SECOND: f64 = 50_000.0;

/// How many events are published before the clock starts.
const FIRST: u64 = 2_000;

/// How many backlogs are drained one after the other when a long load is over; the median counts.
const DRAINS: u32 = 3;

/// How long to wait for the last acknowledgements.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a steady load came to.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Steady {
    pub(crate) case: String,
    /// What got out per second while writers wrote as fast as they could on the same machine.
    pub(crate) both_flat_out: f64,
    /// Half of that, or of the drain's rate if that is less: what was asked of the writers.
    pub(crate) offered: f64,
    /// What they committed per second.
    pub(crate) committed: f64,
    /// From commit to acknowledgement.
    #[serde(flatten)]
    pub(crate) latency: Latency,
}

/// Writes at half of what the case can carry and measures how long each event takes.
pub(crate) async fn steady(bench: &Bench, case: Case, drained: Option<f64>) -> Result<Steady> {
    let flat_out = run(bench, case, None, WARM_UP + FLAT_OUT).await?;
    let from = flat_out.begun + WARM_UP;
    let both_flat_out = flat_out.ledger.rate_between(from, from + FLAT_OUT);
    flat_out.database.end().await?;
    let offered = drained.unwrap_or(f64::INFINITY).min(both_flat_out) / 2.0;
    let Run { ledger, begun, database, .. } = run(bench, case, Some(offered), WARM_UP + bench.options.steady()).await?;
    database.end().await?;
    let from = begun + WARM_UP;
    let Some(latency) = ledger.latency(from) else { bail!("nothing was measured of {case}") };
    Ok(Steady { case: case.to_string(), both_flat_out, offered, committed: ledger.commit_rate(from), latency })
}

/// What a long load came to.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Endured {
    #[serde(skip)]
    pub(crate) case: Case,
    pub(crate) name: String,
    pub(crate) seconds: u64,
    /// What got out per second in the first third of the time, and in the last.
    pub(crate) at_first: f64,
    pub(crate) at_last: f64,
    /// What the load used per event: this process with its writers, and the server. It holds on a disk that is at
    /// times slower, which the rates do not.
    #[serde(flatten)]
    pub(crate) processor: PerEvent,
    /// How fast backlogs got out that were written after that.
    pub(crate) drained_then: f64,
    /// Dead rows of the event tables at the end.
    pub(crate) dead_rows: i64,
}

/// Has writers and relay run flat out for long, and then the relay alone drain backlogs. A case that holds `xmin`
/// holds it from before the first event to the end.
pub(crate) async fn endure(bench: &Bench, case: Case) -> Result<Endured> {
    let lasts = bench.options.held();
    let postmaster = bench.postmaster().await?;
    let before = Used::now(postmaster);
    let Run { ledger, begun, database, held } = run(bench, case, None, lasts).await?;
    let processor = Used::now(postmaster).since(before, ledger.done());
    let third = lasts / 3;

    let (url, events) = (database.url(), bench.options.events());
    let mut drains = Vec::new();
    for _ in 0..DRAINS {
        writers::fill(&url, Table::Semel, bench.load, events).await?;
        let backlog = Arc::new(Ledger::new(bench.load, events).restarted());
        let running = Running::start(bench, &url, case.sink, &backlog).await?;
        let drained = backlog.wait_for(events, PATIENCE).await;
        running.stop().await?;
        if !drained {
            bail!("{case}: {} of the {events} events after the load were acknowledged", backlog.done());
        }
        drains.push(backlog.rate());
    }
    let dead_rows = database.dead_rows(Table::Semel).await?;
    drop(held);
    database.end().await?;
    Ok(Endured {
        case,
        name: case.to_string(),
        seconds: lasts.as_secs(),
        at_first: ledger.rate_between(begun, begun + third),
        at_last: ledger.rate_between(begun + third * 2, begun + third * 3),
        processor,
        drained_then: median(drains),
        dead_rows,
    })
}

/// A load that is over, and the database that it has left.
struct Run {
    ledger: Arc<Ledger>,
    /// When the writers began, by the ledger's clock.
    begun: Duration,
    database: Database,
    /// What holds `xmin`, if anything does.
    held: Option<tokio_postgres::Client>,
}

async fn run(bench: &Bench, case: Case, rate: Option<f64>, lasts: Duration) -> Result<Run> {
    let table = if case.publisher == Publisher::Semel { Table::Semel } else { Table::Polling };
    let database = Database::empty(&bench.servers, table).await?;
    let held = if case.held { Some(database.hold().await?) } else { None };
    let pace = Pace { rate, lasts, first: FIRST, per_transaction: bench.options.per_transaction };
    let room = FIRST + (rate.unwrap_or(MOST_PER_SECOND) * lasts.as_secs_f64()) as u64 + 1;
    let ledger = Arc::new(Ledger::new(bench.load, room).restarted());
    let url = database.url();
    let work = async {
        // When these are through, the relay has joined and every lane is taken.
        writers::fill(&url, table, bench.load, FIRST).await?;
        if !ledger.wait_for(FIRST, PATIENCE).await {
            bail!("{case}: {} of the first {FIRST} events were acknowledged", ledger.done());
        }
        let begun = ledger.elapsed();
        writers::write(&url, table, bench.load, pace, &ledger).await?;
        if pace.rate.is_none() {
            // What writers flat out left behind need not be published.
            return Ok(begun);
        }
        let all = FIRST + ledger.commits();
        if !ledger.wait_for(all, PATIENCE).await {
            bail!("{case}: {} of {all} events were acknowledged", ledger.done());
        }
        Ok(begun)
    };
    let begun = match case.publisher {
        Publisher::Polling(loops) => {
            let client = Client::connect(&bench.servers, case.sink).await?;
            let (batch, for_ever) = (bench.options.polling_batch, (u64::MAX, lasts + PATIENCE * 2));
            let begun = tokio::select! {
                begun = work => begun?,
                ended = polling::relay(&url, &client, &ledger, loops, batch, for_ever) => {
                    ended?;
                    bail!("{case}: the relay ended before the writers");
                }
            };
            client.end().await?;
            begun
        }
        _ => {
            let running = Running::start(bench, &url, case.sink, &ledger).await?;
            let begun = work.await;
            running.stop().await?;
            begun?
        }
    };
    Ok(Run { ledger, begun, database, held })
}

//! Claims and operations, on a table of one size.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use semel::{Ask, Claim, Semel, Store as _, Tx as _};
use semel_bench::aim::median;
use semel_bench::contest;
use semel_bench::drive::{Driven, Latency, Load, drive};
use semel_bench::processor::Used;
use semel_bench::report::Round;
use semel_bench::stage::Stage;
use semel_postgres::Postgres;
use semel_postgres::tokio_postgres::Client;

use crate::case::{Case, Keys};
use crate::operation::{fingerprint, once, scope};
use crate::stored::Stored;

const LOG: &str = include_str!("sql/log.sql");

/// A case and its table, over all rounds.
#[derive(Debug)]
pub(crate) struct Contest<'a> {
    case: Case,
    stage: &'a Stage,
    stored: &'a Stored,
    /// What one operation wrote to the log, round by round.
    written: Vec<Log>,
}

/// What the server has written to its log, or what one operation did.
#[derive(Debug, Clone, Copy)]
struct Log {
    bytes: f64,
    records: f64,
    full_pages: f64,
}

/// How long claims took, in microseconds.
type Times = Arc<Mutex<Vec<u32>>>;

impl contest::Contest for Contest<'_> {
    fn name(&self) -> String {
        self.case.to_string()
    }

    /// Measures one round. It begins behind a checkpoint, after which the first change to a page takes the whole page
    /// to the log, and ends with what was counted being in the table.
    async fn round(&mut self, load: Load) -> Result<Round> {
        let admin = self.stage.admin().await?;
        admin.batch_execute("CHECKPOINT").await?;
        let before = Log::read(&admin).await?;
        let driven = self.run(load).await?;
        let ((used_before, _), (used_after, claims)) = (driven.before, driven.after);
        let (latency, ran) = match self.case {
            // A claim that was rolled back leaves nothing.
            Case::Claim { .. } => (Latency::of(claims), 0),
            Case::Once { .. } | Case::Reaping { .. } => (driven.latency, driven.total),
        };
        self.stored.check(ran).await?;
        self.stored.left(&admin).await?;
        let written = Log::read(&admin).await?.since(before, driven.total);
        self.written.push(written);
        Ok(Round {
            per_second: driven.per_second,
            latency,
            processor: used_after.since(used_before, driven.operations),
            log_bytes: (ran > 0).then_some(written.bytes),
        })
    }
}

impl<'a> Contest<'a> {
    /// A case, on that of the tables that is as large as it says.
    pub(crate) fn new(stage: &'a Stage, case: Case, tables: &'a [Stored]) -> Result<Contest<'a>> {
        let stored = tables.iter().find(|stored| stored.keys == case.filled());
        let stored = stored.with_context(|| format!("nobody has filled a table for {case}"))?;
        Ok(Contest { case, stage, stored, written: Vec::new() })
    }

    /// Bytes, records and full pages that one operation writes to the log: the medians.
    pub(crate) fn written(&self) -> Vec<f64> {
        let middle = |of: fn(&Log) -> f64| median(self.written.iter().map(of).collect());
        vec![middle(|log| log.bytes), middle(|log| log.records), middle(|log| log.full_pages)]
    }

    /// Reads how long the claims took that ended since the reading before.
    async fn run(&self, load: Load) -> Result<Driven<(Used, Vec<u32>)>> {
        let store = self.stored.connect(load.clients).await?;
        let (times, postmaster) = (Times::default(), self.stage.postmaster);
        let noted = Arc::clone(&times);
        let read = || {
            let ended = std::mem::take(&mut *times.lock().unwrap_or_else(PoisonError::into_inner));
            std::future::ready(anyhow::Ok((Used::now(postmaster), ended)))
        };
        match self.case {
            Case::Claim { .. } => drive(load, read, move |_| claim(store.clone(), Arc::clone(&noted))).await,
            Case::Once { keys, .. } => {
                let semel = Semel::new(store);
                drive(load, read, move |number| once(semel.clone(), keys, number)).await
            }
            Case::Reaping { .. } => bail!("reaping is measured by itself"),
        }
    }
}

/// Asks for a key that nobody has used, and gives it up. The time ends with the answer; the rollback counts for the
/// rate alone.
async fn claim(store: Postgres, times: Times) -> Result<()> {
    let ask = Ask::new(&scope()?, &Keys::Random.fresh()?, &fingerprint());
    let at = Instant::now();
    let claim = store.claim(&ask).await?;
    let took = u32::try_from(at.elapsed().as_micros()).unwrap_or(u32::MAX);
    match claim {
        Claim::Fresh(tx) => tx.rollback().await,
        other => bail!("a key that nobody had used was {other:?}"),
    }
    times.lock().unwrap_or_else(PoisonError::into_inner).push(took);
    Ok(())
}

impl Log {
    async fn read(admin: &Client) -> Result<Log> {
        let row = admin.query_one(LOG, &[]).await?;
        Ok(Log { bytes: row.try_get(0)?, records: row.try_get(1)?, full_pages: row.try_get(2)? })
    }

    /// What was written since `before`, for each of these operations.
    fn since(self, before: Log, operations: u64) -> Log {
        let each = |now: f64, then: f64| (now - then) / operations.max(1) as f64;
        Log {
            bytes: each(self.bytes, before.bytes),
            records: each(self.records, before.records),
            full_pages: each(self.full_pages, before.full_pages),
        }
    }
}

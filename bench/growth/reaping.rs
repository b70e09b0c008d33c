//! What operations feel of a reaper, and of the vacuum that comes after it.

use std::future::{Future, ready};

use anyhow::{Result, bail};
use semel::Semel;
use semel::reaper::Reaper;
use semel_bench::aim::Aim;
use semel_bench::contest::Plan;
use semel_bench::drive::{Load, drive};
use semel_bench::processor::Used;
use semel_bench::report::{Report, Round, Table};
use semel_bench::stage::{Stage, session};
use tokio::time::sleep;

use crate::case::Keys;
use crate::operation::once;
use crate::steady::{Kept, Pace, during};
use crate::stored::{Made, Stored};

/// How many ask at once.
const CLIENTS: u64 = 8;

/// One round: operations alone, while keys are reaped, while the table is vacuumed, and alone again; and how the
/// reaping went.
struct Measured {
    before: Round,
    reaping: Round,
    vacuuming: Round,
    after: Round,
    figures: Vec<f64>,
}

impl Measured {
    /// The p99 of a phase beside that of operations alone. A disk that stood still for a while stands in the p99 of
    /// whatever went on then: of the two times alone, the better one counts.
    fn p99(&self, busy: &Round) -> f64 {
        busy.latency.p99_ms / self.before.latency.p99_ms.min(self.after.latency.p99_ms)
    }
}

/// Measures operations at half load while so many expired keys are reaped. Each round has a table of its own.
pub(crate) async fn measure(
    plan: &Plan,
    stage: &Stage,
    report: &mut Report,
    expired: u64,
    reaper: Reaper,
) -> Result<()> {
    let mut measured = Vec::new();
    let mut table = Table {
        title: format!("reaping in batches of {}, rest {}", reaper.batch, reaper.rest),
        columns: ["keys", "seconds", "keys/s", "vacuum s"].map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    let rounds = if plan.quick { 1 } else { 3 };
    for number in 1..=rounds {
        let round = round(plan, stage, expired, reaper).await?;
        table.rows.push((format!("round {number}"), round.figures.clone()));
        measured.push(round);
    }
    let while_reaping = measured.iter().map(|round| round.p99(&round.reaping)).collect();
    let while_vacuuming = measured.iter().map(|round| round.p99(&round.vacuuming)).collect();
    report.aims.push(Aim::at_most("p99 while keys are reaped / alone".to_owned(), while_reaping, Some(1.5)));
    report.aims.push(Aim::at_most("p99 while they are vacuumed / alone".to_owned(), while_vacuuming, None));
    let (mut before, mut reaping, mut vacuuming, mut after) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in measured {
        before.push(round.before);
        reaping.push(round.reaping);
        vacuuming.push(round.vacuuming);
        after.push(round.after);
    }
    report.measured("once at half load".to_owned(), CLIENTS, before);
    report.measured("once while keys are reaped".to_owned(), CLIENTS, reaping);
    report.measured("once while they are vacuumed".to_owned(), CLIENTS, vacuuming);
    report.measured("once at half load, after that".to_owned(), CLIENTS, after);
    report.tables.push(table);
    Ok(())
}

async fn round(plan: &Plan, stage: &Stage, expired: u64, reaper: Reaper) -> Result<Measured> {
    let stored = Stored::fill(stage, expired, Made::DaysAgo).await?;
    let semel = Semel::new(stored.connect(CLIENTS).await?);
    let operate = move |number: u64| once(semel.clone(), Keys::ByTime, number);
    let load = Load { clients: CLIENTS, warm_up: plan.measured(), measured: plan.measured() * 2 };
    let reached = drive(load, || ready(Ok(())), operate.clone()).await?;
    stored.check(reached.total).await?;
    let pace = Pace { clients: CLIENTS, per_second: reached.per_second / 2.0 };
    let beside = Beside { stage, stored: &stored, pace };

    let nothing = async |for_so_many: u32| {
        sleep(plan.measured() * for_so_many).await;
        Ok(())
    };
    // Not counted: a table that was just filled leaves the server and the disk work for some seconds.
    let settled = during(nothing(10), pace, operate.clone()).await?;
    stored.check(settled.operations).await?;
    let alone_for = if plan.quick { 5 } else { 26 };
    let (before, _) = beside.measure("nothing else", nothing(alone_for), operate.clone()).await?;

    // The reaper has a connection of its own, as in a process of its own.
    let store = stored.connect(1).await?;
    let sweep = async { anyhow::Ok(reaper.sweep(&store).await?) };
    let (reaping, swept) = beside.measure("reaping", sweep, operate.clone()).await?;
    if swept.work != expired {
        bail!("{} of {expired} expired keys were reaped", swept.work);
    }
    stored.check_all(0).await?;

    // What autovacuum does by itself and with as much regard, at a moment that can be waited for.
    let client = session(&stored.database.url).await?;
    client.batch_execute("SET vacuum_cost_delay = '2ms'").await?;
    let vacuum = async { anyhow::Ok(client.batch_execute("VACUUM semel.keys").await?) };
    let (vacuuming, vacuumed) = beside.measure("vacuum", vacuum, operate.clone()).await?;
    let (after, _) = beside.measure("nothing else", nothing(alone_for), operate).await?;

    stage.drop_database(&stored.database).await?;
    let (seconds, vacuum_seconds) = (swept.lasted.as_secs_f64(), vacuumed.lasted.as_secs_f64());
    let figures = vec![expired as f64, seconds, expired as f64 / seconds, vacuum_seconds];
    Ok(Measured { before, reaping, vacuuming, after, figures })
}

/// Operations at a steady pace, beside something else.
struct Beside<'a> {
    stage: &'a Stage,
    stored: &'a Stored,
    pace: Pace,
}

impl Beside<'_> {
    /// Measures from a checkpoint on, for as long as the work lasts. Everything that was counted has to be there.
    async fn measure<T, F>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T>>,
        operate: impl Fn(u64) -> F + Clone + Send + 'static,
    ) -> Result<(Round, Kept<T>)>
    where
        F: Future<Output = Result<()>> + Send,
    {
        self.stage.admin().await?.batch_execute("CHECKPOINT").await?;
        let before = Used::now(self.stage.postmaster);
        let kept = during(work, self.pace, operate).await?;
        let processor = Used::now(self.stage.postmaster).since(before, kept.operations);
        self.stored.check(kept.operations).await?;
        let Kept { per_second, latency, lasted, .. } = &kept;
        eprintln!(
            "{CLIENTS} clients at {per_second:.0}/s beside {name} for {:.1} s: p99 {:.2} ms",
            lasted.as_secs_f64(),
            latency.p99_ms
        );
        Ok((Round { per_second: *per_second, latency: *latency, processor, log_bytes: None }, kept))
    }
}

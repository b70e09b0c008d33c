//! `cargo xtask bench growth`: what stays the same as the table of keys grows, and what operations feel of its reaping.
//!
//! docs/internals/benchmarks.md says how to read the figures.

mod case;
mod contest;
mod operation;
mod reaping;
mod steady;
mod stored;

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use clap::Parser;
use semel::reaper::Reaper;
use semel_bench::aim::Aim;
use semel_bench::contest::{Contest as _, Plan};
use semel_bench::machine::{interrupted, load_average};
use semel_bench::report::{Report, Round, Table};
use semel_bench::stage::Stage;

use crate::case::{Case, Keys};
use crate::contest::Contest;
use crate::stored::{Made, Stored};

const SCHEMA: &str = include_str!("sql/schema.sql");

/// How many claim at once, and how many run operations. The targets hold at 8.
const CLAIMING: [u64; 2] = [1, 8];
const OPERATING: [u64; 1] = [8];

/// The allocator of the `semel` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures claims and operations among many stored keys beside the same among few, and operations while expired keys
/// are reaped.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench growth", bin_name = "cargo xtask bench growth")]
struct Options {
    #[command(flatten)]
    plan: Plan,
    /// How many keys the large table has: 10 million, or 200,000 with --quick. The small one has 10,000.
    #[arg(long, value_parser = clap::value_parser!(u64).range(20_000..=1_000_000_000))]
    keys: Option<u64>,
    /// How many expired keys are reaped: 1 million, or 20,000 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    expired: Option<u64>,
    /// For how many times as long as a batch took the reaper rests after it.
    #[arg(long, default_value_t = Reaper::default().rest)]
    rest: u32,
    /// How many keys a batch has.
    #[arg(long, default_value_t = Reaper::default().batch)]
    batch: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let stage = Stage::start(SCHEMA).await?;
    let report = tokio::select! {
        report = measure(&options, &stage) => report?,
        // The server ends with what is dropped here, not with a signal of ours.
        () = interrupted() => bail!("interrupted"),
    };
    report.publish(options.plan.json)
}

async fn measure(options: &Options, stage: &Stage) -> Result<Report> {
    let plan = &options.plan;
    let many = options.keys.unwrap_or(if plan.quick { 200_000 } else { 10_000_000 });
    let expired = options.expired.unwrap_or(if plan.quick { 20_000 } else { 1_000_000 });
    let mut report = Report::new("growth", plan.quick);
    report.machine.push(format!("{}; {} ms per round", stage.described, plan.measured().as_millis()));
    let wanted = plan.wanted(&Case::all(many, expired))?;
    stored::require_room(stage, wanted.iter().map(|case| case.filled()).max().unwrap_or(0)).await?;
    let (reaping, growing): (Vec<Case>, Vec<Case>) =
        wanted.into_iter().partition(|case| matches!(case, Case::Reaping { .. }));
    grow(plan, stage, &mut report, &growing, many).await?;
    if !reaping.is_empty() {
        let reaper = Reaper { rest: options.rest, batch: options.batch, ..Reaper::default() };
        reaping::measure(plan, stage, &mut report, expired, reaper).await?;
    }
    report.machine.push(format!("load after: {}", load_average()));
    Ok(report)
}

/// Fills the tables that are wanted, and measures claims, which change nothing, and then operations.
async fn grow(plan: &Plan, stage: &Stage, report: &mut Report, cases: &[Case], many: u64) -> Result<()> {
    let mut tables = Vec::new();
    for keys in cases.iter().map(|case| case.filled()).collect::<BTreeSet<u64>>() {
        tables.push(Stored::fill(stage, keys, Made::Today).await?);
    }
    let (mut claims, mut operations) = (Vec::new(), Vec::new());
    for case in cases {
        let contests = if matches!(case, Case::Claim { .. }) { &mut claims } else { &mut operations };
        contests.push(Contest::new(stage, *case, &tables)?);
    }
    for clients in plan.clients(&CLAIMING) {
        plan.measure(report, &mut claims, (clients, clients == 8), async || Ok(())).await?;
        let [few, many] = Case::claims(many);
        let p50 = |round: &Round| round.latency.p50_ms;
        compare(report, "p50", [many, few], clients, p50, (clients == 8).then_some(1.3));
        compare(report, "p99", [many, few], clients, |round| round.latency.p99_ms, None);
    }
    for clients in plan.clients(&OPERATING) {
        plan.measure(report, &mut operations, (clients, true), async || Ok(())).await?;
        for keys in [Keys::Random, Keys::ByTime] {
            let [few, many] = Case::operations(keys, many);
            report.ratio(&many.to_string(), &few.to_string(), clients, None);
            let log_bytes = |round: &Round| round.log_bytes.unwrap_or(0.0);
            compare(report, "log bytes", [many, few], clients, log_bytes, (keys == Keys::ByTime).then_some(1.3));
        }
        report.tables.extend(log(&operations));
    }
    for stored in &tables {
        stored.check_all(stored.keys).await?;
        stage.drop_database(&stored.database).await?;
    }
    Ok(())
}

/// Compares what two cases cost, if both were measured.
fn compare(
    report: &mut Report,
    what: &str,
    [of, to]: [Case; 2],
    clients: u64,
    cost: impl Fn(&Round) -> f64,
    most: Option<f64>,
) {
    let find = |case: Case| {
        let name = case.to_string();
        report.cases.iter().find(|measured| measured.name == name && measured.clients == clients)
    };
    let (Some(mine), Some(theirs)) = (find(of), find(to)) else { return };
    let ratios = mine.rounds.iter().zip(&theirs.rounds).map(|(mine, theirs)| cost(mine) / cost(theirs)).collect();
    report.aims.push(Aim::at_most(format!("{what}: {of} / {to}, {clients} clients"), ratios, most));
}

/// What one operation writes to the log, from the checkpoint on that each round begins with.
fn log(operations: &[Contest<'_>]) -> Option<Table> {
    let rows = operations.iter().map(|contest| (contest.name(), contest.written())).collect();
    (!operations.is_empty()).then_some(Table {
        title: "one operation, 8 clients".to_owned(),
        columns: ["log bytes", "log records", "full pages"].map(str::to_owned).to_vec(),
        rows,
    })
}

//! `cargo xtask bench http`: what keys cost over HTTP, beside the same handler without them, and beside other
//! middleware.
//!
//! Services and clients are one process, and talk over loopback. docs/internals/benchmarks.md says how to read the
//! figures.

mod app;
mod case;
mod charge;
mod client;
mod contest;
mod sandbox;
mod schedule;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use semel_bench::aim::Aim;
use semel_bench::contest::Plan;
use semel_bench::machine::{interrupted, load_average};
use semel_bench::report::{Case, Report};
use semel_bench::stage::Stage;

use crate::case::Contestant;
use crate::contest::Contest;

const SCHEMA: &str = include_str!("../keys/sql/schema.sql");

/// How many ask at once.
const CLIENTS: [u64; 3] = [1, 8, 32];

/// Where the target holds.
const TARGET: u64 = 8;

/// How many milliseconds the layer should add at most.
const MOST_MS: f64 = 0.15;

/// The allocator of the `semel` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what keys cost over HTTP: Semel's layer beside the same handler without it, and other middleware; and how
/// much memory `semel sandbox` takes.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench http", bin_name = "cargo xtask bench http")]
struct Options {
    #[command(flatten)]
    plan: Plan,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { plan } = Options::parse();
    let stage = Stage::start(SCHEMA).await?;
    let report = tokio::select! {
        report = measure(&plan, &stage) => report?,
        // The server ends with what is dropped here, not with a signal of ours.
        () = interrupted() => bail!("interrupted"),
    };
    report.publish(plan.json)
}

async fn measure(plan: &Plan, stage: &Stage) -> Result<Report> {
    let names: Vec<String> =
        Contestant::ALL.iter().map(ToString::to_string).chain([sandbox::NAME.to_owned()]).collect();
    let wanted = plan.wanted(&names)?;
    let with_sandbox = wanted.iter().any(|name| name == sandbox::NAME) && !plan.clients(&[sandbox::CLIENTS]).is_empty();
    if with_sandbox {
        sandbox::build().await?;
    }
    let mut report = Report::new("http", plan.quick);
    report.machine.push(format!("{}; {} ms per round", stage.described, plan.measured().as_millis()));
    let mut contestants = Contestant::ALL.to_vec();
    contestants.retain(|contestant| wanted.contains(&contestant.to_string()));
    let mut contests = contests(stage, &contestants, None).await?;
    for clients in plan.clients(&CLIENTS) {
        plan.measure(&mut report, &mut contests, (clients, clients == TARGET), async || checkpoint(stage).await)
            .await?;
        judge(&mut report, clients);
    }
    contestants.retain(|contestant| !contestant.replays);
    half_load(plan, stage, &mut report, &contestants).await?;
    if with_sandbox {
        sandbox::measure(&mut report, Duration::from_secs(if plan.quick { 2 } else { 20 })).await?;
    }
    report.machine.push(format!("load after: {}", load_average()));
    Ok(report)
}

/// Asks everybody evenly at half of the rate that the slowest of them reaches. Flat out, half of the requests wait for
/// those before them, and the middle says how long a queue is; here it says how long a request takes.
async fn half_load(plan: &Plan, stage: &Stage, report: &mut Report, contestants: &[Contestant]) -> Result<()> {
    let reached = contestants.iter().filter_map(|contestant| find(report, &contestant.to_string(), TARGET));
    let Some(least) = reached.map(|case| case.per_second).min_by(f64::total_cmp) else { return Ok(()) };
    let pace = least / 2.0;
    report.machine.push(format!("half load: {pace:.0} requests/s"));
    let mut contests = contests(stage, contestants, Some(pace)).await?;
    plan.measure(report, &mut contests, (TARGET, true), async || checkpoint(stage).await).await?;
    let others = [Contestant::layer(0), Contestant::layer(1), Contestant::AXUM_IDEMPOTENT];
    for (other, most) in others.into_iter().zip([Some(MOST_MS), None, None]) {
        difference(report, &format!("{other}, half load"), "bare, half load", TARGET, most);
    }
    Ok(())
}

/// One of each, on a database of its own.
async fn contests<'a>(stage: &'a Stage, contestants: &[Contestant], pace: Option<f64>) -> Result<Vec<Contest<'a>>> {
    let mut contests = Vec::new();
    for contestant in contestants {
        contests.push(Contest::new(stage, *contestant, pace).await?);
    }
    Ok(contests)
}

/// What earlier rounds have left to write to the disk falls on nobody.
async fn checkpoint(stage: &Stage) -> Result<()> {
    Ok(stage.admin().await?.batch_execute("CHECKPOINT").await?)
}

fn judge(report: &mut Report, clients: u64) {
    let bare = Contestant::BARE.to_string();
    let [layer, with_event] = [0, 1].map(|events| Contestant::layer(events).to_string());
    let (others, replay) = (Contestant::AXUM_IDEMPOTENT, Contestant::layer(0).replaying());
    report.ratio(&layer, &bare, clients, None);
    report.ratio(&with_event, &bare, clients, None);
    report.ratio(&others.to_string(), &bare, clients, None);
    report.ratio(&replay.to_string(), &others.replaying().to_string(), clients, None);
    difference(report, &layer, &bare, clients, None);
}

/// By how many milliseconds the middle of one is above that of the other, round by round, if both were measured.
fn difference(report: &mut Report, of: &str, to: &str, clients: u64, most: Option<f64>) {
    let (Some(mine), Some(theirs)) = (find(report, of, clients), find(report, to, clients)) else { return };
    let pairs = mine.rounds.iter().zip(&theirs.rounds);
    let rounds = pairs.map(|(mine, theirs)| mine.latency.p50_ms - theirs.latency.p50_ms).collect();
    report.aims.push(Aim::at_most(format!("p50 of {of} - {to}, {clients} clients, ms"), rounds, most));
}

fn find<'a>(report: &'a Report, name: &str, clients: u64) -> Option<&'a Case> {
    report.cases.iter().find(|case| case.name == name && case.clients == clients)
}

//! `cargo xtask bench flows`: how many flows of three steps run in a second, beside DBOS and durare.
//!
//! Everybody writes the same three lines into the same table, one in each step, on the same private server or on files
//! of the same settings, with as many clients and as many connections, round by round in turn. Commits are durable for
//! all of them. The peers are programs of their own below bench/peers; docs/internals/benchmarks.md says how to read
//! the figures.

mod case;
mod contest;
mod file;
mod order;
mod peer;
mod postgres;
mod prepare;
mod reading;
mod sqlite;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use semel_bench::contest::{Contest as _, Plan};
use semel_bench::machine::{interrupted, load_average};
use semel_bench::report::{Report, Table};
use semel_bench::stage::Stage;

use crate::case::{Contestant, Store};
use crate::contest::Contest;

const SCHEMA: &str = include_str!("sql/postgres/schema.sql");

/// How many ask at once.
const CLIENTS: [u64; 3] = [1, 8, 32];

/// How many ask where the target holds.
const TARGET: u64 = 8;

/// How many times as fast as the better peer Semel should be.
const LEAST: f64 = 2.0;

/// The allocator of the `semel` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures flows of three steps: Semel on PostgreSQL and on SQLite, beside DBOS and durare.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench flows", bin_name = "cargo xtask bench flows")]
struct Options {
    #[command(flatten)]
    plan: Plan,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { plan } = Options::parse();
    let wanted = plan.wanted(&Contestant::ALL)?;
    prepare::prepare(&wanted).await?;
    let stage = Stage::start(SCHEMA).await?;
    let report = tokio::select! {
        report = measure(&plan, &stage, &wanted) => report?,
        // The server and the files end with what is dropped here, not with a signal of ours.
        () = interrupted() => bail!("interrupted"),
    };
    report.publish(plan.json)
}

async fn measure(plan: &Plan, stage: &Stage, wanted: &[Contestant]) -> Result<Report> {
    let is_durable = stage.described.contains("fsync on, synchronous_commit on");
    ensure!(is_durable, "commits are not durable: {}", stage.described);
    let mut report = Report::new("flows", plan.quick);
    report.machine.push(format!("{}; {} ms per round", stage.described, plan.measured().as_millis()));
    report.machine.push(format!("SQLite {}, WAL, synchronous FULL", rusqlite::version()));
    report.machine.push(prepare::versions());
    let mut contests = Vec::new();
    for contestant in wanted {
        contests.push(Contest::new(stage, *contestant).await?);
    }
    // What earlier rounds have left to write to the disk falls on nobody.
    let between = async || Ok(stage.admin().await?.batch_execute("CHECKPOINT").await?);
    for clients in plan.clients(&CLIENTS) {
        plan.measure(&mut report, &mut contests, (clients, clients == TARGET), between).await?;
        for store in [Store::Postgres, Store::Sqlite] {
            judge(&mut report, store, clients);
        }
    }
    report.tables.push(transactions(&contests));
    report.machine.push(format!("load after: {}", load_average()));
    Ok(report)
}

/// Semel beside everybody else on the same store. The target is about the better of them.
fn judge(report: &mut Report, store: Store, clients: u64) {
    let on_store = Contestant::ALL.into_iter().filter(|one| one.store() == store);
    let (peers, ours): (Vec<_>, Vec<_>) = on_store.partition(|one| one.peer().is_some());
    let better = better(report, &peers, clients);
    for our in ours {
        for peer in &peers {
            let is_target = clients == TARGET && our == Contestant::Semel { store, deferred: false };
            let least = (is_target && better == Some(*peer)).then_some(LEAST);
            report.ratio(&our.to_string(), &peer.to_string(), clients, least);
        }
    }
}

/// The fastest of these with so many clients, of those that were measured.
fn better(report: &Report, peers: &[Contestant], clients: u64) -> Option<Contestant> {
    let rate = |peer: &Contestant| {
        let name = peer.to_string();
        let case = report.cases.iter().find(|case| case.name == name && case.clients == clients)?;
        Some((*peer, case.per_second))
    };
    let fastest = peers.iter().filter_map(rate).max_by(|(_, one), (_, other)| one.total_cmp(other));
    fastest.map(|(peer, _)| peer)
}

/// In how many transactions one flow writes, over all rounds. Each of them waits for the disk.
fn transactions(contests: &[Contest<'_>]) -> Table {
    let row = |contest: &Contest<'_>| Some((contest.name(), vec![contest.transactions()?]));
    Table {
        title: "one flow".to_owned(),
        columns: vec!["transactions".to_owned()],
        rows: contests.iter().filter_map(row).collect(),
    }
}

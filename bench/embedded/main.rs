//! `cargo xtask bench embedded`: how many protected operations a SQLite file makes durable, with a commit for each and
//! with commits that they share.
//!
//! Everybody does the same work on a file of the same settings in the same run, round by round in turn, so that the
//! ratios hold even where the figures depend on the disk. docs/internals/benchmarks.md says how to read them.

mod by_hand;
mod case;
#[path = "../keys/charge.rs"]
mod charge;
mod contest;
mod file;
mod ours;
mod runner;

use anyhow::{Result, bail};
use clap::Parser;
use semel_bench::contest::{Contest as _, Plan};
use semel_bench::machine::{interrupted, load_average};
use semel_bench::report::{Report, Table};

use crate::case::Contestant;
use crate::contest::Contest;

/// How many ask at once. The target holds at 64.
const CLIENTS: [u64; 3] = [1, 8, 64];

/// The allocator of the `semel` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures durable protected operations on SQLite: Semel, which commits them in groups, beside a commit for each.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench embedded", bin_name = "cargo xtask bench embedded")]
struct Options {
    #[command(flatten)]
    plan: Plan,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { plan } = Options::parse();
    let report = tokio::select! {
        report = measure(&plan) => report?,
        // The file goes with what is dropped here, not with a signal of ours.
        () = interrupted() => bail!("interrupted"),
    };
    report.publish(plan.json)
}

async fn measure(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("embedded", plan.quick);
    report.machine.push(format!("{}; {} ms per round", file::settings().await?, plan.measured().as_millis()));
    let mut contests: Vec<Contest> = plan.wanted(&Contestant::ALL)?.into_iter().map(Contest::new).collect();
    let wanted = plan.clients(&CLIENTS);
    for &clients in &wanted {
        // Each round has a fresh file, so nothing is left of the one before.
        plan.measure(&mut report, &mut contests, (clients, clients == 64), async || Ok(())).await?;
        judge(&mut report, clients);
    }
    report.tables.push(shared(&contests, &wanted));
    report.machine.push(format!("load after: {}", load_average()));
    Ok(report)
}

fn judge(report: &mut Report, clients: u64) {
    let least = (clients == 64).then_some(5.0);
    let [bare, by_hand, on_thread, alone, once, deferred] = Contestant::ALL.map(|contestant| contestant.to_string());
    report.ratio(&once, &by_hand, clients, least);
    report.ratio(&once, &on_thread, clients, least);
    report.ratio(&deferred, &by_hand, clients, None);
    report.ratio(&deferred, &on_thread, clients, None);
    report.ratio(&once, &alone, clients, None);
    report.ratio(&alone, &on_thread, clients, None);
    report.ratio(&by_hand, &bare, clients, None);
}

/// What operations shared, and what each had written.
fn shared(contests: &[Contest], clients: &[u64]) -> Table {
    let per_commit = clients.iter().map(|clients| format!("/commit at {clients}"));
    let written = clients.iter().map(|clients| format!("KiB at {clients}"));
    let row = |contest: &Contest| {
        let per_commit = clients.iter().map(|clients| contest.per_commit(*clients));
        let written = clients.iter().map(|clients| contest.kib_written(*clients));
        (contest.name(), per_commit.chain(written).collect::<Vec<f64>>())
    };
    Table {
        title: "operations per commit, KiB per operation".to_owned(),
        columns: per_commit.chain(written).collect(),
        rows: contests.iter().map(row).collect(),
    }
}

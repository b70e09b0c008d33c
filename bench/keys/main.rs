//! `cargo xtask bench keys`: what it costs to run an operation once, beside the same work bare and by hand.
//!
//! Everybody does the same work on the same private server in the same run, round by round in turn, so that the ratios
//! hold even where the figures depend on the machine. docs/internals/benchmarks.md says how to read them.

mod bare;
mod case;
mod charge;
mod contest;
mod ours;

use anyhow::{Result, bail};
use clap::Parser;
use semel_bench::contest::{Contest as _, Plan};
use semel_bench::machine::{interrupted, load_average};
use semel_bench::report::{Report, Table};
use semel_bench::stage::Stage;

use crate::case::{Contestant, Way};
use crate::contest::Contest;

const SCHEMA: &str = include_str!("sql/schema.sql");

/// How many ask at once. The targets hold at 8.
const CLIENTS: [u64; 3] = [1, 8, 32];

/// The allocator of the `semel` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what it costs to run an operation once: Semel beside the same work bare, and with keys and outbox by hand.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench keys", bin_name = "cargo xtask bench keys")]
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
    let mut report = Report::new("keys", plan.quick);
    report.machine.push(format!("{}; {} ms per round", stage.described, plan.measured().as_millis()));
    let mut contests = Vec::new();
    let all: Vec<Contestant> = Contestant::ALL.into_iter().chain(Contestant::BY_OTHER_WAYS).collect();
    let (others, wanted): (Vec<_>, Vec<_>) = plan.wanted(&all)?.into_iter().partition(|one| one.way().is_some());
    for contestant in wanted {
        contests.push(Contest::new(stage, contestant).await?);
    }
    // What earlier rounds have left to write to the disk falls on nobody.
    let between = async || Ok(stage.admin().await?.batch_execute("CHECKPOINT").await?);
    for clients in plan.clients(&CLIENTS) {
        plan.measure(&mut report, &mut contests, (clients, clients == 8), between).await?;
        judge(&mut report, clients);
    }
    report.tables.push(anatomy(plan, &mut contests).await?);
    drop(contests);
    by_other_ways(plan, stage, &mut report, others).await?;
    report.machine.push(format!("load after: {}", load_average()));
    Ok(report)
}

/// Those who take another way to the server, with as many clients as the targets hold for.
async fn by_other_ways(plan: &Plan, stage: &Stage, report: &mut Report, wanted: Vec<Contestant>) -> Result<()> {
    let mut contests = Vec::new();
    for contestant in wanted {
        contests.push(Contest::new(stage, contestant).await?);
    }
    let between = async || Ok(stage.admin().await?.batch_execute("CHECKPOINT").await?);
    for clients in plan.clients(&[8]) {
        plan.measure(report, &mut contests, (clients, false), between).await?;
        for way in [Way::Session, Way::Transaction] {
            let [once, bare] = [Contestant::OnceBy(way), Contestant::BareBy(way)].map(|one| one.to_string());
            report.ratio(&once, &bare, clients, None);
        }
    }
    Ok(())
}

fn judge(report: &mut Report, clients: u64) {
    let least = |least: f64| (clients == 8).then_some(least);
    let [bare, pipelined, by_hand] =
        [Contestant::Bare, Contestant::BarePipelined, Contestant::ByHand].map(|contestant| contestant.to_string());
    let once = |events: u32| Contestant::Once { events }.to_string();
    report.ratio(&by_hand, &bare, clients, None);
    report.ratio(&once(0), &bare, clients, None);
    report.ratio(&once(1), &bare, clients, least(0.8));
    report.ratio(&once(4), &bare, clients, None);
    report.ratio(&once(1), &by_hand, clients, None);
    report.ratio(&Contestant::OnceDeferred.to_string(), &bare, clients, least(1.0));
    report.ratio(&Contestant::OneCall.to_string(), &bare, clients, least(1.2));
    report.ratio(&Contestant::OneCall.to_string(), &pipelined, clients, least(0.65));
    report.ratio(&pipelined, &bare, clients, None);
}

/// What one operation of each leaves on the server.
async fn anatomy(plan: &Plan, contests: &mut [Contest<'_>]) -> Result<Table> {
    let operations = if plan.quick { 200 } else { 2_000 };
    let columns = ["round trips", "row versions", "xids", "log records", "log bytes", "full pages"];
    let mut table = Table {
        title: "one operation, one client".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    for contest in contests {
        let found = contest.look_into(operations).await?;
        let figures = vec![
            contest.contestant.round_trips().into(),
            found.row_versions,
            found.transaction_ids,
            found.log_records,
            found.log_bytes,
            found.full_pages,
        ];
        table.rows.push((contest.name(), figures));
    }
    Ok(table)
}

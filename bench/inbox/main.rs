//! `cargo xtask bench inbox`: how many messages are applied once, beside the same work without an inbox.
//!
//! Every case does the same work on the same private servers in the same run, round by round in turn, so that the
//! ratios hold even where the figures depend on the machine. docs/internals/benchmarks.md says how to read them.

mod bench;
mod business;
mod cache;
mod case;
mod direct;
mod load;
mod memory;
mod meter;
mod options;
mod pipeline;
mod postgres;
mod report;
mod runner;
mod sqlite;

use anyhow::{Result, bail};
use clap::Parser;
use semel_bench::machine::{commit, cores, interrupted, load_average};
use semel_bench::report::publish;

use crate::bench::Bench;
use crate::business::Business;
use crate::case::{Case, Direct, Run, Store};
use crate::meter::Measured;
use crate::options::Options;
use crate::pipeline::Topics;
use crate::report::Report;

/// The allocator of the `semel` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // Of the two libraries that a build may hold, one has to be chosen; whoever was first stays.
    let _ = rustls::crypto::ring::default_provider().install_default();

    let wanted = |case: &Case| {
        options.only.is_empty() || options.only.iter().any(|text| case.to_string().contains(text.as_str()))
    };
    let cases: Vec<Case> = Case::all().into_iter().filter(wanted).collect();
    if cases.is_empty() {
        bail!("no case is named so: {}", Case::all().iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    }
    let json = options.json;
    let bench = Bench::start(options, &cases).await?;
    let report = tokio::select! {
        report = measure(&bench, &cases) => report?,
        // The servers end with what is dropped here, not with a signal of ours.
        () = interrupted() => bail!("interrupted"),
    };
    publish("inbox", &report, &report.text(), json)
}

async fn measure(bench: &Bench, cases: &[Case]) -> Result<Report> {
    let options = &bench.options;
    let mut report = Report { commit: commit(), quick: options.quick, ..Report::default() };
    report.machine.push(format!(
        "{} cores; {}; {} rounds of {} ms per case; load before: {}",
        cores(),
        bench.stage.described,
        options.rounds(),
        options.measured().as_millis(),
        load_average()
    ));
    let topics = Topics::default();
    let mut rounds = vec![Vec::new(); cases.len()];
    for round in 1..=options.rounds() {
        for (case, results) in cases.iter().zip(&mut rounds) {
            let measured = one(bench, &topics, *case).await?;
            eprintln!("round {round}: {case}: {:.0} messages/s", measured.messages_per_second);
            results.push(measured);
        }
    }
    for (case, results) in cases.iter().zip(rounds) {
        report.measured(*case, results);
    }
    report.judge();
    report.machine.push(format!("load after: {}", load_average()));
    Ok(report)
}

async fn one(bench: &Bench, topics: &Topics, case: Case) -> Result<Measured> {
    let store = match case {
        Case::Pipeline(piped) => return pipeline::measure(bench, topics, piped).await,
        Case::Direct(Direct { store, .. }) | Case::Runner(Run { store, .. }) => store,
    };
    match store {
        Store::Postgres => {
            let (store, database) = bench.postgres().await?;
            let measured = on(bench, &store, case).await?;
            drop(store);
            bench.stage.drop_database(&database).await?;
            Ok(measured)
        }
        Store::Sqlite => {
            let (store, directory) = bench.sqlite().await?;
            let measured = on(bench, &store, case).await?;
            drop(store);
            std::fs::remove_dir_all(directory)?;
            Ok(measured)
        }
    }
}

async fn on<S: Business>(bench: &Bench, store: &S, case: Case) -> Result<Measured> {
    match case {
        Case::Direct(direct) => direct::measure(bench, store, direct).await,
        Case::Runner(run) => runner::measure(bench, store, run).await,
        Case::Pipeline(_) => bail!("a pipeline has no store"),
    }
}

//! `cargo xtask bench relay`: how fast committed events get out, side by side with the limit and the alternative.
//!
//! Every case publishes the same payloads to the same private servers in the same run, round by round in turn, so that
//! the ratios hold even where the figures depend on the machine. docs/internals/benchmarks.md says how to read them.

mod alone;
mod bench;
mod case;
mod client;
mod database;
mod drain;
mod jetstream;
mod ledger;
mod load;
mod options;
mod ours;
mod polling;
mod report;
mod servers;
mod steady;
mod table;
mod writers;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use semel_bench::machine::{commit, cores, interrupted, load_average};
use semel_bench::report::publish;

use crate::bench::Bench;
use crate::case::{Case, Publisher, SinkKind};
use crate::options::Options;
use crate::report::Report;
use crate::servers::Servers;

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

    let commits: Vec<Duration> = options.commit_ms.iter().copied().map(Duration::from_millis).collect();
    let wanted = |case: &Case| {
        options.only.is_empty() || options.only.iter().any(|text| case.to_string().contains(text.as_str()))
    };
    let cases: Vec<Case> = Case::all(&commits).into_iter().filter(wanted).collect();
    if cases.is_empty() {
        bail!(
            "no case is named so: {}",
            Case::all(&commits).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        );
    }
    let sinks: Vec<SinkKind> = cases.iter().map(|case| case.sink).collect();
    let servers = Servers::start(&sinks).await?;
    let json = options.json;
    let bench = Bench::new(options, servers);
    let report = tokio::select! {
        report = measure(&bench, &cases, &commits) => report?,
        // The servers end with what is dropped here, not with a signal of ours.
        () = interrupted() => bail!("interrupted"),
    };
    publish("relay", &report, &report.text(), json)
}

async fn measure(bench: &Bench, cases: &[Case], commits: &[Duration]) -> Result<Report> {
    let options = &bench.options;
    let mut report = Report { commit: commit(), quick: options.quick, ..Report::default() };
    report.machine.push(format!(
        "{} cores; {} events of {} bytes, {} keys, {} rounds; load before: {}",
        cores(),
        options.events(),
        options.payload_bytes,
        options.keys,
        options.rounds(),
        load_average()
    ));
    let mut rounds = vec![Vec::new(); cases.len()];
    for round in 1..=options.rounds() {
        for (case, results) in cases.iter().zip(&mut rounds) {
            let drained = drain::drain(bench, *case).await?;
            eprintln!("round {round}: {case}: {:.0} events/s", drained.events_per_second);
            results.push(drained);
        }
    }
    for (case, results) in cases.iter().zip(rounds) {
        report.drained(*case, results);
    }
    if !options.steady().is_zero() {
        let steady = |case: &&Case| !case.held && matches!(case.publisher, Publisher::Semel | Publisher::Polling(1));
        for case in cases.iter().filter(steady) {
            let measured = steady::steady(bench, *case, report.rate(*case)).await?;
            eprintln!("steady: {case}: p99 {:.1} ms", measured.latency.p99_ms);
            report.steady.push(measured);
        }
    }
    if !options.held().is_zero() {
        let null = |case: &&Case| case.publisher == Publisher::Semel && case.sink == SinkKind::Null;
        let once: Vec<&Case> = cases.iter().filter(null).collect();
        // Forth and back, so that what one leaves for the disk to do falls on both.
        for case in once.iter().chain(once.iter().rev()) {
            let measured = steady::endure(bench, **case).await?;
            let (at_last, drained_then) = (measured.at_last, measured.drained_then);
            eprintln!("flat out: {case}: {at_last:.0} events/s in the last third, then {drained_then:.0} drained");
            report.endured.push(measured);
        }
    }
    let transactional: Vec<SinkKind> = commits.iter().copied().map(SinkKind::KafkaTransactional).collect();
    report.judge(&transactional);
    report.machine.push(format!("load after: {}", load_average()));
    Ok(report)
}

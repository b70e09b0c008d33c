//! `cargo xtask bench`: benchmarks, on private servers, in the release profile.

use std::process::Command;

use anyhow::{Result, bail};

use crate::services;

/// The benchmarks there are, and what each measures.
const BENCHMARKS: [(&str, &str); 8] = [
    ("keys", "what it costs to run an operation once, beside the same work bare and by hand"),
    ("replay", "what a retry costs, beside a SELECT of the same row"),
    ("http", "what the layer adds to a request, beside none and another one, and what the sandbox takes of the memory"),
    ("embedded", "how many protected operations a SQLite file makes durable, beside a commit for each"),
    ("growth", "what ten million keys cost, and what their reaping does to requests"),
    ("flows", "how many flows of three steps run in a second, beside DBOS and durare"),
    ("inbox", "how many messages are applied once, beside the same work without an inbox"),
    ("relay", "how fast committed events get out, beside the limit and the usual alternative"),
];

/// All of them, one after the other, and the document.
const ALL: &str = "all";

/// What writes the page of the documentation from what full runs have left.
const DOCUMENT: &str = "document";

/// Runs a benchmark by name; `arguments` are its own.
pub(crate) fn run(name: &str, arguments: &[&str]) -> Result<()> {
    if ["help", "--help", "-h"].contains(&name) {
        println!("usage: cargo xtask bench NAME [ARGS]   (NAME --help lists ARGS)\n");
        for (name, measures) in BENCHMARKS {
            println!("  {name:<8} {measures}");
        }
        println!("  {ALL:<8} all of these with the same ARGS, about two hours; then {DOCUMENT}");
        println!("  {DOCUMENT:<8} writes docs/reference/benchmarks.md from what full runs have left in target/bench");
        return Ok(());
    }
    if name == ALL {
        for (name, _) in BENCHMARKS {
            eprintln!("bench {name}");
            run_one(name, arguments)?;
        }
        // Anything less than full runs has no place in the documentation.
        return if arguments.is_empty() { run_one(DOCUMENT, &[]) } else { Ok(()) };
    }
    if name != DOCUMENT && !BENCHMARKS.iter().any(|(known, _)| *known == name) {
        let names = BENCHMARKS.map(|(name, _)| format!("`{name}`")).join(", ");
        bail!("unknown benchmark `{name}`: there are {names}, `{ALL}` and `{DOCUMENT}`");
    }
    run_one(name, arguments)
}

fn run_one(name: &str, arguments: &[&str]) -> Result<()> {
    services::install()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--release", "--quiet", "--package", "semel-bench", "--bin", name, "--"]).args(arguments);
    // Kafka as it comes: tests start theirs with what makes a short life cheap.
    if std::env::var_os(semel_testkit::kafka::JAVA_OPTIONS).is_none() {
        command.env(semel_testkit::kafka::JAVA_OPTIONS, "-Xmx1g");
    }
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if command.status()?.success() { Ok(()) } else { bail!("the benchmark failed; what it said is above") }
}

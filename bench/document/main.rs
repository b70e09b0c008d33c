//! `cargo xtask bench document`: writes docs/reference/benchmarks.md from what full runs have left in target/bench.
#![allow(clippy::print_stdout)]

mod page;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use semel_testkit::cluster::target_dir;
use serde::Deserialize;

/// The benchmarks that have a section, in the order of the page, and what each is about.
const SECTIONS: [(&str, &str); 8] = [
    ("keys", "Running an operation once, on PostgreSQL"),
    ("replay", "Answering a retry"),
    ("http", "Over HTTP"),
    ("embedded", "The embedded store"),
    ("growth", "Many keys"),
    ("flows", "Flows of three steps"),
    ("inbox", "Applying messages once"),
    ("relay", "Getting events out"),
];

/// What a run has left. Benchmarks that count otherwise have no cases of this form, and their targets alone are shown.
#[derive(Debug, Deserialize)]
struct Run {
    quick: bool,
    machine: Vec<String>,
    #[serde(default)]
    cases: Vec<serde_json::Value>,
    #[serde(default)]
    tables: Vec<Table>,
    aims: Vec<Aim>,
}

/// One case, where it is of the common form.
#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    clients: u64,
    per_second: f64,
    rounds: Vec<Round>,
}

#[derive(Debug, Deserialize)]
struct Round {
    per_second: f64,
    p50_ms: f64,
    log_bytes: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<f64>)>,
}

#[derive(Debug, Deserialize)]
struct Aim {
    what: String,
    measured: f64,
    spread: Option<(f64, f64)>,
    target: String,
    met: bool,
}

fn main() -> Result<()> {
    let directory = target_dir().join("bench");
    let mut runs = Vec::new();
    for (name, title) in SECTIONS {
        match read(&directory.join(format!("{name}.json")))? {
            Some(run) => runs.push((name, title, run)),
            None => println!("{name} is left out: there is no full run of it; `cargo xtask bench {name}` is one"),
        }
    }
    if runs.is_empty() {
        bail!("there is no full run of anything in {}: `cargo xtask bench all` is one", directory.display());
    }
    let file = PathBuf::from("docs/reference/benchmarks.md");
    std::fs::write(&file, page::write(&runs)).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{}", file.display());
    Ok(())
}

/// What a full run has left there, if it was one.
fn read(file: &Path) -> Result<Option<Run>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let run: Run = serde_json::from_str(&text).with_context(|| format!("{} is of another version", file.display()))?;
    Ok((!run.quick).then_some(run))
}

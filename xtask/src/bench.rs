//! `cargo xtask bench`: benchmarks, on private servers, in the release profile.

use std::process::Command;

use anyhow::{Result, bail};

use crate::services;

/// The benchmarks there are.
const NAMES: [&str; 2] = ["relay", "inbox"];

/// Runs a benchmark by name; `arguments` are its own.
pub(crate) fn run(name: &str, arguments: &[&str]) -> Result<()> {
    if !NAMES.contains(&name) {
        bail!("unknown benchmark `{name}`: there are {}", NAMES.map(|name| format!("`{name}`")).join(" and "));
    }
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

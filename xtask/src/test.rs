//! `cargo xtask test`: what continuous integration runs, step by step.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{interrupt, services};

/// One set of features for every step, so that nothing is compiled twice. All sinks are in it.
const FEATURES: &str = "semel-server/failpoints,semel-server/kafka-tls";
/// `-D warnings`, as `cargo clippy` passes it on.
const DENY_WARNINGS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";
const GET_CARGO_DENY: &str = "cargo install --locked cargo-deny@0.20.2";

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether tests repeat themselves as often as a release demands.
    long: bool,
    /// What goes on to `cargo test`.
    arguments: Vec<String>,
}

impl Options {
    /// Reads what follows `cargo xtask test`.
    pub(crate) fn parse(words: &[&str]) -> Result<Options> {
        let split = words.iter().position(|word| *word == "--");
        let (ours, theirs) = match split {
            Some(at) => (&words[..at], &words[at + 1..]),
            None => (words, &[][..]),
        };
        if let Some(unknown) = ours.iter().find(|word| **word != "--long") {
            bail!("unknown option `{unknown}`: `cargo xtask test [--long] [-- ARGUMENTS FOR CARGO TEST]`");
        }
        Ok(Options { long: !ours.is_empty(), arguments: theirs.iter().map(|word| (*word).to_owned()).collect() })
    }
}

/// Runs every step, even after one failed, and prints what became of each. What was started is stopped, on failure and
/// on Ctrl-C too.
pub(crate) fn run(options: &Options) -> Result<()> {
    interrupt::listen()?;
    let services = services::start()?;
    let environment = services.environment.clone();
    let _stop = StopServices(services);
    let mut steps = Steps::default();

    steps.run("format", cargo(&["fmt", "--all", "--check"]))?;
    // Clippy as the compiler of the tests, so that everything is compiled once and not twice: `cargo clippy` sets the
    // same two variables, and only checks.
    let linting = [("RUSTC_WORKSPACE_WRAPPER", clippy()?), ("CLIPPY_ARGS", DENY_WARNINGS.to_owned())];
    let mut build = cargo(&["test", "--no-run", "--quiet", "--workspace", "--features", FEATURES]);
    build.envs(linting.clone());
    steps.run("clippy, build", build)?;
    let mut test = cargo(&["test", "--workspace", "--no-fail-fast", "--features", FEATURES]);
    test.args(&options.arguments).envs(environment).envs(linting);
    // Most tests wait for servers and for processes that they have killed: two at a time would leave two cores idle.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        test.env("RUST_TEST_THREADS", "5");
    }
    test.env("SEMEL_TEST_LONG", if options.long { "1" } else { "0" });
    steps.run(if options.long { "tests (long)" } else { "tests" }, test)?;
    if has_cargo_deny() {
        // Its offline check reads crates of every platform and feature, which building here may not have fetched.
        let _ = interrupt::run(&mut cargo(&["fetch", "--quiet", "--locked"]))?;
        steps.run(
            "cargo-deny",
            cargo(&["deny", "--offline", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]),
        )?;
    } else {
        steps.skip("cargo-deny", &format!("not installed: `{GET_CARGO_DENY}`"));
    }
    steps.summary()
}

/// Runs the style checks alone.
pub(crate) fn tidy() -> Result<()> {
    let status = cargo(&["test", "--quiet", "--package", "xtask", "--test", "tidy"]).status()?;
    if status.success() { Ok(()) } else { bail!("the tree is not tidy") }
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    command
}

/// Where clippy's compiler is.
fn clippy() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).args(["--print", "sysroot"]).output()?;
    let sysroot = String::from_utf8(said.stdout)?;
    let driver = Path::new(sysroot.trim()).join("bin/clippy-driver");
    if !driver.exists() {
        bail!("clippy is not installed: `rustup component add clippy`");
    }
    Ok(driver.to_string_lossy().into_owned())
}

fn has_cargo_deny() -> bool {
    let asked = cargo(&["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

struct StopServices(services::Services);

impl Drop for StopServices {
    fn drop(&mut self) {
        if let Err(error) = self.0.stop_started() {
            eprintln!("the services could not be stopped: {error:#}");
        }
    }
}

#[derive(Default)]
struct Steps {
    done: Vec<(String, String, Duration)>,
    failed: bool,
}

impl Steps {
    fn run(&mut self, name: &str, mut command: Command) -> Result<()> {
        eprintln!("\n==> {name}");
        let begun = Instant::now();
        let status = interrupt::run(&mut command)?;
        if interrupt::interrupted() {
            bail!("interrupted during {name}");
        }
        let outcome = if status.success() { "ok" } else { "FAILED" };
        self.failed |= !status.success();
        self.done.push((name.to_owned(), outcome.to_owned(), begun.elapsed()));
        Ok(())
    }

    fn skip(&mut self, name: &str, why: &str) {
        eprintln!("\n==> {name}\nNOT RUN, {why}");
        self.done.push((name.to_owned(), format!("NOT RUN, {why}"), Duration::ZERO));
    }

    fn summary(&self) -> Result<()> {
        eprintln!();
        for (name, outcome, took) in &self.done {
            eprintln!("{name:<14}{:>7.1} s  {outcome}", took.as_secs_f64());
        }
        if self.failed { bail!("some steps failed; their output is above") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn what_follows_two_dashes_goes_to_cargo_test() {
        let options = Options::parse(&["--long", "--", "a_guarantee", "--", "--nocapture"]).ok();
        let arguments = ["a_guarantee", "--", "--nocapture"].map(str::to_owned).to_vec();
        assert_eq!(options, Some(Options { long: true, arguments }));
        assert_eq!(Options::parse(&[]).ok(), Some(Options { long: false, arguments: Vec::new() }));
    }

    #[test]
    fn an_unknown_option_is_refused() {
        assert!(Options::parse(&["--lnog"]).is_err());
    }
}

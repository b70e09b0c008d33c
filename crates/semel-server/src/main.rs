//! The binary `semel`: a sandbox to try, roles that run beside a service, and commands for operators.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod commands;
mod completer;
mod config;
mod consume;
mod database;
mod logging;
mod metrics;
mod relay;
mod serve;
mod shutdown;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use commands::{Done, Usage, demo, flows, inbox, keys, migrate, outbox, run, sandbox};
use config::Config;

/// Messages are made on one thread and dropped on another, which the system's allocator is slow at: a relay to NATS
/// spends a third of its time there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ABOUT: &str = "Exactly-once effect for services: keys, effects, replies and events in one commit";

const AFTER_HELP: &str = "\
Settings come from flags, then SEMEL_* environment variables, then semel.toml; the first that has one wins.

Exit codes: 0 done, 1 error, 2 wrong usage, 3 not found, 4 refused.

Examples:
  semel demo                                         see it live: retries, kills, and what they come to
  semel sandbox                                      try it on http://127.0.0.1:7600
  semel migrate --database-url postgres://db/shop    create Semel's tables in your database
  semel run --database-url postgres://db/shop        forget expired keys, beside your service
  semel run --sink stdout:                           publish events as well
  semel keys list --tenant a --state completed       see what is remembered
  semel outbox status                                see what waits to be published
  semel consume --consumer payments --source nats://broker/?stream=EVENTS
                                                     make receipts and balances of the sandbox's events
  semel inbox dead                                   see which messages could not be applied
  semel flows list --state held                      see which flows wait for somebody";

/// How long threads may take to come back at the end.
const END_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Parser)]
#[command(name = "semel", version, about = ABOUT, after_help = AFTER_HELP, max_term_width = 120)]
struct Cli {
    /// The configuration file; ./semel.toml by default, if it exists [env: SEMEL_CONFIG]
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,

    /// The process that started this one and without which it does not go on
    #[arg(long, global = true, hide = true, value_name = "PID")]
    child_of: Option<u32>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Sandbox(sandbox::Arguments),
    Run(run::Arguments),
    Consume(commands::consume::Arguments),
    Migrate(migrate::Arguments),
    Keys(keys::Arguments),
    Outbox(outbox::Arguments),
    Inbox(inbox::Arguments),
    Flows(flows::Arguments),
}

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    semel::failpoint::setup();

    match start(Cli::parse()) {
        Ok(Done::Completed) => ExitCode::SUCCESS,
        Ok(Done::NotFound) => ExitCode::from(3),
        Ok(Done::Refused) => ExitCode::from(4),
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            // With stderr gone there is nobody left to tell, and the exit code still does.
            let _ = writeln!(stderr, "error: {error}");
            for cause in error.chain().skip(1) {
                let _ = writeln!(stderr, "caused by: {cause}");
            }
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn start(cli: Cli) -> Result<Done> {
    if let Some(parent) = cli.child_of {
        demo::die_with(parent)?;
    }
    let flags = match &cli.command {
        Command::Demo(_) => &demo::NO_SETTINGS,
        Command::Sandbox(arguments) => arguments.settings.given(),
        Command::Run(arguments) => arguments.settings.given(),
        Command::Consume(arguments) => arguments.settings.given(),
        Command::Migrate(arguments) => arguments.settings.given(),
        Command::Keys(arguments) => arguments.settings(),
        Command::Outbox(arguments) => arguments.settings(),
        Command::Inbox(arguments) => arguments.settings(),
        Command::Flows(arguments) => arguments.settings(),
    };
    let config = Config::load(cli.config.as_deref(), flags)?;
    logging::start(&config)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let done = runtime.block_on(async {
        match cli.command {
            Command::Demo(arguments) => demo::run(&arguments).await,
            Command::Sandbox(_) => sandbox::run(config).await,
            Command::Run(_) => run::run(config).await,
            Command::Consume(arguments) => commands::consume::run(config, &arguments).await,
            Command::Migrate(arguments) => migrate::run(&config, &arguments).await,
            Command::Keys(arguments) => keys::run(&config, &arguments).await,
            Command::Outbox(arguments) => outbox::run(&config, &arguments).await,
            Command::Inbox(arguments) => inbox::run(&config, &arguments).await,
            Command::Flows(arguments) => flows::run(&config, &arguments).await,
        }
    });
    // What still runs was cut off on purpose; a thread that does not come back must not hold up the end.
    runtime.shutdown_timeout(END_WITHIN);
    done
}

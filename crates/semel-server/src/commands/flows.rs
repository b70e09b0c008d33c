//! `semel flows`: which flows are under way, what holds one up, and what to do about it.

mod cancel;
mod intervention;
mod list;
mod next;
mod record;
mod resolve;
mod retry;
mod show;
mod step;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::{Args, Subcommand};
use semel::Execution;
use uuid::Uuid;

use super::Done;
use crate::config::Config;
use crate::config::flags::Flags;
use crate::config::setting::DATABASE;

/// Look at flows, and let one go on, say what became of a call, or have one undone
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 done, 1 error, 2 wrong usage, 3 no such flow, 4 refused (nothing was changed).")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::Arguments),
    Show(show::Arguments),
    Retry(retry::Arguments),
    Resolve(resolve::Arguments),
    Cancel(cancel::Arguments),
}

/// The flags by which every command on flows finds its database.
type Settings = Flags<DATABASE>;

impl Arguments {
    /// The settings that were given as flags.
    pub(crate) fn settings(&self) -> &BTreeMap<&'static str, String> {
        match &self.command {
            Command::List(arguments) => arguments.settings.given(),
            Command::Show(arguments) => arguments.settings.given(),
            Command::Retry(arguments) => arguments.settings.given(),
            Command::Resolve(arguments) => arguments.settings.given(),
            Command::Cancel(arguments) => arguments.settings.given(),
        }
    }
}

/// Runs one of the commands.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    match &arguments.command {
        Command::List(arguments) => list::run(config, arguments).await,
        Command::Show(arguments) => show::run(config, arguments).await,
        Command::Retry(arguments) => retry::run(config, arguments).await,
        Command::Resolve(arguments) => resolve::run(config, arguments).await,
        Command::Cancel(arguments) => cancel::run(config, arguments).await,
    }
}

/// Reads the id of a flow.
fn execution(text: &str) -> Result<Execution, String> {
    let id: Uuid = text.parse().map_err(|_| "it is not the id of a flow, which is a UUID".to_owned())?;
    Ok(id.into())
}

/// Says that a flow is not there.
fn no_such_flow(execution: Execution) -> Done {
    eprintln!("error: there is no flow {execution}; it may be older than its retention");
    Done::NotFound
}

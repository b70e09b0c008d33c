//! `semel inbox`: what consumers have seen, what they could not apply, and what to do about it.

mod dead;
mod record;
mod redrive;
mod replay;
mod status;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::Done;
use crate::config::Config;
use crate::config::flags::Flags;
use crate::config::setting::DATABASE;

/// Look at consumers and dead letters, and try again what failed
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 error, 2 wrong usage, 3 no such consumer or letter, 4 refused (nothing was \
                  changed)."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(status::Arguments),
    Dead(dead::Arguments),
    Redrive(redrive::Arguments),
    Replay(replay::Arguments),
}

/// The flags by which every command on the inbox finds its database.
type Settings = Flags<DATABASE>;

impl Arguments {
    /// The settings that were given as flags.
    pub(crate) fn settings(&self) -> &BTreeMap<&'static str, String> {
        match &self.command {
            Command::Status(arguments) => arguments.settings.given(),
            Command::Dead(arguments) => arguments.settings.given(),
            Command::Redrive(arguments) => arguments.settings.given(),
            Command::Replay(arguments) => arguments.settings.given(),
        }
    }
}

/// Runs one of the commands.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    match &arguments.command {
        Command::Status(arguments) => status::run(config, arguments).await,
        Command::Dead(arguments) => dead::run(config, arguments).await,
        Command::Redrive(arguments) => redrive::run(config, arguments).await,
        Command::Replay(arguments) => replay::run(config, arguments).await,
    }
}

/// Says that a consumer is not there.
fn no_such_consumer(name: &str) -> Done {
    eprintln!("error: there is no consumer {name:?}; `semel inbox status` lists those that have run");
    Done::NotFound
}

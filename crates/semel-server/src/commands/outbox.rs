//! `semel outbox`: which events wait, what holds them up, and what to do about it.

mod parked;
mod rebase;
mod record;
mod redrive;
mod replay;
mod show;
mod skip;
mod status;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::{Args, Subcommand};
use semel::EventId;
use uuid::Uuid;

use super::Done;
use crate::config::Config;
use crate::config::flags::Flags;
use crate::config::setting::DATABASE;

/// Look at events and relays, and put right what is parked or was restored
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 error, 2 wrong usage, 3 no such event or key, 4 refused (nothing was changed)."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(status::Arguments),
    Show(show::Arguments),
    Parked(parked::Arguments),
    Redrive(redrive::Arguments),
    Skip(skip::Arguments),
    Replay(replay::Arguments),
    Rebase(rebase::Arguments),
}

/// The flags by which every command on the outbox finds its database.
type Settings = Flags<DATABASE>;

impl Arguments {
    /// The settings that were given as flags.
    pub(crate) fn settings(&self) -> &BTreeMap<&'static str, String> {
        match &self.command {
            Command::Status(arguments) => arguments.settings.given(),
            Command::Show(arguments) => arguments.settings.given(),
            Command::Parked(arguments) => arguments.settings.given(),
            Command::Redrive(arguments) => arguments.settings.given(),
            Command::Skip(arguments) => arguments.settings.given(),
            Command::Replay(arguments) => arguments.settings.given(),
            Command::Rebase(arguments) => arguments.settings.given(),
        }
    }
}

/// Runs one of the commands.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    match &arguments.command {
        Command::Status(arguments) => status::run(config, arguments).await,
        Command::Show(arguments) => show::run(config, arguments).await,
        Command::Parked(arguments) => parked::run(config, arguments).await,
        Command::Redrive(arguments) => redrive::run(config, arguments).await,
        Command::Skip(arguments) => skip::run(config, arguments).await,
        Command::Replay(arguments) => replay::run(config, arguments).await,
        Command::Rebase(arguments) => rebase::run(config, arguments).await,
    }
}

/// Reads an event's id.
fn event_id(text: &str) -> Result<EventId, String> {
    let id: Uuid = text.parse().map_err(|_| "it is not the id of an event, which is a UUID".to_owned())?;
    Ok(id.into())
}

/// Says that an event is not there.
fn no_such_event(id: EventId) -> Done {
    eprintln!("error: there is no event {id}; it may be older than the replay window");
    Done::NotFound
}

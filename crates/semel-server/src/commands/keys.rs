//! `semel keys`: what is remembered, and how to forget it on purpose.

mod evict;
mod list;
mod record;
mod show;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::{Args, Subcommand};
use semel::{Key, Scope};

use super::{Done, Usage};
use crate::config::Config;
use crate::config::flags::Flags;
use crate::config::setting::DATABASE;

/// Look at idempotency keys, and evict one
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 error, 2 wrong usage, 3 no such key, 4 refused (in flight, or run again)."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::Arguments),
    Show(show::Arguments),
    Evict(evict::Arguments),
}

/// The flags by which every command on keys finds its database.
type Settings = Flags<DATABASE>;

/// One key.
#[derive(Debug, Args)]
struct Which {
    /// Whose key it is
    #[arg(long)]
    tenant: String,

    /// The operation it belongs to, such as 'POST /charges'
    #[arg(long)]
    operation: String,

    /// The key, without quotes of its own
    key: String,
}

impl Arguments {
    /// The settings that were given as flags.
    pub(crate) fn settings(&self) -> &BTreeMap<&'static str, String> {
        match &self.command {
            Command::List(arguments) => arguments.settings.given(),
            Command::Show(arguments) => arguments.settings.given(),
            Command::Evict(arguments) => arguments.settings.given(),
        }
    }
}

impl Which {
    fn named(&self) -> Result<(Scope, Key)> {
        let scope = Scope::new(&self.tenant, &self.operation).map_err(|error| Usage(error.to_string()))?;
        let key = Key::new(&self.key).map_err(|error| Usage(error.to_string()))?;
        Ok((scope, key))
    }
}

/// Runs one of the commands.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    match &arguments.command {
        Command::List(arguments) => list::run(config, arguments).await,
        Command::Show(arguments) => show::run(config, arguments).await,
        Command::Evict(arguments) => evict::run(config, arguments).await,
    }
}

/// Says that a key is not there.
fn not_found(scope: &Scope, key: &Key) -> Done {
    eprintln!("error: tenant {:?} has no key {key} of operation {:?}", scope.tenant(), scope.operation());
    Done::NotFound
}

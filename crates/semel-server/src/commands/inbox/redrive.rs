//! `semel inbox redrive`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Inbox;
use semel::letter::{LetterFilter, LetterId, LetterState};
use serde_json::json;

use super::Settings;
use crate::commands::change::{Change, confirmed};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
The consumer applies the letters from the inbox, the oldest first, each in one commit with the note that it is applied;
without a running consumer they wait for one. One that fails again is dead again, with the new cause. They apply behind
what has been applied since, so make sure that the consumer can bear that order. Exit code 3 means that there is no such
letter.

Examples:
  semel inbox redrive receipts --id 17 --reason 'the mail server is back, #812' --dry-run
  semel inbox redrive receipts --all --reason 'the consumer was mended, #812' --yes";

/// Have dead letters tried again
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Whose letters
    consumer: String,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    change: Change,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The letter with this number, as `semel inbox dead` shows it
    #[arg(long)]
    id: Option<i64>,

    /// Every dead letter of the consumer
    #[arg(long)]
    all: bool,
}

/// Has dead letters tried again. After the commit the consumer sees them and the audit row says who and why; after a
/// failure or a crash before it, they are dead as they were.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let (audit, asks) = (arguments.change.audit()?, arguments.change.consent.asks()?);
    let dry_run = arguments.change.consent.dry_run;
    let database = Database::open_migrated(config).await?;
    let filter = LetterFilter {
        consumer: Some(arguments.consumer.clone()),
        id: arguments.which.id.map(LetterId),
        state: Some(LetterState::Dead),
    };
    let redrive = async |dry_run| {
        let redriven = with_store!(&database, store => store.redrive_letters(&filter, &audit, dry_run).await);
        redriven.context("cannot redrive")
    };
    let none_dead = || {
        let consumer = &arguments.consumer;
        match arguments.which.id {
            Some(id) => eprintln!("error: the consumer {consumer:?} has no dead letter {id}; see `semel inbox dead`"),
            None => eprintln!("error: the consumer {consumer:?} has no dead letter"),
        }
        Ok(Done::NotFound)
    };
    if asks {
        match redrive(true).await? {
            0 => return none_dead(),
            letters => {
                if !confirmed(&format!("{} will be tried again. Go ahead?", counted(letters)))? {
                    return Ok(Done::Refused);
                }
            }
        }
    }
    let letters = redrive(dry_run).await?;
    if letters == 0 {
        return none_dead();
    }
    if arguments.json {
        let done = json!({ "redriven": !dry_run, "dry_run": dry_run, "consumer": arguments.consumer,
            "letters": letters, "actor": audit.actor, "reason": audit.reason });
        print(&format!("{done:#}\n"))?;
    } else if dry_run {
        print(&format!("would redrive {} (nothing was changed)\n", counted(letters)))?;
    } else {
        print(&format!("redriving {}\n", counted(letters)))?;
    }
    Ok(Done::Completed)
}

fn counted(letters: u64) -> String {
    if letters == 1 { "1 letter".to_owned() } else { format!("{letters} letters") }
}

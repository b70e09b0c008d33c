//! `semel outbox redrive`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Outbox;
use semel::outbox::Intervention;
use serde_json::json;

use super::Settings;
use crate::commands::change::{Change, confirmed};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
The relay that has the key's lane publishes its events again from the first, in order, with the ids they have and new
sequence numbers. Without a running relay they wait for one. If the first is refused again, the key is retried and
parked as before. Exit code 3 means that no such key is parked.

Examples:
  semel outbox redrive --key alice --reason 'the topic exists now, #812' --dry-run
  semel outbox redrive --all --reason 'the consumer was mended, #812' --yes";

/// Try parked keys again
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
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
    /// The ordering key
    #[arg(long)]
    key: Option<String>,

    /// Every parked key
    #[arg(long)]
    all: bool,
}

/// Has parked keys tried again. After the commit the relays see it and the audit rows say who and why; after a failure
/// or a crash before it, the keys are parked as they were.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let (audit, asks) = (arguments.change.audit()?, arguments.change.consent.asks()?);
    let dry_run = arguments.change.consent.dry_run;
    let key = arguments.which.key.as_deref();
    let database = Database::open_migrated(config).await?;
    let redrive = async |dry_run| {
        let redriven = with_store!(&database, store => store.redrive(key, &audit, dry_run).await);
        redriven.context("cannot redrive")
    };
    let not_parked = || {
        match key {
            Some(key) => eprintln!("error: no key {key:?} is parked; see `semel outbox parked`"),
            None => eprintln!("error: no key is parked"),
        }
        Ok(Done::NotFound)
    };
    if asks {
        match redrive(true).await? {
            Intervention::NotFound | Intervention::NotParked | Intervention::Done(0) => return not_parked(),
            Intervention::Done(keys) => {
                if !confirmed(&format!("{} will be published again from the first event. Go ahead?", counted(keys)))? {
                    return Ok(Done::Refused);
                }
            }
        }
    }
    let keys = match redrive(dry_run).await? {
        Intervention::NotFound | Intervention::NotParked | Intervention::Done(0) => return not_parked(),
        Intervention::Done(keys) => keys,
    };
    if arguments.json {
        let done = json!({ "redriven": !dry_run, "dry_run": dry_run, "keys": keys, "actor": audit.actor,
            "reason": audit.reason });
        print(&format!("{done:#}\n"))?;
    } else if dry_run {
        print(&format!("would redrive {} (nothing was changed)\n", counted(keys)))?;
    } else {
        print(&format!("redriving {}\n", counted(keys)))?;
    }
    Ok(Done::Completed)
}

fn counted(keys: u64) -> String {
    if keys == 1 { "1 key".to_owned() } else { format!("{keys} keys") }
}

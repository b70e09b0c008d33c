//! `semel keys evict`.

use anyhow::{Context, Result};
use clap::Args;
use semel::operator::Eviction;
use semel::{Execution, Store};
use serde_json::json;
use uuid::Uuid;

use super::{Settings, Which, not_found, record};
use crate::commands::change::{Change, confirmed};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
The next request with this key runs as new: if its effect is still there, it happens a second time. A key in flight is
refused (exit code 4), and so is one that has run again since it was shown. Who, when and why are kept in the audit
table, in the commit that removes the key.

Examples:
  semel keys evict --tenant a --operation 'POST /charges' 5f0c7a1e --reason 'refunded by hand, #812' --dry-run
  semel keys evict --tenant a --operation 'POST /charges' 5f0c7a1e --reason 'refunded by hand, #812' --yes";

/// Remove one key, so that its next request runs as new
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,

    /// Only if this is still the key's run, as `semel keys show` tells it
    #[arg(long, value_name = "UUID", value_parser = execution)]
    execution: Option<Execution>,

    #[command(flatten)]
    change: Change,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Removes one key. After the commit its next request runs as new and the audit row says who and why; after a failure
/// or a crash before it, both key and audit table are as they were.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let (scope, key) = arguments.which.named()?;
    let (audit, asks) = (arguments.change.audit()?, arguments.change.consent.asks()?);
    let dry_run = arguments.change.consent.dry_run;
    let database = Database::open_migrated(config).await?;
    let evict = async |expected: Option<Execution>, dry_run| {
        let eviction = with_store!(&database, store => store.evict_key(&scope, &key, expected, &audit, dry_run).await);
        Ok::<_, anyhow::Error>(match eviction.context("cannot evict the key")? {
            Eviction::Evicted(record) => Ok(record),
            Eviction::NotFound => Err(not_found(&scope, &key)),
            Eviction::InFlight => {
                eprintln!("error: the key is in flight and was left alone; try again when its work has ended");
                Err(Done::Refused)
            }
            Eviction::Changed => {
                eprintln!("error: the key has run again since it was shown and was left alone; look at it again");
                Err(Done::Refused)
            }
        })
    };
    let mut expected = arguments.execution;
    if asks {
        match evict(expected, true).await? {
            // What was confirmed is this run; one that came in the meantime was not.
            Ok(found) => {
                let shown = record::to_text(&found);
                if !confirmed(&format!("{shown}\nThe next request with this key will run as new. Evict it?"))? {
                    return Ok(Done::Refused);
                }
                expected = Some(found.execution);
            }
            Err(done) => return Ok(done),
        }
    }
    let evicted = match evict(expected, dry_run).await? {
        Ok(evicted) => evicted,
        Err(done) => return Ok(done),
    };
    if arguments.json {
        let done = json!({ "evicted": !dry_run, "dry_run": dry_run, "actor": audit.actor,
            "reason": audit.reason, "key": record::to_json(&evicted) });
        print(&format!("{done:#}\n"))?;
    } else if dry_run {
        print(&format!("would evict (nothing was changed):\n{}", record::to_text(&evicted)))?;
    } else {
        print(&format!("evicted:\n{}", record::to_text(&evicted)))?;
    }
    Ok(Done::Completed)
}

fn execution(text: &str) -> Result<Execution, String> {
    let id: Uuid = text.parse().map_err(|_| "it is not a UUID, as `semel keys show` prints it".to_owned())?;
    Ok(id.into())
}

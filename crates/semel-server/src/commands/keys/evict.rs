//! `semel keys evict`.

use std::io::{self, BufRead, IsTerminal};

use anyhow::{Context, Result, ensure};
use clap::Args;
use semel::operator::{Audit, Eviction, KeyRecord};
use semel::{Execution, Store};
use serde_json::json;
use uuid::Uuid;

use super::{Settings, Which, not_found, record};
use crate::commands::{Done, Usage, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
The next request with this key runs as new: if its effect is still there, it happens a second time. A key in flight is
refused (exit code 4), and so is one that has run again since it was shown. Who, when and why are kept in the audit
table, in the commit that removes the key.

Examples:
  semel keys evict --tenant a --operation 'POST /charges' 5f0c7a1e --reason 'refunded by hand, #812' --dry-run
  semel keys evict --tenant a --operation 'POST /charges' 5f0c7a1e --reason 'refunded by hand, #812' --yes";

/// The longest actor, in bytes. The database checks the same bound (I12).
const MAX_ACTOR_BYTES: usize = 255;

/// The longest reason, in bytes. The database checks the same bound (I12).
const MAX_REASON_BYTES: usize = 1024;

/// Remove one key, so that its next request runs as new
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,

    /// Only if this is still the key's run, as `semel keys show` tells it
    #[arg(long, value_name = "UUID", value_parser = execution)]
    execution: Option<Execution>,

    /// Why; kept in the audit table
    #[arg(long)]
    reason: String,

    /// Who does it; the user of this terminal by default
    #[arg(long)]
    actor: Option<String>,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Change nothing; say what would happen
    #[arg(long)]
    dry_run: bool,

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
    let reason = bounded("reason", &arguments.reason, MAX_REASON_BYTES)?;
    let audit = Audit { actor: actor(arguments)?, reason };
    let asks = !arguments.yes && !arguments.dry_run;
    ensure!(
        !asks || io::stdin().is_terminal(),
        Usage("there is no terminal to ask on; pass --yes to evict without being asked, or --dry-run".to_owned())
    );
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
            Ok(found) if confirmed(&found)? => expected = Some(found.execution),
            Ok(_) => {
                eprintln!("nothing was changed");
                return Ok(Done::Refused);
            }
            Err(done) => return Ok(done),
        }
    }
    let evicted = match evict(expected, arguments.dry_run).await? {
        Ok(evicted) => evicted,
        Err(done) => return Ok(done),
    };
    if arguments.json {
        let done = json!({ "evicted": !arguments.dry_run, "dry_run": arguments.dry_run, "actor": audit.actor,
            "reason": audit.reason, "key": record::to_json(&evicted) });
        print(&format!("{done:#}\n"))?;
    } else if arguments.dry_run {
        print(&format!("would evict (nothing was changed):\n{}", record::to_text(&evicted)))?;
    } else {
        print(&format!("evicted:\n{}", record::to_text(&evicted)))?;
    }
    Ok(Done::Completed)
}

fn actor(arguments: &Arguments) -> Result<String> {
    let user = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let actor = arguments.actor.clone().or(user.filter(|user| !user.is_empty()));
    let actor = actor.ok_or_else(|| Usage("nobody is logged in by name; pass --actor".to_owned()))?;
    bounded("actor", &actor, MAX_ACTOR_BYTES)
}

fn execution(text: &str) -> Result<Execution, String> {
    let id: Uuid = text.parse().map_err(|_| "it is not a UUID, as `semel keys show` prints it".to_owned())?;
    Ok(id.into())
}

fn bounded(flag: &str, text: &str, limit: usize) -> Result<String> {
    let text = text.trim();
    let fits = (1..=limit).contains(&text.len()) && !text.chars().any(char::is_control);
    ensure!(fits, Usage(format!("--{flag} must be 1 to {limit} bytes on one line")));
    Ok(text.to_owned())
}

/// Asks on the terminal. Anything but yes is no.
fn confirmed(found: &KeyRecord) -> Result<bool> {
    eprint!("{}\nThe next request with this key will run as new. Evict it? [y/N] ", record::to_text(found));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

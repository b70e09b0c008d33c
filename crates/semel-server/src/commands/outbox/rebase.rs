//! `semel outbox rebase`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Outbox;
use semel::operator::Audit;
use semel::outbox::Rebased;
use serde_json::json;

use super::Settings;
use crate::commands::change::{Change, confirmed};
use crate::commands::text::facts;
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
After a restore or a failover the stored positions belong to another incarnation of the database, and relays refuse to
run. Rebasing has every event published that no position covers, before all that was emitted since, with the ids they
have; sequence numbers count from one in the new incarnation. Stop the relays first: it is refused while one's lease
runs. Where the positions are of this incarnation already, nothing is changed. A copied SQLite file cannot be told from
its original: rebase it whenever you restored it.

Examples:
  semel outbox rebase --reason 'restored from the backup of 03:00' --dry-run
  semel outbox rebase --reason 'restored from the backup of 03:00' --yes";

/// Make the positions good again after the database was restored or failed over
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    change: Change,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Says what a rebase would do, and does it. After the commit relays run in the new incarnation and the audit row says
/// who and why; after a failure or a crash before it, nothing has changed.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let (audit, asks) = (arguments.change.audit()?, arguments.change.consent.asks()?);
    let dry_run = arguments.change.consent.dry_run;
    let database = Database::open_migrated(config).await?;
    let rebase = async |dry_run| {
        let rebased = with_store!(&database, store => store.rebase(&audit, dry_run).await);
        rebased.context("cannot rebase the outbox")
    };
    let planned = rebase(true).await?;
    if planned.from.as_ref() == Some(&planned.to) {
        report(arguments, "nothing to rebase", false, &planned, Some(&planned.to), &audit)?;
        return Ok(Done::Completed);
    }
    // A file's next incarnation is made up when it begins.
    let planned_to = Some(planned.to.as_str()).filter(|_| matches!(database, Database::Postgres(_)));
    if dry_run {
        report(arguments, "would rebase (nothing was changed)", false, &planned, planned_to, &audit)?;
        return Ok(Done::Completed);
    }
    let question = format!("{}\nPositions start over in the new incarnation. Go ahead?", to_text(&planned, planned_to));
    if asks && !confirmed(&question)? {
        return Ok(Done::Refused);
    }
    let rebased = rebase(false).await?;
    report(arguments, "rebased", true, &rebased, Some(&rebased.to), &audit)?;
    Ok(Done::Completed)
}

fn report(
    arguments: &Arguments,
    title: &str,
    done: bool,
    rebased: &Rebased,
    to: Option<&str>,
    audit: &Audit,
) -> Result<()> {
    if !arguments.json {
        return print(&format!("{title}:\n{}", to_text(rebased, to)));
    }
    let report = json!({ "rebased": done, "dry_run": arguments.change.consent.dry_run, "from": rebased.from, "to": to,
        "events": rebased.events, "actor": audit.actor, "reason": audit.reason });
    print(&format!("{report:#}\n"))
}

fn to_text(rebased: &Rebased, to: Option<&str>) -> String {
    let from = rebased.from.as_deref().unwrap_or("none: nothing was ever relayed");
    let waits = format!("{} that no position covers", rebased.events);
    facts(&[("from", from), ("to", to.unwrap_or("a new one")), ("events", &waits)])
}

//! `semel outbox skip`.

use anyhow::{Context, Result};
use clap::Args;
use semel::outbox::{EventState, Intervention};
use semel::{EventId, Outbox};
use serde_json::json;

use super::{Settings, event_id, no_such_event, record};
use crate::commands::change::{Change, confirmed};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
Consumers will never see the event, although its effect is committed: make sure that they can do without it. Only an
event of a parked key can be skipped (exit code 4 otherwise). Who, when and why are kept in the audit table, in the
commit that takes it out. If it was the last one held, its key is free; if the key is parked, redrive it to go on.

Examples:
  semel outbox skip 0190b7a2-41f0-8c63-9f3e-8a5d7a3c1b11 --reason 'sent by hand, #812' --dry-run
  semel outbox skip 0190b7a2-41f0-8c63-9f3e-8a5d7a3c1b11 --reason 'sent by hand, #812' --yes";

/// Take one held event out for good
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The event's id
    #[arg(value_parser = event_id)]
    id: EventId,

    #[command(flatten)]
    change: Change,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Why an event whose key is not parked stays.
const STILL_TRIED: &str = "is still being tried (it can be skipped once its key is parked, after publish_attempts)";

/// Takes one event of a parked key out. After the commit it is never published and the audit row says who and why;
/// after a failure or a crash before it, it is held as it was.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let (audit, asks) = (arguments.change.audit()?, arguments.change.consent.asks()?);
    let dry_run = arguments.change.consent.dry_run;
    let database = Database::open_migrated(config).await?;
    let id = arguments.id;
    let found = with_store!(&database, store => store.show_event(id).await).context("cannot look the event up")?;
    let Some(found) = found else { return Ok(no_such_event(id)) };
    let left_alone = |why: &str| {
        eprintln!("error: event {id} {why} and was left alone");
        Ok(Done::Refused)
    };
    match found.state {
        EventState::Created => return left_alone("has not been tried yet"),
        EventState::Published => return left_alone("is published already"),
        EventState::Skipped => return left_alone("is skipped already"),
        EventState::Retrying | EventState::Redriving => return left_alone(STILL_TRIED),
        EventState::Parked => {}
    }
    let shown = record::to_text(&found, false);
    if asks && !confirmed(&format!("{shown}\nConsumers will never see this event. Skip it?"))? {
        return Ok(Done::Refused);
    }
    let skipped = with_store!(&database, store => store.skip_event(id, &audit, dry_run).await);
    match skipped.context("cannot skip the event")? {
        Intervention::NotFound | Intervention::Done(0) => return left_alone("is not held any more"),
        Intervention::NotParked => return left_alone(STILL_TRIED),
        Intervention::Done(_) => {}
    }
    if arguments.json {
        let done = json!({ "skipped": !dry_run, "dry_run": dry_run, "actor": audit.actor, "reason": audit.reason,
            "event": record::to_json(&found, false) });
        print(&format!("{done:#}\n"))?;
    } else if dry_run {
        print(&format!("would skip (nothing was changed):\n{shown}"))?;
    } else {
        print(&format!("skipped:\n{shown}"))?;
    }
    Ok(Done::Completed)
}

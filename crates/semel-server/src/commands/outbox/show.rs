//! `semel outbox show`.

use anyhow::{Context, Result};
use clap::Args;
use semel::{EventId, Outbox};

use super::{Settings, event_id, no_such_event, record};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
The payload is the tenant's and is shown only with --payload: as text if it is JSON, else in base64. Published events
are kept for the replay window and are not found after it. Exit code 3 means that there is no such event.

Examples:
  semel outbox show 0190b7a2-41f0-8c63-9f3e-8a5d7a3c1b11
  semel outbox show 0190b7a2-41f0-8c63-9f3e-8a5d7a3c1b11 --payload --json";

/// Show one event and what became of it
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The event's id
    #[arg(value_parser = event_id)]
    id: EventId,

    /// Show the payload as well
    #[arg(long)]
    payload: bool,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Prints one event.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let database = Database::open_migrated(config).await?;
    let found = with_store!(&database, store => store.show_event(arguments.id).await);
    let Some(found) = found.context("cannot look the event up")? else {
        return Ok(no_such_event(arguments.id));
    };
    print(&if arguments.json {
        format!("{:#}\n", record::to_json(&found, arguments.payload))
    } else {
        record::to_text(&found, arguments.payload)
    })?;
    Ok(Done::Completed)
}

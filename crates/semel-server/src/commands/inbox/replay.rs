//! `semel inbox replay`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Inbox;
use serde_json::json;

use super::{Settings, no_such_consumer};
use crate::commands::change::{Change, confirmed};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
A new generation has seen nothing: every message that is delivered to it applies, whether or not an earlier generation
has applied it. Effects happen again, so make sure that the consumer keeps them apart or that they were undone first.

A running consumer notices within a second and reads its source again from the beginning of what Kafka, NATS or Redis
still keep. RabbitMQ and webhooks keep no history: publish it again with `semel outbox replay`. Within the new
generation every message applies once, as before; there is no way back to the old one.

Examples:
  semel inbox replay balances --reason 'rebuild the projection, #812' --dry-run
  semel inbox replay balances --reason 'rebuild the projection, #812' --yes";

/// Begin a new generation of a consumer, in which history applies again
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Which consumer
    consumer: String,

    #[command(flatten)]
    change: Change,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Begins a new generation. After the commit the consumer applies history again and the audit row says who and why;
/// after a failure or a crash before it, nothing has changed.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let (audit, asks) = (arguments.change.audit()?, arguments.change.consent.asks()?);
    let dry_run = arguments.change.consent.dry_run;
    let name = arguments.consumer.as_str();
    let database = Database::open_migrated(config).await?;
    let replay = async |dry_run| {
        let begun = with_store!(&database, store => store.replay_consumer(name, &audit, dry_run).await);
        begun.context("cannot begin a new generation")
    };
    if asks {
        let Some(generation) = replay(true).await? else { return Ok(no_such_consumer(name)) };
        let question = format!(
            "{name} begins generation {generation}: every message that is delivered to it applies again, and there is \
             no way back. Go ahead?"
        );
        if !confirmed(&question)? {
            return Ok(Done::Refused);
        }
    }
    let Some(generation) = replay(dry_run).await? else { return Ok(no_such_consumer(name)) };
    if arguments.json {
        let done = json!({ "replayed": !dry_run, "dry_run": dry_run, "consumer": name, "generation": generation,
            "actor": audit.actor, "reason": audit.reason });
        print(&format!("{done:#}\n"))?;
    } else if dry_run {
        print(&format!("{name} would begin generation {generation}: history applies again (nothing was changed)\n"))?;
    } else {
        print(&format!("{name} begins generation {generation}: history applies again\n"))?;
    }
    Ok(Done::Completed)
}

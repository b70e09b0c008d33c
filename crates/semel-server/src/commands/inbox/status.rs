//! `semel inbox status`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Inbox;
use semel::letter::ConsumerRecord;
use serde_json::Value;

use super::{Settings, no_such_consumer, record};
use crate::commands::text::table;
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
Counting what is kept by its id takes a while if it is much. Holes are gaps in the sequences of a lane, of one or more
that have not been seen while later ones have: messages that fail and are tried again, or are still on their way.

Examples:
  semel inbox status
  semel inbox status receipts --json | jq '.[0].dead'";

/// Show what each consumer has seen, how long that is kept, and what it could not apply
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Only this consumer
    consumer: Option<String>,

    /// Print a JSON array
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Prints where the consumers stand.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let database = Database::open_migrated(config).await?;
    let name = arguments.consumer.as_deref();
    let consumers = with_store!(&database, store => store.consumers(name).await).context("cannot look at the inbox")?;
    if let (Some(name), []) = (name, consumers.as_slice()) {
        return Ok(no_such_consumer(name));
    }
    if arguments.json {
        let array = Value::Array(consumers.iter().map(record::consumer_to_json).collect());
        print(&format!("{array:#}\n"))?;
        return Ok(Done::Completed);
    }
    let rows: Vec<Vec<String>> = consumers.iter().map(record::consumer_to_row).collect();
    print(&table(&record::CONSUMER_HEADING, &rows))?;
    for advice in advice(&consumers) {
        eprintln!("{advice}");
    }
    Ok(Done::Completed)
}

/// What somebody who sees this will want to do.
fn advice(consumers: &[ConsumerRecord]) -> Vec<String> {
    let mut advice = Vec::new();
    if consumers.is_empty() {
        advice.push("no consumer has run on this database yet".to_owned());
    }
    for consumer in consumers.iter().filter(|consumer| consumer.dead > 0) {
        advice.push(format!("dead letters wait for somebody: see `semel inbox dead {}`", consumer.name));
    }
    for consumer in consumers.iter().filter(|consumer| consumer.redriven > 0) {
        advice.push(format!("redriven letters are applied once the consumer {} runs", consumer.name));
    }
    advice
}

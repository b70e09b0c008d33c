//! `semel outbox parked`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Outbox;
use semel::outbox::{HeldEvent, HeldKey, HeldState};
use semel::sink::Lane;
use serde_json::{Value, json};

use super::{Settings, record};
use crate::commands::text::{table, time};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
A key is held from the moment an event of it is refused: it is retried, and parked when the attempts are used up. Its
later events wait behind it; other keys go on. `redrive` tries a parked key again, `skip` takes one event out.

With --key the held events of one key are listed, in order; exit code 3 means that none is held.

Examples:
  semel outbox parked
  semel outbox parked --key alice
  semel outbox parked --state any --json";

/// List the ordering keys whose events are held back, the longest held first
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Keys in this state: parked, retrying, redriving or any
    #[arg(long, default_value = "parked", value_parser = state)]
    state: State,

    /// List the held events of this ordering key instead
    #[arg(long, conflicts_with = "state")]
    key: Option<String>,

    /// At most this many, 1 to 10000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Print a JSON array
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Which held keys; `None` inside means any.
#[derive(Debug, Clone, Copy)]
struct State(Option<HeldState>);

/// Prints the held keys, or the held events of one.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let database = Database::open_migrated(config).await?;
    if let Some(key) = &arguments.key {
        let events = with_store!(&database, store => first_events(store, key, arguments.limit).await)?;
        if events.is_empty() {
            eprintln!("error: no event of the key {key:?} is held");
            return Ok(Done::NotFound);
        }
        let rows: Vec<_> = events.iter().map(event_to_row).collect();
        return list(arguments, &EVENT_HEADING, &rows, events.iter().map(event_to_json).collect());
    }
    let held = with_store!(&database, store => held_keys(store, arguments).await)?;
    let rows: Vec<_> = held.iter().map(|(key, first)| record::held_to_row(key, first.as_ref())).collect();
    let objects = held.iter().map(|(key, first)| {
        let mut object = record::held_to_json(key);
        object["first_event"] = first.as_ref().map(|event| event.written.id.to_string()).into();
        object
    });
    list(arguments, &record::HELD_HEADING, &rows, objects.collect())
}

fn list(arguments: &Arguments, heading: &[&str], rows: &[Vec<String>], objects: Vec<Value>) -> Result<Done> {
    if arguments.json {
        print(&format!("{:#}\n", Value::Array(objects)))?;
        return Ok(Done::Completed);
    }
    print(&table(heading, rows))?;
    if rows.len() == arguments.limit as usize {
        eprintln!("the first {}; there may be more, see --limit", rows.len());
    }
    Ok(Done::Completed)
}

/// The held keys that are asked for, each with the event that it waits for.
async fn held_keys<S: Outbox>(store: &S, arguments: &Arguments) -> Result<Vec<(HeldKey, Option<HeldEvent>)>> {
    let keys = store.list_held(arguments.state.0, arguments.limit).await.context("cannot list the held keys")?;
    let mut held = Vec::with_capacity(keys.len());
    for key in keys {
        let first = first_events(store, &key.ordering_key, 1).await?.pop();
        held.push((key, first));
    }
    Ok(held)
}

async fn first_events<S: Outbox>(store: &S, key: &str, limit: u32) -> Result<Vec<HeldEvent>> {
    store.held_events(Lane::of(key), key, limit).await.context("cannot list the held events")
}

const EVENT_HEADING: [&str; 5] = ["EVENT", "TOPIC", "TYPE", "SEQUENCE", "TIME"];

fn event_to_row(held: &HeldEvent) -> Vec<String> {
    let event = &held.written.event;
    let (id, sequence, emitted) = (held.written.id.to_string(), held.sequence.to_string(), time(held.written.time_ms));
    vec![id, event.topic.clone(), event.event_type.clone(), sequence, emitted]
}

fn event_to_json(held: &HeldEvent) -> Value {
    let event = &held.written.event;
    json!({
        "id": held.written.id.to_string(),
        "topic": event.topic,
        "type": event.event_type,
        "sequence": held.sequence,
        "time": time(held.written.time_ms),
    })
}

fn state(text: &str) -> Result<State, String> {
    match text {
        "any" => Ok(State(None)),
        text => match HeldState::parse(text) {
            Some(state) => Ok(State(Some(state))),
            None => Err("the states are parked, retrying, redriving and any".to_owned()),
        },
    }
}

//! `semel inbox dead`.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use semel::Inbox;
use semel::letter::{LetterFilter, LetterState};
use serde_json::Value;

use super::{Settings, record};
use crate::commands::text::table;
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
A message that fails inbox.attempts times, or that can never be applied, is set aside with the cause: it counts as seen,
and its ordering key goes on without it. `redrive` has its consumer try it again.

The payload is left out unless asked for with --payload: it is the tenant's.

Examples:
  semel inbox dead
  semel inbox dead receipts --json --payload
  semel inbox dead --state any --limit 1000";

/// List the messages that could not be applied, the oldest first
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Only this consumer's
    consumer: Option<String>,

    /// Letters in this state: dead, redriven, applied or any
    #[arg(long, default_value = "dead", value_parser = state)]
    state: State,

    /// At most this many, 1 to 10000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Show the payloads, too
    #[arg(long)]
    payload: bool,

    /// Print a JSON array
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Which letters; `None` inside means any.
#[derive(Debug, Clone, Copy)]
struct State(Option<LetterState>);

/// Prints the letters that match.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let database = Database::open_migrated(config).await?;
    let filter = LetterFilter { consumer: arguments.consumer.clone(), id: None, state: arguments.state.0 };
    let letters = with_store!(&database, store => store.letters(&filter, arguments.limit).await);
    let letters = letters.context("cannot list the dead letters")?;
    if arguments.json {
        let array = letters.iter().map(|letter| record::letter_to_json(letter, arguments.payload)).collect();
        print(&format!("{:#}\n", Value::Array(array)))?;
        return Ok(Done::Completed);
    }
    let rows: Vec<Vec<String>> = letters.iter().map(|letter| record::letter_to_row(letter, now_ms())).collect();
    print(&table(&record::LETTER_HEADING, &rows))?;
    if arguments.payload {
        for letter in &letters {
            print(&record::payload_to_text(letter))?;
        }
    }
    if rows.len() == arguments.limit as usize {
        eprintln!("the first {} letters; there may be more, see --limit", rows.len());
    }
    Ok(Done::Completed)
}

fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

fn state(text: &str) -> Result<State, String> {
    let states = [LetterState::Dead, LetterState::Redriven, LetterState::Applied];
    match states.into_iter().find(|state| state.as_str() == text) {
        Some(state) => Ok(State(Some(state))),
        None if text == "any" => Ok(State(None)),
        None => Err("the states are dead, redriven, applied and any".to_owned()),
    }
}

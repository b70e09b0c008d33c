//! `semel keys list`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Store;
use semel::operator::{KeyFilter, KeyState};
use serde_json::Value;

use super::{Settings, record};
use crate::commands::text::{table, time};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
A key that is running inside one transaction has no row yet and is not listed; leased work is, as in_progress.

Examples:
  semel keys list --tenant a --limit 20
  semel keys list --operation 'POST /charges' --state failed --json";

/// List keys, newest first
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Only this tenant's
    #[arg(long)]
    tenant: Option<String>,

    /// Only this operation's, such as 'POST /charges'
    #[arg(long)]
    operation: Option<String>,

    /// Only keys in this state: in_progress, completed, failed or unknown
    #[arg(long, value_parser = state)]
    state: Option<KeyState>,

    /// At most this many, 1 to 10000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Print a JSON array
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Prints the keys that match.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let database = Database::open_migrated(config).await?;
    let filter = KeyFilter {
        tenant: arguments.tenant.clone(),
        operation: arguments.operation.clone(),
        state: arguments.state,
        limit: arguments.limit,
    };
    let records = with_store!(&database, store => store.list_keys(&filter).await).context("cannot list keys")?;
    if arguments.json {
        let array = Value::Array(records.iter().map(record::to_json).collect());
        print(&format!("{array:#}\n"))?;
        return Ok(Done::Completed);
    }
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            let state = if record.expired { "expired" } else { record.state.as_str() };
            vec![
                record.scope.tenant().to_owned(),
                record.scope.operation().to_owned(),
                record.key.to_string(),
                state.to_owned(),
                record.status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
                time(record.created_at_ms),
                time(record.expires_at_ms),
            ]
        })
        .collect();
    print(&table(&["TENANT", "OPERATION", "KEY", "STATE", "STATUS", "CREATED", "EXPIRES"], &rows))?;
    if rows.len() == arguments.limit as usize {
        eprintln!("the first {} keys; there may be more, see --limit", rows.len());
    }
    Ok(Done::Completed)
}

fn state(text: &str) -> Result<KeyState, String> {
    KeyState::parse(text).ok_or_else(|| "the states are in_progress, completed, failed and unknown".to_owned())
}

//! `semel flows list`.

use anyhow::{Context, Result};
use clap::Args;
use semel::flow::{FlowFilter, FlowState, FlowStore};
use serde_json::Value;

use super::{Settings, record};
use crate::commands::text::table;
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
States: running (a worker holds its lease), paused (it sleeps, or it failed and waits), due (nobody works on it and
somebody should), held (a person has to find out what happened), completed, failed (it was undone).

Examples:
  semel flows list --state held
  semel flows list --flow order --tenant a --limit 20 --json";

/// List flows, newest first
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Only flows of this name
    #[arg(long)]
    flow: Option<String>,

    /// Only this tenant's
    #[arg(long)]
    tenant: Option<String>,

    /// Only flows in this state: running, paused, due, held, completed or failed
    #[arg(long, value_parser = state)]
    state: Option<FlowState>,

    /// At most this many, 1 to 10000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Print a JSON array
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Prints the flows that match.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let database = Database::open_migrated(config).await?;
    let filter = FlowFilter {
        flow: arguments.flow.clone(),
        tenant: arguments.tenant.clone(),
        state: arguments.state,
        limit: arguments.limit,
    };
    let flows = with_store!(&database, store => store.list_flows(&filter).await).context("cannot list flows")?;
    if arguments.json {
        let array = Value::Array(flows.iter().map(record::to_json).collect());
        print(&format!("{array:#}\n"))?;
        return Ok(Done::Completed);
    }
    let rows: Vec<Vec<String>> = flows.iter().map(record::to_row).collect();
    print(&table(&record::HEADING, &rows))?;
    if rows.len() == arguments.limit as usize {
        eprintln!("the first {} flows; there may be more, see --limit", rows.len());
    }
    Ok(Done::Completed)
}

fn state(text: &str) -> Result<FlowState, String> {
    FlowState::parse(text).ok_or_else(|| "the states are running, paused, due, held, completed and failed".to_owned())
}

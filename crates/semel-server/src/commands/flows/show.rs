//! `semel flows show`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Execution;
use semel::flow::{FlowShown, FlowStore};
use serde_json::{Value, json};

use super::{Settings, execution, next, no_such_flow, record, step};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
Its steps come in the order in which they were first recorded, then what operators did to it, and at the end what can be
done with it. A step that is not there has not happened: a call is recorded before it is made.

Inputs and results are the tenant's and are not shown. Exit code 3 means that there is no such flow.

Examples:
  semel flows show 5f0c7a1e-21a9-4f96-a2f5-63f333d102d4
  semel flows show 5f0c7a1e-21a9-4f96-a2f5-63f333d102d4 --json";

/// Show one flow, its steps, and what can be done with it
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The flow's id, as `semel flows list` shows it
    #[arg(value_parser = execution)]
    execution: Execution,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Prints one flow.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let database = Database::open_migrated(config).await?;
    let found = with_store!(&database, store => store.show_flow(arguments.execution).await);
    let Some(found) = found.context("cannot look the flow up")? else {
        return Ok(no_such_flow(arguments.execution));
    };
    print(&if arguments.json { format!("{:#}\n", to_json(&found)) } else { to_text(&found) })?;
    Ok(Done::Completed)
}

fn to_json(shown: &FlowShown) -> Value {
    let mut object = record::to_json(&shown.record);
    object["input_bytes"] = shown.input_bytes.into();
    object["steps"] = shown.steps.iter().map(step::to_json).collect();
    object["changes"] = shown.changes.iter().map(record::change_to_json).collect();
    object["next"] = json!(next::next(shown).trim_end());
    object
}

fn to_text(shown: &FlowShown) -> String {
    let mut text = record::to_text(&shown.record);
    for each in &shown.steps {
        text += "\n";
        text += &step::to_text(each);
    }
    if !shown.changes.is_empty() {
        text += "\n";
        text.extend(shown.changes.iter().map(record::change_to_text));
    }
    text + "\n" + &next::next(shown)
}

//! `semel flows retry`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Execution;
use semel::flow::{FlowStore, Seen};
use serde_json::json;

use super::intervention::{Expected, Intervention};
use super::{Settings, execution};
use crate::commands::Done;
use crate::commands::change::Change;
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
For a flow that pauses because it failed, once the cause is mended; for one that sleeps, to wake it; and for one that is
held as a whole by its policy, once you know that it may go on. What is recorded is not run again. A completer of a
service that has the flow registered goes on with it; without one it waits.

A flow that is held for a step has to be resolved instead. That, a flow that runs, and one that has ended are refused
(exit code 4).

With --epoch, as `semel flows show` prints it, so is a flow that has changed hands since: with --yes nobody is shown it.

Examples:
  semel flows retry 5f0c7a1e-21a9-4f96-a2f5-63f333d102d4 --reason 'the provider is back, #812' --dry-run
  semel flows retry 5f0c7a1e-21a9-4f96-a2f5-63f333d102d4 --reason 'the provider is back, #812' --epoch 2 --yes";

/// Let a flow go on now
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The flow's id, as `semel flows list` shows it
    #[arg(value_parser = execution)]
    execution: Execution,

    #[command(flatten)]
    seen: Expected,

    #[command(flatten)]
    change: Change,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Lets a flow go on. After the commit a completer may take it and the audit row says who and why; after a failure or a
/// crash before it, it waits as it did.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let (audit, asks) = (arguments.change.audit()?, arguments.change.consent.asks()?);
    let database = Database::open_migrated(config).await?;
    let retry = async |flow: Seen, dry_run: bool| {
        let retried = with_store!(&database, store => store.retry_flow(flow, &audit, dry_run).await);
        retried.context("cannot let the flow go on")
    };
    let intervention = Intervention {
        execution: arguments.execution,
        verb: "retry",
        past: "retried",
        consequence: "A completer goes on with this flow at once.".to_owned(),
        seen: &arguments.seen,
        audit: &audit,
        asks,
        dry_run: arguments.change.consent.dry_run,
        json: arguments.json.then(|| json!({})),
    };
    intervention.run(&retry).await
}

//! `semel flows cancel`.

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
Steps that are done and have a compensation are undone, the last one first; then the flow ends as failed and the client
gets a reply that says so. A call under way is settled first: nothing is undone that may not have happened. A worker
that is at it now begins nothing new from here on: no step commits, and the flow does not complete. A call that was
counted before may still be on its way, and is undone, too. The command waits for a step that is being committed.

A held flow has to be resolved or retried first. That, and a flow that has ended, are refused (exit code 4).

With --epoch, as `semel flows show` prints it, so is a flow that has changed hands since: with --yes nobody is shown it.

Examples:
  semel flows cancel 5f0c7a1e-21a9-4f96-a2f5-63f333d102d4 --reason 'the customer called, #812' --dry-run
  semel flows cancel 5f0c7a1e-21a9-4f96-a2f5-63f333d102d4 --reason 'the customer called, #812' --epoch 2 --yes";

/// Have a flow undone
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

/// Asks for a flow to be undone. After the commit nothing new of it begins, its worker, or the next one, undoes what is
/// done, and the audit row says who and why; after a failure or a crash before it, nothing has changed.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let (audit, asks) = (arguments.change.audit()?, arguments.change.consent.asks()?);
    let database = Database::open_migrated(config).await?;
    let cancel = async |flow: Seen, dry_run: bool| {
        let cancelled = with_store!(&database, store => store.cancel_flow(flow, &audit, dry_run).await);
        cancelled.context("cannot cancel the flow")
    };
    let intervention = Intervention {
        execution: arguments.execution,
        verb: "cancel",
        past: "cancelled",
        consequence: "What this flow has done will be undone, and there is no way back.".to_owned(),
        seen: &arguments.seen,
        audit: &audit,
        asks,
        dry_run: arguments.change.consent.dry_run,
        json: arguments.json.then(|| json!({})),
    };
    intervention.run(&cancel).await
}

//! `semel flows resolve`.

use anyhow::{Context, Result, ensure};
use clap::Args;
use semel::Execution;
use semel::flow::{FlowStore, Resolution, Seen};
use serde_json::{Value, json};

use super::intervention::{Expected, Intervention};
use super::next::UNDO;
use super::record::{CAUSE_SHOWN, NAME_SHOWN};
use super::{Settings, execution};
use crate::commands::change::Change;
use crate::commands::text::line;
use crate::commands::{Done, Usage};
use crate::config::Config;
use crate::database::{Database, with_store};

/// The longest reason of a step that failed, in bytes: as long as that of the change itself (I12).
const MAX_FAILED_BYTES: usize = 1024;

const AFTER_HELP: &str = "\
A call is held when it may have happened and nothing can be asked any more. Find out at the provider, by the derived key
that `semel flows show` prints; then say what you found, and the flow goes on:

--happened takes what the call would have returned, as JSON, and its service must be able to read that. It is kept as
it is given, unsealed. Use it as well for a call that you made by hand.

--did-not-happen has it sent anew, under the same key. If it did happen after all, it may happen twice.

--failed fails the step: the flow is undone, unless it handles that. The text is shown to the client. A step that undoes
another cannot fail like this: undo it by hand, then say --happened.

A step that nobody has to resolve is refused (exit code 4).

With --epoch, as `semel flows show` prints it, so is a flow that has changed hands since: with --yes nobody is shown it.

Examples:
  semel flows resolve 5f0c7a1e-21a9-4f96-a2f5-63f333d102d4 charge --happened '{\"id\":\"ch_1\"}' --reason 'found, #812'
  semel flows resolve 5f0c7a1e-21a9-4f96-a2f5-63f333d102d4 charge --did-not-happen --reason '#812' --epoch 2 --yes
  semel flows resolve 5f0c7a1e-21a9-4f96-a2f5-63f333d102d4 charge --failed 'card expired' --reason '#812' --epoch 2";

/// Say what became of a call that a flow is held for
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The flow's id, as `semel flows list` shows it
    #[arg(value_parser = execution)]
    execution: Execution,

    /// The step, as `semel flows show` names it
    step: String,

    #[command(flatten)]
    found: Found,

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

/// What a person found out.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Found {
    /// It happened, and this is its result
    #[arg(long, value_name = "JSON", value_parser = result)]
    happened: Option<String>,

    /// It did not happen, and is to be sent
    #[arg(long)]
    did_not_happen: bool,

    /// It did not happen and is not to; this says why. The text is shown to the client
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    failed: Option<String>,
}

/// Says what became of a call. After the commit the flow goes on with that and the audit row says who and why; after a
/// failure or a crash before it, the flow is held as it was.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    ensure!(
        arguments.found.failed.is_none() || !arguments.step.starts_with(UNDO),
        Usage("what undoes another step cannot be left out: undo it by hand, then say --happened".to_owned())
    );
    let (audit, asks) = (arguments.change.audit()?, arguments.change.consent.asks()?);
    let (resolution, name, consequence) = arguments.found.told(&line(&arguments.step, NAME_SHOWN));
    let step = arguments.step.as_str();
    let database = Database::open_migrated(config).await?;
    let resolve = async |flow: Seen, dry_run: bool| {
        let resolved =
            with_store!(&database, store => store.resolve_flow(flow, step, &resolution, &audit, dry_run).await);
        resolved.context("cannot resolve the step")
    };
    let intervention = Intervention {
        execution: arguments.execution,
        verb: "resolve",
        past: "resolved",
        consequence,
        seen: &arguments.seen,
        audit: &audit,
        asks,
        dry_run: arguments.change.consent.dry_run,
        json: arguments.json.then(|| json!({ "step": step, "resolution": name })),
    };
    intervention.run(&resolve).await
}

impl Found {
    /// The resolution, its name in JSON, and what follows from it for the step.
    fn told(&self, step: &str) -> (Resolution, &'static str, String) {
        match (&self.happened, &self.failed) {
            (Some(result), _) => (
                Resolution::Happened(result.clone().into()),
                "happened",
                format!("{step} will count as done, with the result {}, and is not sent.", line(result, CAUSE_SHOWN)),
            ),
            (None, Some(reason)) => (
                Resolution::Failed(reason.clone()),
                "failed",
                format!("{step} will count as failed, and the flow is undone unless it handles that."),
            ),
            (None, None) => (
                Resolution::DidNotHappen,
                "did_not_happen",
                format!("{step} will be sent again, under the same key. If it did happen, it may happen twice."),
            ),
        }
    }
}

/// Reads the result of a call. It is kept as it was written, so that numbers stay as they are.
fn result(text: &str) -> Result<String, String> {
    match serde_json::from_str::<Value>(text) {
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    let fits = (1..=MAX_FAILED_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    if fits { Ok(text.to_owned()) } else { Err(format!("it must be 1 to {MAX_FAILED_BYTES} bytes on one line")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_kept_as_it_was_written() {
        let written = r#"{"b": 1.00, "a": 12345678901234567890}"#;
        assert_eq!(result(&format!(" {written}\n")).unwrap(), written);
        assert_eq!(result("null").unwrap(), "null");
        for wrong in ["", "{", "{'id': 1}", "ch_1", "{} {}", "\"\\ud800\""] {
            assert!(result(wrong).unwrap_err().starts_with("it is not JSON"), "{wrong}");
        }
    }

    #[test]
    fn a_failure_has_a_reason_on_one_line() {
        assert_eq!(reason(" card expired ").unwrap(), "card expired");
        for wrong in ["", " ", "two\nlines", &"x".repeat(MAX_FAILED_BYTES + 1)] {
            assert!(reason(wrong).unwrap_err().contains("on one line"), "{wrong}");
        }
    }
}

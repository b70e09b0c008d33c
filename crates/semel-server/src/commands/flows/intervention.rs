//! What the commands that change a flow have in common.

use anyhow::Result;
use clap::Args;
use semel::Execution;
use semel::flow::{Change, FlowRecord, Seen};
use semel::operator::Audit;
use serde_json::Value;

use super::{no_such_flow, record};
use crate::commands::change::confirmed;
use crate::commands::{Done, print};

/// The flow as somebody has seen it.
#[derive(Debug, Args)]
pub(super) struct Expected {
    /// Only if the flow has changed hands this often: its epoch, as `semel flows show` prints it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    epoch: Option<i64>,
}

/// A change of one flow, and how it is told.
#[derive(Debug)]
pub(super) struct Intervention<'a> {
    /// The flow.
    pub(super) execution: Execution,
    /// What it is called, as in "would retry".
    pub(super) verb: &'static str,
    /// What it is called once it was made, which is also its member in JSON.
    pub(super) past: &'static str,
    /// What will happen, in a sentence, for whoever is asked.
    pub(super) consequence: String,
    /// The flow as it was when somebody decided on the change, if they say so.
    pub(super) seen: &'a Expected,
    /// Who, and why.
    pub(super) audit: &'a Audit,
    /// Whether somebody is asked first.
    pub(super) asks: bool,
    /// Whether nothing is changed.
    pub(super) dry_run: bool,
    /// What else is told in JSON; `None` if it is told as text.
    pub(super) json: Option<Value>,
}

impl Intervention<'_> {
    /// Makes the change. `make` asks the store for it, of this flow, without changing anything if it is told so.
    ///
    /// After the commit of `make` flow and audit row say so; after a failure or a crash before it, both are as they
    /// were.
    ///
    /// What is decided on is the flow as somebody saw it. One that changed hands since may have called again: it is
    /// left alone, whether they saw it here, when they were asked, or before, and say which by its epoch.
    pub(super) async fn run(&self, make: &impl AsyncFn(Seen, bool) -> Result<Change>) -> Result<Done> {
        let mut meant = Seen { execution: self.execution, epoch: self.seen.epoch };
        if self.asks {
            let shown = match self.made(make(meant, true).await?) {
                Ok(shown) => shown,
                Err(done) => return Ok(done),
            };
            if !confirmed(&format!("{}\n{} Go ahead?", record::to_text(&shown), self.consequence))? {
                return Ok(Done::Refused);
            }
            meant.epoch = Some(shown.epoch);
        }
        let before = match self.made(make(meant, self.dry_run).await?) {
            Ok(before) => before,
            Err(done) => return Ok(done),
        };
        self.tell(&before)?;
        Ok(Done::Completed)
    }

    /// The flow as it was before the change, or how the command ends without one.
    fn made(&self, change: Change) -> Result<Box<FlowRecord>, Done> {
        match change {
            Change::Made(before) => Ok(before),
            Change::NotFound => Err(no_such_flow(self.execution)),
            Change::Refused(state, instead) => {
                eprintln!("error: the flow is {} and was left alone: {instead}", state.as_str());
                Err(Done::Refused)
            }
        }
    }

    fn tell(&self, before: &FlowRecord) -> Result<()> {
        let Some(also) = &self.json else {
            let flow = record::to_text(before);
            return print(&if self.dry_run {
                format!("would {} (nothing was changed):\n{flow}", self.verb)
            } else {
                format!("{}; this is the flow as it was:\n{flow}", self.past)
            });
        };
        let mut told = also.clone();
        told[self.past] = (!self.dry_run).into();
        told["dry_run"] = self.dry_run.into();
        told["actor"] = self.audit.actor.as_str().into();
        told["reason"] = self.audit.reason.as_str().into();
        told["flow"] = record::to_json(before);
        print(&format!("{told:#}\n"))
    }
}

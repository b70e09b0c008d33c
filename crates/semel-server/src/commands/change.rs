//! What every change by hand needs: why, who, and somebody's consent.

use std::io::{self, BufRead, IsTerminal};

use anyhow::{Context, Result, ensure};
use clap::Args;
use semel::operator::Audit;

use super::Usage;

/// The longest actor, in bytes. The database checks the same bound (I12).
const MAX_ACTOR_BYTES: usize = 255;

/// The longest reason, in bytes. The database checks the same bound (I12).
const MAX_REASON_BYTES: usize = 1024;

/// The flags of a command that changes something.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Why; kept in the audit table
    #[arg(long)]
    reason: String,

    /// Who does it; the user of this terminal by default
    #[arg(long)]
    actor: Option<String>,

    #[command(flatten)]
    pub(crate) consent: Consent,
}

/// The flags by which somebody agrees to what a command will do.
#[derive(Debug, Args)]
pub(crate) struct Consent {
    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Change nothing; say what would happen
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl Change {
    /// Who and why, within bounds.
    pub(crate) fn audit(&self) -> Result<Audit> {
        let reason = bounded("reason", &self.reason, MAX_REASON_BYTES)?;
        Ok(Audit { actor: self.actor()?, reason })
    }

    fn actor(&self) -> Result<String> {
        let user = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        let actor = self.actor.clone().or(user.filter(|user| !user.is_empty()));
        let actor = actor.ok_or_else(|| Usage("nobody is logged in by name; pass --actor".to_owned()))?;
        bounded("actor", &actor, MAX_ACTOR_BYTES)
    }
}

impl Consent {
    /// Whether to ask first. Without a terminal to ask on that is wrong usage.
    pub(crate) fn asks(&self) -> Result<bool> {
        let asks = !self.yes && !self.dry_run;
        ensure!(
            !asks || io::stdin().is_terminal(),
            Usage(
                "there is no terminal to ask on; pass --yes to go ahead without being asked, or --dry-run".to_owned()
            )
        );
        Ok(asks)
    }
}

/// Asks on the terminal. Anything but yes is no, and says that nothing was changed.
pub(crate) fn confirmed(question: &str) -> Result<bool> {
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    let yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !yes {
        eprintln!("nothing was changed");
    }
    Ok(yes)
}

fn bounded(flag: &str, text: &str, limit: usize) -> Result<String> {
    let text = text.trim();
    let fits = (1..=limit).contains(&text.len()) && !text.chars().any(char::is_control);
    ensure!(fits, Usage(format!("--{flag} must be 1 to {limit} bytes on one line")));
    Ok(text.to_owned())
}

//! `semel keys show`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Store;

use super::{Settings, Which, not_found, record};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
The stored reply's bytes are not shown: they are the tenant's. Exit code 3 means that there is no such key.

Example:
  semel keys show --tenant a --operation 'POST /charges' 5f0c7a1e";

/// Show one key
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Prints one key.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let (scope, key) = arguments.which.named()?;
    let database = Database::open_migrated(config).await?;
    let found =
        with_store!(&database, store => store.show_key(&scope, &key).await).context("cannot look the key up")?;
    let Some(found) = found else {
        return Ok(not_found(&scope, &key));
    };
    print(&if arguments.json { format!("{:#}\n", record::to_json(&found)) } else { record::to_text(&found) })?;
    Ok(Done::Completed)
}

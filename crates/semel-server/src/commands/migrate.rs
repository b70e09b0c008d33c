//! `semel migrate`: Semel's tables in your database.

use anyhow::Result;
use clap::Args;

use super::{Done, print};
use crate::config::flags::Flags;
use crate::config::setting::DATABASE;
use crate::config::{Config, DatabaseUrl};
use crate::database::{Database, Missing};

const AFTER_HELP: &str = "\
Migrations that were applied before are left alone, so it may run at every deployment.

Examples:
  semel migrate --database-url postgres://db/shop
  semel migrate --database-url postgres:// --print > semel.sql";

/// Create or update Semel's tables in your database
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Print the SQL to stdout instead, without connecting
    #[arg(long)]
    print: bool,

    #[command(flatten)]
    pub settings: Flags<DATABASE>,
}

/// Applies what is missing. Each migration is one transaction: after a failure or a crash those before it stay, and
/// running this again goes on from there.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    if arguments.print {
        print(&match config.database_url {
            DatabaseUrl::Postgres(_) => semel_postgres::schema_sql(),
            DatabaseUrl::Sqlite(_) => semel_sqlite::schema_sql(),
        })?;
        return Ok(Done::Completed);
    }
    let database = Database::open(config, Missing::Create).await?;
    let applied = database.migrate(&config.database_url).await?;
    for name in &applied {
        print(&format!("applied {name}\n"))?;
    }
    if applied.is_empty() {
        print("nothing to apply: the database is up to date\n")?;
    }
    Ok(Done::Completed)
}

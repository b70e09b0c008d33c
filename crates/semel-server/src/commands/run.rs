//! `semel run`: what works on your database beside your service.

use anyhow::{Result, ensure};
use clap::Args;
use semel::reaper::Reaper;

use super::{Done, Usage, print};
use crate::config::Config;
use crate::config::flags::Flags;
use crate::config::setting::{DATABASE, RUN};
use crate::database::{Database, with_store};
use crate::shutdown::Shutdown;
use crate::{metrics, serve};

const AFTER_HELP: &str = "\
The role `reaper` deletes expired keys in small batches. An expired key counts as new whether or not it was deleted, so
nothing depends on when it runs; several may run at once.

Examples:
  semel run --database-url postgres://db/shop
  semel run --roles reaper --metrics-listen 127.0.0.1:9600";

/// Run roles on your database, beside your service
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub settings: Flags<{ RUN | DATABASE }>,
}

/// Works until it is told to stop. A crash at any point leaves nothing half done: each batch is one transaction.
pub(crate) async fn run(config: Config) -> Result<Done> {
    check_roles(&config.roles)?;
    let stop = Shutdown::on_signals()?;
    let database = Database::open_migrated(&config).await?;
    let recorder = metrics::start(&[])?;
    let served = match config.metrics_listen {
        None => None,
        Some(address) => {
            let listener = serve::bind(address, "metrics-listen").await?;
            print(&format!("semel run listening on http://{}/metrics\n", listener.local_addr()?))?;
            let (router, stop) = (metrics::router(recorder), stop.clone());
            Some(tokio::spawn(serve::serve(listener, router, stop, config.transaction_deadline)))
        }
    };
    let every = humantime::format_duration(config.reaper.every);
    tracing::info!(database = %config.database_url, %every, batch = config.reaper.batch, "reaping expired keys");
    reap(&database, config.reaper, stop).await;
    if let Some(served) = served {
        served.await?;
    }
    tracing::info!("stopped");
    Ok(Done::Completed)
}

/// Reaps until it is time to stop.
pub(crate) async fn reap(database: &Database, reaper: Reaper, stop: Shutdown) {
    with_store!(database, store => reaper.run(store, stop.requested()).await);
}

fn check_roles(roles: &str) -> Result<()> {
    for role in roles.split(',').map(str::trim) {
        ensure!(role == "reaper", Usage(format!("unknown role {role:?}; the roles are: reaper")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_role_is_refused_by_name() {
        assert!(check_roles("reaper").is_ok());
        for wrong in ["", "relay", "reaper,relay"] {
            assert!(check_roles(wrong).unwrap_err().to_string().contains("the roles are: reaper"), "{wrong}");
        }
    }
}

//! `semel run`: what works on your database beside your service.

use anyhow::{Result, ensure};
use clap::Args;
use semel::reaper::Reaper;
use tokio::task::JoinHandle;

use super::{Done, Usage, print};
use crate::config::flags::Flags;
use crate::config::setting::{DATABASE, RUN};
use crate::config::{Config, SinkUrl};
use crate::database::{Database, with_store};
use crate::shutdown::Shutdown;
use crate::{completer, metrics, relay, serve};

const AFTER_HELP: &str = "\
The role `reaper` deletes expired keys in small batches. An expired key counts as new whether or not it was deleted, so
nothing depends on when it runs. It also forgets messages that were seen longer ago than their consumer keeps them.

The role `relay` publishes events to the sink, at least once each, in order per ordering key, with ids and sequence
numbers that never change. Give a sink that holds secrets in SEMEL_SINK rather than as a flag.

The role `completer` counts the flows that wait and the calls that somebody has to resolve, and logs which flows nobody
takes. It runs none: their functions are in your service, and a completer there goes on with them.

Several processes may run any role; relays divide the lanes among themselves.

Examples:
  semel run --database-url postgres://db/shop
  semel run --roles relay --sink nats://broker:4222/?stream=EVENTS --metrics-listen 127.0.0.1:9600
  semel run --sink stdout: | jq .";

/// Run roles on your database, beside your service
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub settings: Flags<{ RUN | DATABASE }>,
}

/// Works until it is told to stop. A crash at any point leaves nothing half done: each batch of the reaper is one
/// transaction, what the relay has published and not noted is published again as it was (I4, I5), and the completer
/// changes nothing.
pub(crate) async fn run(config: Config) -> Result<Done> {
    let roles = Roles::choose(config.roles.as_deref(), config.relay.sink.as_ref())?;
    let stop = Shutdown::on_signals()?;
    let database = Database::open_migrated(&config).await?;
    let recorder = metrics::start(&[], &[], &[])?;
    let relaying = match roles.sink {
        Some(sink) => Some(relay::start(&database, sink, &config.relay, stop.clone()).await?),
        None => None,
    };
    let served = match config.metrics_listen {
        None => None,
        Some(address) => {
            let listener = serve::bind(address, "metrics-listen").await?;
            let announcement = format!("semel run listening on http://{}/metrics\n", listener.local_addr()?);
            // Where stdout is for events, nothing else goes there.
            if roles.sink.is_some_and(SinkUrl::is_stdout) {
                eprint!("{announcement}");
            } else {
                print(&announcement)?;
            }
            let (router, stop) = (metrics::router(recorder), stop.clone());
            Some(tokio::spawn(serve::serve(listener, router, stop, config.transaction_deadline)))
        }
    };
    let reaping = async {
        if roles.reaper {
            let every = humantime::format_duration(config.reaper.every);
            let batch = config.reaper.batch;
            tracing::info!(database = %config.database_url, %every, batch, "reaping what has expired");
            reap(&database, config.reaper, stop.clone()).await;
        }
    };
    let watching = async {
        if roles.completer {
            completer::watch(&database, stop.clone()).await;
        }
    };
    let (relayed, (), ()) = tokio::join!(ended(relaying, &stop), reaping, watching);
    if let Some(served) = served {
        served.await?;
    }
    tracing::info!("stopped");
    relayed.map(|()| Done::Completed)
}

/// Waits for the relay. One that refuses to run has the other roles stop as well, so that whoever supervises the
/// process sees it end.
async fn ended(relaying: Option<JoinHandle<Result<()>>>, stop: &Shutdown) -> Result<()> {
    let Some(relaying) = relaying else { return Ok(()) };
    let relayed = relaying.await;
    stop.request();
    relayed?
}

/// Reaps until it is time to stop.
pub(crate) async fn reap(database: &Database, reaper: Reaper, stop: Shutdown) {
    with_store!(database, store => reaper.run(store, stop.requested()).await);
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
struct Roles<'a> {
    reaper: bool,
    completer: bool,
    /// Where to relay to, if that is a role.
    sink: Option<&'a SinkUrl>,
}

impl<'a> Roles<'a> {
    fn choose(roles: Option<&str>, sink: Option<&'a SinkUrl>) -> Result<Roles<'a>> {
        let Some(roles) = roles else { return Ok(Roles { reaper: true, completer: true, sink }) };
        let (mut reaper, mut relay, mut completer) = (false, false, false);
        for role in roles.split(',').map(str::trim) {
            match role {
                "reaper" => reaper = true,
                "relay" => relay = true,
                "completer" => completer = true,
                _ => {
                    let unknown = format!("unknown role {role:?}; the roles are: reaper, relay, completer");
                    return Err(Usage(unknown).into());
                }
            }
        }
        ensure!(
            !relay || sink.is_some(),
            Usage("the role relay needs a sink: give --sink, SEMEL_SINK or sink in semel.toml".to_owned())
        );
        Ok(Roles { reaper, completer, sink: sink.filter(|_| relay) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_role_is_refused_by_name() {
        for wrong in ["", "gardener", "reaper,gardener"] {
            let refused = Roles::choose(Some(wrong), None).unwrap_err();
            let told = refused.to_string().contains("the roles are: reaper, relay, completer");
            assert!(refused.is::<Usage>() && told, "{wrong}");
        }
    }

    #[test]
    fn events_are_relayed_if_there_is_a_sink_and_nobody_says_otherwise() {
        let sink = SinkUrl::parse("stdout:").unwrap();
        let all = |sink| Roles { reaper: true, completer: true, sink };
        assert_eq!(Roles::choose(None, Some(&sink)).unwrap(), all(Some(&sink)));
        assert_eq!(Roles::choose(None, None).unwrap(), all(None));
        assert_eq!(Roles::choose(Some("relay, completer,reaper"), Some(&sink)).unwrap(), all(Some(&sink)));
        let only = |role: &str| Roles::choose(Some(role), Some(&sink)).unwrap();
        assert_eq!(only("reaper"), Roles { reaper: true, completer: false, sink: None });
        assert_eq!(only("completer"), Roles { reaper: false, completer: true, sink: None });
        assert_eq!(only("relay"), Roles { reaper: false, completer: false, sink: Some(&sink) });
        assert!(Roles::choose(Some("relay"), None).unwrap_err().to_string().contains("--sink"));
    }
}

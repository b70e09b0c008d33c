//! Publishes events from the configured database to the configured sink.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use semel::relay::{self, Relay};
use semel::{Outbox, Sink};
use semel_brokers::{AnySink, Error};
use tokio::task::JoinHandle;

use crate::config::{RelayConfig, SinkUrl, Wanted};
use crate::database::{Database, with_store};
use crate::shutdown::Shutdown;

/// The pause before a broker that could not be reached is tried again, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Starts a relay, which runs until it is told to stop.
///
/// A sink that can never work fails here: an unknown scheme, one that is not in this build, wrong credentials, or one
/// that promises less than was asked for. A broker that cannot be reached is tried again for as long as it takes, since
/// events wait for it without harm (I4).
///
/// The task ends with an error if the relay refuses to run, which is when the database was restored or failed over.
pub(crate) async fn start(
    database: &Database,
    sink: &SinkUrl,
    config: &RelayConfig,
    stop: Shutdown,
) -> Result<JoinHandle<Result<()>>> {
    let installation = database.installation().await?;
    let connected = connect(sink, config.guarantee, &installation).await?;
    if let Err(unreachable) = &connected {
        tracing::warn!(%sink, error = unreachable, "the sink is tried again until it can be reached; events wait");
    } else {
        tracing::info!(%sink, source = config.settings.source, "relaying events");
    }
    let (sink, guarantee, settings) = (sink.clone(), config.guarantee, config.settings.clone());
    Ok(with_store!(database, store => {
        let store = store.clone();
        tokio::spawn(async move {
            let reached = async {
                match connected {
                    Ok(sink) => Ok(sink),
                    Err(_) => connect_patiently(&sink, guarantee, &installation).await,
                }
            };
            let sink = tokio::select! {
                () = stop.clone().requested() => return Ok(()),
                reached = reached => reached?,
            };
            relayed(store, sink, settings, stop).await
        })
    }))
}

async fn relayed<S: Outbox>(store: S, sink: AnySink, settings: relay::Settings, stop: Shutdown) -> Result<()> {
    Relay::new(store, sink, settings)?.run(stop.requested()).await.context("the relay cannot run")
}

/// Connects to a sink and makes sure that it promises enough. The inner error is that of a broker out of reach.
pub(crate) async fn connect(
    url: &SinkUrl,
    wanted: Wanted,
    installation: &str,
) -> Result<std::result::Result<AnySink, String>> {
    let sink = match semel_brokers::connect(url.with_secrets(), installation).await {
        Ok(sink) => sink,
        Err(Error::Unavailable(reason)) => return Ok(Err(reason)),
        Err(Error::NotBuilt { scheme, feature }) => bail!(
            "this `semel` was built without sinks of the scheme {scheme}: and cannot publish to {url}; build it with \
             `--features {feature}`"
        ),
        Err(error) => return Err(error).with_context(|| format!("cannot publish to the sink {url}")),
    };
    let promised = Wanted::of(sink.guarantee());
    ensure!(
        wanted.met_by(sink.guarantee()),
        "the sink {url} promises {} and sink_guarantee asks for {}: choose another sink, another mode of it, or a \
         lower sink_guarantee",
        promised.as_str(),
        wanted.as_str()
    );
    Ok(Ok(sink))
}

async fn connect_patiently(url: &SinkUrl, wanted: Wanted, installation: &str) -> Result<AnySink> {
    let mut pause = RETRY_MIN;
    loop {
        tokio::time::sleep(pause).await;
        match connect(url, wanted, installation).await? {
            Ok(sink) => {
                tracing::info!(sink = %url, "the sink was reached; relaying events");
                return Ok(sink);
            }
            Err(error) => tracing::debug!(sink = %url, error, "the sink cannot be reached yet"),
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
}

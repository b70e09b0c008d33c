//! Applies messages from a source to the configured database, as one of the payments consumers.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use semel::runner::{Ended, Settings};
use semel::source::Recognition;
use semel::tier::Tier;
use semel::{Consumer, Inbox, Runner, Semel};
use semel_brokers::{AnySource, Error, Resume, Subscription};
use semel_payments::{Ledger, PaymentsConsumer, consumers};
use tokio::task::JoinHandle;

use crate::config::SourceUrl;
use crate::shutdown::Shutdown;

/// The pause before a broker or a database that could not be reached is tried again, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Which consumer, of what, and how.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// One of [`consumers::NAMES`].
    pub consumer: String,
    /// Where its messages come from.
    pub source: SourceUrl,
    /// How it works.
    pub settings: Settings,
    /// What stands in front of its inbox.
    pub tier: Option<Arc<dyn Tier>>,
}

/// A consumer that has been started.
#[derive(Debug)]
pub(crate) struct Consuming {
    /// Where its source listens, if it does.
    pub address: Option<SocketAddr>,
    /// Runs until it is told to stop. It ends with an error if the consumer refuses to run.
    pub task: JoinHandle<Result<()>>,
}

/// Starts a consumer, which runs until it is told to stop.
///
/// A source that can never work fails here: an unknown scheme, one that is not in this build, or wrong credentials. A
/// broker that cannot be reached is tried again for as long as it takes, since what it holds waits there. When an
/// operator begins a new generation, the source is opened anew in it.
pub(crate) async fn start<S: Ledger + Inbox>(semel: Semel<S>, mut plan: Plan, stop: Shutdown) -> Result<Consuming> {
    semel_payments::install(semel.store()).await.context("cannot create the tables of the payments consumers")?;
    let generation = generation(semel.store(), &plan.consumer).await.context("cannot look the consumer up")?;
    let opened = match open(semel.store(), &plan, generation).await? {
        Ok(source) => Some((generation, source)),
        Err(unreachable) => {
            let source = &plan.source;
            tracing::warn!(%source, error = unreachable, "the source is tried again until it can be reached");
            None
        }
    };
    let address = opened.as_ref().and_then(|(_, source)| listening(source));
    if let Some(address) = address {
        plan.source = plan.source.at(address)?;
    }
    let task = tokio::spawn(consume(semel, plan, opened, stop));
    Ok(Consuming { address, task })
}

/// Consumes in one generation after the other, until it is told to stop.
async fn consume<S: Ledger + Inbox>(
    semel: Semel<S>,
    plan: Plan,
    mut opened: Option<(u32, AnySource)>,
    stop: Shutdown,
) -> Result<()> {
    let name = plan.consumer.as_str();
    loop {
        let reached = async {
            match opened.take() {
                Some(opened) => Ok(opened),
                None => open_patiently(semel.store(), &plan).await,
            }
        };
        let (generation, source) = tokio::select! {
            () = stop.clone().requested() => return Ok(()),
            reached = reached => reached?,
        };
        let handler = PaymentsConsumer::named(name, generation).with_context(|| unknown(name))?;
        let consumer = Consumer::new(name)?.in_generation(generation);
        let mut runner = Runner::new(semel.clone(), source, handler, consumer, plan.settings.clone())?;
        if let Some(tier) = &plan.tier {
            runner = runner.with_tier(Arc::clone(tier));
        }
        match runner.run(stop.clone().requested()).await.context("the consumer cannot run")? {
            Ended::Stopped => return Ok(()),
            Ended::NewGeneration(generation) => {
                tracing::info!(consumer = name, generation, "a new generation was begun: history applies again");
            }
        }
    }
}

/// Says that there is no such consumer, and which there are.
pub(crate) fn unknown(name: &str) -> String {
    format!("there is no consumer {name:?}; the consumers are: {}", consumers::NAMES.join(", "))
}

/// The generation that a consumer is in.
async fn generation<S: Inbox>(store: &S, name: &str) -> Result<u32, semel::Error> {
    let known = store.consumers(Some(name)).await?;
    Ok(known.first().map_or(0, |consumer| consumer.generation))
}

/// Opens the source in a generation. The inner error is that of a broker out of reach.
async fn open<S: Inbox>(store: &S, plan: &Plan, generation: u32) -> Result<std::result::Result<AnySource, String>> {
    let url = &plan.source;
    let consumer = Consumer::new(plan.consumer.as_str())?.in_generation(generation);
    let stored: Arc<dyn Resume> = Arc::new(Stored { store: store.clone(), consumer });
    let recognition = plan.settings.recognition;
    let subscription = Subscription {
        consumer: plan.consumer.clone(),
        generation,
        recognition,
        resume: (recognition == Recognition::Offset).then_some(stored),
    };
    match semel_brokers::open(url.with_secrets(), &subscription).await {
        Ok(source) => Ok(Ok(source)),
        Err(Error::Unavailable(reason)) => Ok(Err(reason)),
        Err(Error::NotBuilt { scheme, feature }) => bail!(
            "this `semel` was built without sources of the scheme {scheme}: and cannot consume from {url}; build it \
             with `--features {feature}`"
        ),
        Err(error) => Err(error).with_context(|| format!("cannot consume from the source {url}")),
    }
}

async fn open_patiently<S: Inbox>(store: &S, plan: &Plan) -> Result<(u32, AnySource)> {
    let mut pause = RETRY_MIN;
    loop {
        match generation(store, &plan.consumer).await {
            Ok(generation) => match open(store, plan, generation).await? {
                Ok(source) => {
                    tracing::info!(source = %plan.source, "the source was reached");
                    return Ok((generation, source));
                }
                Err(error) => tracing::debug!(source = %plan.source, error, "the source cannot be reached yet"),
            },
            Err(error) => tracing::warn!(%error, "the database cannot be asked for the consumer's generation yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// Where a source listens, if it does.
fn listening(source: &AnySource) -> Option<SocketAddr> {
    match source {
        AnySource::Http(source) => Some(source.local_addr()),
        _ => None,
    }
}

/// The offsets that were committed with a consumer's effects (I6).
struct Stored<S> {
    store: S,
    consumer: Consumer,
}

impl<S: Inbox> Resume for Stored<S> {
    fn next_offset<'a>(
        &'a self,
        source: &'a str,
        topic: &'a str,
        partition: i32,
    ) -> Pin<Box<dyn Future<Output = Result<Option<i64>, semel::Error>> + Send + 'a>> {
        Box::pin(self.store.next_offset(&self.consumer, source, topic, partition))
    }
}

impl<S> fmt::Debug for Stored<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}

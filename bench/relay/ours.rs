//! Semel's relay, with a note of every acknowledgement.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use semel::Sink;
use semel::relay::{self, Relay, Settings};
use semel::sink::{Error, Guarantee, Lane, Outgoing, Position};
use semel_postgres::{Options, Postgres};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::alone;
use crate::bench::Bench;
use crate::case::SinkKind;
use crate::ledger::Ledger;
use crate::servers::Stream;

/// A relay at work, with a store of its own: events wake it only by being found, as in a process of its own.
#[derive(Debug)]
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    relaying: JoinHandle<Result<(), relay::Error>>,
    stream: Option<Stream>,
}

impl Running {
    pub(crate) async fn start(bench: &Bench, url: &str, sink: SinkKind, ledger: &Arc<Ledger>) -> Result<Running> {
        let store = Postgres::connect(url, Options::default()).await?;
        let commit_interval = match sink {
            SinkKind::KafkaTransactional(interval) => interval,
            _ => Duration::ZERO,
        };
        let settings = bench.options.relay(commit_interval);
        let (stop, stopped) = oneshot::channel();
        let (sink, stream) = alone::connect(&bench.servers, sink).await?;
        let relaying = match sink {
            None => spawn(store, Recorded { inner: Null, ledger: Arc::clone(ledger) }, settings, stopped)?,
            Some(inner) => spawn(store, Recorded { inner, ledger: Arc::clone(ledger) }, settings, stopped)?,
        };
        Ok(Running { stop, relaying, stream })
    }

    /// Lets it end in good order.
    pub(crate) async fn stop(self) -> Result<()> {
        // It may have refused to run; then this says why.
        let _ = self.stop.send(());
        self.relaying.await??;
        match self.stream {
            Some(stream) => stream.delete().await,
            None => Ok(()),
        }
    }
}

fn spawn<K: Sink>(
    store: Postgres,
    sink: K,
    settings: Settings,
    stopped: oneshot::Receiver<()>,
) -> Result<JoinHandle<Result<(), relay::Error>>> {
    let relay = Relay::new(store, sink, settings)?;
    Ok(tokio::spawn(async move {
        let stop = async {
            // A dropped sender stops it as well.
            let _ = stopped.await;
        };
        relay.run(stop).await
    }))
}

/// Acknowledges at once: what is left is the relay itself.
#[derive(Debug)]
struct Null;

impl Sink for Null {
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    async fn take_lane(&self, _: Lane) -> Result<Option<Position>, Error> {
        Ok(None)
    }

    async fn publish(&self, _: Lane, batch: &[Outgoing], _: &Position) -> Vec<Result<(), Error>> {
        batch.iter().map(|_| Ok(())).collect()
    }

    async fn close(&self) {}
}

/// A sink whose acknowledgements are noted as the relay gets them.
#[derive(Debug)]
struct Recorded<K> {
    inner: K,
    ledger: Arc<Ledger>,
}

impl<K: Sink> Sink for Recorded<K> {
    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    async fn take_lane(&self, lane: Lane) -> Result<Option<Position>, Error> {
        self.inner.take_lane(lane).await
    }

    async fn publish(&self, lane: Lane, batch: &[Outgoing], position: &Position) -> Vec<Result<(), Error>> {
        self.ledger.send();
        let results = self.inner.publish(lane, batch, position).await;
        let published = batch.iter().zip(&results).filter(|(_, result)| result.is_ok());
        self.ledger.acknowledge_all(published.map(|(outgoing, _)| outgoing.event.payload.as_ref()));
        results
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

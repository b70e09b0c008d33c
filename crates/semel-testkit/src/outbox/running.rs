//! A relay that runs in the test's own process.

use std::time::Duration;

use semel::outbox::RelayId;
use semel::relay::{self, Relay, Settings};
use semel::{EventId, Outbox};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::harness::Harness;
use super::lab::{Lab, event, until};
use super::script::Script;

/// A relay at work.
pub(super) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), relay::Error>>,
}

impl Running {
    pub(super) fn start<S: Outbox>(store: &S, script: &Script, settings: Settings) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = Relay::new(store.clone(), script.clone(), settings).unwrap();
        let stopped = async move { stopped.await.unwrap_or_default() };
        Running { stop, task: tokio::spawn(async move { relay.run(stopped).await }) }
    }

    /// Ends it in good order.
    pub(super) async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap().unwrap();
    }

    /// Ends it in the middle of whatever it does, and its lease, too.
    pub(super) async fn die(self, store: &impl Outbox) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
        for relay in store.outbox_status().await.unwrap().relays {
            store.renew_relay(RelayId(relay.id), Duration::from_millis(1)).await.unwrap();
        }
    }
}

/// How a relay works that a test does not want to wait for.
pub(super) fn haste(attempts: u32) -> Settings {
    Settings {
        lease: Duration::from_secs(3),
        attempts,
        poll_max: Duration::from_millis(20),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(20),
        housekeeping_interval: Duration::from_millis(50),
        ..Settings::default()
    }
}

impl<H: Harness> Lab<H> {
    /// Commits one event per key, in one transaction.
    pub(super) async fn emit_to(&self, keys: &[&String]) -> Vec<EventId> {
        self.emit(keys.iter().zip(0..).map(|(key, n)| event("topic", key, n))).await
    }

    /// Waits until so many keys are held.
    pub(super) async fn held(&self, keys: usize) {
        until(&format!("{keys} keys are held"), async || {
            self.outbox().list_held(None, 10).await.unwrap().len() == keys
        })
        .await;
    }

    /// Waits until everything is published or held, and the positions say so.
    pub(super) async fn passed(&self) {
        until("everything is passed", async || self.outbox().backlog().await.unwrap().events == 0).await;
    }
}

//! A database, a world around it, and processes that run flows in both.

use std::sync::Arc;
use std::time::Duration;

use semel::flow::{self, Definition, FlowShown, FlowState, FlowStore, Settings};
use semel::once::Error as OnceError;
use semel::{Ask, Flows, Key, Outcome, Semel, Store, intent};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::harness::Harness;
use super::lab::{FLOW, Lab};
use super::world::{Order, World, label};
use crate::poll::{until, until_some};

/// What a client gets of a flow.
pub(super) type Ran = Result<Outcome, OnceError<flow::Error>>;

/// A version of a flow, as it is deployed in a process.
pub(super) type Version<H> = fn(&World) -> Definition<<H as Harness>::Store>;

/// What orders begin with.
pub(super) const ORDER: Order = Order { quantity: 2 };

/// A database and the world around it.
pub(super) struct Shop<H: Harness> {
    pub(super) lab: Lab<H>,
    pub(super) world: World,
}

impl<H: Harness> Shop<H> {
    pub(super) async fn open() -> Shop<H> {
        Shop::open_in(World::new()).await
    }

    pub(super) async fn open_in(world: World) -> Shop<H> {
        Shop { lab: Lab::open().await, world }
    }

    /// The flows of this process.
    pub(super) fn flows(&self, version: Version<H>) -> Flows<H::Store> {
        build(self.lab.semel.clone(), version(&self.world), settings())
    }

    /// A client asks for the flow under this key, once.
    pub(super) async fn asks(&self, version: Version<H>, key: &Key) -> Ran {
        self.flows(version).run(FLOW, &self.lab.ask(key), &ORDER).await
    }

    /// A client asks again until it has an answer.
    pub(super) async fn answers(&self, version: Version<H>, key: &Key) -> Outcome {
        until_some("the flow has ended", async || match self.asks(version, key).await {
            Ok(outcome) => Some(outcome),
            Err(OnceError::InFlight { .. }) => None,
            Err(other) => panic!("instead of an answer there is {other:?}"),
        })
        .await
    }

    /// A client asks again until it is told something else than to wait: that nobody knows.
    pub(super) async fn is_unknown(&self, version: Version<H>, key: &Key) {
        let told = self.is_told(version, key).await;
        assert!(matches!(told, Err(OnceError::Unknown)), "{told:?}");
        assert_eq!(self.shows(key).await.record.state, FlowState::Held);
    }

    /// A client asks again until it is told something else than to wait.
    pub(super) async fn is_told(&self, version: Version<H>, key: &Key) -> Ran {
        until_some("the client is told something", async || match self.asks(version, key).await {
            Err(OnceError::InFlight { .. }) => None,
            told => Some(told),
        })
        .await
    }

    /// Another process goes on with what is due, until the flow under this key has ended. No client asks.
    pub(super) async fn completes(&self, version: Version<H>, key: &Key) {
        let worker = self.worker(version).await;
        worker.completes();
        self.ends(key).await;
    }

    /// Waits until the flow under this key has ended.
    pub(super) async fn ends(&self, key: &Key) {
        let ended = async || matches!(self.shows(key).await.record.state, FlowState::Completed | FlowState::Failed);
        until("the flow has ended", ended).await;
    }

    /// A process of its own.
    pub(super) async fn worker(&self, version: Version<H>) -> Worker<H> {
        Worker::start(&self.lab.harness, version(&self.world)).await
    }

    /// A process begins the flow, or goes on with it, and dies at this place. Then every lease ends.
    pub(super) async fn dies_at(&self, place: &str, version: Version<H>, key: &Key) {
        self.world.trap.arm(place);
        let worker = self.worker(version).await;
        let running = worker.insists(self.lab.ask(key));
        self.world.trap.springs_at(place).await;
        drop(worker);
        // It is cut off.
        let _ = running.await;
        self.lab.abandons().await;
    }

    /// What an operator sees of the flow under this key.
    pub(super) async fn shows(&self, key: &Key) -> FlowShown {
        let record = self.lab.store().show_key(&self.lab.scope, key).await.unwrap().unwrap();
        self.lab.store().show_flow(record.execution).await.unwrap().unwrap()
    }

    /// The names of the steps that wait for a person.
    pub(super) async fn open_steps(&self, key: &Key) -> Vec<String> {
        let shown = self.shows(key).await;
        shown.steps.iter().filter(|step| step.is_open()).map(|step| step.entry.step.clone()).collect()
    }

    /// The key under which a step of the flow calls.
    pub(super) fn derived(&self, key: &Key, step: &str) -> String {
        intent::key(&self.lab.scope, FLOW, key, step)
    }

    /// How many rows the step has added.
    pub(super) async fn added(&self, step: &str, key: &Key) -> u64 {
        self.lab.harness.count(&label(step, key)).await
    }

    /// Whatever pauses or waits after a failure is due.
    pub(super) async fn pauses_are_over(&self) {
        self.lab.harness.age(Duration::from_secs(10 * 60)).await;
    }
}

/// Settings in haste, with leases of half a minute.
pub(super) fn settings() -> Settings {
    Settings { poll: Duration::from_millis(20), ..Settings::default() }
}

/// The flows of a process that knows this one.
pub(super) fn build<S: FlowStore>(semel: Semel<S>, definition: Definition<S>, settings: Settings) -> Flows<S> {
    Flows::builder(semel).register(definition).settings(settings).build().unwrap()
}

/// A process of its own: one thread, a handle on the database, and flows. Dropping it kills it: all that it does ends
/// where it stands, and its connections break.
pub(super) struct Worker<H: Harness> {
    runtime: Option<Runtime>,
    flows: Flows<H::Store>,
}

impl<H: Harness> Worker<H> {
    pub(super) async fn start(harness: &Arc<H>, definition: Definition<H::Store>) -> Worker<H> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let harness = Arc::clone(harness);
        let starting = runtime.spawn(async move { build(Semel::new(harness.another().await), definition, settings()) });
        let flows = starting.await.unwrap();
        Worker { runtime: Some(runtime), flows }
    }

    /// Runs the flow for a client.
    pub(super) fn runs(&self, ask: Ask) -> JoinHandle<Ran> {
        let flows = self.flows.clone();
        self.runtime().spawn(async move { flows.run(FLOW, &ask, &ORDER).await })
    }

    /// Runs the flow for a client that asks again for as long as it is told to wait: a process that has just died may
    /// still be in a transaction for a moment.
    pub(super) fn insists(&self, ask: Ask) -> JoinHandle<Ran> {
        let flows = self.flows.clone();
        self.runtime().spawn(async move {
            loop {
                match flows.run(FLOW, &ask, &ORDER).await {
                    Err(OnceError::InFlight { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                    ran => return ran,
                }
            }
        })
    }

    /// Goes on with whatever is due, for as long as the process lives.
    pub(super) fn completes(&self) {
        let completer = self.flows.completer();
        self.runtime().spawn(async move {
            completer.run(std::future::pending()).await;
        });
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it lives")
    }
}

impl<H: Harness> Drop for Worker<H> {
    fn drop(&mut self) {
        // A runtime cannot be waited for inside another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

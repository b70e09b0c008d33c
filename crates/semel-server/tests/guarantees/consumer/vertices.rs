//! Keys, outbox and inbox, each taken away in turn from one and the same scenario.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Duration;

use semel::failpoint::{COMMIT_ACKNOWLEDGED, CONSUMER_COMMITTED, RELAY_PUBLISHED};
use semel::source::Recognition;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::poll::{PATIENCE, until};

use super::broker::Broker;
use super::process::Kind;
use super::service::Plan;
use super::stage::{Applying, Effect, Stage};
use crate::relay::process::LEASE;
use crate::world::client;

/// How many things the clients want, once each.
const INTENTS: u64 = 12;

/// Which vertices there are.
#[derive(Debug, Clone, Copy)]
struct Vertices {
    keys: bool,
    outbox: bool,
    inbox: bool,
}

const ALL: Vertices = Vertices { keys: true, outbox: true, inbox: true };

/// What was counted in the end.
#[derive(Debug)]
struct Count {
    /// Rows of the service.
    charged: Counted,
    /// Rows of the consumer.
    applied: Counted,
}

/// How many there are, and how many different ones.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    rows: usize,
    intents: usize,
}

const EXACT: Counted = Counted { rows: INTENTS as usize, intents: INTENTS as usize };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_keys_and_outbox_and_inbox_everything_happens_once() {
    for count in [count::<Postgres>(ALL).await, count::<Sqlite>(ALL).await] {
        assert_eq!((&count.charged, &count.applied), (&EXACT, &EXACT));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_a_retry_charges_twice() {
    let without = Vertices { keys: false, ..ALL };
    for count in [count::<Postgres>(without).await, count::<Sqlite>(without).await] {
        assert_eq!(count.charged.intents, EXACT.intents, "{count:?}");
        assert!(count.charged.rows > EXACT.rows, "{count:?}");
        // And everything behind it is faithful: what was charged twice is applied twice.
        assert_eq!(count.applied, count.charged);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_outbox_a_crash_loses_the_event() {
    let without = Vertices { outbox: false, ..ALL };
    for count in [count::<Postgres>(without).await, count::<Sqlite>(without).await] {
        assert_eq!(count.charged, EXACT, "{count:?}");
        assert!(count.applied.intents < EXACT.intents, "{count:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_inbox_a_redelivery_applies_twice() {
    let without = Vertices { inbox: false, ..ALL };
    for count in [count::<Postgres>(without).await, count::<Sqlite>(without).await] {
        assert_eq!(count.charged, EXACT, "{count:?}");
        assert_eq!(count.applied.intents, EXACT.intents, "{count:?}");
        assert!(count.applied.rows > EXACT.rows, "{count:?}");
    }
}

/// A client retries until it is answered; a relay dies between publishing and noting, a consumer between its effect and
/// the acknowledgement, the service between its commit and the answer. Counts what became of it.
async fn count<S: Applying>(vertices: Vertices) -> Count {
    let stage = Stage::<S>::set(Broker::http().await).await;
    let plan = Plan {
        database: stage.producer_url.clone(),
        topic: stage.broker.topics[0].clone(),
        publishes_to: (!vertices.outbox).then(|| stage.broker.sink_url.clone()),
    };
    let kind = if vertices.inbox { Kind::Semel } else { Kind::KeepsNoProof };
    let consuming = stage.consumer(Recognition::Id).of_kind(kind);
    let mut control = Control::listen().await;
    let third = INTENTS / 3;
    let mut service = plan.start_armed(u32::try_from(2 * third).unwrap(), &control).await;
    let clients = Clients { url: Mutex::new(service.url("/charges")), keys: vertices.keys };

    let mut consumer = consuming.start().await;
    let mut relay = None;
    if vertices.outbox {
        let mut plan = stage.relay();
        // Its successor has to wait so long.
        plan.lease_ms = u64::try_from(LEASE.as_millis()).unwrap();
        let mut doomed = plan.armed(RELAY_PUBLISHED, 1, &control).start().await;
        clients.charge(1..=third).await;
        let parked = control.reached(RELAY_PUBLISHED, PATIENCE).await;
        doomed.kill9().await;
        drop(parked);
        relay = Some(stage.relay().start().await);
    } else {
        clients.charge(1..=third).await;
    }

    assert!(consumer.terminate().await.success());
    let mut doomed = consuming.clone().armed(CONSUMER_COMMITTED, 0, &control).start().await;
    let killed = async {
        let parked = control.reached(CONSUMER_COMMITTED, PATIENCE).await;
        doomed.kill9().await;
        drop(parked);
        consuming.start().await
    };
    let ((), mut consumer) = tokio::join!(clients.charge(third + 1..=2 * third), killed);

    let killed = async {
        let parked = control.reached(COMMIT_ACKNOWLEDGED, PATIENCE).await;
        service.kill9().await;
        drop(parked);
        let service = plan.start().await;
        *clients.url.lock().unwrap() = service.url("/charges");
        service
    };
    let ((), _service) = tokio::join!(clients.charge(2 * third + 1..=INTENTS), killed);

    // A webhook is acknowledged when it is applied, so what is published has been applied.
    stage.published().await;
    assert!(consumer.terminate().await.success());
    if let Some(mut relay) = relay {
        assert!(relay.terminate().await.success());
    }
    Count { charged: counted(&stage.producer.store().effects().await), applied: counted(&stage.store.effects().await) }
}

fn counted(effects: &[Effect]) -> Counted {
    let intents: BTreeSet<u64> = effects.iter().map(|effect| effect.n).collect();
    Counted { rows: effects.len(), intents: intents.len() }
}

/// Clients who retry until they are answered.
struct Clients {
    /// Where the service is now.
    url: Mutex<String>,
    /// Whether a retry has the key of what it retries.
    keys: bool,
}

impl Clients {
    async fn charge(&self, intents: RangeInclusive<u64>) {
        let client = client();
        for intent in intents {
            until("the charge is answered", async || {
                let key = if self.keys { format!("intent-{intent}") } else { uuid::Uuid::new_v4().to_string() };
                let url = format!("{}/{intent}/{key}", self.url.lock().unwrap());
                let request = client.post(url).timeout(Duration::from_secs(20)).send();
                request.await.is_ok_and(|answer| answer.status().as_u16() == 201)
            })
            .await;
        }
    }
}

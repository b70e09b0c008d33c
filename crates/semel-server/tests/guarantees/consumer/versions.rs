//! Messages come out of order.

use std::collections::BTreeMap;

use semel::failpoint::CONSUMER_EFFECT_DONE;
use semel::sink::{Lane, Outgoing, Position};
use semel::source::Recognition;
use semel::{Event, EventId, Sink};
use semel_brokers::{AnySink, connect};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::poll::{PATIENCE, until};
use serde_json::json;

use super::broker::Broker;
use super::stage::{Applying, Stage};
use crate::relay::dice::Dice;

const KEYS: [&str; 3] = ["a", "b", "c"];
const VERSIONS: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_out_of_order_apply_once_and_in_order_on_postgres() {
    changes_out_of_order::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_out_of_order_apply_once_and_in_order_on_sqlite() {
    changes_out_of_order::<Sqlite>().await;
}

async fn changes_out_of_order<S: Applying>() {
    let stage = Stage::<S>::set(Broker::rabbitmq().await).await;
    let mut plan = stage.consumer(Recognition::Id);
    // Here no gap stays open, however long a busy machine takes to close it.
    (plan.rule, plan.attempts) = (Some("each".to_owned()), 1_000);
    let mut publisher = Publisher::connect(&stage.broker).await;
    let mut control = Control::listen().await;
    let mut doomed = plan.clone().armed(CONSUMER_EFFECT_DONE, 15, &control).start().await;
    publisher.publish(&shuffled()).await;
    let parked = control.reached(CONSUMER_EFFECT_DONE, PATIENCE).await;
    doomed.kill9().await;
    drop(parked);

    let mut successor = plan.start().await;
    until("every change is applied", async || {
        let applied = stage.store.effects().await;
        KEYS.iter().all(|key| applied.iter().any(|effect| (effect.key.as_str(), effect.n) == (*key, VERSIONS)))
    })
    .await;
    // One more of each, behind the second copies of everything.
    publisher.publish(&KEYS.map(|key| (key.to_owned(), VERSIONS + 1))).await;
    let expected: Vec<u64> = (1..=VERSIONS + 1).collect();
    until("every change is applied, and those behind them", async || {
        let applied = applied(&stage).await;
        KEYS.iter().all(|key| applied[*key].contains(&(VERSIONS + 1)))
    })
    .await;
    for (key, versions) in applied(&stage).await {
        assert_eq!(versions, expected, "{key}");
    }
    assert_eq!(stage.letters().await, []);
    assert!(successor.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_state_changes_nothing_on_postgres() {
    stale_states::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_state_changes_nothing_on_sqlite() {
    stale_states::<Sqlite>().await;
}

async fn stale_states<S: Applying>() {
    let stage = Stage::<S>::set(Broker::rabbitmq().await).await;
    let mut plan = stage.consumer(Recognition::Id);
    plan.rule = Some("latest".to_owned());
    let mut publisher = Publisher::connect(&stage.broker).await;
    let mut control = Control::listen().await;
    let mut doomed = plan.clone().armed(CONSUMER_EFFECT_DONE, 4, &control).start().await;
    publisher.publish(&shuffled()).await;
    let parked = control.reached(CONSUMER_EFFECT_DONE, PATIENCE).await;
    doomed.kill9().await;
    drop(parked);

    let mut successor = plan.start().await;
    // The first states once more, under ids of their own, and behind them the last.
    let stale = KEYS.iter().flat_map(|key| (1..VERSIONS).map(|version| ((*key).to_owned(), version)));
    publisher.publish(&stale.collect::<Vec<_>>()).await;
    publisher.publish(&KEYS.map(|key| (key.to_owned(), VERSIONS + 1))).await;
    until("the last state of every key is applied", async || {
        let applied = applied(&stage).await;
        KEYS.iter().all(|key| applied.get(*key).is_some_and(|versions| versions.contains(&(VERSIONS + 1))))
    })
    .await;
    for (key, versions) in applied(&stage).await {
        assert!(versions.is_sorted_by(|before, after| before < after), "{key}: {versions:?}");
        assert_eq!(versions.last(), Some(&(VERSIONS + 1)), "{key}");
    }
    assert!(successor.terminate().await.success());
}

/// Every version of every key, twice, in any order.
fn shuffled() -> Vec<(String, u64)> {
    let all = KEYS.iter().flat_map(|key| (1..=VERSIONS).map(|version| ((*key).to_owned(), version)));
    let mut all: Vec<_> = all.collect();
    all.extend(all.clone());
    Dice::new(8).shuffle(&mut all);
    all
}

/// The versions of each key that were applied, in order.
async fn applied<S: Applying>(stage: &Stage<S>) -> BTreeMap<String, Vec<u64>> {
    let mut applied: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for effect in stage.store.effects().await {
        applied.entry(effect.key).or_default().push(effect.n);
    }
    applied
}

/// Publishes in the order it is told, which no relay would. What it publishes in one call under one key and version is
/// one message, however often.
struct Publisher {
    sink: AnySink,
    topic: String,
    sequence: u64,
}

impl Publisher {
    async fn connect(broker: &Broker) -> Publisher {
        let sink = connect(&broker.sink_url, "out of order").await.unwrap();
        Publisher { sink, topic: broker.topics[0].clone(), sequence: 0 }
    }

    async fn publish(&mut self, messages: &[(String, u64)]) {
        let mut ids: BTreeMap<&(String, u64), EventId> = BTreeMap::new();
        for message in messages {
            let id = *ids.entry(message).or_insert_with(|| EventId::from(uuid::Uuid::new_v4()));
            let (key, version) = message;
            self.sequence += 1;
            let outgoing = Outgoing {
                id,
                source: "test".to_owned(),
                time_ms: 0,
                lane: Lane::of(key),
                sequence: self.sequence,
                incarnation: "test".to_owned(),
                event: Event::new(&self.topic, key, "test.versioned", &json!({ "n": version })).unwrap(),
            };
            let lane = outgoing.lane;
            for published in self.sink.publish(lane, &[outgoing], &Position(Vec::new())).await {
                published.unwrap();
            }
        }
    }
}

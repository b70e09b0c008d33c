//! History is run again on purpose, and not by accident.

use semel::operator::Audit;
use semel::source::Recognition::{self, Id, Sequence};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::poll::until;

use super::broker::Broker;
use super::load::Load;
use super::stage::{Applying, Effect, Stage, exactly};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_generation_applies_the_history_of_nats_again_on_postgres() {
    applied_again::<Postgres>(Broker::nats().await, Id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_generation_applies_the_history_of_nats_again_on_sqlite() {
    applied_again::<Sqlite>(Broker::nats().await, Sequence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_generation_applies_the_history_of_redis_again() {
    applied_again::<Sqlite>(Broker::redis().await, Id).await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_generation_applies_the_history_of_kafka_again() {
    applied_again::<Postgres>(Broker::kafka().await, Recognition::Offset).await;
}

async fn applied_again<S: Applying>(broker: Broker, by: Recognition) {
    assert!(broker.has_history);
    let stage = Stage::<S>::set(broker).await;
    let mut relay = stage.relay().start().await;
    let mut consumer = stage.consumer(by).start().await;
    let mut load = Load::start(&stage.producer);
    load.grows_by(50).await;
    load.end().await;
    stage.applied("in the first generation").await;

    let audit = Audit { actor: "tester".to_owned(), reason: "run history again".to_owned() };
    assert_eq!(stage.store.replay_consumer(&stage.name, &audit, false).await.unwrap(), Some(1));
    let committed = stage.producer.committed();
    until("all of it is applied in the second generation", async || {
        exactly(&committed, &of_generation(&stage, 1).await).is_ok()
    })
    .await;
    // Started again, the same generation does nothing.
    consumer.kill9().await;
    let mut consumer = stage.consumer(by).start().await;
    stage.all_behind().await;
    let committed = stage.producer.committed();
    until("everything new is applied in the second generation", async || {
        exactly(&committed, &of_generation(&stage, 1).await).is_ok()
    })
    .await;
    let first = of_generation(&stage, 0).await;
    assert_eq!(first.len() + committed.len(), of_generation(&stage, 1).await.len(), "the first got nothing new");
    assert!(consumer.terminate().await.success());
    assert!(relay.terminate().await.success());
}

async fn of_generation<S: Applying>(stage: &Stage<S>, generation: u32) -> Vec<Effect> {
    stage.store.effects().await.into_iter().filter(|effect| effect.generation == generation).collect()
}

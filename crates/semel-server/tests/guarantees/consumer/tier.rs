//! Tiers in front of the inbox are flushed, gone, lying and saturated while consumers work and are killed, and nothing
//! changes.

use semel::Consumer;
use semel::failpoint::{CONSUMER_COMMITTED, CONSUMER_RECEIVED};
use semel::source::Recognition::Id;
use semel::tier::Tier;
use semel_brokers::redis::RedisTier;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::poll::{PATIENCE, until};
use semel_testkit::redis::Redis;

use super::broker::Broker;
use super::load::Load;
use super::process::{Kind, Plan, outcomes};
use super::stage::{AGAIN_AFTER, Applying, Effect, Stage, exactly};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_flushed_gone_and_lying_changes_nothing_on_postgres() {
    whatever_becomes_of_redis::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_flushed_gone_and_lying_changes_nothing_on_sqlite() {
    whatever_becomes_of_redis::<Sqlite>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saturated_filter_changes_nothing_on_postgres() {
    saturated::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saturated_filter_changes_nothing_on_sqlite() {
    saturated::<Sqlite>().await;
}

/// What becomes of Redis in the middle of a run.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Flushed,
    Gone,
    Back,
}

impl Trouble {
    fn befall(self, redis: &mut Redis) {
        match self {
            Trouble::Flushed => redis.order("FLUSHALL").unwrap(),
            Trouble::Gone => redis.kill().unwrap(),
            Trouble::Back => redis.restart().unwrap(),
        }
    }
}

async fn whatever_becomes_of_redis<S: Applying>() {
    let mut redis = Redis::temporary().unwrap();
    let stage = Stage::<S>::set(Broker::nats().await).await;
    let mut relay = stage.relay().start().await;
    let mut load = Load::start(&stage.producer);
    let plan = stage.consumer(Id).behind(&patient(&redis));
    for trouble in [Trouble::Flushed, Trouble::Gone, Trouble::Back] {
        killed_at(&plan, CONSUMER_COMMITTED).await;
        let mut successor = plan.start().await;
        until("the successor applies messages", async || outcomes(&successor, "applied").await > 0.0).await;
        trouble.befall(&mut redis);
        load.grows_by(20).await;
        until("what was committed and not acknowledged comes again", async || {
            outcomes(&successor, "duplicate").await > 0.0
        })
        .await;
        assert!(successor.terminate().await.success());
    }
    load.end().await;
    let mut last = plan.start().await;
    stage.all_behind().await;
    let effects = stage.applied("in the end").await;
    let tier = RedisTier::connect(&patient(&redis)).await.unwrap();
    until("the tier knows the last messages again", async || {
        let ids = ids(&effects[effects.len() - 1..]);
        tier.maybe_seen(&named(&stage.name), &ids).await == [true]
    })
    .await;
    assert!(last.terminate().await.success());

    // Another consumer, on a database of its own, of whose messages the tier says that all were seen.
    let liars = format!("{}-too", stage.name);
    tier.note(&named(&liars), &ids(&effects)).await;
    assert!(tier.maybe_seen(&named(&liars), &ids(&effects)).await.iter().all(|seen| *seen));
    let (_home, url, store) = S::create().await;
    store.prepare().await;
    let source = stage.broker.source_url(AGAIN_AFTER);
    let mut deceived = Plan::new(&url, &source, &liars, Id).behind(&patient(&redis)).start().await;
    until("everything is applied all the same", async || store.effects().await.len() >= effects.len()).await;
    exactly(&stage.producer.committed(), &store.effects().await).unwrap();
    assert!(deceived.terminate().await.success());
    assert!(relay.terminate().await.success());
}

async fn saturated<S: Applying>() {
    let stage = Stage::<S>::set(Broker::nats().await).await;
    let mut relay = stage.relay().start().await;
    let load = Load::start(&stage.producer);
    let plan = stage.consumer(Id).behind("saturated");
    for _ in 0..3 {
        killed_at(&plan, CONSUMER_COMMITTED).await;
    }
    load.end().await;
    let mut last = plan.start().await;
    stage.all_behind().await;
    stage.applied("in the end").await;
    until("what was committed and not acknowledged comes again", async || outcomes(&last, "duplicate").await > 0.0)
        .await;
    stage.applied("with all that came again").await;
    assert!(last.terminate().await.success());
    assert!(relay.terminate().await.success());
}

/// The control: whoever believes a tier loses what it noted and did not apply, and applies again what it forgot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_believes_its_tier_loses_messages_and_applies_others_twice() {
    let redis = Redis::temporary().unwrap();
    let stage = Stage::<Sqlite>::set(Broker::nats().await).await;
    let mut relay = stage.relay().start().await;
    let load = Load::start(&stage.producer);
    let plan = stage.consumer(Id).of_kind(Kind::TrustsTheTier).behind(&patient(&redis));
    killed_at(&plan, CONSUMER_COMMITTED).await;
    redis.order("FLUSHALL").unwrap();
    let mut successor = plan.start().await;
    until("what was committed and not acknowledged is applied again", async || {
        exactly(&[].into(), &stage.store.effects().await).is_err_and(|told| told.contains("doubled"))
    })
    .await;
    assert!(successor.terminate().await.success());

    killed_at(&plan, CONSUMER_RECEIVED).await;
    load.end().await;
    let mut last = plan.start().await;
    stage.all_behind().await;
    stage.published().await;
    let told = exactly(&stage.producer.committed(), &stage.store.effects().await).unwrap_err();
    assert!(told.contains("lost"), "{told}");
    assert!(last.terminate().await.success());
    assert!(relay.terminate().await.success());
}

/// Starts a consumer, and kills it at a point that it has passed a few times.
async fn killed_at(plan: &Plan, point: &str) {
    let mut control = Control::listen().await;
    let mut doomed = plan.clone().armed(point, 3, &control).start().await;
    let parked = control.reached(point, PATIENCE).await;
    doomed.kill9().await;
    drop(parked);
}

/// A tier that waits long enough for an answer on a busy machine.
fn patient(redis: &Redis) -> String {
    format!("{}?answer_ms=2000", redis.url())
}

fn named(consumer: &str) -> Consumer {
    Consumer::new(consumer).unwrap()
}

fn ids(effects: &[Effect]) -> Vec<&str> {
    effects.iter().map(|effect| effect.id.as_str()).collect()
}

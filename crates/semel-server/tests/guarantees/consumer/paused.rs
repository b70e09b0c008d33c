//! A consumer stands still for longer than its broker waits, another gets its messages, and it wakes up.

use semel::failpoint::{CONSUMER_COMMITTED, CONSUMER_EFFECT_DONE, CONSUMER_RECEIVED};
use semel::source::Recognition::{self, Id, Sequence};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::poll::{PATIENCE, until};

use super::broker::Broker;
use super::load::Load;
use super::process::outcomes;
use super::stage::{Applying, Stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_late_commit_of_a_consumer_on_nats_doubles_nothing_on_postgres() {
    for point in [CONSUMER_RECEIVED, CONSUMER_EFFECT_DONE, CONSUMER_COMMITTED] {
        paused_at::<Postgres>(Broker::nats().await, Id, point).await;
    }
}

/// A process that stands still inside a transaction has the file to itself, so there is no such point.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_late_commit_of_a_consumer_on_nats_doubles_nothing_on_sqlite() {
    for point in [CONSUMER_RECEIVED, CONSUMER_COMMITTED] {
        paused_at::<Sqlite>(Broker::nats().await, Sequence, point).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_late_commit_of_a_consumer_on_redis_doubles_nothing_on_postgres() {
    for point in [CONSUMER_RECEIVED, CONSUMER_EFFECT_DONE, CONSUMER_COMMITTED] {
        paused_at::<Postgres>(Broker::redis().await, Sequence, point).await;
    }
}

async fn paused_at<S: Applying>(broker: Broker, by: Recognition, point: &str) {
    let stage = Stage::<S>::set(broker).await;
    let mut relay = stage.relay().start().await;
    let mut control = Control::listen().await;
    let mut plan = stage.consumer(by);
    // A transaction whose process stands still ends by itself within this time, and the other can go on.
    plan.deadline_ms = 2_000;
    let mut paused = plan.clone().armed(point, 2, &control).start().await;
    let mut load = Load::start(&stage.producer);
    let parked = control.reached(point, PATIENCE).await;
    paused.stop_while(|| S::is_free(&stage.home)).await;
    let mut other = plan.start().await;
    load.grows_by(20).await;
    load.end().await;
    stage.applied(&format!("paused at {point}")).await;
    if point == CONSUMER_COMMITTED {
        until("what the paused one committed comes to the other", async || outcomes(&other, "duplicate").await > 0.0)
            .await;
    }

    paused.cont();
    parked.release().await;
    // The one that was paused works on what it had, and with the other on what is new.
    stage.all_behind().await;
    stage.applied(&format!("back again after {point}")).await;
    assert!(paused.terminate().await.success());
    stage.all_behind().await;
    stage.applied(&format!("ended after {point}")).await;
    assert!(other.terminate().await.success());
    assert!(relay.terminate().await.success());
}

//! Lanes pass from relay to relay.

use semel::outbox::LANES;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::collector::{Collector, Receiver};

use super::load::Load;
use super::stage::{Counting, Stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_join_leave_and_die_share_the_lanes_of_postgres_without_a_gap() {
    shared::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_join_leave_and_die_share_the_lanes_of_sqlite_without_a_gap() {
    shared::<Sqlite>().await;
}

async fn shared<S: Counting>() {
    let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
    let (all, half) = (u64::from(LANES), u64::from(LANES / 2));
    let mut plan = stage.plan();
    // Long enough that nobody loses it on a busy machine.
    plan.lease_ms = 3_000;
    let load = Load::start(&stage.writer);
    let mut first = plan.start().await;
    stage.divided(&[all]).await;
    let mut second = plan.start().await;
    stage.divided(&[half, half]).await;
    assert!(first.terminate().await.success());
    stage.divided(&[all]).await;
    let mut third = plan.start().await;
    stage.divided(&[half, half]).await;
    // Nobody was killed yet: a hand-over in good order repeats nothing.
    load.end().await;
    assert_eq!(stage.checked("after hand-overs").await.duplicates, 0);

    let mut load = Load::start(&stage.writer);
    load.reaches(20).await;
    second.kill9().await;
    stage.divided(&[all]).await;
    let reached = load.written();
    load.reaches(reached + 20).await;
    load.end().await;
    stage.checked("after a relay died").await;
    assert!(third.terminate().await.success());
    assert_eq!(stage.relays().await, [], "who leaves in good order is not missed");
}

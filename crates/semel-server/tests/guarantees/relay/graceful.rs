//! A relay that is told to stop.

use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::collector::{Collector, Receiver};
use semel_testkit::counts::rounds;

use super::load::Load;
use super::stage::{Counting, Stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_stopped_under_load_repeat_nothing_on_postgres() {
    stopped_under_load::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_stopped_under_load_repeat_nothing_on_sqlite() {
    stopped_under_load::<Sqlite>().await;
}

async fn stopped_under_load<S: Counting>() {
    let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
    let mut plan = stage.plan();
    // Nobody is to lose a lease on a busy machine.
    plan.lease_ms = 60_000;
    let mut load = Load::start(&stage.writer);
    for _ in 0..rounds(2, 50) {
        let mut relay = plan.start().await;
        let reached = load.written();
        load.reaches(reached + 60).await;
        assert!(relay.terminate().await.success());
        assert_eq!(stage.relays().await, [], "the lanes are free at once");
    }
    load.end().await;
    let mut relay = plan.start().await;
    assert_eq!(stage.checked("in the end").await.duplicates, 0);
    assert!(relay.terminate().await.success());
}

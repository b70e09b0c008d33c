//! The broker is down while business goes on.

use semel::outbox::Backlog;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::collector::{Collector, NatsStream};
use semel_testkit::nats::Nats;
use semel_testkit::poll::until;

use super::load::Load;
use super::process::metric;
use super::stage::{Counting, Stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn business_on_postgres_goes_on_without_a_broker_and_everything_follows() {
    without_a_broker::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn business_on_sqlite_goes_on_without_a_broker_and_everything_follows() {
    without_a_broker::<Sqlite>().await;
}

async fn without_a_broker<S: Counting>() {
    let mut server = Nats::temporary().unwrap();
    let stage = Stage::<S>::set(Collector::Nats(NatsStream::create_on(server.url()).await)).await;
    let mut relay = stage.plan().start().await;
    // A transaction that fails ends the test.
    let mut load = Load::start(&stage.writer);
    load.reaches(100).await;

    tokio::task::block_in_place(|| server.kill()).unwrap();
    let down_at = load.written();
    load.reaches(down_at + 300).await;
    let early = stage.store.backlog().await.unwrap();
    load.reaches(down_at + 600).await;
    let late = stage.store.backlog().await.unwrap();
    assert!(late.events > early.events && age_ms(late) > age_ms(early), "{early:?}, then {late:?}");
    assert!(late.events >= 500, "{late:?}");
    until("the metrics tell", async || {
        metric(&relay, "semel_outbox_backlog").await >= 500.0
            && metric(&relay, "semel_outbox_oldest_seconds").await > 0.0
    })
    .await;
    assert_eq!((late.retrying_keys, late.parked_keys), (0, 0), "it is no event's fault");

    tokio::task::block_in_place(|| server.restart()).unwrap();
    load.end().await;
    let tally = stage.checked("in the end").await;
    assert!(tally.events >= 700, "{tally:?}");
    let backlog = stage.store.backlog().await.unwrap();
    assert_eq!((backlog.retrying_keys, backlog.parked_keys), (0, 0), "nothing was parked");
    until("the metrics tell", async || metric(&relay, "semel_outbox_backlog").await == 0.0).await;
    assert!(relay.terminate().await.success());
}

fn age_ms(backlog: Backlog) -> i64 {
    backlog.oldest_ms.map_or(0, |oldest_ms| backlog.now_ms - oldest_ms)
}

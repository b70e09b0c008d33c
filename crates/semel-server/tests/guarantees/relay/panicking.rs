//! Something of a relay panics.

use std::time::Duration;

use semel::failpoint::{RELAY_BEFORE_PUBLISH, RELAY_HANDING_OVER, RELAY_PUBLISHED, RELAY_TAKEN_OVER};
use semel::outbox::LANES;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::collector::{Collector, Receiver};
use semel_testkit::process::Service;

use super::stage::{Counting, Stage};
use crate::world::SEMEL;

/// `semel run` with a point at which it panics.
async fn run<S: Counting>(stage: &Stage<S>, panics: &str) -> Service {
    let sink = stage.collector.sink_url();
    let arguments = ["run", "--sink", &sink, "--metrics-listen", "127.0.0.1:0", "--database-url", &stage.url];
    Service::spawn(SEMEL, &arguments, &[("FAILPOINTS", panics), ("SEMEL_RELAY_LEASE", "1s")]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_panics_takes_its_process_along_with_an_error_on_postgres() {
    relay_panics::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_panics_takes_its_process_along_with_an_error_on_sqlite() {
    relay_panics::<Sqlite>().await;
}

/// Other roles would go on without it, and nobody who supervises the process would see that events wait.
async fn relay_panics<S: Counting>() {
    let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
    let mut running = run(&stage, &format!("{RELAY_HANDING_OVER}=panic")).await;
    stage.divided(&[LANES.into()]).await;
    // It has to give lanes up, which is where it panics.
    stage.store.join_relays("another", Duration::from_secs(600)).await.unwrap();
    let ended = running.wait().await;
    assert!(!ended.success(), "{ended}: {}", running.output());
    assert!(running.output().contains("panicked"), "{}", running.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_a_relay_that_panics_leaves_no_lane_behind_on_postgres() {
    task_panics::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_a_relay_that_panics_leaves_no_lane_behind_on_sqlite() {
    task_panics::<Sqlite>().await;
}

/// The relay joins anew and goes on where the lanes stand; none is its own and forgotten.
async fn task_panics<S: Counting>() {
    for point in [RELAY_TAKEN_OVER, RELAY_BEFORE_PUBLISH, RELAY_PUBLISHED] {
        let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
        let mut running = run(&stage, &format!("{point}=1*panic")).await;
        for n in 0..20 {
            stage.writer.write(&[format!("key-{n}")], false).await;
        }
        let tally = stage.checked(point).await;
        assert_eq!(tally.events, 20, "{point}: {tally:?}");
        assert!(running.output().contains("panicked"), "{point}: {}", running.output());
        assert!(running.terminate().await.success(), "{point}");
    }
}

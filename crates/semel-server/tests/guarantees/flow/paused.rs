//! A sandbox is stopped around a call for longer than its lease, another finishes the order, and the first wakes up.

use semel::failpoint::{FLOW_CALLED, FLOW_INTENDED};
use semel::flow::FlowState;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::counts::rounds;
use semel_testkit::poll::{PATIENCE, until};

use super::stage::{Flowing, Stage};
use crate::relay::process::metric;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_after_takeover_commits_nothing_and_charges_nobody_on_postgres() {
    stopped_past_its_lease::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_after_takeover_commits_nothing_and_charges_nobody_on_sqlite() {
    stopped_past_its_lease::<Sqlite>().await;
}

async fn stopped_past_its_lease<S: Flowing>() {
    let stage = Stage::<S>::set(&[], &[]).await;
    let mut orders = 0;
    for round in 0..rounds(1, 20) {
        for point in [FLOW_INTENDED, FLOW_CALLED] {
            let key = format!("{point}-{round}");
            let mut control = Control::listen().await;
            let mut late = stage.start_armed(point, 0, &control).await;
            let placing = late.placing(&key);
            let waiting = tokio::spawn(async move { placing.once().await.unwrap() });
            let parked = control.reached(point, PATIENCE).await;
            late.service.stop_while(|| S::is_free(&stage.home)).await;

            let mut other = stage.start().await;
            stage.until_all(&[&key], FlowState::Completed).await;
            orders += 1;
            stage.once_each(&other, orders, point).await;
            let finished = stage.order(&key).await;
            let answer = other.placing(&key).once().await.unwrap();
            assert_eq!((answer.status, answer.replayed), (201, true), "{point}: {answer:?}");

            late.service.cont();
            parked.release().await;
            until("the late worker is out", async || {
                let told = late.service.output().contains("another worker took over");
                told || metric(&late.service, "semel_fenced_writes_total").await > 0.0
            })
            .await;
            let told = waiting.await.unwrap();
            assert_eq!(told.status, 409, "{point}: the late worker has no answer of its own: {told:?}");
            let again = late.placing(&key).until_answered().await;
            assert_eq!((again.replayed, &again.body), (true, &answer.body), "{point}");

            // Whatever it still sent was under the key that the other one used, so the provider did it once. How often
            // that was depends on how often the order was taken up between two stops.
            let sent = stage.outside.received_under(&stage.charged_under(&key).await).await;
            assert!(sent >= if point == FLOW_CALLED { 2 } else { 1 }, "{point}: sent {sent} times");
            assert_eq!(stage.outside.keys().await, 2 * orders, "one key for each charge and each mail");
            assert_eq!(stage.order(&key).await, finished, "{point}: the late worker wrote something");
            stage.once_each(&other, orders, "back again").await;
            late.service.terminate().await;
            other.service.terminate().await;
        }
    }
}

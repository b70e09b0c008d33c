//! The process is killed at every failpoint, restarted, and asked again with the same key.

use semel::failpoint;
use semel_testkit::control::Control;
use semel_testkit::counts::rounds;

use crate::world::{AMOUNT, Database, PATIENCE, Sandbox, charge};

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_a_charge_on_postgres_counts_once() {
    killed_at_every_point(&Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_a_charge_on_sqlite_counts_once() {
    killed_at_every_point(&Database::sqlite()).await;
}

async fn killed_at_every_point(database: &Database) {
    let mut sandbox = Sandbox::start(&database.url(), &[]).await;
    sandbox.open_account("alice").await;
    sandbox.service.terminate().await;

    let mut charged = 0;
    for round in 0..rounds(1, 20) {
        for point in failpoint::ALL {
            let key = format!("{point}-{round}");
            let mut control = Control::listen().await;
            let mut doomed = Sandbox::start_armed(&database.url(), point, &control, &[]).await;
            let (client, url) = (doomed.client.clone(), doomed.service.url("/charges"));
            let asked = key.clone();
            let unanswered = tokio::spawn(async move { charge(&client, &url, "demo-a1", &asked, "alice").await });
            let parked = control.reached(point, PATIENCE).await;
            assert_eq!(parked.point(), *point);
            doomed.service.kill9().await;
            assert!(unanswered.await.unwrap().is_err(), "nobody answers from the grave");

            let mut successor = Sandbox::start(&database.url(), &[]).await;
            let answer = successor.charge_until_answered(&key).await;
            assert_eq!(answer.status, 201, "{point}: {answer:?}");
            match *point {
                failpoint::COMMIT_ACKNOWLEDGED | failpoint::ANSWER_HALF_WRITTEN => {
                    assert!(answer.replayed, "what was committed before {point} is replayed");
                }
                // The COMMIT was on its way: whether it arrived, the key tells.
                failpoint::COMMIT_SENT => {}
                _ => assert!(!answer.replayed, "nothing was committed before {point}"),
            }
            charged += 1;
            let again = successor.charge(&key).await;
            assert!(again.replayed && again.body == answer.body, "{point}: {again:?}");
            assert_eq!(successor.balance("alice").await, charged * AMOUNT, "after a kill at {point}");
            let summary = successor.summary().await;
            assert_eq!((&summary["charges"], &summary["sum"]), (&charged.into(), &0.into()), "after {point}");
            successor.service.terminate().await;
        }
    }
}

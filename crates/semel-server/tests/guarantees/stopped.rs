//! A process is stopped in the middle of its transaction.

use std::time::{Duration, Instant};

use semel::failpoint::FIRST_STATEMENT_DONE;
use semel_testkit::control::Control;
use semel_testkit::database::TempDatabase;

use crate::world::{AMOUNT, PATIENCE, Sandbox, charge};

const DEADLINE: &str = "2s";

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_frees_its_key_within_the_deadline_and_its_late_commit_fails() {
    let database = TempDatabase::create().await;
    let other = Sandbox::start(&database.url(), &[]).await;
    other.open_account("alice").await;
    let mut control = Control::listen().await;
    let deadline = [("SEMEL_TRANSACTION_DEADLINE", DEADLINE)];
    let stopped = Sandbox::start_armed(&database.url(), FIRST_STATEMENT_DONE, &control, &deadline).await;
    let (client, url) = (stopped.client.clone(), stopped.service.url("/charges"));
    let late = tokio::spawn(async move { charge(&client, &url, "demo-a1", "k", "alice").await.unwrap() });
    let parked = control.reached(FIRST_STATEMENT_DONE, PATIENCE).await;
    stopped.service.stop().await;

    assert_eq!(other.charge("k").await.status, 409, "the stopped process still holds the key");
    let since = Instant::now();
    let answer = other.charge_until_answered("k").await;
    assert_eq!((answer.status, answer.replayed), (201, false));
    // Twice the deadline is far from the minute that a forgotten timeout would take.
    assert!(since.elapsed() < Duration::from_secs(20), "the key came free after {:?}", since.elapsed());

    stopped.service.cont();
    parked.release().await;
    let late = late.await.unwrap();
    assert!(late.status != 201 || late.replayed, "the late commit must fail: {late:?}");
    assert_eq!(other.balance("alice").await, AMOUNT);
    assert_eq!(other.summary().await["charges"], 1);
}

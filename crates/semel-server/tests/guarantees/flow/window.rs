//! A provider that forgets keys: when its window is over, what became of a call is looked up, and it is not sent again.

use semel::failpoint::FLOW_CALLED;
use semel::flow::FlowState;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;

use super::stage::{Flowing, Stage};

/// At the provider: over by the time that anybody could come back.
const FORGETS_AT_ONCE: [&str; 2] = ["--keys", "1"];

/// The same in the profile: a window that is no longer than its margin is as good as over.
const SHORT: (&str, &str) = ("SEMEL_PROVIDER_KEYS", "5m");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_window_a_charge_is_looked_up_and_not_resent_on_postgres() {
    looked_up::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_window_a_charge_is_looked_up_and_not_resent_on_sqlite() {
    looked_up::<Sqlite>().await;
}

async fn looked_up<S: Flowing>() {
    let stage = Stage::<S>::set(&FORGETS_AT_ONCE, &[SHORT]).await;
    stage.kill_at(FLOW_CALLED, "k").await;
    let charged_under = stage.charged_under("k").await;
    assert_eq!((stage.outside.count("charge").await, stage.outside.look_ups().await), (1, 0));
    let successor = stage.start().await;
    stage.until_all(&["k"], FlowState::Completed).await;
    assert!(stage.outside.look_ups().await > 0, "it was looked up");
    assert_eq!(stage.outside.received_under(&charged_under).await, 1, "it was sent once");
    stage.once_each(&successor, 1, "past the window").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_window_a_charge_that_cannot_be_looked_up_is_held_on_postgres() {
    held::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_window_a_charge_that_cannot_be_looked_up_is_held_on_sqlite() {
    held::<Sqlite>().await;
}

async fn held<S: Flowing>() {
    let flags = [FORGETS_AT_ONCE.as_slice(), &["--no-look-up"]].concat();
    let stage = Stage::<S>::set(&flags, &[SHORT, ("SEMEL_PROVIDER_LOOK_UP", "false")]).await;
    stage.kill_at(FLOW_CALLED, "k").await;
    let successor = stage.start().await;
    stage.until_all(&["k"], FlowState::Held).await;
    assert_eq!(successor.placing("k").once().await.unwrap().status, 409);
    let charged_under = stage.charged_under("k").await;
    assert_eq!((stage.outside.received_under(&charged_under).await, stage.outside.count("charge").await), (1, 1));
}

/// The control: a profile that promises more than the provider keeps. The same kill charges twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_that_promises_too_much_is_found_out() {
    let stage = Stage::<Sqlite>::set(&FORGETS_AT_ONCE, &[("SEMEL_PROVIDER_KEYS", "forever")]).await;
    stage.kill_at(FLOW_CALLED, "k").await;
    let _successor = stage.start().await;
    stage.until_all(&["k"], FlowState::Completed).await;
    assert_eq!((stage.outside.count("charge").await, stage.outside.repeated_keys().await), (2, 1));
}

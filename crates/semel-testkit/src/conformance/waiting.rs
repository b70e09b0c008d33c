//! Waiting for a run in flight, bounded.

use std::time::Duration;

use semel::{Claim, Error, Key, Tx};

use super::harness::{Harness, Lab, reply};

const LONG: Duration = Duration::from_secs(20);

/// The one who waits gets the first one's answer.
pub async fn a_waiting_request_replays_when_the_first_completes<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let Claim::Fresh(mut tx) = lab.semel.claim(&lab.ask(&key)).await.unwrap() else { panic!("the key is new") };
    H::insert(&mut tx, key.as_str()).await.unwrap();
    let (semel, ask) = (lab.semel.clone(), lab.ask(&key).waiting(LONG));
    let waiting = tokio::spawn(async move { semel.claim(&ask).await });
    tokio::task::yield_now().await;
    lab.semel.finish(&lab.ask(&key), tx, &reply(201, &key)).await.unwrap();
    let mut claim = waiting.await.unwrap().unwrap();
    if H::OLD_SNAPSHOTS
        && let Claim::Fresh(mut late) = claim
    {
        H::insert(&mut late, key.as_str()).await.unwrap();
        let refused = lab.semel.finish(&lab.ask(&key), late, &reply(202, &key)).await.unwrap_err();
        assert!(matches!(refused, Error::Raced | Error::Conflict(_)), "{refused:?}");
        claim = lab.semel.claim(&lab.ask(&key)).await.unwrap();
    }
    let Claim::Replay(recorded) = claim else { panic!("the first one completed") };
    assert_eq!(recorded.reply, reply(201, &key));
    assert_eq!(lab.effects(&key).await, 1);
}

/// Or the right to run, if the first one gave up.
pub async fn a_waiting_request_runs_when_the_first_rolls_back<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let Claim::Fresh(tx) = lab.semel.claim(&lab.ask(&key)).await.unwrap() else { panic!("the key is new") };
    let (semel, ask) = (lab.semel.clone(), lab.ask(&key).waiting(LONG));
    let waiting = tokio::spawn(async move { semel.claim(&ask).await });
    tokio::task::yield_now().await;
    tx.rollback().await;
    let Claim::Fresh(tx) = waiting.await.unwrap().unwrap() else { panic!("the first one rolled back") };
    tx.rollback().await;
}

/// Nobody waits for ever.
pub async fn a_wait_that_is_over_answers_in_flight<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let Claim::Fresh(tx) = lab.semel.claim(&lab.ask(&key)).await.unwrap() else { panic!("the key is new") };
    let impatient = lab.ask(&key).waiting(Duration::from_millis(50));
    assert!(matches!(lab.semel.claim(&impatient).await.unwrap(), Claim::InFlight { .. }));
    tx.rollback().await;
}

//! What happens when an event, the broker or the password is bad.

use semel::sink::{Error, Outgoing};
use semel::{Event, Sink};

use super::arrival::{all_published, in_order};
use super::{Harness, batch, outgoing, publish};

/// A poison event blocks its key, not its lane (I5): its successors stay behind, other keys go on, and once it is out
/// of the way its key goes on too.
pub async fn a_refused_event_holds_back_its_key_and_no_other<H: Harness>() {
    let harness = H::shared().await;
    let sink = harness.connect().await;
    let mut arriving = Vec::new();
    let mut sequence = 0;
    for (number, poison) in harness.refused("poisoned").await.into_iter().enumerate() {
        let mut next = |key: &str| {
            sequence += 1;
            let event = Event::bytes(harness.topic(), key, "test.counted", "text/plain", sequence.to_string()).unwrap();
            outgoing(1, sequence, event)
        };
        let before = [next("poisoned"), next("healthy")];
        let poison = outgoing(1, 1_000_000, poison);
        let after = [next("poisoned"), next("healthy"), next("poisoned"), next("late")];
        let sent: Vec<Outgoing> = before.iter().chain([&poison]).chain(&after).cloned().collect();

        let results = publish(&sink, &sent).await;
        let shape: Vec<&str> = results.iter().map(|result| shape(result)).collect();
        let expected = ["published", "published", "refused", "behind", "published", "behind", "published"];
        assert_eq!(shape, expected, "for refused event number {number}: {results:?}");

        let behind = [after[0].clone(), after[2].clone()];
        all_published(&publish(&sink, &behind).await);
        arriving.extend(before.into_iter().chain([after[1].clone(), after[3].clone()]).chain(behind));
    }
    assert!(!arriving.is_empty(), "the broker refuses something");
    sink.close().await;
    let arrived = harness.arrived().await;
    assert_eq!(arrived.len(), arriving.len());
    in_order(&arriving, &arrived);
}

/// I4: what was acknowledged is there after a crash of the broker, what was not is published by sending it again, and
/// the order of each key survives. The sink finds the broker again by itself.
pub async fn a_broker_killed_in_the_middle_loses_nothing_and_keeps_order<H: Harness>() {
    let mut harness = H::own().await;
    let sink = harness.connect().await;
    let topic = harness.topic();
    let mut sent = batch(&topic, 4, 0..200, 20);
    all_published(&publish(&sink, &sent).await);

    let cut = batch(&topic, 4, 200..6200, 300);
    let (results, ()) = tokio::join!(publish(&sink, &cut), async { harness.kill() });
    let unacknowledged = retried(&cut, &results);
    let while_down = batch(&topic, 4, 6200..6400, 20);
    let refused = publish(&sink, &while_down).await;
    assert_eq!(retried(&while_down, &refused).len(), while_down.len(), "nobody was there to acknowledge: {refused:?}");

    harness.restart().await;
    if !unacknowledged.is_empty() {
        all_published(&publish(&sink, &unacknowledged).await);
    }
    all_published(&publish(&sink, &while_down).await);
    sink.close().await;
    sent.extend(cut.into_iter().chain(while_down));
    in_order(&sent, &harness.arrived().await);
}

/// A wrong password is an error at once, and the error does not tell it to whoever reads the logs.
pub async fn wrong_credentials_are_refused_without_telling_them<H: Harness>() {
    let harness = H::shared().await;
    let error = harness.connect_with_password("wrong-hush-hush").await.expect_err("the password is wrong");
    assert!(!error.contains("hush"), "the error tells the password: {error}");
    let lower = error.to_lowercase();
    assert!(["refuse", "auth", "password", "credential"].iter().any(|word| lower.contains(word)), "{error}");
}

/// The events that a relay would send again. None was refused, for the broker's absence is no event's fault.
fn retried(batch: &[Outgoing], results: &[Result<(), Error>]) -> Vec<Outgoing> {
    let mut again = Vec::new();
    for (outgoing, result) in batch.iter().zip(results) {
        match result {
            Ok(()) => {}
            Err(Error::Unavailable(_) | Error::Behind) => again.push(outgoing.clone()),
            Err(other) => panic!("the broker is down, and the answer is {other:?}"),
        }
    }
    again
}

fn shape(result: &Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "published",
        Err(Error::Refused(_)) => "refused",
        Err(Error::Behind) => "behind",
        Err(Error::Unavailable(_)) => "unavailable",
        Err(_) => "another error",
    }
}

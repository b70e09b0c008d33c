//! What comes again, and what does not.

use std::collections::BTreeSet;

use semel::Source;

use super::{Harness, marker, numbered, receive, settle_all, take};

/// A process that dies has acknowledged what it has acknowledged: the rest comes to the next one.
pub async fn what_is_not_acknowledged_comes_again_after_a_crash_and_the_rest_does_not<H: Harness>() {
    let harness = H::shared().await;
    let source = harness.open("crashing", 0).await;
    harness.publish(&numbered(&harness.topic(), 0..20)).await;
    let mut taken = take(&source, 20).await;
    assert_eq!(ids(&taken).len(), 20);
    // The first ones that were received: a partition is acknowledged up to a place.
    let unacknowledged = taken.split_off(12);
    settle_all(&source, &taken).await;
    let lost = ids(&unacknowledged);
    harness.acknowledged(&source, taken.len()).await;
    drop((taken, unacknowledged));
    drop(source);

    let next = harness.open("crashing", 0).await;
    let marker = marker(&harness.topic());
    harness.publish(std::slice::from_ref(&marker)).await;
    let expected: BTreeSet<String> = lost.into_iter().chain([marker.id.to_string()]).collect();
    assert_eq!(all_until(&next, &expected).await, expected);
    next.close().await;
}

/// What is given back comes again to whoever receives next, and what is acknowledged does not.
pub async fn what_is_given_back_comes_again<H: Harness>() {
    let harness = H::shared().await;
    let source = harness.open("giving", 0).await;
    harness.publish(&numbered(&harness.topic(), 0..10)).await;
    let mut taken = take(&source, 10).await;
    let back = taken.split_off(7);
    settle_all(&source, &taken).await;
    source.give_back(&back.iter().map(|(_, receipt)| receipt).collect::<Vec<_>>()).await.unwrap();
    let expected = ids(&back);
    assert_eq!(all_until(&source, &expected).await, expected);
    source.close().await;
}

/// While a message is worked on it goes to nobody else, however long that takes, and when nobody works on it any more
/// it does.
pub async fn what_is_prolonged_goes_to_nobody_else<H: Harness>() {
    let harness = H::shared().await;
    let (worker, other) = (harness.open("working", 0).await, harness.open("working", 0).await);
    let every = worker.prolong_every().expect("this source has to be told");
    harness.publish(&numbered(&harness.topic(), 0..1)).await;
    let taken = take(&worker, 1).await;
    let receipts: Vec<_> = taken.iter().map(|(_, receipt)| receipt).collect();
    // Several times as long as a message may be left alone.
    let working = async {
        let mut turn = tokio::time::interval(every);
        for _ in 0..12 {
            turn.tick().await;
            worker.prolong(&receipts).await.unwrap();
        }
    };
    tokio::select! {
        came = receive(&other, 5) => panic!("it was being worked on, and came again: {:?}", ids(&came)),
        () = working => {}
    }
    assert_eq!(all_until(&other, &ids(&taken)).await, ids(&taken));
    worker.close().await;
    other.close().await;
}

/// Receives and acknowledges until all of `expected` came, and says what came.
pub(super) async fn all_until<S: Source>(source: &S, expected: &BTreeSet<String>) -> BTreeSet<String> {
    let mut came = BTreeSet::new();
    while !came.is_superset(expected) {
        let taken = receive(source, 50).await;
        came.extend(ids(&taken));
        settle_all(source, &taken).await;
    }
    came
}

pub(super) fn ids<R>(taken: &[(semel::Message, R)]) -> BTreeSet<String> {
    taken.iter().map(|(message, _)| message.id.clone()).collect()
}

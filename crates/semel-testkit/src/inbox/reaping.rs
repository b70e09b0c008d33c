//! Ids are forgotten when they cannot come again, and not before.

use std::time::Duration;

use semel::Inbox;
use semel::consume::Consumed;
use semel::inbox::Rule;

use super::harness::Harness;
use super::lab::{Lab, consumer, deliver};
use super::message::{Deed, Message, id, record, sequence, versioned};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// I9, I12: never more at once than asked for, and in every generation.
pub async fn ids_past_their_retention_go_in_bounded_batches<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let old = (0..5).map(|n| id(&format!("old-{n}"))).collect::<Vec<_>>();
    for message in &old {
        lab.applies(message).await;
    }
    let next = lab.consumer.clone().in_generation(1);
    for message in &old[..2] {
        deliver::<H>(&lab.semel, &next, message).await.unwrap();
    }
    lab.harness.age(2 * HOUR).await;
    let new = [id("new-0"), id("new-1")];
    for message in &new {
        lab.applies(message).await;
    }
    assert_eq!([reap(&lab, 3).await, reap(&lab, 3).await, reap(&lab, 3).await, reap(&lab, 3).await], [3, 3, 1, 0]);
    for message in &new {
        lab.is_known(message).await;
    }
    // What is forgotten is new again. That is why retention is never shorter than the longest redelivery.
    for message in &old {
        lab.applies(message).await;
    }
}

/// I9: to the hour.
pub async fn ids_within_retention_stay_known<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let messages = [id("a"), id("b")];
    lab.applies(&messages[0]).await;
    lab.harness.age(HOUR / 2).await;
    lab.applies(&messages[1]).await;
    lab.harness.age(HOUR / 2 - Duration::from_secs(60)).await;
    assert_eq!(reap(&lab, 100).await, 0);
    for message in &messages {
        lab.is_known(message).await;
    }
    lab.harness.age(Duration::from_secs(120)).await;
    // A duplicate does not make it younger, and an id that is past its retention is known until it is reaped.
    for message in &messages {
        lab.is_known(message).await;
    }
    assert_eq!(reap(&lab, 100).await, 1);
    lab.is_known(&messages[1]).await;
    lab.applies(&messages[0]).await;
}

/// Each consumer has a retention of its own.
pub async fn other_consumers_are_left_alone<H: Harness>() {
    let (lab, message) = (Lab::<H>::open().await, id("shared"));
    let others = ["receipt", "receiptss", "balances"].map(consumer);
    lab.applies(&message).await;
    for other in &others {
        deliver::<H>(&lab.semel, other, &message).await.unwrap();
    }
    lab.harness.age(2 * HOUR).await;
    assert_eq!(lab.harness.store().reap_inbox("nobody", HOUR, 100).await.unwrap(), 0);
    assert_eq!(reap(&lab, 100).await, 1);
    for other in &others {
        lab.is_known_to(other, &message).await;
    }
    lab.applies(&message).await;
}

/// I9: their space is bounded without forgetting.
pub async fn lanes_offsets_and_versions_are_kept_for_ever<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let replaced = versioned("account", 5, Rule::Latest);
    let messages = [sequence(1), sequence(7), record(0, 41), replaced.clone()];
    for message in &messages {
        lab.applies(message).await;
    }
    lab.harness.age(24 * 365 * HOUR).await;
    assert_eq!(reap(&lab, 100).await, 1, "the id of the message with a version");
    for message in &messages[..3] {
        lab.is_known(message).await;
    }
    assert_eq!(lab.deliver(&replaced.that(Deed::Panic)).await.unwrap(), Consumed::Stale);
    lab.applied_once(&messages).await;
}

/// I6: while an old proof is being forgotten its message may come again and apply. Then its new proof stays.
pub async fn a_new_proof_does_not_go_with_the_old_one<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for round in 0..crate::counts::rounds(5, 50) {
        let messages: Vec<Message> = (0..8).map(|n| id(&format!("{round} {n}"))).collect();
        for message in &messages {
            lab.applies(message).await;
        }
        lab.harness.age(2 * HOUR).await;
        let (semel, consumer, again) = (lab.semel.clone(), lab.consumer.clone(), messages.clone());
        let delivering = tokio::spawn(async move {
            let mut applied = Vec::new();
            for message in again {
                if deliver::<H>(&semel, &consumer, &message).await.unwrap() == Consumed::Applied(()) {
                    applied.push(message);
                }
            }
            applied
        });
        let mut reaped = 0;
        while reaped < messages.len() as u64 {
            reaped += reap(&lab, 1).await;
        }
        let applied = delivering.await.unwrap();
        for message in &applied {
            lab.is_known(message).await;
        }
        lab.harness.age(2 * HOUR).await;
        assert_eq!((reaped, reap(&lab, 100).await), (messages.len() as u64, applied.len() as u64));
    }
}

async fn reap<H: Harness>(lab: &Lab<H>, limit: u32) -> u64 {
    lab.harness.store().reap_inbox(lab.consumer.name(), HOUR, limit).await.unwrap()
}

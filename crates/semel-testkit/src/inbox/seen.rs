//! Looking whether messages were seen, without accepting them.

use std::time::Duration;

use semel::{Delivery, Inbox, Tx};
use tokio::time::timeout;

use super::harness::Harness;
use super::lab::Lab;
use super::message::{Kind, Message, id, record, sequence};

/// How long a look may take that has to wait for nobody.
const PROMPT: Duration = Duration::from_secs(20);

/// I6: `true` after the commit, and never after a rollback.
pub async fn what_is_committed_was_seen_and_what_is_not_was_not<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    for kind in Kind::ALL {
        for n in [1, 2] {
            let message = kind.message(n);
            assert!(!seen(&lab, &message).await, "{message:?} before");
            let (tx, _) = store.accept(&lab.consumer, std::slice::from_ref(&message.delivery)).await.unwrap();
            tx.rollback().await;
            assert!(!seen(&lab, &message).await, "{message:?} was rolled back");
            lab.applies(&message).await;
            assert!(seen(&lab, &message).await, "{message:?} was committed");
        }
    }
}

/// It says `false` of what is being accepted, and leaves no trace: what it was asked about applies.
pub async fn a_look_waits_for_nobody_and_records_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    for kind in Kind::ALL {
        // The first of a kind makes the row that the second changes.
        for n in [1, 2] {
            let message = kind.message(n);
            let (mut tx, _) = store.accept(&lab.consumer, std::slice::from_ref(&message.delivery)).await.unwrap();
            H::insert(&mut tx, &message.label).await.unwrap();
            let looked = timeout(PROMPT, seen(&lab, &message)).await;
            assert!(!looked.expect("the look waits for whoever accepts"), "{message:?} is not committed");
            store.commit_consumed(tx).await.unwrap();
            assert!(seen(&lab, &message).await, "{message:?} was committed");
            assert_eq!(lab.count(&message).await, 1);
        }
    }
    assert!(!seen(&lab, &id("never")).await);
    lab.applies(&id("never")).await;
}

/// Messages of all kinds in one look; a sequence in a hole and an offset behind the stored one were not seen.
pub async fn a_look_at_many_answers_in_their_order<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for message in [id("a"), id("b"), sequence(1), sequence(3), record(4, 6)] {
        lab.applies(&message).await;
    }
    let asked = [
        (sequence(2), false),
        (id("b"), true),
        (record(0, 6), true),
        (id("c"), false),
        (sequence(3), true),
        (record(7, 7), false),
        (id("b"), true),
        (sequence(4), false),
        (record(0, 0), true),
        (id("a"), true),
        (sequence(1), true),
    ];
    let deliveries: Vec<Delivery> = asked.iter().map(|(message, _)| message.delivery.clone()).collect();
    let answers = lab.harness.store().seen(&lab.consumer, &deliveries).await.unwrap();
    assert_eq!(answers, asked.map(|(_, seen)| seen));
    assert!(lab.harness.store().seen(&lab.consumer, &[]).await.unwrap().is_empty());
}

/// Who has seen nothing is told so, whatever others have.
pub async fn consumers_and_generations_see_for_themselves<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    let later = lab.consumer.clone().in_generation(1);
    let other = super::lab::consumer("balances");
    for kind in Kind::ALL {
        let message = kind.message(1);
        lab.applies(&message).await;
        let asked = std::slice::from_ref(&message.delivery);
        for (consumer, wanted) in [(&lab.consumer, true), (&later, false), (&other, false)] {
            assert_eq!(store.seen(consumer, asked).await.unwrap(), [wanted], "{message:?} by {consumer:?}");
        }
    }
}

async fn seen<H: Harness>(lab: &Lab<H>, message: &Message) -> bool {
    let asked = std::slice::from_ref(&message.delivery);
    let answers = lab.harness.store().seen(&lab.consumer, asked).await.unwrap();
    assert_eq!(answers.len(), 1);
    answers[0]
}

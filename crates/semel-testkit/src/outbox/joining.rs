//! Events of a transaction that the caller owns.

use semel::outbox::{MAX_EVENTS, MAX_ORDERING_KEYS};
use semel::{Event, EventId, Key, Outcome, Store};

use super::harness::{Harness, Joined};
use super::lab::{Lab, distinct, event, number};

/// I4: the caller's commit decides, also over the events.
pub async fn joined_events_commit_with_the_callers_transaction_or_not_at_all<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    // Two calls of one run count on.
    let batches = [vec![event("topic", "one", 0), event("topic", "two", 1)], vec![event("topic", "one", 2)]];
    assert!(matches!(once(&lab, &key, 201, &batches, false).await, Outcome::Fresh(_)));
    assert_eq!(lab.everything().await, []);
    assert!(matches!(once(&lab, &key, 201, &batches, true).await, Outcome::Fresh(_)));
    let execution = lab.outbox().show_key(&lab.scope, &key).await.unwrap().unwrap().execution;
    let written = lab.everything().await;
    assert_eq!(written.len(), 3);
    for event in &written {
        assert_eq!(event.id, EventId::derive(execution, u32::try_from(number(event)).unwrap()));
    }
    assert!(matches!(once(&lab, &key, 201, &batches, true).await, Outcome::Replayed(_)));
    assert_eq!(lab.everything().await, written);
    assert_eq!(lab.harness.count(key.as_str()).await, 1);
}

/// A refusal goes back to the savepoint, and the events go with it.
pub async fn a_joined_refusal_emits_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let batches = [vec![event("topic", "key", 1)]];
    assert!(matches!(once(&lab, &Key::random(), 402, &batches, true).await, Outcome::Fresh(_)));
    assert!(matches!(once(&lab, &Key::random(), 503, &batches, true).await, Outcome::Forgotten(_)));
    assert_eq!(lab.everything().await, []);
}

/// A transaction without a key has an execution of its own.
pub async fn events_without_a_key_have_ids_of_their_own<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let batches = [vec![event("topic", "one", 0), event("topic", "one", 1)], vec![event("topic", "one", 2)]];
    lab.harness.emit_joined(&batches, false).await.unwrap();
    assert_eq!(lab.everything().await, []);
    for _ in 0..3 {
        lab.harness.emit_joined(&batches, true).await.unwrap();
    }
    let written = lab.everything().await;
    assert_eq!(written.iter().map(number).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    assert!(distinct(written.iter().map(|event| event.id)));
}

/// I12, as for other transactions.
pub async fn more_joined_events_or_keys_than_allowed_are_refused<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for (events, keys) in [(MAX_EVENTS + 1, 1), (MAX_ORDERING_KEYS + 1, MAX_ORDERING_KEYS + 1)] {
        let many = (0..events).map(|n| Event::bytes("t", format!("k-{}", n % keys), "e", "c", "").unwrap()).collect();
        let refused = lab.harness.emit_joined(&[many], true).await;
        assert!(matches!(refused, Err(semel::Error::TooManyEvents { .. })), "{refused:?}");
    }
    assert_eq!(lab.everything().await, []);
}

async fn once<H: Harness>(lab: &Lab<H>, key: &Key, status: u16, batches: &[Vec<Event>], commit: bool) -> Outcome {
    let joined = Joined { scope: &lab.scope, key, fingerprint: &lab.fingerprint, status, batches, commit };
    lab.harness.once_joined(&lab.semel, &joined).await
}

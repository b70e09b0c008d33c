//! Many messages in one commit.

use std::future::pending;
use std::time::Duration;

use semel::once::{Error as OnceError, Settings};
use semel::{Error, Store};
use tokio::sync::mpsc;

use super::harness::Harness;
use super::lab::{Lab, deliver_all, fates, labels};
use super::message::{Deed, Failure, Kind, Message, id, perform, record, sequence};
use super::shuffle::shuffled;

/// I6: in the order in which they are given, and nothing shows before the commit.
pub async fn a_batch_applies_in_order_and_becomes_visible_at_once<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let messages = shuffled((0..20).map(|n| id(&format!("id-{n:02}"))).collect(), 1);
    let last = &messages[messages.len() - 1].label;
    let effect = async |tx: &mut <H::Store as Store>::Tx, message: &Message| {
        perform::<H>(tx, message).await?;
        if message.label == *last {
            assert_eq!(lab.applied().await, Vec::<String>::new());
            assert_eq!(lab.count(&messages[0]).await, 0);
        }
        Ok::<(), Failure>(())
    };
    let told = lab.semel.consume_all(&lab.consumer, &messages, effect).await.unwrap();
    assert!(fates(&told).iter().all(|fate| *fate == "applied"), "{told:?}");
    assert_eq!(lab.applied().await, labels(&messages));
    lab.applied_once(&messages).await;
    for message in &messages {
        lab.is_known(message).await;
    }
}

/// I6: ids, sequences and offsets beside each other.
pub async fn messages_of_all_kinds_share_a_batch<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let messages: Vec<Message> = [1, 2, 3].into_iter().flat_map(|n| Kind::ALL.map(|kind| kind.message(n))).collect();
    assert_eq!(fates(&lab.deliver_all(&messages).await), ["applied"; 9]);
    assert_eq!(lab.applied().await, labels(&messages));
    assert_eq!(fates(&lab.deliver_all(&messages).await), ["duplicate"; 9]);
    lab.applied_once(&messages).await;
}

/// I6: of two that are the same, the later is the duplicate.
pub async fn of_equal_messages_in_a_batch_the_first_applies<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for kind in Kind::ALL {
        let [one, two] = [1, 2].map(|n| kind.message(n));
        let batch = [one.clone(), one.clone(), two.clone(), one.clone(), two.clone()];
        let wanted = ["applied", "duplicate", "applied", "duplicate", "duplicate"];
        assert_eq!(fates(&lab.deliver_all(&batch).await), wanted, "{kind:?}");
        assert_eq!((lab.count(&one).await, lab.count(&two).await), (1, 1));
    }
}

/// I6.
pub async fn what_was_seen_before_is_skipped_within_a_batch<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for kind in Kind::ALL {
        let messages = [1, 2, 3, 4].map(|n| kind.message(n));
        lab.applies(&messages[0]).await;
        let again = [messages[0].that(Deed::Panic), messages[1].clone(), messages[2].clone()];
        assert_eq!(fates(&lab.deliver_all(&again).await), ["duplicate", "applied", "applied"]);
        assert_eq!(
            fates(&lab.deliver_all(&messages).await),
            ["duplicate", "duplicate", "duplicate", "applied"],
            "{kind:?}"
        );
    }
    let all: Vec<Message> = Kind::ALL.into_iter().flat_map(|kind| [1, 2, 3, 4].map(|n| kind.message(n))).collect();
    lab.applied_once(&all).await;
}

/// A poll that brings nothing.
pub async fn an_empty_batch_is_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    assert_eq!(fates(&lab.deliver_all(&[]).await), Vec::<&str>::new());
    assert_eq!(lab.applied().await, Vec::<String>::new());
}

/// I6, I12: whether the messages run together or each by itself.
pub async fn a_deadline_rolls_a_whole_batch_back<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let hasty = lab.with_settings(Settings { deadline: Duration::from_millis(500), ..Settings::default() }).await;
    for isolated in [false, true] {
        let messages = batch(isolated);
        let effect = async |tx: &mut <H::Store as Store>::Tx, message: &Message| {
            perform::<H>(tx, message).await?;
            if message.label == messages[3].label { pending().await } else { Ok::<(), Failure>(()) }
        };
        let late = hasty.consume_all(&lab.consumer, &messages, effect).await;
        assert!(matches!(late, Err(OnceError::Store(Error::Deadline))), "{late:?}");
        all_apply_later(&lab, &messages).await;
    }
}

/// I6.
pub async fn a_panic_rolls_a_whole_batch_back<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for isolated in [false, true] {
        let messages = batch(isolated);
        let (semel, consumer, mut panics) = (lab.semel.clone(), lab.consumer.clone(), messages.clone());
        panics[3] = panics[3].that(Deed::Panic);
        let panicked = tokio::spawn(async move { deliver_all::<H>(&semel, &consumer, &panics).await.map(drop) }).await;
        assert!(panicked.is_err_and(|error| error.is_panic()));
        all_apply_later(&lab, &messages).await;
    }
}

/// I6: a consumer that is stopped in the middle.
pub async fn a_dropped_batch_leaves_no_proof<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for isolated in [false, true] {
        let messages = batch(isolated);
        let (reached, mut reaching) = mpsc::channel::<()>(1);
        let (semel, consumer, dropped) = (lab.semel.clone(), lab.consumer.clone(), messages.clone());
        let delivery = tokio::spawn(async move {
            let stops = dropped[3].label.clone();
            let effect = async move |tx: &mut <H::Store as Store>::Tx, message: &Message| {
                perform::<H>(tx, message).await?;
                if message.label != stops {
                    return Ok::<(), Failure>(());
                }
                reached.send(()).await.unwrap();
                pending().await
            };
            let _ = semel.consume_all(&consumer, &dropped, effect).await;
        });
        reaching.recv().await.unwrap();
        delivery.abort();
        assert!(delivery.await.is_err_and(|error| error.is_cancelled()));
        all_apply_later(&lab, &messages).await;
    }
}

/// I6: a statement that is deferred is part of the one commit.
pub async fn deferred_statements_of_a_batch_commit_with_it<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let messages: Vec<Message> = (1..=30).map(|n| sequence(n).that(Deed::Defer)).collect();
    assert_eq!(fates(&lab.deliver_all(&messages).await), ["applied"; 30]);
    assert_eq!(fates(&lab.deliver_all(&messages).await), ["duplicate"; 30]);
    lab.applied_once(&messages).await;
}

/// Messages of all kinds that run together, or each by itself because the first fails.
fn batch(isolated: bool) -> Vec<Message> {
    let names = |n: u64| format!("{isolated} {n}");
    let first = id(&names(0)).that(if isolated { Deed::Fail } else { Deed::Apply });
    let place = if isolated { 2 } else { 1 };
    vec![first, id(&names(1)), sequence(place), id(&names(2)), record(place, place)]
}

/// None of these has left a trace, and each applies when it is delivered again.
async fn all_apply_later<H: Harness>(lab: &Lab<H>, messages: &[Message]) {
    for message in messages {
        assert_eq!(lab.count(message).await, 0, "{message:?}");
    }
    let again: Vec<Message> = messages.iter().map(|message| message.that(Deed::Apply)).collect();
    let before = lab.applied().await.len();
    assert_eq!(fates(&lab.deliver_all(&again).await), vec!["applied"; again.len()]);
    assert_eq!(lab.applied().await[before..], labels(&again));
    for message in messages {
        assert_eq!(lab.count(message).await, 1, "{message:?}");
    }
}

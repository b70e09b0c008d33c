//! Messages in a transaction that the caller owns.

use semel::consume::Consumed;
use semel::inbox::{Accepted, Rule};
use semel::once::Error as OnceError;
use semel::{Delivery, Error};

use super::harness::{Harness, Joined};
use super::lab::{Lab, contiguous, fates};
use super::message::{Kind, Message, event, id, lane, record, sequence, versioned};
use super::offsets;
use super::sequences::{ahead, full};

/// I4, I6: the caller's commit decides over effect, events and proof.
pub async fn a_joined_message_counts_as_seen_if_the_caller_commits_and_not_otherwise<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let message = kind.message(1);
        for _ in 0..2 {
            assert_eq!(joined(&lab, &message, false).await.unwrap(), Consumed::Applied(()));
            lab.applied_once(&all).await;
        }
        assert_eq!(joined(&lab, &message, true).await.unwrap(), Consumed::Applied(()));
        all.push(message.clone());
        lab.applied_once(&all).await;
        assert_eq!(joined(&lab, &message, true).await.unwrap(), Consumed::Duplicate);
        lab.is_known(&message).await;
        // The other way round.
        let message = kind.message(2);
        lab.applies(&message).await;
        for commit in [true, false] {
            assert_eq!(joined(&lab, &message, commit).await.unwrap(), Consumed::Duplicate);
        }
        all.push(message);
    }
    lab.applied_once(&all).await;
}

/// I6: many in one call.
pub async fn a_joined_batch_is_answered_in_order_and_counts_if_the_caller_commits<H: Harness>() {
    let lab = Lab::<H>::open().await;
    lab.applies(&id("b")).await;
    let stale = id("stale").with_version("account", 1, Rule::Latest);
    let messages = [
        id("c"),
        id("b"),
        sequence(2),
        record(0, 0),
        id("a"),
        sequence(1),
        sequence(2),
        record(1, 1),
        versioned("account", 5, Rule::Latest),
        stale,
    ];
    let deliveries = messages.clone().map(|message| message.delivery);
    let wanted = {
        use Accepted::{Duplicate, First, Stale};
        [First, Duplicate, First, First, First, First, Duplicate, First, First, Stale]
    };
    assert_eq!(accepted(&lab, &deliveries, false).await.unwrap(), wanted);
    assert_eq!(accepted(&lab, &deliveries, true).await.unwrap(), wanted);
    assert_eq!(accepted(&lab, &deliveries, true).await.unwrap(), [Accepted::Duplicate; 10]);
    assert_eq!(fates(&lab.deliver_all(&messages).await), ["duplicate"; 10]);
    assert_eq!(lab.harness.ranges(&lab.consumer, &lane()).await, contiguous(2));
    assert_eq!(offsets::next(&lab).await, Some(2));
}

/// Order within an entity holds there, too.
pub async fn a_joined_message_that_is_early_or_stale_is_told<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let each = [1, 2].map(|version| versioned("account", version, Rule::Each));
    for _ in 0..2 {
        assert_eq!(joined(&lab, &each[1], true).await.unwrap(), Consumed::Early);
    }
    for message in &each {
        assert_eq!(joined(&lab, message, true).await.unwrap(), Consumed::Applied(()));
    }
    let past = id("past").with_version("account", 1, Rule::Each);
    assert_eq!(joined(&lab, &past, false).await.unwrap(), Consumed::Stale);
    assert_eq!(joined(&lab, &past, true).await.unwrap(), Consumed::Stale);
    assert_eq!(joined(&lab, &past, true).await.unwrap(), Consumed::Duplicate);
    lab.applied_once(&each).await;
}

/// I7.
pub async fn a_joined_worker_that_did_not_read_on_is_fenced<H: Harness>() {
    let lab = Lab::<H>::open().await;
    assert_eq!(joined(&lab, &record(0, 4), true).await.unwrap(), Consumed::Applied(()));
    let fenced = joined(&lab, &record(3, 7), true).await;
    assert!(matches!(fenced, Err(OnceError::Store(Error::Fenced))), "{fenced:?}");
    assert_eq!(offsets::next(&lab).await, Some(5));
    lab.applied_once(&[record(0, 4)]).await;
}

/// I12.
pub async fn a_joined_lane_with_too_many_holes_is_refused<H: Harness>() {
    let (lab, last): (Lab<H>, u64) = full().await;
    match joined(&lab, &sequence(last + 2), true).await {
        Err(OnceError::Store(error)) => ahead(&error),
        other => panic!("the lane is full: {other:?}"),
    }
    for n in [3, last + 2] {
        assert_eq!(joined(&lab, &sequence(n), true).await.unwrap(), Consumed::Applied(()));
    }
    lab.applied_once(&[sequence(3), sequence(last + 2)]).await;
}

async fn joined<H: Harness>(lab: &Lab<H>, message: &Message, commit: bool) -> Result<Consumed<()>, OnceError<Error>> {
    let Message { delivery, label, .. } = message;
    let joined = Joined { consumer: &lab.consumer, delivery, label, event: event(label), commit };
    lab.harness.consume_joined(&lab.semel, &joined).await
}

async fn accepted<H: Harness>(lab: &Lab<H>, deliveries: &[Delivery], commit: bool) -> Result<Vec<Accepted>, Error> {
    lab.harness.accept_joined(&lab.consumer, deliveries, commit).await
}

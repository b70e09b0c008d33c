//! What tells proofs apart, and that nothing else does.

use semel::inbox::{Offset, Sequence};

use super::harness::Harness;
use super::lab::{Lab, consumer, deliver};
use super::message::{Kind, Message, id, lane, partition, placed, recorded};

/// Neither case nor spaces nor forms of Unicode make two ids the same.
pub async fn ids_are_compared_byte_for_byte<H: Harness>() {
    let ids = ["a", "A", "a ", " a", "aa", "á", "a\u{301}", "%", "_", "\\", "'", "\u{1F4B6}"];
    all_apply(&Lab::<H>::open().await, &ids.map(id)).await;
}

/// A message is each consumer's own.
pub async fn consumers_do_not_touch_each_other<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let consumers = ["receipts", "receipt", "receiptss", "Receipts", "receipts ", "é"].map(consumer);
    for kind in Kind::ALL {
        let message = kind.message(1);
        for consumer in &consumers {
            deliver::<H>(&lab.semel, consumer, &message).await.unwrap();
            lab.is_known_to(consumer, &message).await;
        }
        for consumer in &consumers {
            lab.is_known_to(consumer, &message).await;
        }
        assert_eq!(lab.count(&message).await, consumers.len() as u64);
    }
}

/// History is run again on purpose, and never by accident.
pub async fn a_new_generation_applies_again_and_the_same_never<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let generations = [0, 1, 7, i32::MAX.unsigned_abs()];
    for kind in Kind::ALL {
        let history = [1, 2, 3].map(|n| kind.message(n));
        for generation in generations {
            let consumer = lab.consumer.clone().in_generation(generation);
            for message in &history {
                deliver::<H>(&lab.semel, &consumer, message).await.unwrap();
                lab.is_known_to(&consumer, message).await;
            }
        }
        for message in &history {
            for generation in generations {
                lab.is_known_to(&lab.consumer.clone().in_generation(generation), message).await;
            }
            assert_eq!(lab.count(message).await, generations.len() as u64);
        }
    }
}

/// The same number at another place is another message.
pub async fn lanes_topics_and_incarnations_do_not_touch_each_other<H: Harness>() {
    let place = |incarnation: &str, topic: &str, lane: u16| {
        placed(Sequence { incarnation: incarnation.to_owned(), topic: topic.to_owned(), lane, sequence: 5 })
    };
    let messages = [
        placed(Sequence { sequence: 5, ..lane() }),
        place("a", "bc", 0),
        place("ab", "c", 0),
        place("a", "bc", 1),
        place("a", "bc", 63),
        place("A", "bc", 0),
        place("a", "Bc", 0),
        place("a ", "bc", 0),
        place("bc", "a", 0),
    ];
    all_apply(&Lab::<H>::open().await, &messages).await;
}

/// The same offset at another place is another record.
pub async fn partitions_topics_and_sources_do_not_touch_each_other<H: Harness>() {
    let place = |source: &str, topic: &str, partition: i32| {
        let (source, topic) = (source.to_owned(), topic.to_owned());
        recorded(Offset { source, topic, partition, from: 5, offset: 5 })
    };
    let messages = [
        recorded(Offset { from: 5, offset: 5, ..partition() }),
        place("a", "bc", 0),
        place("ab", "c", 0),
        place("a", "bc", 1),
        place("a", "bc", i32::MAX),
        place("A", "bc", 0),
        place("a", "Bc", 0),
        place("a ", "bc", 0),
        place("bc", "a", 0),
    ];
    all_apply(&Lab::<H>::open().await, &messages).await;
}

/// An id that looks like a place is not one.
pub async fn identities_of_different_kinds_do_not_touch_each_other<H: Harness>() {
    let place = Sequence { sequence: 1, ..lane() };
    let same =
        Offset { source: place.incarnation.clone(), topic: place.topic.clone(), partition: 17, from: 1, offset: 1 };
    let messages = [id("1"), id("7412-1"), id("7412-1/charges/17"), placed(place), recorded(same)];
    all_apply(&Lab::<H>::open().await, &messages).await;
}

/// Each of these applies, whatever came before, and is known afterwards.
async fn all_apply<H: Harness>(lab: &Lab<H>, messages: &[Message]) {
    for message in messages {
        lab.applies(message).await;
    }
    for message in messages {
        lab.is_known(message).await;
    }
    lab.applied_once(messages).await;
}

//! Order within an entity.

use std::collections::{BTreeMap, VecDeque};

use semel::consume::Consumed;
use semel::inbox::Rule;

use super::harness::Harness;
use super::lab::{Lab, consumer, deliver, fates, labels};
use super::message::{Deed, Kind, Message, id, lane, versioned};
use super::offsets;
use super::shuffle::{Chance, shuffled};

/// Full state: what is not newer changes nothing.
pub async fn latest_skips_what_is_not_newer_and_does_not_see_gaps<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let latest = |version| versioned("account", version, Rule::Latest);
    let highest = i64::MAX.unsigned_abs();
    for (version, newer) in [(5, true), (3, false), (9, true), (8, false), (1, false), (10, true), (highest, true)] {
        let consumed = lab.deliver(&latest(version)).await.unwrap();
        assert_eq!(consumed, if newer { Consumed::Applied(()) } else { Consumed::Stale }, "{version}");
    }
    let equal = id("the same version").with_version("account", highest, Rule::Latest);
    assert_eq!(lab.deliver(&equal).await.unwrap(), Consumed::Stale);
    let applied = [5, 9, 10, highest].map(latest);
    lab.applied_once(&applied).await;
    assert_eq!(lab.applied().await, labels(&applied));
}

/// I6: stale is an end, and its proof is kept as if it had applied.
pub async fn a_stale_message_stays_seen<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for (kind, rule) in Kind::ALL.into_iter().flat_map(|kind| [(kind, Rule::Latest), (kind, Rule::Each)]) {
        let consumer = consumer(&format!("{kind:?} {rule:?}"));
        let entity = format!("{kind:?} {rule:?}");
        let deliver = async |message: &Message| deliver::<H>(&lab.semel, &consumer, message).await.unwrap();
        for version in [1, 2] {
            let message = id(&format!("{entity} {version}")).with_version(&entity, version, rule);
            assert_eq!(deliver(&message).await, Consumed::Applied(()));
        }
        let stale = kind.message(1).with_version(&entity, 1, rule);
        assert_eq!(deliver(&stale).await, Consumed::Stale);
        assert_eq!(deliver(&stale).await, Consumed::Duplicate);
        assert_eq!(lab.count(&stale).await, 0);
        // Its successor by place is not held up, and a duplicate is one whatever version it carries.
        assert_eq!(deliver(&kind.message(2).that(Deed::Nothing)).await, Consumed::Applied(()));
        assert_eq!(deliver(&kind.message(1).with_version(&entity, 3, rule)).await, Consumed::Duplicate);
    }
}

/// Changes: nothing is skipped, and what comes too early is as if it had not come.
pub async fn each_applies_in_order_and_leaves_no_trace_of_what_is_early<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let each = [1, 2, 3, 4].map(|version| versioned("account", version, Rule::Each));
    let early = async |message: &Message| {
        for _ in 0..2 {
            assert_eq!(lab.deliver(&message.that(Deed::Panic)).await.unwrap(), Consumed::Early);
        }
    };
    early(&each[1]).await;
    lab.applies(&each[0]).await;
    early(&each[2]).await;
    early(&each[3]).await;
    for message in &each[1..] {
        lab.applies(message).await;
    }
    for message in &each {
        lab.is_known(message).await;
    }
    lab.applied_once(&each).await;
    assert_eq!(lab.applied().await, labels(&each));
}

/// Another message with a version that was applied.
pub async fn each_skips_what_is_past<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let each = [1, 2, 3].map(|version| versioned("account", version, Rule::Each));
    for message in &each {
        lab.applies(message).await;
    }
    for version in [1, 2, 3] {
        let past = id(&format!("another {version}")).with_version("account", version, Rule::Each);
        assert_eq!(lab.deliver(&past).await.unwrap(), Consumed::Stale);
        lab.is_known(&past).await;
    }
    lab.applied_once(&each).await;
}

/// I6: the version is committed with the effect.
pub async fn a_failed_effect_leaves_the_version_where_it_was<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let each = [1, 2].map(|version| versioned("changed", version, Rule::Each));
    let latest = [3, 5].map(|version| versioned("replaced", version, Rule::Latest));
    for failing in [&each[0], &latest[1]] {
        for deed in [Deed::Fail, Deed::Refuse, Deed::Misdefer] {
            lab.deliver(&failing.that(deed)).await.unwrap_err();
        }
    }
    assert_eq!(lab.deliver(&each[1]).await.unwrap(), Consumed::Early);
    for message in [&each[0], &each[1], &latest[0], &latest[1]] {
        lab.applies(message).await;
    }
    lab.applied_once(&[each, latest].concat()).await;
}

/// In the order of the batch.
pub async fn versions_of_one_entity_in_one_batch_count_one_after_the_other<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let each = |version| versioned("changed", version, Rule::Each);
    let latest = |version| versioned("replaced", version, Rule::Latest);
    let batch = [each(1), latest(3), each(2), latest(1), each(2), each(3), latest(5), latest(3)];
    let told = lab.deliver_all(&batch).await;
    let wanted = ["applied", "applied", "applied", "stale", "duplicate", "applied", "applied", "duplicate"];
    assert_eq!(fates(&told), wanted);
    let next = [latest(4), each(4), latest(6), id("past").with_version("changed", 4, Rule::Each)];
    assert_eq!(fates(&lab.deliver_all(&next).await), ["stale", "applied", "applied", "stale"]);
    let applied = [each(1), latest(3), each(2), each(3), latest(5), each(4), latest(6)];
    lab.applied_once(&applied).await;
    assert_eq!(lab.applied().await, labels(&applied));
}

/// I6: and it applies when its turn has come.
pub async fn an_early_message_of_a_batch_leaves_no_trace_and_the_others_commit<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let [a, b, c] = ["a", "b", "c"].map(|entity| [1, 2].map(|version| versioned(entity, version, Rule::Each)));
    let batch = [a[0].clone(), b[1].clone(), a[1].clone(), c[1].clone(), c[0].clone(), id("without")];
    let wanted = ["applied", "early", "applied", "early", "applied", "applied"];
    assert_eq!(fates(&lab.deliver_all(&batch).await), wanted);
    let next = [b[1].clone(), b[0].clone(), c[1].clone(), a[1].clone()];
    assert_eq!(fates(&lab.deliver_all(&next).await), ["early", "applied", "applied", "duplicate"]);
    lab.applies(&b[1]).await;
    lab.applied_once(&[a.to_vec(), b.to_vec(), c.to_vec(), vec![id("without")]].concat()).await;
}

/// I6: a broker that mixes everything up and delivers again what it is given back.
pub async fn changes_in_any_order_apply_each_once_and_in_order<H: Harness>() {
    let (lab, mut all) = (Lab::<H>::open().await, Vec::new());
    for seed in 0..crate::counts::rounds(2, 20).into() {
        let mut chance = Chance::new(seed);
        let entities = ["a", "b", "c"].map(|name| format!("{name}{seed}"));
        let changes = (1..=10).flat_map(|version| entities.each_ref().map(|it| versioned(it, version, Rule::Each)));
        let changes: Vec<Message> = changes.collect();
        let mut queue: VecDeque<Message> = shuffled([changes.clone(), changes.clone()].concat(), seed).into();
        while !queue.is_empty() {
            let batch: Vec<Message> = queue.drain(..(1 + chance.below(5)).min(queue.len())).collect();
            let told = match batch.as_slice() {
                [one] => vec![lab.deliver(one).await.unwrap() == Consumed::Early],
                many => fates(&lab.deliver_all(many).await).into_iter().map(|fate| fate == "early").collect(),
            };
            queue.extend(batch.into_iter().zip(told).filter(|(_, early)| *early).map(|(message, _)| message));
        }
        all.extend(changes);
    }
    lab.applied_once(&all).await;
    let mut last = BTreeMap::new();
    for label in lab.applied().await {
        let (entity, version) = label.split_once('-').unwrap();
        let version: u64 = version.parse().unwrap();
        assert_eq!(last.insert(entity.to_owned(), version).unwrap_or(0) + 1, version, "{label}");
    }
}

/// The same version of something else.
pub async fn entities_consumers_and_generations_do_not_touch_each_other<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let entities = ["account", "Account", "account ", "accoun", "t"];
    let mut messages = Vec::new();
    for entity in entities {
        messages.push(versioned(entity, 1, Rule::Each));
    }
    let consumers =
        [lab.consumer.clone(), consumer("other"), lab.consumer.clone().in_generation(1), consumer("receipt")];
    for consumer in &consumers {
        for message in &messages {
            let consumed = deliver::<H>(&lab.semel, consumer, message).await.unwrap();
            assert_eq!(consumed, Consumed::Applied(()), "{message:?} to {consumer:?}");
        }
    }
    for message in &messages {
        assert_eq!(lab.count(message).await, consumers.len() as u64);
    }
}

/// I6: a place that was not applied stays open.
pub async fn early_by_any_identity_is_tried_again<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for kind in Kind::ALL {
        let entity = format!("{kind:?}");
        let early = kind.message(1).with_version(&entity, 2, Rule::Each);
        for _ in 0..2 {
            assert_eq!(lab.deliver(&early).await.unwrap(), Consumed::Early);
            let told = lab.deliver_all(std::slice::from_ref(&early)).await;
            assert_eq!(fates(&told), ["early"]);
        }
        if kind == Kind::Sequence {
            assert_eq!(lab.harness.ranges(&lab.consumer, &lane()).await, []);
        }
        assert_eq!(offsets::next(&lab).await, None);
        lab.applies(&versioned(&entity, 1, Rule::Each)).await;
        lab.applies(&early).await;
        lab.is_known(&early).await;
        assert_eq!(lab.count(&early).await, 1);
    }
}

//! A bad message of a batch harms nobody but itself.

use std::sync::atomic::{AtomicBool, Ordering};

use semel::consume::Fate;
use semel::inbox::Offset;
use semel::once::Error as OnceError;
use semel::{Error, Inbox, Store};

use super::harness::Harness;
use super::lab::{Lab, contiguous, fates, labels};
use super::message::{Deed, Failure, Message, id, lane, partition, perform, record, recorded, sequence};
use super::offsets;

/// I4, I6: the others commit, in order, and it applies when it is delivered again.
pub async fn a_bad_message_is_rolled_back_alone_with_its_effect_events_and_proof<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let told = isolates(&lab, Deed::Fail).await;
    assert!(matches!(told, Fate::Failed(Failure::Wanted)), "{told:?}");
}

/// Likewise if the database refused, after which some take no more statements until the savepoint.
pub async fn a_refused_statement_is_isolated_with_its_message<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let told = isolates(&lab, Deed::Refuse).await;
    assert!(matches!(told, Fate::Failed(Failure::Store(Error::Statement(_)))), "{told:?}");
}

/// Likewise if it is only the commit that shows it.
pub async fn a_bad_deferred_statement_is_isolated_with_its_message<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let told = isolates(&lab, Deed::Misdefer).await;
    assert!(matches!(told, Fate::Refused(Error::RowCount(_))), "{told:?}");
}

/// Delivers five of which the third is bad, and returns its fate.
async fn isolates<H: Harness>(lab: &Lab<H>, deed: Deed) -> Fate<Failure> {
    let good = ["e", "d", "c", "b", "a"].map(id);
    let mut batch = good.clone();
    batch[2] = batch[2].that(deed);
    let mut told = lab.deliver_all(&batch).await;
    let bad = told.remove(2);
    assert_eq!(fates(&told), ["applied"; 4]);
    assert_eq!(lab.applied().await, ["e", "d", "b", "a"]);
    assert_eq!(lab.count(&good[2]).await, 0);
    assert_eq!(fates(&lab.deliver_all(&good).await), ["duplicate", "duplicate", "applied", "duplicate", "duplicate"]);
    assert_eq!(lab.applied().await, ["e", "d", "b", "a", "c"]);
    lab.applied_once(&good).await;
    bad
}

/// I6: the fate says what happened, wherever in the batch it stands.
pub async fn a_hidden_refusal_within_a_batch_is_applied_whole_or_not_at_all<H: Harness>() {
    let (lab, mut all) = (Lab::<H>::open().await, Vec::new());
    for place in [0, 1, 2] {
        let good = ["a", "b", "c"].map(|name| id(&format!("{name}-{place}")));
        let mut batch = good.clone();
        batch[place] = batch[place].that(Deed::Hide);
        let told = lab.deliver_all(&batch).await;
        for (n, (fate, message)) in told.iter().zip(&good).enumerate() {
            let applied = matches!(fate, Fate::Applied);
            assert!(applied || n == place, "{told:?}");
            assert_eq!(lab.count(message).await, u64::from(applied), "{told:?}");
        }
        lab.deliver_all(&good).await;
        all.extend(good);
        lab.applied_once(&all).await;
    }
}

/// I6.
pub async fn a_batch_of_bad_messages_leaves_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let good = [id("a"), sequence(1), id("b"), sequence(2)];
    let deeds = [Deed::Fail, Deed::Refuse, Deed::Misdefer, Deed::Fail];
    let batch: Vec<Message> = good.iter().zip(deeds).map(|(message, deed)| message.that(deed)).collect();
    for _ in 0..2 {
        assert_eq!(fates(&lab.deliver_all(&batch).await), ["failed", "failed", "refused", "failed"]);
        assert_eq!(lab.applied().await, Vec::<String>::new());
    }
    assert_eq!(lab.harness.ranges(&lab.consumer, &lane()).await, []);
    assert_eq!(fates(&lab.deliver_all(&good).await), ["applied"; 4]);
    lab.applied_once(&good).await;
}

/// There is no good one before the first, nor after the last.
pub async fn bad_messages_at_both_ends_are_isolated<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for (n, deed) in [Deed::Fail, Deed::Refuse, Deed::Misdefer].into_iter().enumerate() {
        let good = ["a", "b", "c", "d"].map(|name| id(&format!("{name}-{n}")));
        let batch = [good[0].that(deed), good[1].clone(), good[2].clone(), good[3].that(deed)];
        let before = lab.applied().await.len();
        let told = lab.deliver_all(&batch).await;
        assert_eq!(fates(&told)[1..3], ["applied", "applied"], "{told:?}");
        assert_eq!(lab.applied().await[before..], labels(&good[1..3]));
        for bad in [&good[0], &good[3]] {
            assert_eq!(lab.count(bad).await, 0);
            lab.applies(bad).await;
        }
    }
}

/// I6: the first delivery left nothing, so the second is the first; and what applied is not applied again after it.
pub async fn a_message_that_failed_and_comes_again_in_the_same_batch_applies<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (twice, once) = (id("twice"), sequence(1));
    let batch = [once.clone(), twice.that(Deed::Fail), once.clone(), twice.clone(), twice.clone()];
    let told = lab.deliver_all(&batch).await;
    assert_eq!(fates(&told), ["applied", "failed", "duplicate", "applied", "duplicate"]);
    lab.applied_once(&[once, twice]).await;
}

/// I6: a hole, which closes.
pub async fn sequences_around_a_bad_one_are_kept_and_it_applies_later<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let good = [1, 2, 3, 4, 5].map(sequence);
    let mut batch = good.clone();
    batch[1] = batch[1].that(Deed::Fail);
    batch[3] = batch[3].that(Deed::Refuse);
    assert_eq!(fates(&lab.deliver_all(&batch).await), ["applied", "failed", "applied", "failed", "applied"]);
    assert_eq!(lab.harness.ranges(&lab.consumer, &lane()).await, [1..2, 3..4, 5..6]);
    let told = lab.deliver_all(&good).await;
    assert_eq!(fates(&told), ["duplicate", "applied", "duplicate", "applied", "duplicate"]);
    assert_eq!(lab.harness.ranges(&lab.consumer, &lane()).await, contiguous(5));
    lab.applied_once(&good).await;
}

/// I6: an offset says that everything before it was applied, so what follows a failed one waits. Other partitions do
/// not.
pub async fn offsets_behind_a_failed_one_are_not_tried<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let other = |n: i64| recorded(Offset { partition: 4, from: n, offset: n, ..partition() });
    let bad = record(1, 1).that(Deed::Refuse);
    let behind = [2, 3].map(|n| record(n, n).that(Deed::Panic));
    let batch = [record(0, 0), other(0), bad, behind[0].clone(), other(1), id("a"), behind[1].clone()];
    let wanted = ["applied", "applied", "failed", "behind", "applied", "applied", "behind"];
    assert_eq!(fates(&lab.deliver_all(&batch).await), wanted);
    assert_eq!(offsets::next(&lab).await, Some(1));
    let Offset { source, topic, .. } = partition();
    assert_eq!(lab.harness.store().next_offset(&lab.consumer, &source, &topic, 4).await.unwrap(), Some(2));
    let again = [1, 2, 3].map(|n| record(n, n));
    assert_eq!(fates(&lab.deliver_all(&again).await), ["applied"; 3]);
    assert_eq!(offsets::next(&lab).await, Some(4));
    lab.applied_once(&[[record(0, 0), other(0), other(1), id("a")].as_slice(), &again].concat()).await;
}

/// A bad message takes its own deferred statements back and nobody else's.
pub async fn deferred_statements_around_a_bad_message_commit<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let good = ["a", "b", "c", "d", "e", "f"].map(id);
    let deeds = [Deed::Defer, Deed::Fail, Deed::Defer, Deed::Misdefer, Deed::Apply, Deed::Defer];
    let batch: Vec<Message> = good.iter().zip(deeds).map(|(message, deed)| message.that(deed)).collect();
    let wanted = ["applied", "failed", "applied", "refused", "applied", "applied"];
    assert_eq!(fates(&lab.deliver_all(&batch).await), wanted);
    assert_eq!(lab.applied().await, ["a", "c", "e", "f"]);
    for bad in [&good[1], &good[3]] {
        assert_eq!(lab.count(bad).await, 0);
        lab.applies(bad).await;
    }
    lab.applied_once(&good).await;
}

/// I6: the database goes away between two messages, whether they run together or each by itself.
pub async fn a_connection_lost_within_a_batch_leaves_no_proof<H: Harness>() {
    let (lab, mut all) = (Lab::<H>::open().await, Vec::new());
    for (n, isolated) in [(1, false), (2, true)] {
        let is_cut = AtomicBool::new(false);
        let good = [id(&format!("a-{n}")), sequence(n), id(&format!("b-{n}")), record(n, n)];
        let mut batch = good.clone();
        batch[0] = batch[0].that(if isolated { Deed::Fail } else { Deed::Apply });
        let effect = async |tx: &mut <H::Store as Store>::Tx, message: &Message| {
            perform::<H>(tx, message).await?;
            if message.label == good[2].label && !is_cut.swap(true, Ordering::SeqCst) {
                H::cut(tx).await;
            }
            Ok::<(), Failure>(())
        };
        match lab.semel.consume_all(&lab.consumer, &batch, effect).await {
            Ok(told) => assert_eq!(fates(&told)[1..], ["applied"; 3], "{told:?}"),
            Err(OnceError::Store(_)) => assert_eq!(lab.applied().await, labels(&all)),
            other => panic!("messages that are new are {other:?}"),
        }
        lab.deliver_all(&good).await;
        all.extend(good);
        lab.applied_once(&all).await;
    }
}

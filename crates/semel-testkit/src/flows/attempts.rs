//! An attempt of a call is counted before it is made, and what it came to is recorded after it.

use std::time::Duration;

use semel::Error;
use semel::flow::{Attempt, FlowStore, Kind, State};
use semel::intent::Fault;

use super::harness::Harness;
use super::lab::{FLOW, Lab, attempt, done, entry, steps};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// I8: provider and derived key are there before the call leaves.
pub async fn the_first_attempt_records_the_intent<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    let recorded = lab.reads(&journal.lease).await;
    let charge = entry(&recorded, "charge");
    assert_eq!((charge.kind, charge.state, &charge.result), (Kind::Call, State::Pending, &None));
    let intent = charge.intent.as_ref().unwrap();
    assert_eq!((intent.provider.as_str(), intent.key.as_str()), ("psp", "derived"));
    assert_eq!((&intent.attempts, &intent.cause), (&vec![None], &None));
    assert!(intent.age < HOUR && intent.since_attempt <= intent.age, "{intent:?}");
}

/// A lost answer is asked for again.
pub async fn an_attempt_that_is_counted_twice_counts_once<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    for number in [1, 1, 2, 2, 1] {
        lab.counts(&journal.lease, "charge", number).await.unwrap();
    }
    let recorded = lab.reads(&journal.lease).await;
    assert_eq!(entry(&recorded, "charge").intent.as_ref().unwrap().attempts, [None::<Fault>, None]);
}

/// An attempt that was not counted cannot be followed by one that is.
pub async fn an_attempt_out_of_its_turn_is_refused<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    let refused = lab.counts(&journal.lease, "charge", 2).await;
    assert!(matches!(refused, Err(Error::Statement(_))), "{refused:?}");
    assert_eq!(steps(&lab.reads(&journal.lease).await), Vec::<&str>::new());
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    let refused = lab.counts(&journal.lease, "charge", 3).await;
    assert!(matches!(refused, Err(Error::Statement(_))), "{refused:?}");
    let recorded = lab.reads(&journal.lease).await;
    assert_eq!(entry(&recorded, "charge").intent.as_ref().unwrap().attempts, [None::<Fault>]);
}

/// Every attempt tells what it came to, also when that is recorded late or twice.
pub async fn what_each_attempt_came_to_is_kept_in_order<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    let faults = [Fault::Retryable, Fault::Refused, Fault::Unknown, Fault::UnknownForGood, Fault::Terminal];
    for (number, fault) in (1..).zip(faults) {
        lab.counts(&journal.lease, "charge", number).await.unwrap();
        if fault != Fault::Unknown {
            for _ in 0..2 {
                let cause = format!("cause {number}");
                lab.store().end_attempt(&journal.lease, "charge", number, fault, &cause).await.unwrap();
            }
        }
    }
    let recorded = lab.reads(&journal.lease).await;
    let intent = entry(&recorded, "charge").intent.as_ref().unwrap();
    let came_to = faults.map(|fault| (fault != Fault::Unknown).then_some(fault));
    assert_eq!((intent.attempts.as_slice(), intent.cause.as_deref()), (came_to.as_slice(), Some("cause 5")));
    lab.store().end_attempt(&journal.lease, "charge", 3, Fault::Unknown, "it was cut").await.unwrap();
    let recorded = lab.reads(&journal.lease).await;
    assert_eq!(entry(&recorded, "charge").intent.as_ref().unwrap().attempts, faults.map(Some));
}

/// I8: the provider's window is counted from the first attempt, by the database's clock, and no later one moves it.
pub async fn the_window_opens_with_the_first_attempt<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    lab.harness.age(HOUR).await;
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    let recorded = lab.reads(&journal.lease).await;
    let intent = entry(&recorded, "charge").intent.as_ref().unwrap();
    assert!(intent.age >= HOUR, "counting the same again moved it: {intent:?}");
    lab.counts(&journal.lease, "charge", 2).await.unwrap();
    lab.harness.age(HOUR).await;
    let taken = lab.takes_one(FLOW).await;
    let intent = entry(&taken, "charge").intent.as_ref().unwrap();
    assert!(intent.age >= 2 * HOUR && intent.age < 3 * HOUR, "{intent:?}");
    assert!(intent.since_attempt >= HOUR && intent.since_attempt < 2 * HOUR, "{intent:?}");
    assert!(taken.age >= 2 * HOUR);
}

/// I8: counted again after a lost answer, the call leaves after the later one, and is given its time from then on. An
/// attempt whose end is known has left long ago.
pub async fn an_attempt_that_is_counted_again_leaves_then<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    let since_attempt = async || {
        let recorded = lab.reads(&journal.lease).await;
        entry(&recorded, "charge").intent.as_ref().unwrap().since_attempt
    };
    for number in [1, 2] {
        lab.counts(&journal.lease, "charge", number).await.unwrap();
        lab.harness.age(HOUR).await;
        lab.counts(&journal.lease, "charge", number).await.unwrap();
        assert!(since_attempt().await < HOUR, "attempt {number} leaves only now");
    }
    lab.harness.age(HOUR).await;
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    assert!(since_attempt().await >= HOUR, "another one followed it");
    lab.store().end_attempt(&journal.lease, "charge", 2, Fault::Unknown, "it was cut").await.unwrap();
    lab.counts(&journal.lease, "charge", 2).await.unwrap();
    assert!(since_attempt().await >= HOUR, "it has ended");
}

/// In a restored database the call may have been made when the flow began.
pub async fn a_window_may_be_taken_to_have_opened_earlier<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    let first = Attempt { opened: HOUR, ..attempt("charge", 1) };
    lab.store().count_attempt(&journal.lease, &first).await.unwrap();
    let second = Attempt { opened: 5 * HOUR, ..attempt("charge", 2) };
    lab.store().count_attempt(&journal.lease, &second).await.unwrap();
    let recorded = lab.reads(&journal.lease).await;
    let intent = entry(&recorded, "charge").intent.as_ref().unwrap();
    assert!(intent.age >= HOUR && intent.age < 2 * HOUR, "{intent:?}");
    assert!(intent.since_attempt < HOUR, "{intent:?}");
}

/// I8: what was intended first is what is sent, whatever a newer version would derive.
pub async fn the_key_of_an_intent_never_changes<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    let newer = Attempt { provider: "other", key: "another", ..attempt("charge", 2) };
    let _ = lab.store().count_attempt(&journal.lease, &newer).await;
    let recorded = lab.reads(&journal.lease).await;
    let intent = entry(&recorded, "charge").intent.as_ref().unwrap();
    assert_eq!((intent.provider.as_str(), intent.key.as_str()), ("psp", "derived"));
}

/// The result of a call stands beside what its attempts came to.
pub async fn a_settled_call_keeps_its_attempts<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    lab.store().end_attempt(&journal.lease, "charge", 1, Fault::Unknown, "it was cut").await.unwrap();
    lab.counts(&journal.lease, "charge", 2).await.unwrap();
    lab.store().settle_step(&journal.lease, &done("charge", Kind::Call, b"{\"id\":1}")).await.unwrap();
    let recorded = lab.reads(&journal.lease).await;
    let charge = entry(&recorded, "charge");
    assert_eq!(charge.state, State::Done);
    assert_eq!(charge.intent.as_ref().unwrap().attempts[0], Some(Fault::Unknown));
}

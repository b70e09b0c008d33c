//! What consumers say of themselves, and their generations.

use std::sync::Arc;
use std::time::Duration;

use semel::letter::{ConsumerRecord, Declaration};
use semel::source::Recognition;
use semel::{Consumer, Error, Inbox};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::harness::Harness;
use super::lab::{Lab, consumer, deliver};
use super::letter::{audit, settled};
use super::message::{Kind, id, record, sequence};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Declaring is what every start does, and the last declaration is the one that is told.
pub async fn a_consumer_is_found_again_in_its_generation<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (store, another) = (lab.harness.store(), lab.harness.another().await);
    for recognition in [Recognition::Id, Recognition::Sequence, Recognition::Offset] {
        let name = format!("by {}", recognition.as_str());
        let first = store.declare(&name, &Declaration { recognition, retention: 7 * DAY }).await.unwrap();
        assert_eq!(first, consumer(&name));
        let again = Declaration { recognition, retention: 9 * DAY };
        assert_eq!(another.declare(&name, &again).await.unwrap(), first);
        assert_eq!(told(&lab, &name).await.declared, Some(again));
    }
    let lasting = Declaration { recognition: Recognition::Id, retention: Duration::MAX };
    store.declare("for ever", &lasting).await.unwrap();
    let kept = told(&lab, "for ever").await.declared.unwrap().retention;
    assert!(kept >= 365 * 900 * DAY, "{kept:?}");
    let refused = store.declare("", &lasting).await.unwrap_err();
    assert!(matches!(refused, Error::Settings(_)), "{refused:?}");
}

/// Proofs of one kind say nothing about another, so all that was applied would apply again.
pub async fn another_recognition_is_refused_until_a_new_generation<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    store.declare("receipts", &by(Recognition::Id)).await.unwrap();
    for other in [Recognition::Sequence, Recognition::Offset] {
        is_refused(&lab, "receipts", other, Recognition::Id).await;
    }
    assert_eq!(told(&lab, "receipts").await.declared, Some(by(Recognition::Id)));
    assert_eq!(store.replay_consumer("receipts", &audit("by sequence"), false).await.unwrap(), Some(1));
    assert_eq!(told(&lab, "receipts").await.declared, None);
    assert_eq!(store.generation("receipts").await.unwrap(), Some(1));
    assert_eq!(store.generation("nobody").await.unwrap(), None);
    let anew = store.declare("receipts", &by(Recognition::Sequence)).await.unwrap();
    assert_eq!(anew, consumer("receipts").in_generation(1));
    is_refused(&lab, "receipts", Recognition::Id, Recognition::Sequence).await;
}

/// Those who consume without a runner declare nothing, and a runner that takes over finds what they left.
pub async fn what_was_recorded_without_a_declaration_counts_as_one<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let kinds = [Recognition::Id, Recognition::Sequence, Recognition::Offset];
    for (kind, recorded) in Kind::ALL.into_iter().zip(kinds) {
        let name = format!("had {}", recorded.as_str());
        deliver::<H>(&lab.semel, &consumer(&name), &kind.message(1)).await.unwrap();
        for other in kinds.into_iter().filter(|other| *other != recorded) {
            is_refused(&lab, &name, other, recorded).await;
        }
        lab.harness.store().declare(&name, &by(recorded)).await.unwrap();
        lab.is_known_to(&consumer(&name), &kind.message(1)).await;
    }
}

/// Those who declare one consumer differently: only one kind is taken, whether the consumer is new or its generation.
pub async fn declarations_that_race_agree<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let handles = [lab.harness.store().clone(), lab.harness.another().await];
    for round in 0..crate::counts::rounds(8, 80) {
        let (name, start) = (format!("consumer {round}"), Arc::new(Barrier::new(4)));
        if round % 2 == 1 {
            handles[0].declare(&name, &by(Recognition::Offset)).await.unwrap();
            handles[0].replay_consumer(&name, &audit("anew"), false).await.unwrap();
        }
        let mut racers = JoinSet::new();
        for racer in 0..4 {
            let (store, name, start) = (handles[racer % 2].clone(), name.clone(), start.clone());
            let recognition = if racer < 2 { Recognition::Id } else { Recognition::Sequence };
            racers.spawn(async move {
                start.wait().await;
                loop {
                    match store.declare(&name, &by(recognition)).await {
                        Ok(_) => return Some(recognition),
                        Err(Error::Settings(_)) => return None,
                        Err(error) => drop(settled::<H, ()>(Err(error))),
                    }
                }
            });
        }
        let agreed: Vec<Recognition> = racers.join_all().await.into_iter().flatten().collect();
        assert!(agreed.len() == 2 && agreed[0] == agreed[1], "{agreed:?} in round {round}");
        assert_eq!(told(&lab, &name).await.declared, Some(by(agreed[0])));
    }
}

/// I6: history is run again on purpose, and never by accident.
pub async fn a_new_generation_applies_history_again_and_the_old_one_does_not<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    assert_eq!(store.replay_consumer("receipts", &audit("unknown"), false).await.unwrap(), None);
    let old = store.declare("receipts", &by(Recognition::Id)).await.unwrap();
    let history = [id("a"), id("b")];
    for message in &history {
        deliver::<H>(&lab.semel, &old, message).await.unwrap();
    }
    assert_eq!(store.replay_consumer("receipts", &audit("a look"), true).await.unwrap(), Some(1));
    assert_eq!(store.declare("receipts", &by(Recognition::Id)).await.unwrap(), old, "a dry run changes nothing");
    assert_eq!(store.replay_consumer("receipts", &audit("again"), false).await.unwrap(), Some(1));
    let new = store.declare("receipts", &by(Recognition::Id)).await.unwrap();
    assert_eq!(new, old.clone().in_generation(1));
    for message in &history {
        lab.is_known_to(&old, message).await;
        deliver::<H>(&lab.semel, &new, message).await.unwrap();
        lab.is_known_to(&new, message).await;
        assert_eq!(lab.count(message).await, 2);
    }
    // Whoever says itself in which generation it consumes may have gone ahead: a new generation has seen nothing.
    deliver::<H>(&lab.semel, &old.clone().in_generation(5), &history[0]).await.unwrap();
    assert_eq!(store.replay_consumer("receipts", &audit("once more"), false).await.unwrap(), Some(6));
    assert_eq!(told(&lab, "receipts").await.generation, 6);
}

/// Who began a generation, and why, is in the commit that begins it.
pub async fn a_replay_leaves_an_audit_row<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    store.replay_consumer("nobody", &audit("no such consumer"), false).await.unwrap();
    assert_eq!(lab.harness.audits("no such consumer").await, 0);
    store.declare("receipts", &by(Recognition::Id)).await.unwrap();
    store.replay_consumer("receipts", &audit("a look"), true).await.unwrap();
    assert_eq!(lab.harness.audits("a look").await, 0);
    store.replay_consumer("receipts", &audit("lost rows"), false).await.unwrap();
    assert_eq!(lab.harness.audits("lost rows").await, 1);
    let racing = (0..4).map(|_| {
        let store = store.clone();
        async move {
            loop {
                if let Some(begun) = settled::<H, _>(store.replay_consumer("receipts", &audit("raced"), false).await) {
                    return begun;
                }
            }
        }
    });
    let mut begun: Vec<Option<u32>> = racing.collect::<JoinSet<_>>().join_all().await;
    begun.sort();
    assert_eq!(begun, [Some(2), Some(3), Some(4), Some(5)], "each began one of its own");
    assert_eq!(lab.harness.audits("raced").await, 4);
}

/// Ids in all generations, lanes and partitions in the one of now, and letters by what became of them.
pub async fn consumers_are_told_with_what_is_kept_of_them<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    assert!(store.consumers(None).await.unwrap().is_empty());
    for message in [id("a"), id("b"), sequence(2), sequence(3), sequence(7), record(0, 0), record(1, 1)] {
        lab.applies(&message).await;
    }
    lab.set_aside(&id("dead")).await;
    lab.redriven(&id("redriven")).await;
    let applied = lab.redriven(&id("applied after all")).await;
    let tx = store.take_letter(applied.id).await.unwrap().unwrap();
    store.commit_consumed(tx).await.unwrap();
    let record = told(&lab, "receipts").await;
    assert!(record.last_ms.is_some());
    let wanted = ConsumerRecord {
        name: "receipts".to_owned(),
        generation: 0,
        declared: None,
        ids: 5,
        lanes: 1,
        // Before 2, and from 4 to 6.
        holes: 2,
        partitions: 1,
        dead: 1,
        redriven: 1,
        last_ms: record.last_ms,
    };
    assert_eq!(record, wanted);
    store.replay_consumer("receipts", &audit("again"), false).await.unwrap();
    let replayed = ConsumerRecord { generation: 1, lanes: 0, holes: 0, partitions: 0, ..wanted.clone() };
    assert_eq!(told(&lab, "receipts").await, replayed);
    deliver::<H>(&lab.semel, &consumer("receipts").in_generation(1), &sequence(1)).await.unwrap();
    assert_eq!(told(&lab, "receipts").await, ConsumerRecord { lanes: 1, ..replayed });
    store.declare("balances", &by(Recognition::Sequence)).await.unwrap();
    let names: Vec<String> = store.consumers(None).await.unwrap().into_iter().map(|record| record.name).collect();
    assert_eq!(names, ["balances", "receipts"]);
    let balances = told(&lab, "balances").await;
    assert_eq!((balances.ids, balances.dead, balances.last_ms), (0, 0, None));
    assert!(store.consumers(Some("nobody")).await.unwrap().is_empty());
}

fn by(recognition: Recognition) -> Declaration {
    Declaration { recognition, retention: 7 * DAY }
}

async fn told<H: Harness>(lab: &Lab<H>, name: &str) -> ConsumerRecord {
    let mut found = lab.harness.store().consumers(Some(name)).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// The refusal says what is, what was wanted, and what to do.
async fn is_refused<H: Harness>(lab: &Lab<H>, name: &str, wanted: Recognition, known: Recognition) {
    let declared: Result<Consumer, Error> = lab.harness.store().declare(name, &by(wanted)).await;
    let Err(Error::Settings(told)) = declared else { panic!("{name} by {wanted:?}: {declared:?}") };
    for part in [wanted.as_str(), known.as_str(), &format!("semel inbox replay {name}")] {
        assert!(told.contains(part), "{part:?} is missing in {told:?}");
    }
}

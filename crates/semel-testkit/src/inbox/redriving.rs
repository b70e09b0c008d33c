//! Messages that were set aside and are tried again.

use std::sync::Arc;
use std::time::Duration;

use semel::consume::Consumed;
use semel::inbox::Rule;
use semel::letter::{Letter, LetterFilter, LetterId, LetterState};
use semel::{Error, Inbox, Semel, Store, Tx};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::harness::Harness;
use super::lab::{Lab, consumer, deliver};
use super::letter::{any, audit, letter, settled};
use super::message::{Kind, Message, event, id, versioned};

/// How long a taker that has to wait is watched while it does.
const WATCHED: Duration = Duration::from_millis(100);

/// Only what is dead is redriven, and who wants it is in the same commit.
pub async fn a_redrive_takes_what_is_dead_and_leaves_an_audit_row<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    let [first, second, third] = [
        lab.set_aside(&id("first")).await.id,
        lab.set_aside(&id("second")).await.id,
        lab.set_aside(&id("third")).await.id,
    ];
    let of = |id: LetterId| LetterFilter { id: Some(id), ..any() };
    let theirs = LetterFilter { consumer: Some("balances".to_owned()), ..any() };
    let mine = LetterFilter { consumer: Some("receipts".to_owned()), ..any() };
    let redrive =
        async |filter: &LetterFilter, why, dry| store.redrive_letters(filter, &audit(why), dry).await.unwrap();

    assert_eq!(redrive(&mine, "a look", true).await, 3);
    assert_eq!(redrive(&theirs, "theirs", false).await, 0);
    assert_eq!(redrive(&of(LetterId(third.0 + 1000)), "unknown", false).await, 0);
    assert!(store.redriven("receipts", 10).await.unwrap().is_empty());
    for reason in ["a look", "theirs", "unknown"] {
        assert_eq!(lab.harness.audits(reason).await, 0, "{reason}");
    }
    assert_eq!(redrive(&of(second), "just one", false).await, 1);
    assert_eq!(lab.harness.audits("just one").await, 1);
    assert_eq!(redrive(&of(second), "twice", false).await, 0);
    assert_eq!(lab.harness.audits("twice").await, 0);
    let tried = store.redriven("receipts", 10).await.unwrap();
    assert_eq!(tried.len(), 1);
    assert_eq!((tried[0].id, tried[0].state), (second, LetterState::Redriven));
    assert_eq!(tried[0].letter, letter(&id("second")));
    assert!(tried[0].changed_at_ms >= tried[0].dead_at_ms);

    let applied = LetterFilter { state: Some(LetterState::Applied), ..any() };
    assert_eq!(redrive(&applied, "not dead", false).await, 0);
    assert_eq!(redrive(&mine, "the rest", false).await, 2);
    let ids = async |limit| store.redriven("receipts", limit).await.unwrap().iter().map(|it| it.id).collect::<Vec<_>>();
    assert_eq!(ids(10).await, [first, second, third]);
    assert_eq!(ids(2).await, [first, second]);
    assert!(store.redriven("balances", 10).await.unwrap().is_empty());
    assert_eq!(redrive(&any(), "nothing left", false).await, 0);
}

/// I6: it counts as applied if and only if its effect committed, with its events and what it deferred.
pub async fn a_redriven_letter_applies_with_its_effect_or_stays_redriven<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    for kind in Kind::ALL {
        let message = kind.message(1);
        let record = lab.set_aside(&message).await;
        assert!(store.take_letter(record.id).await.unwrap().is_none(), "nobody wants it tried again");
        lab.redrive(record.id).await;

        let mut tx = store.take_letter(record.id).await.unwrap().unwrap();
        apply::<H>(&mut tx, &message.label).await.unwrap();
        tx.rollback().await;
        assert_eq!(lab.state(record.id).await, LetterState::Redriven);
        let mut tx = store.take_letter(record.id).await.unwrap().unwrap();
        apply::<H>(&mut tx, &message.label).await.unwrap();
        drop(tx);
        assert_eq!(lab.count(&message).await, 0);

        let mut tx = store.take_letter(record.id).await.unwrap().unwrap();
        H::defer(&mut tx, &message.label, 2);
        assert!(store.commit_consumed(tx).await.is_err(), "a deferred statement with another row count");
        let mut tx = store.take_letter(record.id).await.unwrap().unwrap();
        H::defer(&mut tx, &message.label, 1);
        tx.emit(event(&message.label));
        store.commit_consumed(tx).await.unwrap();
        assert_eq!(lab.state(record.id).await, LetterState::Applied);
        assert!(store.take_letter(record.id).await.unwrap().is_none());
        assert!(store.redriven("receipts", 10).await.unwrap().is_empty());
        // To its broker it is what it was before.
        lab.is_known(&message).await;
    }
    lab.applied_once(&Kind::ALL.map(|kind| kind.message(1))).await;
    assert!(store.take_letter(LetterId(i64::MAX)).await.unwrap().is_none());
}

/// I6: nobody is told that it is gone before that is sure.
pub async fn a_taker_waits_for_another_and_takes_what_that_one_left<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (store, another) = (lab.harness.store(), lab.harness.another().await);
    for commit in [false, true] {
        let message = id(if commit { "committed" } else { "rolled back" });
        let record = lab.redriven(&message).await;
        let mut tx = store.take_letter(record.id).await.unwrap().unwrap();
        apply::<H>(&mut tx, &message.label).await.unwrap();
        let waiting = another.clone();
        let mut second = tokio::spawn(async move {
            loop {
                let Some(taken) = settled::<H, _>(waiting.take_letter(record.id).await) else { continue };
                let is_taken = taken.is_some();
                if let Some(tx) = taken {
                    tx.rollback().await;
                }
                return is_taken;
            }
        });
        let told = timeout(WATCHED, &mut second).await;
        assert!(told.is_err(), "{told:?} while the first has it");
        if commit {
            store.commit_consumed(tx).await.unwrap()
        } else {
            tx.rollback().await
        }
        assert_eq!(second.await.unwrap(), !commit);
        assert_eq!(lab.count(&message).await, u64::from(commit));
    }
}

/// I6: over two handles that share nothing but the database, one of which sometimes fails.
pub async fn takers_that_race_apply_a_letter_once<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let handles = [lab.semel.clone(), Semel::new(lab.harness.another().await)];
    for round in 0..crate::counts::rounds(8, 80) {
        let message = id(&format!("letter {round}"));
        let record = lab.redriven(&message).await;
        let (start, mut racers) = (Arc::new(Barrier::new(4)), JoinSet::new());
        for racer in 0..4 {
            let (semel, start, message) = (handles[racer % 2].clone(), start.clone(), message.clone());
            let fails = racer == 0;
            racers.spawn(async move {
                start.wait().await;
                loop {
                    if let Some(applied) = settled::<H, _>(try_once::<H>(&semel, record.id, &message, fails).await) {
                        return applied;
                    }
                }
            });
        }
        let told = racers.join_all().await;
        assert_eq!(told.iter().filter(|applied| **applied).count(), 1, "{told:?}");
        assert_eq!(lab.state(record.id).await, LetterState::Applied);
        assert_eq!(lab.count(&message).await, 1);
    }
}

/// It waits for somebody again, who sees why; and one that is not redriven is left alone.
pub async fn a_letter_that_fails_again_is_dead_with_its_last_cause<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    let record = lab.redriven(&id("twice")).await;
    store.bury(record.id, "the account is closed still").await.unwrap();
    let buried = lab.letter(record.id).await;
    let wanted = Letter { cause: "the account is closed still".to_owned(), attempts: 4, ..letter(&id("twice")) };
    assert_eq!((buried.state, &buried.letter), (LetterState::Dead, &wanted));
    assert_eq!(buried.dead_at_ms, record.dead_at_ms);
    assert!(store.take_letter(record.id).await.unwrap().is_none());

    store.bury(record.id, "not redriven").await.unwrap();
    assert_eq!(lab.letter(record.id).await, buried);
    lab.redrive(record.id).await;
    store.bury(record.id, &format!("\0{}", "é".repeat(2_000))).await.unwrap();
    let buried = lab.letter(record.id).await;
    assert_eq!((buried.state, buried.letter.attempts), (LetterState::Dead, 5));
    assert!(buried.letter.cause.contains("éééé"), "{:?}", buried.letter.cause);

    lab.redrive(record.id).await;
    let tx = store.take_letter(record.id).await.unwrap().unwrap();
    store.commit_consumed(tx).await.unwrap();
    store.bury(record.id, "too late").await.unwrap();
    assert_eq!(lab.state(record.id).await, LetterState::Applied);
    store.bury(LetterId(i64::MAX), "no such letter").await.unwrap();
}

/// A full state that is older than the one there must not replace it, nor a change be made twice.
pub async fn a_letter_whose_entity_is_past_it_changes_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    let old = lab.redriven(&versioned("price", 4, Rule::Latest)).await;
    lab.applies(&versioned("price", 5, Rule::Latest)).await;
    lab.applies(&versioned("account", 1, Rule::Each)).await;
    let done = lab.redriven(&id("1 again").with_version("account", 1, Rule::Each)).await;
    for record in [old, done] {
        assert!(store.take_letter(record.id).await.unwrap().is_none());
        assert_eq!(lab.state(record.id).await, LetterState::Applied);
    }
    let new = versioned("price", 6, Rule::Latest);
    let record = lab.redriven(&new).await;
    let tx = store.take_letter(record.id).await.unwrap().unwrap();
    store.commit_consumed(tx).await.unwrap();
    let between = id("5 again").with_version("price", 5, Rule::Latest);
    assert_eq!(lab.deliver(&between).await.unwrap(), Consumed::Stale);
}

/// A change that could not be made holds up its entity, and moves it on when it is made after all.
pub async fn changes_that_are_redriven_apply_in_their_order<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    let each = |version| versioned("account", version, Rule::Each);
    lab.applies(&each(1)).await;
    // It came early and waited in vain; then the one before it could not be applied.
    let [third, second] = [lab.redriven(&each(3)).await.id, lab.redriven(&each(2)).await.id];
    assert!(store.take_letter(third).await.unwrap().is_none());
    let early = lab.letter(third).await;
    assert_eq!((early.state, early.letter.attempts), (LetterState::Dead, 4));
    assert!(early.letter.cause.contains("version before"), "{}", early.letter.cause);

    let mut tx = store.take_letter(second).await.unwrap().unwrap();
    apply::<H>(&mut tx, &each(2).label).await.unwrap();
    tx.rollback().await;
    for (letter, message) in [(second, each(2)), (third, each(3))] {
        if lab.state(letter).await == LetterState::Dead {
            lab.redrive(letter).await;
        }
        let mut tx = store.take_letter(letter).await.unwrap().unwrap();
        apply::<H>(&mut tx, &message.label).await.unwrap();
        store.commit_consumed(tx).await.unwrap();
    }
    lab.applies(&each(4)).await;
    lab.applied_once(&[1, 2, 3, 4].map(each)).await;
    // Entities are those of the letter's consumer.
    assert!(matches!(deliver::<H>(&lab.semel, &consumer("balances"), &each(4)).await, Ok(Consumed::Early)));
}

/// What was applied long ago goes with its id; what waits for somebody stays, and so does its id: forgotten, the
/// message would apply by itself, and once more from its letter.
pub async fn an_applied_letter_is_forgotten_in_time_and_a_dead_one_never<H: Harness>() {
    let (lab, day) = (Lab::<H>::open().await, Duration::from_secs(24 * 60 * 60));
    let store = lab.harness.store();
    let [applied, redriven] = [lab.redriven(&id("applied")).await.id, lab.redriven(&id("redriven")).await.id];
    let dead = lab.set_aside(&id("dead")).await.id;
    let tx = store.take_letter(applied).await.unwrap().unwrap();
    store.commit_consumed(tx).await.unwrap();
    let left = async || {
        let letters = store.letters(&any(), 10).await.unwrap();
        letters.iter().map(|letter| letter.id).collect::<Vec<_>>()
    };
    assert_eq!(store.reap_inbox("receipts", day, 100).await.unwrap(), 0);
    lab.harness.age(2 * day).await;
    assert_eq!(store.reap_inbox("balances", day, 100).await.unwrap(), 0);
    assert_eq!(left().await, [applied, redriven, dead]);
    // One id, and one letter.
    assert_eq!(store.reap_inbox("receipts", day, 100).await.unwrap(), 2);
    assert_eq!(left().await, [redriven, dead]);
    for message in [id("redriven"), id("dead")] {
        lab.is_known(&message).await;
    }
    lab.applies(&id("applied")).await;
}

/// Its retention begins with its effect (I9).
pub async fn the_id_of_a_letter_that_is_applied_late_is_kept_from_then_on<H: Harness>() {
    let (lab, day) = (Lab::<H>::open().await, Duration::from_secs(24 * 60 * 60));
    let store = lab.harness.store();
    let letter = lab.set_aside(&id("late")).await.id;
    lab.harness.age(30 * day).await;
    lab.redrive(letter).await;
    let tx = store.take_letter(letter).await.unwrap().unwrap();
    store.commit_consumed(tx).await.unwrap();
    assert_eq!(store.reap_inbox("receipts", day, 100).await.unwrap(), 0);
    lab.is_known(&id("late")).await;
    lab.harness.age(2 * day).await;
    assert_eq!(store.reap_inbox("receipts", day, 100).await.unwrap(), 2);
}

/// Takes a letter and applies it, or fails. Whether it applied it.
async fn try_once<H: Harness>(
    semel: &Semel<H::Store>,
    letter: LetterId,
    message: &Message,
    fails: bool,
) -> Result<bool, Error> {
    let Some(mut tx) = semel.store().take_letter(letter).await? else { return Ok(false) };
    apply::<H>(&mut tx, &message.label).await?;
    if fails {
        tx.rollback().await;
        return Ok(false);
    }
    semel.store().commit_consumed(tx).await.map(|()| true)
}

/// What a handler does with a letter.
async fn apply<H: Harness>(tx: &mut <H::Store as Store>::Tx, label: &str) -> Result<(), Error> {
    H::insert(tx, label).await?;
    tx.emit(event(label));
    Ok(())
}

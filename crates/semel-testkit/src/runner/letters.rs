//! Dead letters that are tried again, and history that is.

use semel::inbox::Inbox;
use semel::letter::{LetterFilter, LetterState};
use semel::operator::Audit;
use semel::runner::Ended;

use super::desk::{CONSUMER, Desk, Trouble, message};
use crate::inbox::Harness;
use crate::poll::until;

fn audit() -> Audit {
    Audit { actor: "test".to_owned(), reason: "mended".to_owned() }
}

/// Even if two runners look after it.
pub async fn a_redriven_letter_applies_once<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.trouble("a1", Trouble::Hopeless);
    desk.shelf.put([message("a1", "a")]);
    let (shift, another) = (desk.start().await, desk.start().await);
    desk.acknowledges(1).await;
    desk.no_more_trouble();
    let filter = LetterFilter { consumer: Some(CONSUMER.to_owned()), ..LetterFilter::default() };
    assert_eq!(desk.harness.store().redrive_letters(&filter, &audit(), false).await.unwrap(), 1);
    until("it is applied", async || desk.letters().await[0].state == LetterState::Applied).await;
    desk.applied_once(&["a1"]).await;
    shift.ends().await;
    another.ends().await;
    desk.applied_once(&["a1"]).await;
}

/// With the new cause, and nothing of its effect.
pub async fn a_redriven_letter_that_fails_again_is_dead_again<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.trouble("a1", Trouble::Hopeless);
    desk.shelf.put([message("a1", "a")]);
    let shift = desk.start().await;
    desk.acknowledges(1).await;
    desk.trouble("a1", Trouble::Fails(u32::MAX));
    assert_eq!(desk.harness.store().redrive_letters(&LetterFilter::default(), &audit(), false).await.unwrap(), 1);
    until("it failed again", async || desk.letters().await[0].letter.cause.contains("the clerk is ill")).await;
    let letter = desk.letters().await.remove(0);
    assert_eq!((letter.state, letter.letter.attempts), (LetterState::Dead, 2));
    assert_eq!(desk.harness.count("a1").await, 0);
    shift.ends().await;
}

/// Whoever runs it connects anew, and history applies again.
pub async fn a_new_generation_ends_the_run<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.shelf.put([message("a1", "a")]);
    let shift = desk.start().await;
    desk.acknowledges(1).await;
    assert_eq!(desk.harness.store().replay_consumer(CONSUMER, &audit(), false).await.unwrap(), Some(1));
    assert_eq!(shift.ended().await.unwrap(), Ended::NewGeneration(1));
    desk.shelf.put([message("a1", "a"), message("a1", "a")]);
    // One whose source is of the old generation takes nothing.
    assert_eq!(desk.start().await.ended().await.unwrap(), Ended::NewGeneration(1));
    assert_eq!(desk.shelf.in_hand(), 0);
    desk.consumer = desk.consumer.in_generation(1);
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    assert_eq!(desk.harness.count("a1").await, 2, "once in each generation");
    shift.ends().await;
}

/// A panic is a failure of the letter: the consumer goes on.
pub async fn a_redriven_letter_that_panics_is_dead_again<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.trouble("a1", Trouble::Hopeless);
    desk.shelf.put([message("a1", "a")]);
    let shift = desk.start().await;
    desk.acknowledges(1).await;
    desk.trouble("a1", Trouble::Panics(u32::MAX));
    assert_eq!(desk.harness.store().redrive_letters(&LetterFilter::default(), &audit(), false).await.unwrap(), 1);
    until("it failed again", async || desk.letters().await[0].letter.cause.contains("panicked")).await;
    desk.shelf.put([message("a2", "a")]);
    desk.acknowledges(2).await;
    shift.ends().await;
}

/// What it would add is in the history that was replayed since.
pub async fn a_letter_of_an_old_generation_is_not_applied<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.trouble("a1", Trouble::Hopeless);
    desk.shelf.put([message("a1", "a")]);
    let shift = desk.start().await;
    desk.acknowledges(1).await;
    desk.no_more_trouble();
    let store = desk.harness.store().clone();
    assert_eq!(store.replay_consumer(CONSUMER, &audit(), false).await.unwrap(), Some(1));
    shift.ended().await.unwrap();
    assert_eq!(store.redrive_letters(&LetterFilter::default(), &audit(), false).await.unwrap(), 1);
    desk.consumer = desk.consumer.in_generation(1);
    let shift = desk.start().await;
    until("it is dead again", async || desk.letters().await[0].letter.cause.contains("of generation 0")).await;
    assert_eq!(desk.harness.count("a1").await, 0);
    shift.ends().await;
}

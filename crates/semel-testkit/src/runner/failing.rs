//! Messages that do not apply at once, or never.

use std::time::Duration;

use semel::letter::LetterState;
use semel::source::{Message, Recognition};

use super::desk::{Desk, Trouble, message, placed, version};
use crate::inbox::Harness;
use crate::poll::until;

/// Others go on while it is tried again.
pub async fn a_message_that_fails_holds_up_its_key_and_no_other<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    // One worker and one batch for all, so that nothing but their keys tells them apart.
    (desk.settings.workers, desk.settings.attempts) = (1, u32::MAX);
    desk.trouble("a1", Trouble::Fails(u32::MAX));
    desk.shelf.put([message("a1", "a"), message("b1", "b"), message("a2", "a"), message("b2", "b")]);
    let shift = desk.start().await;
    desk.acknowledges(2).await;
    desk.shelf.put([message("a3", "a"), message("b3", "b")]);
    desk.acknowledges(3).await;
    until("the first was tried again and again", async || desk.tried("a1") > 5).await;
    assert_eq!(desk.shelf.acknowledged(), ["b1", "b2", "b3"]);
    assert_eq!((desk.tried("a2"), desk.tried("a3")), (0, 0), "nothing overtakes the first");
    desk.no_more_trouble();
    desk.acknowledges(6).await;
    assert_eq!(desk.applied("a").await, ["a1", "a2", "a3"]);
    shift.ends().await;
}

/// Over more than one batch, and with failures in between.
pub async fn what_waits_behind_a_failure_applies_in_its_order<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.batch = 3;
    // Each fails nearly as often as it may: what one message used up is not held against the next.
    for failing in ["a0", "a4", "a5", "b2", "c8"] {
        desk.trouble(failing, Trouble::Fails(desk.settings.attempts - 1));
    }
    let keys = ["a", "b", "c"];
    desk.shelf.put((0..10).flat_map(|n| keys.map(|key| message(&format!("{key}{n}"), key))));
    let shift = desk.start().await;
    desk.acknowledges(30).await;
    for key in keys {
        let wanted: Vec<String> = (0..10).map(|n| format!("{key}{n}")).collect();
        assert_eq!(desk.applied(key).await, wanted);
    }
    shift.ends().await;
}

/// With the cause, after as many attempts as were set, and acknowledged.
pub async fn a_message_that_always_fails_is_set_aside_and_its_key_goes_on<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.trouble("a1", Trouble::Fails(u32::MAX));
    desk.shelf.put([message("a1", "a"), message("a2", "a")]);
    let shift = desk.start().await;
    desk.acknowledges(2).await;
    assert_eq!(desk.applied("a").await, ["a2"]);
    let letters = desk.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].state, letters[0].letter.attempts), (LetterState::Dead, desk.settings.attempts));
    assert_eq!(letters[0].letter.message, message("a1", "a"));
    assert!(letters[0].letter.cause.contains("the clerk is ill"), "{:?}", letters[0]);
    // Delivered again, it is known.
    desk.shelf.put([message("a1", "a")]);
    desk.acknowledges(3).await;
    // A batch is tried together first, and then each of its messages by itself.
    assert_eq!((desk.letters().await.len(), desk.harness.count("a1").await), (1, 0));
    shift.ends().await;
}

/// It would only fail again.
pub async fn a_hopeless_message_is_set_aside_at_once<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.trouble("a1", Trouble::Hopeless);
    desk.shelf.put([message("a1", "a"), message("a2", "a")]);
    let shift = desk.start().await;
    desk.acknowledges(2).await;
    let letters = desk.letters().await;
    assert_eq!((letters.len(), letters[0].letter.attempts), (1, 1));
    assert!(letters[0].letter.cause.contains("cannot read it"), "{:?}", letters[0]);
    assert_eq!(desk.applied("a").await, ["a2"]);
    shift.ends().await;
}

/// The source says why.
pub async fn a_message_that_cannot_be_read_is_set_aside_untried<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.shelf.put([message("a1", "a")]);
    desk.shelf.put_unusable(message("bad", "a"), "its place is no place");
    desk.shelf.put([message("a2", "a")]);
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    let letters = desk.letters().await;
    assert_eq!((letters.len(), letters[0].letter.message.id.as_str()), (1, "bad"));
    assert_eq!((desk.tried("bad"), letters[0].letter.cause.as_str()), (0, "its place is no place"));
    assert_eq!(desk.applied("a").await, ["a1", "a2"]);
    shift.ends().await;
}

/// However often it is delivered.
pub async fn a_message_that_lacks_what_it_is_recognised_by_is_set_aside_once<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.recognition = Recognition::Sequence;
    desk.shelf.put([message("foreign", "a"), placed("own", "a", 1), message("foreign", "a")]);
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    let letters = desk.letters().await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert!(letters[0].letter.cause.contains("none of Semel's own events"), "{:?}", letters[0]);
    desk.applied_once(&["own"]).await;
    shift.ends().await;
}

/// The consumer goes on, and so do the others of its batch.
pub async fn a_panic_is_a_failure_of_its_message_alone<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.workers = 1;
    desk.trouble("bad", Trouble::Panics(u32::MAX));
    desk.trouble("shy", Trouble::Panics(2));
    desk.shelf.put(["a", "bad", "shy", "b"].map(|id| message(id, id)));
    let shift = desk.start().await;
    desk.acknowledges(4).await;
    desk.applied_once(&["a", "b", "shy"]).await;
    let letters = desk.letters().await;
    assert_eq!((letters.len(), letters[0].letter.message.id.as_str()), (1, "bad"));
    assert!(letters[0].letter.cause.contains("panicked"), "{:?}", letters[0]);
    shift.ends().await;
}

/// After the transaction's deadline; the others of its batch apply.
pub async fn an_effect_that_does_not_end_fails_its_message_alone<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    (desk.settings.workers, desk.settings.attempts) = (1, 2);
    desk.deadline = Duration::from_millis(500);
    desk.trouble("slow", Trouble::Hangs(u32::MAX));
    desk.shelf.put(["a", "slow", "b"].map(|id| message(id, id)));
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    desk.applied_once(&["a", "b"]).await;
    let letters = desk.letters().await;
    assert_eq!((letters.len(), letters[0].letter.message.id.as_str()), (1, "slow"));
    assert!(letters[0].letter.cause.contains("deadline"), "{:?}", letters[0]);
    shift.ends().await;
}

/// After as many attempts as any other failure; the others of its batch apply.
pub async fn what_cannot_be_committed_fails_its_message_alone<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.workers = 1;
    desk.trouble("bad", Trouble::Overflows);
    desk.shelf.put(["a", "bad", "b"].map(|id| message(id, id)));
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    desk.applied_once(&["a", "b"]).await;
    let letters = desk.letters().await;
    assert_eq!((letters.len(), letters[0].letter.message.id.as_str()), (1, "bad"));
    assert_eq!(desk.harness.count("bad").await, 0);
    shift.ends().await;
}

/// So that no place among Semel's own events stays open for it.
pub async fn a_version_that_is_none_is_set_aside_under_its_own_name<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.recognition = Recognition::Sequence;
    let headers = version("", "", 0, "each").headers;
    desk.shelf.put([placed("a", "a", 1), Message { headers, ..placed("bad", "b", 2) }, placed("c", "c", 3)]);
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    let letters = desk.letters().await;
    assert_eq!((letters.len(), letters[0].letter.message.id.as_str()), (1, "bad"));
    let lane = placed("a", "a", 1).sequence.unwrap();
    assert_eq!(desk.harness.ranges(&desk.consumer, &lane).await, std::iter::once(1..4).collect::<Vec<_>>());
    shift.ends().await;
}

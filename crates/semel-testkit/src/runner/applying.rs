//! Messages that apply.

use std::time::Duration;

use semel::event::PLACEHOLDER;
use semel::runner::Ended;
use semel::source::{Message, Recognition};

use super::desk::{Desk, Trouble, message, placed, version};
use crate::inbox::Harness;
use crate::poll::until;

/// However often a message comes, and with however many others.
pub async fn messages_apply_once_and_are_acknowledged_after_their_commit<H: Harness>() {
    let desk = Desk::<H>::open().await;
    let ids: Vec<String> = (0..50).map(|n| format!("m{n}")).collect();
    for _ in 0..3 {
        desk.shelf.put(ids.iter().map(|id| message(id, &id[..2])));
    }
    let shift = desk.start().await;
    desk.acknowledges(150).await;
    desk.applied_once(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(shift.ends().await, Ended::Stopped);
    assert_eq!(desk.shelf.given_back(), Vec::<String>::new());
}

/// The broker brings it again, and it is not applied again.
pub async fn a_lost_acknowledgement_brings_a_duplicate<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.shelf.lose_acknowledgements(5);
    desk.shelf.put(["a", "b", "c"].map(|id| message(id, "key")));
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    desk.applied_once(&["a", "b", "c"]).await;
    shift.ends().await;
}

/// A runner takes no more than it has room for.
pub async fn what_is_in_hand_is_bounded<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    (desk.settings.in_flight_bytes, desk.settings.batch) = (64 * 1024, 4);
    desk.settings.attempts = u32::MAX;
    desk.trouble("m0", Trouble::Fails(u32::MAX));
    // All of one key, so that all wait behind the first.
    let large = |n: usize| Message { payload: vec![b'x'; 15 * 1024].into(), ..message(&format!("m{n}"), "key") };
    desk.shelf.put((0..40).map(large));
    let shift = desk.start().await;
    until("the first was tried for a while", async || desk.tried("m0") > 20).await;
    // Four of them fill the room, and what was received last waits for it.
    let most = 4 + desk.settings.batch;
    assert!((4..=most).contains(&desk.shelf.in_hand()), "{} in hand", desk.shelf.in_hand());
    desk.no_more_trouble();
    desk.acknowledges(40).await;
    shift.ends().await;
}

/// What was not applied is delivered again, and nothing waits for a broker's patience.
pub async fn a_stop_gives_back_what_waits<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.attempts = u32::MAX;
    desk.trouble("a1", Trouble::Fails(u32::MAX));
    desk.shelf.put([message("a1", "a"), message("a2", "a"), message("b1", "b")]);
    let shift = desk.start().await;
    desk.acknowledges(1).await;
    until("the first was tried again", async || desk.tried("a1") > 1).await;
    assert_eq!(shift.ends().await, Ended::Stopped);
    assert_eq!(
        (desk.shelf.acknowledged(), desk.shelf.given_back()),
        (vec!["b1".into()], vec!["a1".into(), "a2".into()])
    );
    desk.no_more_trouble();
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    desk.applied_once(&["a1", "a2", "b1"]).await;
    shift.ends().await;
}

/// For as long as it takes, and no longer.
pub async fn what_is_in_hand_is_told_to_the_broker<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.attempts = u32::MAX;
    desk.trouble("held", Trouble::Fails(u32::MAX));
    desk.shelf.put([message("held", "a"), message("behind", "a")]);
    let shift = desk.start().await;
    until("both were told more than once", async || {
        desk.shelf.prolonged("held") > 3 && desk.shelf.prolonged("behind") > 3
    })
    .await;
    desk.no_more_trouble();
    desk.acknowledges(2).await;
    shift.ends().await;
}

/// An out-of-order change is neither lost nor applied twice, whether what it waits for comes before or behind it.
pub async fn versions_that_come_early_wait_for_those_before_them<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.attempts = 1_000;
    desk.shelf.put([3, 2, 5].map(|n| version(&format!("v{n}"), "entity", n, "each")));
    let shift = desk.start().await;
    until("the third waits", async || desk.shelf.prolonged("v3") > 2).await;
    assert_eq!(desk.applied("entity").await, Vec::<String>::new());
    desk.shelf.put([4, 1, 1].map(|n| version(&format!("v{n}"), "entity", n, "each")));
    desk.acknowledges(6).await;
    assert_eq!(desk.applied("entity").await, ["v1", "v2", "v3", "v4", "v5"]);
    shift.ends().await;
}

/// However often its entity moves without reaching it, and though it may be tried only a few times.
pub async fn a_version_waits_for_as_long_as_its_entity_moves<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.attempts = 3;
    // Nothing but the entity's moves has it tried again.
    (desk.settings.backoff_min, desk.settings.backoff_max) = (Duration::from_secs(600), Duration::from_secs(600));
    desk.shelf.put([version("v12", "entity", 12, "each")]);
    let shift = desk.start().await;
    until("the last waits", async || desk.shelf.prolonged("v12") > 2).await;
    for n in 1..12 {
        desk.shelf.put([version(&format!("v{n}"), "entity", n, "each")]);
        desk.acknowledges(usize::try_from(n).unwrap()).await;
    }
    desk.acknowledges(12).await;
    assert_eq!(desk.letters().await, []);
    assert_eq!(desk.applied("entity").await.last().map(String::as_str), Some("v12"));
    shift.ends().await;
}

/// It waits for so many attempts, and then somebody has to look.
pub async fn a_version_whose_predecessor_never_comes_is_set_aside<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.shelf.put([version("v1", "entity", 1, "each"), version("v3", "entity", 3, "each")]);
    let shift = desk.start().await;
    desk.acknowledges(2).await;
    let letters = desk.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].letter.message.id, "v3");
    assert!(letters[0].letter.cause.contains("the version before it did not come"), "{:?}", letters[0]);
    // The entity is where it was: the second still applies.
    desk.shelf.put([version("v2", "entity", 2, "each")]);
    desk.acknowledges(3).await;
    assert_eq!(desk.applied("entity").await, ["v1", "v2"]);
    shift.ends().await;
}

/// Full state that is older than what is there.
pub async fn a_stale_version_is_acknowledged_and_changes_nothing<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.shelf.put([7, 5, 9].map(|n| version(&format!("v{n}"), "entity", n, "latest")));
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    assert_eq!(desk.applied("entity").await, ["v7", "v9"]);
    shift.ends().await;
}

/// It closes the hole that a parked event leaves.
pub async fn a_placeholder_counts_and_has_no_effect<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.recognition = Recognition::Sequence;
    let placeholder = Message { message_type: PLACEHOLDER.to_owned(), ..placed("p", "b", 2) };
    desk.shelf.put([placed("a", "a", 1), placeholder, placed("c", "c", 3), placed("a", "a", 1)]);
    let shift = desk.start().await;
    desk.acknowledges(4).await;
    desk.applied_once(&["a", "c"]).await;
    assert_eq!(desk.harness.count("p").await, 0);
    let lane = placed("a", "a", 1).sequence.unwrap();
    assert_eq!(desk.harness.ranges(&desk.consumer, &lane).await, std::iter::once(1..4).collect::<Vec<_>>());
    shift.ends().await;
}

//! What a relay does beside publishing: redrives, placeholders, and room.

use std::collections::BTreeSet;

use semel::outbox::{HeldState, Holding, LANES, PageLimit};
use semel::relay::Settings;
use semel::sink::{Guarantee, Lane};
use semel::{EventId, Outbox};

use super::harness::Harness;
use super::lab::{Lab, audit, event, held_key, keys_of, past, until, within};
use super::meddler::{Meddler, Meddling};
use super::running::{Running, haste};
use super::script::{Answer, Script, is_of};

const LANE: Lane = Lane(3);

/// I5: the answer to a redrive is lost, and the relay has to give lanes up before it can ask again. It may not go on
/// with counts that the redrive is missing from.
pub async fn a_redrive_that_may_have_been_stored_gives_no_sequence_out_twice<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let keys = keys_of(LANE, 2);
    let script = refusing(&keys[0]);
    let store = Meddler::new(lab.outbox(), Meddling::default());
    let relay = Running::start(&store, &script, haste(1));
    lab.emit_to(&[&keys[0]]).await;
    parked(&lab).await;
    script.answer(|_| Answer::Take);
    store.meddle(Meddling { redrives_unanswered: true, ..Meddling::default() });
    lab.outbox().redrive(None, &audit("mended"), false).await.unwrap();
    within("the answer to a redrive is lost", store.redrive_unanswered()).await;
    // Half of the lanes are another's now, but not the one that matters.
    lab.join("other").await;
    until("the lanes are shared", async || {
        lab.outbox().outbox_status().await.unwrap().free_lanes == u64::from(LANES / 2)
    })
    .await;
    store.meddle(Meddling::default());
    lab.emit_to(&[&keys[1]]).await;
    until("both events arrive", async || keys.iter().all(|key| script.taken(key) > 0)).await;
    relay.stop().await;
    dense(&script, 3);
}

/// I5: what a relay has published and not noted is published again under the number it had, although a key is redriven
/// meanwhile.
pub async fn a_redrive_after_a_crash_takes_no_sequence_that_went_out_before_it<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let keys = keys_of(LANE, 3);
    let script = refusing(&keys[0]);
    let relay = Running::start(lab.outbox(), &script, haste(1));
    lab.emit_to(&[&keys[0]]).await;
    parked(&lab).await;
    until("its place is filled", async || script.arrived().len() == 1).await;
    relay.stop().await;

    let store = Meddler::new(lab.outbox(), Meddling { positions_lost: true, ..Meddling::default() });
    let relay = Running::start(&store, &script, haste(1));
    lab.emit_to(&[&keys[1]]).await;
    until("the second key's event arrives", async || script.taken(&keys[1]) == 1).await;
    relay.die(lab.outbox()).await;
    lab.outbox().redrive(None, &audit("mended"), false).await.unwrap();
    script.answer(|_| Answer::Take);
    let relay = Running::start(lab.outbox(), &script, haste(1));
    lab.emit_to(&[&keys[2]]).await;
    until("the others arrive", async || script.taken(&keys[0]) > 0 && script.taken(&keys[2]) > 0).await;
    lab.passed().await;
    relay.stop().await;
    dense(&script, 4);
}

/// Whoever parked a key died before its places were filled, and somebody redrives it before anybody else could.
pub async fn the_places_of_a_redriven_key_are_filled_before_it_goes_out_anew<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let key = parked_by_hand(&lab).await;
    lab.outbox().redrive(None, &audit("mended"), false).await.unwrap();
    let script = Script::new(Guarantee::AtLeastOnce, |_| Answer::Take);
    let relay = Running::start(lab.outbox(), &script, haste(1));
    until("the events arrive", async || script.taken(&key) == 2).await;
    relay.stop().await;
    dense(&script, 4);
    assert!(script.arrived()[..2].iter().all(|placeholder| !is_of(placeholder, &key)), "places first");
}

/// Sequences of another incarnation mean nothing in this one: nobody waits for them.
pub async fn a_parked_key_of_another_incarnation_has_no_places_to_fill<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let key = parked_by_hand(&lab).await;
    lab.harness.reincarnate().await;
    lab.outbox().rebase(&audit("restored"), false).await.unwrap();
    let script = Script::new(Guarantee::AtLeastOnce, |_| Answer::Take);
    let relay = Running::start(lab.outbox(), &script, haste(1));
    let later = lab.emit_to(&[&keys_of(LANE, 2)[1]]).await;
    until("what was emitted since arrives", async || !script.arrived().is_empty()).await;
    lab.outbox().redrive(None, &audit("mended"), false).await.unwrap();
    until("the redriven events arrive", async || script.taken(&key) == 2).await;
    relay.stop().await;
    dense(&script, 3);
    assert_eq!(script.sequences()[&1], BTreeSet::from_iter(later), "the numbers begin with what is published first");
}

/// I12: what is read and not published has room for so much. A lane that goes no further keeps that of its own events
/// and not that of the pages which they came with.
pub async fn a_lane_that_is_stuck_keeps_room_for_its_own_events_alone<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (stuck, free) = (&keys_of(Lane(0), 1)[0], &keys_of(LANE, 1)[0]);
    let waits = stuck.clone();
    let script = Script::new(
        Guarantee::AtLeastOnce,
        move |event| {
            if is_of(event, &waits) { Answer::Wait } else { Answer::Take }
        },
    );
    // An event takes a KiB of room: four pages of these are more than there is.
    let page = PageLimit { events: 16, bytes: 16 << 10 };
    let settings = Settings { page, in_flight_bytes: 64 << 10, ..haste(1) };
    let relay = Running::start(lab.outbox(), &script, settings);
    for n in 0..16 {
        let others = (0..15).map(|m| event("topic", free, m));
        lab.emit(std::iter::once(event("topic", stuck, n)).chain(others)).await;
    }
    until("every event of the free lane arrives", async || script.taken(free) == 16 * 15).await;
    assert_eq!(script.taken(stuck), 0);
    script.answer(|_| Answer::Take);
    until("the stuck lane goes on", async || script.taken(stuck) == 16).await;
    relay.stop().await;
}

/// Refuses events of this key and takes all others, and placeholders.
fn refusing(key: &str) -> Script {
    let key = key.to_owned();
    Script::new(Guarantee::AtLeastOnce, move |event| if is_of(event, &key) { Answer::Refuse } else { Answer::Take })
}

async fn parked<H: Harness>(lab: &Lab<H>) {
    until("a key is parked", async || lab.outbox().list_held(Some(HeldState::Parked), 10).await.unwrap().len() == 1)
        .await;
}

/// A key with two events, parked by a relay that did no more.
async fn parked_by_hand<H: Harness>(lab: &Lab<H>) -> String {
    let key = keys_of(LANE, 1).remove(0);
    let ids: Vec<EventId> = lab.emit_to(&[&key, &key]).await;
    let written = lab.written(&ids).await;
    let (relay, lanes) = lab.relay("relay").await;
    let state = past(&lanes[usize::from(LANE.0)], &written);
    lab.hold(relay, &state, &written).await;
    let parked = Holding::Update(held_key(&written[0], HeldState::Parked));
    lab.outbox().hold(relay, &state, &[parked]).await.unwrap();
    lab.outbox().leave_relays(relay).await.unwrap();
    key
}

/// Whether the sequences up to this one were given to one event or placeholder each.
fn dense(script: &Script, upto: u64) {
    let sequences = script.sequences();
    assert!(sequences.values().all(|ids| ids.len() == 1), "given out twice: {:#?}", script.arrived());
    assert!(sequences.keys().copied().eq(1..=upto), "a gap: {:#?}", script.arrived());
}

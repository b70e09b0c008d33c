//! What a relay does with a sink that commits the lane's position along with a batch: nothing goes out twice, whoever
//! dies when.

use semel::Outbox;
use semel::outbox::HeldState;
use semel::sink::{Guarantee, Lane};

use super::harness::Harness;
use super::lab::{Lab, audit, keys_of, until};
use super::meddler::{Meddler, Meddling};
use super::running::{Running, haste};
use super::script::{Answer, Script, is_of};

const LANE: Lane = Lane(5);
const UNREAD: Meddling = Meddling { unread: true, redrives_unanswered: false, positions_lost: false };

/// Two keys of one lane, an event each in one batch: the first was refused, and is held; the second could not be sent,
/// so that the lane stands before both. Then the relay was stopped.
async fn interrupted<H: Harness>() -> (Lab<H>, Script, [String; 2]) {
    let lab = Lab::<H>::open().await;
    let keys = keys_of(LANE, 2);
    let refused = keys[0].clone();
    let script =
        Script::new(
            Guarantee::Transactional,
            move |event| {
                if is_of(event, &refused) { Answer::Refuse } else { Answer::Fail }
            },
        );
    lab.emit_to(&[&keys[0], &keys[1]]).await;
    let relay = Running::start(lab.outbox(), &script, haste(100));
    lab.held(1).await;
    relay.stop().await;
    assert_eq!(script.arrived(), []);
    assert!(lab.outbox().backlog().await.unwrap().events > 0, "the lane stands before both");
    (lab, script, [keys[0].clone(), keys[1].clone()])
}

/// Everything is read, and each event has arrived once.
async fn each_once<H: Harness>(lab: &Lab<H>, script: &Script, keys: &[String]) {
    script.answer(|_| Answer::Take);
    let relay = Running::start(lab.outbox(), script, haste(100));
    lab.held(0).await;
    lab.passed().await;
    relay.stop().await;
    for key in keys {
        assert_eq!(script.taken(key), 1, "of {key}: {:#?}", script.arrived());
    }
}

/// The relay that goes on dies before it has read the batch again. By then it has had every occasion to send what is
/// held, and either has not, or is known to have.
async fn died_before_reading<H: Harness>(answer: Answer) {
    let (lab, script, keys) = interrupted::<H>().await;
    script.answer(move |_| answer);
    let store = Meddler::new(lab.outbox(), UNREAD);
    let relay = Running::start(&store, &script, haste(100));
    until("the relay has looked after held keys", async || match script.taken(&keys[0]) {
        0 => store.held_keys_found() >= 5,
        _ => answer == Answer::Vanish || lab.outbox().list_held(None, 10).await.unwrap().is_empty(),
    })
    .await;
    relay.die(lab.outbox()).await;
    each_once(&lab, &script, &keys).await;
}

/// It lives to release what it has sent.
pub async fn a_held_event_that_was_released_before_its_batch_passed_is_not_sent_with_it<H: Harness>() {
    died_before_reading::<H>(Answer::Take).await;
}

/// It dies between the sink's commit and the release.
pub async fn a_held_event_that_was_committed_before_its_batch_passed_is_not_sent_with_it<H: Harness>() {
    died_before_reading::<H>(Answer::Vanish).await;
}

/// The batch has passed, and the held event is committed at the sink when the relay dies before the release.
pub async fn a_held_event_that_was_committed_and_not_released_is_not_sent_again<H: Harness>() {
    let (lab, script, keys) = interrupted::<H>().await;
    let vanishing = keys[0].clone();
    script.answer(move |event| if is_of(event, &vanishing) { Answer::Vanish } else { Answer::Take });
    let relay = Running::start(lab.outbox(), &script, haste(100));
    until("the held event is committed", async || script.taken(&keys[0]) == 1).await;
    relay.die(lab.outbox()).await;
    lab.held(1).await;
    each_once(&lab, &script, &keys).await;
}

/// The sink is ahead of the stored position when the lane is taken, and places are filled before anything is read: what
/// is committed with them is where the lane stands at the sink.
pub async fn taking_a_lane_does_not_take_its_position_at_the_sink_back<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let keys = keys_of(LANE, 2);
    let refused = keys[0].clone();
    let script =
        Script::new(
            Guarantee::Transactional,
            move |event| {
                if is_of(event, &refused) { Answer::Refuse } else { Answer::Take }
            },
        );
    let relay = Running::start(lab.outbox(), &script, haste(1));
    lab.emit_to(&[&keys[0]]).await;
    until("its place is filled", async || script.placeholders_taken() == 1).await;
    lab.passed().await;
    relay.stop().await;
    let store = Meddler::new(lab.outbox(), Meddling { positions_lost: true, ..Meddling::default() });
    let relay = Running::start(&store, &script, haste(1));
    lab.emit_to(&[&keys[1]]).await;
    until("the other key's event arrives", async || script.taken(&keys[1]) == 1).await;
    relay.die(lab.outbox()).await;

    let filled = script.placeholders_taken();
    let relay = Running::start(&Meddler::new(lab.outbox(), UNREAD), &script, haste(1));
    until("its place is filled again", async || script.placeholders_taken() > filled).await;
    relay.die(lab.outbox()).await;
    lab.outbox().redrive(None, &audit("mended"), false).await.unwrap();
    each_once(&lab, &script, &keys).await;
}

/// A placeholder leaves the lane where it stands, so the position alone does not tell whether it was committed.
pub async fn a_placeholder_that_failed_is_not_taken_for_committed<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let keys = keys_of(LANE, 2);
    let parked = keys[0].clone();
    let refused = parked.clone();
    let script = Script::new(Guarantee::Transactional, move |event| match &event.event.ordering_key {
        key if *key != refused => Answer::Take,
        _ if is_of(event, &refused) => Answer::Refuse,
        _ => Answer::Fail,
    });
    let relay = Running::start(lab.outbox(), &script, haste(1));
    lab.emit_to(&[&keys[0], &keys[1]]).await;
    until("the key is parked, and the rest of its batch is out", async || {
        let parked = lab.outbox().list_held(Some(HeldState::Parked), 10).await.unwrap();
        parked.len() == 1 && script.taken(&keys[1]) == 1
    })
    .await;
    until("its place could not be filled", async || script.placeholders_tried() > 0).await;
    script.answer(move |event| if is_of(event, &parked) { Answer::Refuse } else { Answer::Take });
    until("its place is filled", async || script.arrived().len() == 2).await;
    relay.stop().await;
    let sequences: Vec<u64> = script.arrived().iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, [2, 1]);
}

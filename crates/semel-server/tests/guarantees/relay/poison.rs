//! One ordering key's event is refused by the receiver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::StatusCode;
use semel::event::EventId;
use semel::operator::Audit;
use semel::outbox::{EventState, HeldState, Intervention};
use semel::sink::Lane;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::collector::{Arrival, Collector, NatsStream, Receiver, check, check_dense};
#[cfg(feature = "kafka")]
use semel_testkit::collector::{KafkaTopics, Mode};
use semel_testkit::counts::rounds;
use semel_testkit::poll::until;

use super::load::Load;
use super::stage::{Counting, Stage};

const POISON: &str = "poison";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_event_holds_back_its_own_key_alone_on_postgres() {
    one_key_among_many::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_event_holds_back_its_own_key_alone_on_sqlite() {
    one_key_among_many::<Sqlite>().await;
}

async fn one_key_among_many<S: Counting>() {
    let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
    let Collector::Http(receiver) = &*stage.collector else { unreachable!() };
    // The second event of the key is refused, whatever comes.
    receiver.answer(|arrival| refuse(is_poison(arrival) && arrival.number() >= 2));
    let mut plan = stage.plan();
    // What was skipped shall still be there to be looked at, and nobody is to lose a lease on a busy machine.
    (plan.keep_ms, plan.lease_ms) = (60_000, 60_000);
    let mut relay = plan.start().await;

    let poisoned = [POISON.to_owned()];
    let keys: Vec<String> = (0..rounds(500, 10_000)).map(|n| format!("key-{n}")).collect();
    let mut ids: Vec<EventId> = stage.writer.write(&poisoned, false).await;
    for chunk in keys.chunks(100) {
        stage.writer.write(chunk, false).await;
        ids.extend(stage.writer.write(&poisoned, false).await);
        stage.writer.write(chunk, false).await;
    }
    // The others are unaffected: all of them arrive, in order, while the key is held.
    until("the key is parked with its tail, and nothing else waits", async || {
        let held = stage.store.list_held(None, 10).await.unwrap();
        let parked = held.len() == 1
            && (held[0].ordering_key.as_str(), held[0].state) == (POISON, HeldState::Parked)
            && held[0].events == ids.len() as u64 - 1;
        parked && stage.store.backlog().await.unwrap().events == 0
    })
    .await;
    let mut others = stage.writer.committed();
    others.insert(POISON.to_owned(), 1);
    let tally = check(&others, &receiver.arrived()).unwrap();
    assert_eq!(tally.duplicates, 0);
    let held = stage.store.list_held(Some(HeldState::Parked), 10).await.unwrap().remove(0);
    assert_eq!(held.attempts, 3, "{held:?}");
    assert!(held.error.contains("422"), "{held:?}");

    // Redriven while the receiver still refuses, it is parked again; mended and redriven, it goes on.
    let audit = |reason: &str| Audit { actor: "tester".to_owned(), reason: reason.to_owned() };
    let redriven = stage.store.redrive(Some(POISON), &audit("try again"), false).await.unwrap();
    assert_eq!(redriven, Intervention::Done(1));
    until("the key is parked again", async || {
        let held = stage.store.list_held(Some(HeldState::Parked), 10).await.unwrap();
        held.iter().any(|key| key.ordering_key == POISON)
    })
    .await;
    ids.extend(stage.writer.write(&poisoned, false).await);
    let highest_before = highest(&receiver.arrived());
    receiver.answer(|_| StatusCode::NO_CONTENT);
    stage.store.redrive(Some(POISON), &audit("mended"), false).await.unwrap();
    ids.extend(stage.writer.write(&poisoned, false).await);
    until("the key is free", async || {
        let held = stage.store.list_held(None, 10).await.unwrap();
        held.is_empty() && stage.store.backlog().await.unwrap().events == 0
    })
    .await;
    let arrived = receiver.arrived();
    let tally = check(&stage.writer.committed(), &arrived).unwrap();
    assert_eq!(tally.duplicates, 0);
    let poison: Vec<&Arrival> = arrived.iter().filter(|arrival| is_poison(arrival)).collect();
    let arrived_ids: Vec<String> = poison.iter().map(|arrival| arrival.id.clone()).collect();
    assert_eq!(arrived_ids, ids.iter().map(EventId::to_string).collect::<Vec<_>>(), "ids do not change");
    assert!(poison[1].sequence > highest_before, "redriven events get new sequences");
    assert!(poison.is_sorted_by_key(|arrival| arrival.sequence));

    // Skipped, the next event of the key goes on without it.
    receiver.answer(|arrival| refuse(is_poison(arrival)));
    let skipped = stage.writer.write(&poisoned, false).await[0];
    let last = stage.writer.write(&poisoned, false).await[0];
    until("the key is parked for the last time", async || {
        let held = stage.store.list_held(Some(HeldState::Parked), 10).await.unwrap();
        held.iter().any(|key| key.events == 2)
    })
    .await;
    let done = stage.store.skip_event(skipped, &audit("nobody needs it"), false).await.unwrap();
    assert_eq!(done, Intervention::Done(1));
    receiver.answer(|_| StatusCode::NO_CONTENT);
    stage.store.redrive(None, &audit("the rest"), false).await.unwrap();
    until("the last event arrives", async || receiver.arrived().iter().any(|it| it.id == last.to_string())).await;
    assert!(!receiver.arrived().iter().any(|arrival| arrival.id == skipped.to_string()));
    assert!(relay.terminate().await.success());
    let record = stage.store.show_event(skipped).await.unwrap().unwrap();
    assert_eq!((record.state, record.skipped), (EventState::Skipped, Some(audit("nobody needs it"))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_only_fails_does_not_stop_its_lane_on_postgres() {
    failing_alone::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_only_fails_does_not_stop_its_lane_on_sqlite() {
    failing_alone::<Sqlite>().await;
}

/// The receiver never refuses the event, it only fails at it, while it takes all others.
async fn failing_alone<S: Counting>() {
    let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
    let Collector::Http(receiver) = &*stage.collector else { unreachable!() };
    receiver.answer(|arrival| match is_poison(arrival) {
        true => StatusCode::INTERNAL_SERVER_ERROR,
        false => StatusCode::NO_CONTENT,
    });
    let mut relay = stage.plan().start().await;
    let neighbour = (0..).map(|n| format!("near-{n}")).find(|key| Lane::of(key) == Lane::of(POISON)).unwrap();
    let keys = [POISON.to_owned(), neighbour, "elsewhere".to_owned()];
    until("the lane goes on", async || {
        stage.writer.write(&keys, false).await;
        let held = stage.store.list_held(None, 10).await.unwrap();
        held.iter().any(|key| (key.ordering_key.as_str(), key.state) == (POISON, HeldState::Retrying))
    })
    .await;
    stage.writer.write(&keys, false).await;
    until("only the key is left", async || stage.store.backlog().await.unwrap().events == 0).await;
    let mut others = stage.writer.committed();
    others.remove(POISON);
    check(&others, &receiver.arrived()).unwrap();

    receiver.answer(|_| StatusCode::NO_CONTENT);
    stage.drained().await;
    check(&stage.writer.committed(), &receiver.arrived()).unwrap();
    assert!(stage.store.list_held(None, 10).await.unwrap().is_empty());
    assert!(relay.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_published_before_its_key_was_held_is_not_held_after_a_crash_on_postgres() {
    killed_after_holding::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_published_before_its_key_was_held_is_not_held_after_a_crash_on_sqlite() {
    killed_after_holding::<Sqlite>().await;
}

/// The relay dies when an event of a batch was refused and the batch has not ended: what comes again was refused, or
/// was published, and is either again.
async fn killed_after_holding<S: Counting>() {
    let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
    let Collector::Http(receiver) = &*stage.collector else { unreachable!() };
    let busy = (0..).map(|n| format!("busy-{n}")).find(|key| Lane::of(key) == Lane::of(POISON)).unwrap();
    let (poisoned, waiting) = ([POISON.to_owned()], [busy.clone()]);
    // Its lane cannot go on, because of another key that is nobody's fault.
    let tried = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tried);
    receiver.answer(move |arrival| match is_poison(arrival) {
        true => refuse(arrival.number() == 2),
        false => {
            counted.fetch_add(1, Ordering::Relaxed);
            StatusCode::SERVICE_UNAVAILABLE
        }
    });
    stage.writer.write(&poisoned, false).await;
    stage.writer.write(&poisoned, false).await;
    stage.writer.write(&waiting, false).await;
    let mut relay = stage.plan().start().await;
    // By the second time, whatever is done about the refused event before the batch has ended is done.
    until("the rest of the batch was tried again", async || tried.load(Ordering::Relaxed) > 1).await;
    assert!(receiver.arrived().iter().any(|arrival| arrival.number() == 1));
    relay.kill9().await;

    receiver.answer(|arrival| refuse(is_poison(arrival) && arrival.number() == 2));
    let mut relay = stage.plan().start().await;
    until("the key is parked and nothing else waits", async || {
        let parked = stage.store.list_held(Some(HeldState::Parked), 10).await.unwrap();
        parked.len() == 1 && stage.store.backlog().await.unwrap().events == 0
    })
    .await;
    let parked = stage.store.list_held(None, 10).await.unwrap();
    assert_eq!(parked[0].events, 1, "{parked:?}");
    receiver.answer(|_| StatusCode::NO_CONTENT);
    let audit = Audit { actor: "tester".to_owned(), reason: "mended".to_owned() };
    stage.store.redrive(None, &audit, false).await.unwrap();
    until("the key is free", async || stage.store.list_held(None, 10).await.unwrap().is_empty()).await;
    check(&stage.writer.committed(), &receiver.arrived()).unwrap();
    assert!(relay.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_have_no_gap_while_a_key_is_parked_on_nats() {
    parked_without_a_gap::<Sqlite>(Collector::Nats(NatsStream::create().await)).await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_have_no_gap_while_a_key_is_parked_on_kafka() {
    parked_without_a_gap::<Postgres>(Collector::Kafka(KafkaTopics::create(Mode::Transactional).await)).await;
}

/// A consumer that counts sequences goes on while a key is parked: placeholders stand for what is missing.
async fn parked_without_a_gap<S: Counting>(collector: Collector) {
    let stage = Stage::<S>::set(collector).await;
    let mut relay = stage.plan().start().await;
    let poisoned = [POISON.to_owned()];
    let mut load = Load::start(&stage.writer);
    stage.writer.write(&poisoned, false).await;
    let large = stage.writer.write_large(POISON).await;
    stage.writer.write(&poisoned, false).await;
    parked_with(&stage, 2).await;
    stage.writer.write(&poisoned, false).await;
    parked_with(&stage, 3).await;
    // Whoever parked it may die before the placeholders are out.
    relay.kill9().await;
    let mut relay = stage.plan().start().await;
    let reached = load.written();
    load.reaches(reached + 100).await;
    load.end().await;
    stage.drained().await;

    let arrived = stage.collector.arrived().await;
    check_dense(&arrived).unwrap();
    let mut expected = stage.writer.committed();
    expected.insert(POISON.to_owned(), 1);
    let tally = check(&expected, &arrived).unwrap();
    assert_eq!((tally.duplicates, tally.placeholders), (0, 3), "{tally:?}");

    let audit = Audit { actor: "tester".to_owned(), reason: "too large".to_owned() };
    stage.store.skip_event(large, &audit, false).await.unwrap();
    stage.store.redrive(Some(POISON), &audit, false).await.unwrap();
    until("the key is free", async || stage.store.list_held(None, 10).await.unwrap().is_empty()).await;
    let arrived = stage.collector.arrived().await;
    check_dense(&arrived).unwrap();
    let poison = arrived.iter().filter(|arrival| is_poison(arrival)).map(Arrival::number);
    assert_eq!(poison.collect::<Vec<_>>(), [1, 3, 4], "all but what was skipped, in order");
    assert!(relay.terminate().await.success());
}

async fn parked_with<S: Counting>(stage: &Stage<S>, events: u64) {
    until(&format!("the key is parked with {events} events"), async || {
        let held = stage.store.list_held(Some(HeldState::Parked), 10).await.unwrap();
        held.iter().any(|key| (key.ordering_key.as_str(), key.events) == (POISON, events))
    })
    .await;
}

fn is_poison(arrival: &Arrival) -> bool {
    arrival.ordering_key == POISON && !arrival.is_placeholder()
}

fn refuse(refused: bool) -> StatusCode {
    if refused { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::NO_CONTENT }
}

/// The highest sequence that arrived in the poisoned key's lane and topic.
fn highest(arrived: &[Arrival]) -> u64 {
    let poison = arrived.iter().find(|arrival| arrival.ordering_key == POISON).unwrap();
    let same = arrived.iter().filter(|arrival| (&arrival.topic, arrival.lane) == (&poison.topic, poison.lane));
    same.map(|arrival| arrival.sequence).max().unwrap()
}

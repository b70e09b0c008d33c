//! An event is there if and only if its effect is.

use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use semel::event::{Invalid, MAX_HEADER_BYTES, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES};
use semel::lease::{Lease, LeaseTerms, OnExpiry, RecoveryPoint};
use semel::once::Error as OnceError;
use semel::outbox::{MAX_EVENTS, MAX_ORDERING_KEYS};
use semel::{Claim, Error, Event, EventId, Execution, Key, Outbox, Outcome, Reply, Store, Tx};

use super::harness::Harness;
use super::lab::{Lab, distinct, event, number, within};

/// I1, I4: one commit shows both.
pub async fn events_become_visible_with_their_effect_and_not_before<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let mut tx = lab.fresh(&key).await;
    H::insert(&mut tx, key.as_str()).await.unwrap();
    tx.emit(event("topic", "one", 1));
    tx.emit(event("topic", "two", 2));
    assert_eq!(lab.everything().await, []);
    assert_eq!(lab.harness.count(key.as_str()).await, 0);
    lab.semel.finish(&lab.ask(&key), tx, &reply(201)).await.unwrap();
    assert_eq!(lab.everything().await.len(), 2);
    assert_eq!(lab.harness.count(key.as_str()).await, 1);
}

/// I4: what was rolled back, dropped or failed takes its events along.
pub async fn a_rolled_back_effect_takes_its_events_along<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    for rolled_back in [true, false] {
        let patient = lab.ask(&key).waiting(Duration::from_secs(10));
        let Claim::Fresh(mut tx) = lab.semel.claim(&patient).await.unwrap() else { panic!("the key is new") };
        H::insert(&mut tx, key.as_str()).await.unwrap();
        tx.emit(event("topic", "key", 1));
        if rolled_back {
            tx.rollback().await;
        } else {
            drop(tx);
        }
    }
    // A transaction that was dropped may still be on its way out.
    let patient = lab.ask(&key).waiting(Duration::from_secs(10));
    let Claim::Fresh(tx) = lab.semel.claim(&patient).await.unwrap() else { panic!("the key is new") };
    tx.rollback().await;
    let failed = lab.semel.once(&lab.scope, &key, &lab.fingerprint, async |tx| {
        tx.emit(event("topic", "key", 1));
        Err::<Reply, &str>("no")
    });
    assert!(matches!(failed.await, Err(OnceError::Effect("no"))));
    assert_eq!(lab.everything().await, []);
}

/// I4: a refusal is stored without its effect, a failure not at all, and neither says anything.
pub async fn a_4xx_or_5xx_emits_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let events = [event("topic", "key", 1)];
    for refused in [reply(402), reply(409), reply(500), reply(503), reply(500).terminal()] {
        lab.answer(&Key::random(), refused, &events).await.unwrap();
    }
    assert_eq!(lab.everything().await, []);
    let (kept, replayed) = (Key::random(), Key::random());
    lab.answer(&kept, reply(402).keep(), &events).await.unwrap();
    assert_eq!(lab.everything().await.len(), 1, "an effect that is kept keeps its events");
    for _ in 0..3 {
        lab.answer(&replayed, reply(201), &events).await.unwrap();
    }
    assert_eq!(lab.everything().await.len(), 2, "a replay says nothing again");
}

/// An event is what makes work begin, so a refusal after it is stored.
pub async fn execution_begins_with_an_event<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let mut tx = lab.fresh(&key).await;
    assert!(!tx.begun());
    tx.emit(event("topic", "key", 1));
    assert!(tx.begun());
    lab.semel.finish(&lab.ask(&key), tx, &reply(402)).await.unwrap();
    assert!(matches!(lab.semel.claim(&lab.ask(&key)).await.unwrap(), Claim::Replay(_)));
    assert_eq!(lab.everything().await, []);
}

/// The identity of an event follows from the run and its place in it.
pub async fn ids_derive_from_the_execution_and_the_ordinal<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let events = [event("topic", "b", 0), event("other", "a", 1), event("topic", "b", 2), event("topic", "c", 3)];
    lab.answer(&key, reply(201), &events).await.unwrap();
    let execution = lab.outbox().show_key(&lab.scope, &key).await.unwrap().unwrap().execution;
    for written in lab.everything().await {
        assert_eq!(written.id, EventId::derive(execution, u32::try_from(number(&written)).unwrap()));
        assert_eq!(written.event, events[usize::try_from(number(&written)).unwrap()]);
    }
    assert_eq!(lab.everything().await.len(), 4);
}

/// Every step counts from zero, and none repeats another's ids.
pub async fn every_step_of_leased_work_has_ids_of_its_own<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let terms = LeaseTerms {
        lease_for: Duration::from_secs(30),
        holder: "worker".to_owned(),
        on_expiry: OnExpiry::Resume,
        retain: Duration::from_secs(24 * 60 * 60),
    };
    let Claim::Fresh(mut lease) = lab.semel.lease(&lab.ask(&key), &terms).await.unwrap() else {
        panic!("the key is new");
    };
    let execution = lease.execution;
    let mut expected = Vec::new();
    for point in ["reserved", "delivered"] {
        expected.extend(ids(execution.step(lease.recovery_point.as_ref())));
        // A step that fails leaves nothing, and running it again makes the same events.
        let at = RecoveryPoint::new(point).unwrap();
        let failed = lab.semel.advance(&mut lease, &at, async |tx| {
            tx.emit(event("topic", "key", 0));
            Err::<(), &str>("not yet")
        });
        assert!(failed.await.is_err());
        step(&lab, &mut lease, point).await;
    }
    expected.extend(ids(execution.step(lease.recovery_point.as_ref())));
    let finished = lab.semel.finish_leased(&lease, async |tx| {
        two(tx);
        Ok::<Reply, Error>(reply(201))
    });
    assert!(matches!(finished.await.unwrap(), Outcome::Fresh(_)));
    let found: Vec<EventId> = lab.everything().await.iter().map(|written| written.id).collect();
    assert_eq!(found, expected);
    assert!(distinct(found));
}

async fn step<H: Harness>(lab: &Lab<H>, lease: &mut Lease, point: &str) {
    let point = RecoveryPoint::new(point).unwrap();
    let stepped = lab.semel.advance(lease, &point, async |tx| {
        two(tx);
        Ok::<(), Error>(())
    });
    stepped.await.unwrap();
}

fn two(tx: &mut impl Tx) {
    tx.emit(event("topic", "key", 0));
    tx.emit(event("topic", "key", 1));
}

fn ids(execution: Execution) -> [EventId; 2] {
    [EventId::derive(execution, 0), EventId::derive(execution, 1)]
}

/// What is emitted is what comes out, to the byte, up to the limits.
pub async fn an_event_is_kept_whole<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let name = |c: &str| c.repeat(MAX_NAME_BYTES / c.len());
    let large = Event::bytes(name("é"), name("ü"), name("x"), name("y"), vec![0xff; MAX_PAYLOAD_BYTES]).unwrap();
    let header = "v".repeat(MAX_HEADER_BYTES - 5);
    let traced = Event::bytes("topic", "key", "type", "application/octet-stream", vec![0, 13, 10, 255])
        .and_then(|event| event.header("a", "one"))
        .and_then(|event| event.header("b", "quote \" backslash \\ brace { é"))
        .and_then(|event| event.header("a", ""))
        .unwrap()
        .traced("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("vendor=1".to_owned()));
    let empty = Event::bytes("t", "k", "e", "c", Vec::new()).unwrap();
    let heavy = empty.clone().header("h", header).unwrap();
    let events = [large, traced, empty, heavy];
    let ids = lab.emit(events.clone()).await;
    let now = i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    for written in lab.everything().await {
        let ordinal = ids.iter().position(|id| *id == written.id).unwrap();
        assert_eq!(written.event, events[ordinal]);
        assert!((written.time_ms - now).abs() < 60_000, "{} is not about {now}", written.time_ms);
    }
    assert_eq!(lab.everything().await.len(), events.len());
}

/// I12: as many as are allowed, and not one more.
pub async fn more_events_or_keys_than_allowed_commit_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let many = |events: usize, keys: usize| -> Vec<Event> {
        (0..events).map(|n| Event::bytes("t", format!("k-{}", n % keys), "e", "c", "").unwrap()).collect()
    };
    for (events, keys, limit) in
        [(MAX_EVENTS + 1, 1, MAX_EVENTS), (MAX_ORDERING_KEYS + 1, MAX_ORDERING_KEYS + 1, MAX_ORDERING_KEYS)]
    {
        let key = Key::random();
        let refused = lab.answer(&key, reply(201), &many(events, keys)).await;
        let Err(OnceError::Store(error)) = refused else { panic!("{events} events of {keys} keys were accepted") };
        assert!(matches!(&error, Error::TooManyEvents { limit: told, .. } if *told == limit), "{error:?}");
        assert_eq!(error.next(), semel::Next::Stop);
        assert_eq!(lab.harness.count(key.as_str()).await, 0);
        assert!(lab.outbox().show_key(&lab.scope, &key).await.unwrap().is_none(), "the key stays new");
    }
    assert_eq!(lab.everything().await, []);
    lab.answer(&Key::random(), reply(201), &many(MAX_EVENTS, MAX_ORDERING_KEYS)).await.unwrap();
    assert_eq!(lab.everything().await.len(), MAX_EVENTS);
}

/// I12: the constructor refuses it, and whoever goes around the constructor commits nothing.
pub async fn a_payload_over_the_limit_commits_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let large = vec![b'x'; MAX_PAYLOAD_BYTES + 1];
    let refused = Event::bytes("topic", "key", "type", "text/plain", large.clone());
    assert!(matches!(refused, Err(Invalid::Payload(bytes)) if bytes == large.len()));
    let small = event("topic", "key", 1);
    for forged in [
        Event { payload: large.into(), ..small.clone() },
        Event { topic: String::new(), ..small.clone() },
        Event { ordering_key: "k".repeat(MAX_NAME_BYTES + 1), ..small.clone() },
    ] {
        let key = Key::random();
        let refused = lab.answer(&key, reply(201), &[small.clone(), forged]).await;
        assert!(matches!(refused, Err(OnceError::Store(_))), "{:?}", refused.map(drop));
        assert_eq!(lab.harness.count(key.as_str()).await, 0);
        assert!(lab.outbox().show_key(&lab.scope, &key).await.unwrap().is_none(), "the key stays new");
    }
    assert_eq!(lab.everything().await, []);
}

/// A relay in the same process need not ask to learn of an event.
pub async fn a_commit_wakes_whoever_waits_for_events<H: Harness>() {
    let lab = Lab::<H>::open().await;
    lab.emit([event("topic", "key", 1)]).await;
    within("an event that was committed before is told", lab.outbox().emitted()).await;
    assert!(lab.outbox().emitted().now_or_never().is_none(), "nothing was committed since");
    let outbox = lab.outbox().clone();
    let waiting = tokio::spawn(async move { outbox.emitted().await });
    lab.emit([event("topic", "key", 2)]).await;
    within("an event that is committed now is told", waiting).await.unwrap();
}

fn reply(status: u16) -> Reply {
    Reply::new(status, "done").unwrap()
}

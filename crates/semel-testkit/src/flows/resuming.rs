//! A flow runs to its end, once, whoever dies on the way.

use std::time::Duration;

use semel::flow::{self, Definition, FlowState, State};
use semel::once::{Error as OnceError, Settings as SemelSettings};
use semel::{Fingerprint, Flow, Key, Keyring, Outcome, Reply, SealingKey, Semel};

use super::harness::Harness;
use super::lab::FLOW;
use super::remote::Charge;
use super::shop::{ORDER, Shop, build, settings};
use super::world::{Order, World, adds, calls, finishes};

/// Where the process dies, in the order in which an order passes the places; and how often a process that goes on until
/// the end has run the reservation by then, and asked for the charge.
const PLACES: [(&str, u32, usize); 7] = [
    ("begun", 1, 1),
    ("within reserve", 2, 1),
    ("reserve done", 1, 1),
    ("before charge", 1, 1),
    ("after charge", 1, 2),
    ("charge done", 1, 1),
    ("within finish", 1, 1),
];

/// An order: a reservation, a charge, and the reply.
pub(super) fn order<H: Harness>(world: &World) -> Definition<H::Store> {
    let (at, psp) = (world.clone(), world.psp.clone());
    Definition::new(FLOW, move |flow: Flow<H::Store>, order: Order| place::<H>(flow, at.clone(), order)).calling([psp])
}

async fn place<H: Harness>(flow: Flow<H::Store>, world: World, order: Order) -> flow::Result<Reply> {
    assert_eq!(order, ORDER);
    world.trap.pass("begun").await;
    let seven = adds::<H>(&flow, &world, "reserve").await?;
    assert_eq!(seven, 7, "the result is the stored one");
    let charge = calls::<H>(&flow, &world, "charge").await?;
    finishes::<H>(&flow, &world, charge).await
}

/// I1, I3.
pub async fn a_flow_runs_each_step_once_and_replays_its_reply<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let expected = Reply::json(201, &Charge { id: 1 }).unwrap();
    assert_eq!(shop.asks(order::<H>, &key).await.unwrap(), Outcome::Fresh(expected.clone()));
    for _ in 0..2 {
        assert_eq!(shop.asks(order::<H>, &key).await.unwrap(), Outcome::Replayed(expected.clone()));
    }
    ended_once(&shop, &key).await;
    assert_eq!((shop.world.ran("reserve"), shop.world.ran("charge"), shop.world.ran("finish")), (1, 1, 1));
    let shown = shop.shows(&key).await;
    assert_eq!((shown.record.state, shown.record.status, shown.record.epoch), (FlowState::Completed, Some(201), 1));
    let steps: Vec<(&str, State)> = shown.steps.iter().map(|it| (it.entry.step.as_str(), it.entry.state)).collect();
    assert_eq!(steps, [("reserve", State::Done), ("charge", State::Done)]);
    let kept = shop.lab.harness.kept().await;
    for stored in [&b"7"[..], br#"{"id":1}"#, br#"{"quantity":2}"#] {
        assert!(kept.iter().any(|bytes| bytes == stored), "{} is stored", String::from_utf8_lossy(stored));
    }
}

/// I2, I8: wherever the process dies, the client's retry goes on behind what is recorded.
pub async fn a_flow_that_dies_anywhere_is_finished_by_its_clients_retry<H: Harness>() {
    let mut shop = Shop::<H>::open().await;
    for (place, reserved, requested) in PLACES {
        let key = Key::random();
        shop.world = World::new();
        shop.dies_at(place, order::<H>, &key).await;
        assert_eq!(shop.answers(order::<H>, &key).await.reply().status(), 201, "{place}");
        ended_once(&shop, &key).await;
        assert_eq!(shop.world.ran("reserve"), reserved, "{place}");
        assert_eq!(shop.world.remote.requested("charge").len(), requested, "{place}");
    }
}

/// The same without a client that comes back.
pub async fn a_flow_that_dies_anywhere_is_finished_by_a_completer<H: Harness>() {
    let mut shop = Shop::<H>::open().await;
    for (place, reserved, requested) in PLACES {
        let key = Key::random();
        shop.world = World::new();
        shop.dies_at(place, order::<H>, &key).await;
        shop.completes(order::<H>, &key).await;
        ended_once(&shop, &key).await;
        assert_eq!(shop.world.ran("reserve"), reserved, "{place}");
        assert_eq!(shop.world.remote.requested("charge").len(), requested, "{place}");
        let Ok(Outcome::Replayed(reply)) = shop.asks(order::<H>, &key).await else { panic!("{place}: it has ended") };
        assert_eq!(reply, Reply::json(201, &Charge { id: 1 }).unwrap());
    }
}

/// Those who go on may die as well, each at the next place.
pub async fn a_flow_whose_every_worker_dies_gets_on_all_the_same<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    for (place, _, _) in PLACES {
        shop.dies_at(place, order::<H>, &key).await;
    }
    assert_eq!(shop.answers(order::<H>, &key).await.reply().status(), 201);
    ended_once(&shop, &key).await;
    assert!(shop.shows(&key).await.record.epoch > 7);
}

/// A client that disconnects stops nothing.
pub async fn a_client_that_goes_away_stops_nothing<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.world.trap.hold("before charge");
    let (flows, ask) = (shop.flows(order::<H>), shop.lab.ask(&key));
    let client = tokio::spawn(async move { flows.run(FLOW, &ask, &ORDER).await });
    shop.world.trap.springs_at("before charge").await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    shop.world.trap.thaw();
    shop.ends(&key).await;
    ended_once(&shop, &key).await;
}

/// I7, I8: whatever a worker does that wakes up after another one took over, it commits nothing, and what it tells the
/// provider carries the same key.
pub async fn a_worker_that_wakes_up_after_a_takeover_commits_nothing<H: Harness>() {
    let mut shop = Shop::<H>::open().await;
    for place in ["begun", "reserve done", "before charge", "after charge", "charge done"] {
        let key = Key::random();
        shop.world = World::new();
        shop.world.trap.freeze(place);
        let late = shop.worker(order::<H>).await;
        let running = late.runs(shop.lab.ask(&key));
        shop.world.trap.springs_at(place).await;
        shop.lab.abandons().await;
        assert_eq!(shop.answers(order::<H>, &key).await.reply().status(), 201, "{place}");
        shop.world.trap.thaw();
        let told = running.await.unwrap();
        assert!(matches!(told, Err(OnceError::InFlight { .. })), "{place}: {told:?}");
        ended_once(&shop, &key).await;
        assert_eq!(shop.shows(&key).await.record.epoch, 2, "{place}");
    }
}

/// A function need not have a last step.
pub async fn a_flow_without_a_last_step_ends_with_what_it_returns<H: Harness>() {
    fn plain<H: Harness>(world: &World) -> Definition<H::Store> {
        let world = world.clone();
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| {
            let world = world.clone();
            async move {
                adds::<H>(&flow, &world, "reserve").await?;
                Ok::<Reply, flow::Error>(Reply::new(202, "accepted")?)
            }
        })
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let expected = Reply::new(202, "accepted").unwrap();
    assert_eq!(shop.asks(plain::<H>, &key).await.unwrap(), Outcome::Fresh(expected.clone()));
    assert_eq!(shop.asks(plain::<H>, &key).await.unwrap(), Outcome::Replayed(expected));
    assert_eq!(shop.added("reserve", &key).await, 1);
}

/// What may pass is tried again, with pauses that grow, and what was done stays done.
pub async fn a_failure_that_may_pass_is_tried_again_after_growing_pauses<H: Harness>() {
    fn failing<H: Harness>(world: &World) -> Definition<H::Store> {
        let world = world.clone();
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| {
            let world = world.clone();
            async move {
                adds::<H>(&flow, &world, "reserve").await?;
                world.note("tried");
                match world.ran("tried") {
                    1..=3 => Err(flow::Error::retry("the stock is away")),
                    4 => panic!("the stock is upside down"),
                    _ => finishes::<H>(&flow, &world, Charge { id: 9 }).await,
                }
            }
        })
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let mut pauses = Vec::new();
    for failures in 1..=4 {
        let failed = shop.asks(failing::<H>, &key).await;
        let Err(OnceError::InFlight { retry_after }) = failed else { panic!("it fails and waits: {failed:?}") };
        pauses.push(retry_after);
        let record = shop.shows(&key).await.record;
        assert_eq!((record.failures, record.unwinding), (failures, false));
        let (cause, expected) = (record.cause.unwrap_or_default(), if failures == 4 { "upside down" } else { "away" });
        assert!(cause.contains(expected), "{cause}");
        shop.pauses_are_over().await;
    }
    assert!(pauses.is_sorted() && pauses[0] < pauses[3], "{pauses:?}");
    assert!(pauses[3] <= Duration::from_secs(5 * 60), "{pauses:?}");
    assert_eq!(shop.asks(failing::<H>, &key).await.unwrap().reply().status(), 201);
    assert_eq!((shop.added("reserve", &key).await, shop.world.ran("reserve")), (1, 1));
    assert_eq!(shop.world.ran("tried"), 5);
}

/// A key is in flight while its flow runs, and belongs to the request that it came with.
pub async fn a_flow_in_flight_is_told_and_a_reused_key_refused<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.world.trap.hold("before charge");
    let (flows, ask) = (shop.flows(order::<H>), shop.lab.ask(&key));
    let mut reused = ask.clone();
    reused.fingerprint = Fingerprint::of_bytes(b"another request");
    let running = tokio::spawn({
        let (flows, ask) = (flows.clone(), ask.clone());
        async move { flows.run(FLOW, &ask, &ORDER).await }
    });
    shop.world.trap.springs_at("before charge").await;
    assert!(matches!(flows.run(FLOW, &ask, &ORDER).await, Err(OnceError::InFlight { .. })));
    assert!(matches!(flows.run(FLOW, &reused, &ORDER).await, Err(OnceError::Mismatch)));
    shop.world.trap.thaw();
    assert!(matches!(running.await.unwrap(), Ok(Outcome::Fresh(_))));
    assert!(matches!(flows.run(FLOW, &reused, &ORDER).await, Err(OnceError::Mismatch)));
    ended_once(&shop, &key).await;
}

/// What lies in the database does not tell what was ordered, and a worker with the keyring goes on with it.
pub async fn what_a_flow_keeps_is_sealed_at_rest<H: Harness>() {
    let shop = Shop::<H>::open().await;
    let keyring = Keyring::new([SealingKey::new("one", [1; 32]).unwrap()]).unwrap();
    let sealing = SemelSettings { keyring: Some(keyring), ..SemelSettings::default() };
    let plain = shop.lab.semel.clone();
    let sealed = Semel::with_settings(shop.lab.store().clone(), sealing).await.unwrap();
    for (semel, is_open) in [(sealed, false), (plain, true)] {
        let key = Key::random();
        shop.world.trap.hold("charge done");
        let flows = build(semel, order::<H>(&shop.world), settings());
        let (at_work, ask) = (flows.clone(), shop.lab.ask(&key));
        let running = tokio::spawn(async move { at_work.run(FLOW, &ask, &ORDER).await });
        shop.world.trap.springs_at("charge done").await;
        let kept = shop.lab.harness.kept().await;
        let lies_open = kept.iter().any(|bytes| bytes.windows(8).any(|window| window == b"quantity"));
        assert_eq!(lies_open, is_open, "the control is the flow without a keyring");
        // Another worker takes over and reads what the first one sealed.
        shop.lab.abandons().await;
        assert_eq!(flows.run(FLOW, &shop.lab.ask(&key), &ORDER).await.unwrap().reply().status(), 201);
        shop.world.trap.thaw();
        let _ = running.await.unwrap();
        ended_once(&shop, &key).await;
    }
}

/// Each effect is there once, the provider did it once, and every request carried the derived key.
async fn ended_once<H: Harness>(shop: &Shop<H>, key: &Key) {
    assert_eq!((shop.added("reserve", key).await, shop.added("finish", key).await), (1, 1));
    let derived = shop.derived(key, "charge");
    let of_this = |keys: Vec<String>| keys.into_iter().filter(|sent| *sent == derived).count();
    assert_eq!(of_this(shop.world.remote.done("charge")), 1);
    let requested = shop.world.remote.requested("charge");
    assert!(of_this(requested.clone()) >= 1, "{requested:?}");
}

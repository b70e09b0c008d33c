//! Flows that wait, that are not wanted any more, and that take too long.

use std::time::{Duration, Instant, SystemTime};

use semel::flow::{self, Change, Definition, FlowState, FlowStore, Resolution, Settings};
use semel::once::Error as OnceError;
use semel::provider::Keys;
use semel::{Flow, Key, OnExpiry, Reply};

use super::calling::resolves;
use super::harness::Harness;
use super::lab::{FLOW, audit};
use super::remote::Charge;
use super::resuming::order;
use super::shop::{ORDER, Shop, build, settings};
use super::undoing::shipped;
use super::world::{Order, World, adds, finishes, psp, removes};
use crate::poll::until_some;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// An order that waits for this long behind its reservation.
fn waiting<H: Harness>(world: &World, pause: Duration) -> Definition<H::Store> {
    let world = world.clone();
    Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| wait::<H>(flow, world.clone(), pause))
}

async fn wait<H: Harness>(flow: Flow<H::Store>, world: World, pause: Duration) -> flow::Result<Reply> {
    adds::<H>(&flow, &world, "reserve").await?;
    removes::<H>(&flow, &world, "reserve")?;
    flow.sleep_until("cool-down", SystemTime::now() + pause).await?;
    world.note("awake");
    finishes::<H>(&flow, &world, Charge { id: 0 }).await
}

fn for_a_moment<H: Harness>(world: &World) -> Definition<H::Store> {
    waiting::<H>(world, Duration::from_millis(40))
}

fn for_a_while<H: Harness>(world: &World) -> Definition<H::Store> {
    waiting::<H>(world, Duration::from_millis(1500))
}

fn for_hours<H: Harness>(world: &World) -> Definition<H::Store> {
    waiting::<H>(world, 10 * HOUR)
}

fn for_hours_of_a_short_life<H: Harness>(world: &World) -> Definition<H::Store> {
    waiting::<H>(world, 10 * HOUR).lives_for(HOUR)
}

fn short_lived<H: Harness>(world: &World) -> Definition<H::Store> {
    shipped::<H>(world).lives_for(HOUR)
}

fn not_resumed<H: Harness>(world: &World) -> Definition<H::Store> {
    order::<H>(world).on_expiry(OnExpiry::Hold)
}

/// A short pause is waited for.
pub async fn a_short_pause_is_waited_for<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let begun = Instant::now();
    assert_eq!(shop.asks(for_a_moment::<H>, &key).await.unwrap().reply().status(), 201);
    assert!(begun.elapsed() >= Duration::from_millis(30), "{:?}", begun.elapsed());
    assert_eq!(shop.shows(&key).await.record.epoch, 1);
}

/// In a long pause nobody works on the flow, and its end is not moved by whoever runs it meanwhile.
pub async fn a_long_pause_ends_when_it_was_to_end<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let impatient = Settings { patience: Duration::ZERO, ..settings() };
    let flows = build(shop.lab.semel.clone(), for_a_while::<H>(&shop.world), impatient);
    let ask = shop.lab.ask(&key);
    let asked = flows.run(FLOW, &ask, &ORDER).await;
    let Err(OnceError::InFlight { retry_after }) = asked else { panic!("it pauses: {asked:?}") };
    assert!(retry_after <= Duration::from_millis(1500), "{retry_after:?}");
    let record = shop.shows(&key).await.record;
    assert_eq!((record.state, record.last_step.as_deref()), (FlowState::Paused, Some("cool-down")));
    assert_eq!(shop.world.ran("awake"), 0);
    let ended = until_some("the pause is over", async || match flows.run(FLOW, &ask, &ORDER).await {
        Err(OnceError::InFlight { .. }) => None,
        ended => Some(ended),
    });
    assert_eq!(ended.await.unwrap().reply().status(), 201);
    assert_eq!((shop.world.ran("reserve"), shop.world.ran("awake")), (1, 1));
}

/// What an operator cancels is undone, also out of a pause.
pub async fn a_cancelled_flow_is_undone_and_answers_so<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let asked = shop.asks(for_hours::<H>, &key).await;
    assert!(matches!(asked, Err(OnceError::InFlight { .. })), "{asked:?}");
    let execution = shop.shows(&key).await.record.execution;
    let change = shop.lab.store().cancel_flow(execution, &audit("not wanted"), false).await.unwrap();
    assert!(matches!(change, Change::Made(_)), "{change:?}");
    shop.completes(for_hours::<H>, &key).await;
    answers(&shop, &key, "flow-cancelled").await;
    assert_eq!((shop.added("undo reserve", &key).await, shop.added("finish", &key).await), (1, 0));
}

/// A worker that is at it when its flow is cancelled begins nothing new. What is done is undone, a call included whose
/// attempt was counted before.
pub async fn a_flow_that_is_cancelled_while_it_runs_begins_no_further_call<H: Harness>() {
    let mut shop = Shop::<H>::open().await;
    let cases: [(&str, &[&str]); 5] = [
        ("reserve done", &[]),
        ("before charge", &["charge", "refund"]),
        ("after charge", &["charge", "refund"]),
        ("charge done", &["charge", "refund"]),
        ("confirm done", &["charge", "ship", "confirm", "recall", "refund"]),
    ];
    for (place, deeds) in cases {
        let key = Key::random();
        shop.world = World::new();
        shop.world.trap.hold(place);
        let worker = shop.worker(shipped::<H>).await;
        let running = worker.insists(shop.lab.ask(&key));
        shop.world.trap.springs_at(place).await;
        let execution = shop.shows(&key).await.record.execution;
        let change = shop.lab.store().cancel_flow(execution, &audit("not wanted"), false).await.unwrap();
        assert!(matches!(&change, Change::Made(flow) if flow.state == FlowState::Running), "{change:?}");
        shop.world.trap.thaw();
        assert_eq!(running.await.unwrap().unwrap().reply().status(), 422, "{place}");
        answers(&shop, &key, "flow-cancelled").await;
        assert_eq!(shop.world.remote.deeds(), deeds, "{place}");
        assert_eq!((shop.added("undo reserve", &key).await, shop.added("finish", &key).await), (1, 0), "{place}");
    }
}

/// I12: a flow that has not ended when its life is over is undone.
pub async fn a_flow_whose_life_is_over_is_undone<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.dies_at("charge done", short_lived::<H>, &key).await;
    shop.lab.harness.age(2 * HOUR).await;
    shop.completes(short_lived::<H>, &key).await;
    answers(&shop, &key, "flow-expired").await;
    assert_eq!(shop.world.remote.deeds(), ["charge", "refund"]);
    assert_eq!(shop.added("undo reserve", &key).await, 1);
}

/// Whoever lets a held flow go on wants it done, not undone, however long it took them.
pub async fn a_flow_that_was_held_for_longer_than_it_may_live_goes_on<H: Harness>() {
    fn short_lived<H: Harness>(world: &World) -> Definition<H::Store> {
        order::<H>(world).lives_for(HOUR)
    }
    let (shop, key) = (Shop::<H>::open_in(World::calling(psp(Keys::None))).await, Key::random());
    shop.dies_at("after charge", short_lived::<H>, &key).await;
    shop.is_unknown(short_lived::<H>, &key).await;
    shop.lab.harness.age(2 * HOUR).await;
    resolves(&shop, &key, "charge", &Resolution::Happened(br#"{"id":77}"#.to_vec().into())).await;
    shop.lab.harness.age(HOUR / 2).await;
    shop.completes(short_lived::<H>, &key).await;
    assert_eq!(shop.answers(short_lived::<H>, &key).await.reply().status(), 201);
    assert_eq!(shop.added("finish", &key).await, 1);
}

/// No pause outlasts the life of its flow.
pub async fn a_pause_ends_with_the_life_of_its_flow<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let asked = shop.asks(for_hours_of_a_short_life::<H>, &key).await;
    let Err(OnceError::InFlight { retry_after }) = asked else { panic!("it pauses: {asked:?}") };
    assert!(retry_after <= HOUR && retry_after > HOUR / 2, "{retry_after:?}");
    shop.lab.harness.age(HOUR + Duration::from_secs(1)).await;
    shop.completes(for_hours_of_a_short_life::<H>, &key).await;
    answers(&shop, &key, "flow-expired").await;
    assert_eq!((shop.added("undo reserve", &key).await, shop.added("finish", &key).await), (1, 0));
}

/// A flow whose policy is to hold goes on when an operator says so, and not before.
pub async fn a_flow_that_is_not_to_be_resumed_waits_for_an_operator<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.dies_at("reserve done", not_resumed::<H>, &key).await;
    shop.is_unknown(not_resumed::<H>, &key).await;
    assert_eq!((shop.world.ran("reserve"), shop.world.ran("charge")), (1, 0));
    assert_eq!(shop.open_steps(&key).await, Vec::<String>::new());
    let execution = shop.shows(&key).await.record.execution;
    let change = shop.lab.store().retry_flow(execution, &audit("it had only reserved"), false).await.unwrap();
    assert!(matches!(change, Change::Made(_)), "{change:?}");
    shop.completes(not_resumed::<H>, &key).await;
    assert_eq!((shop.world.ran("reserve"), shop.world.remote.done("charge").len()), (1, 1));
}

/// The stored reply is a problem of this code.
async fn answers<H: Harness>(shop: &Shop<H>, key: &Key, code: &str) {
    let reply = shop.answers(order::<H>, key).await.reply().clone();
    let problem: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
    assert_eq!((reply.status(), &problem["code"]), (422, &code.into()), "{problem}");
    assert_eq!(shop.shows(key).await.record.state, FlowState::Failed);
}

//! What functions, compensations and answers may do wrong without a flow getting lost or stuck.

use std::time::Duration;

use semel::flow::{self, Definition, FlowState};
use semel::once::Error as OnceError;
use semel::{Flow, Key, Reply, Semel, Settings};

use super::harness::Harness;
use super::lab::FLOW;
use super::shop::{ORDER, Shop, build, settings};
use super::world::{Order, World, adds, calls_undoably, removes};

/// A function that gives up waiting for a step does not know what came of it. The run is over, and the next one finds
/// out: what was charged is refunded, once.
pub async fn a_step_that_the_function_lets_go_of_is_found_again<H: Harness>() {
    fn hasty<H: Harness>(world: &World) -> Definition<H::Store> {
        let (at, psp) = (world.clone(), world.psp.clone());
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| hurry::<H>(flow, at.clone())).calling([psp])
    }
    async fn hurry<H: Harness>(flow: Flow<H::Store>, world: World) -> flow::Result<Reply> {
        let charging = calls_undoably::<H>(&flow, &world, "charge", "refund");
        let charged = tokio::select! {
            charged = charging => charged.map(drop),
            () = world.trap.springs_at("after charge") => Ok(()),
        };
        charged?;
        Err(flow::Error::fail("too-slow", "nobody waits any longer"))
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.world.trap.hold("after charge");
    let first = shop.asks(hasty::<H>, &key).await;
    assert!(matches!(first, Err(OnceError::InFlight { .. })), "{first:?}");
    let cause = shop.shows(&key).await.record.cause.unwrap();
    assert!(cause.contains("let go of the step \"charge\""), "{cause}");
    shop.world.trap.thaw();
    shop.pauses_are_over().await;
    assert_eq!(shop.answers(hasty::<H>, &key).await.reply().status(), 422);
    assert_eq!((shop.world.remote.done("charge").len(), shop.world.remote.done("refund").len()), (1, 1));
}

/// A compensation that panics is tried again after a pause, with the cause in sight, like anything that may pass.
pub async fn a_compensation_that_panics_is_tried_again<H: Harness>() {
    fn clumsy<H: Harness>(world: &World) -> Definition<H::Store> {
        let world = world.clone();
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| stumble::<H>(flow, world.clone()))
    }
    async fn stumble<H: Harness>(flow: Flow<H::Store>, world: World) -> flow::Result<Reply> {
        adds::<H>(&flow, &world, "reserve").await?;
        removes::<H>(&flow, &world, "reserve")?;
        adds::<H>(&flow, &world, "pack").await?;
        flow.compensate("pack", move |_tx| {
            world.note("unpack");
            assert!(world.ran("unpack") > 2, "it slips");
            Box::pin(std::future::ready(Ok(())))
        })?;
        Err(flow::Error::fail("no-carrier", "nobody brings it"))
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    for _ in 0..2 {
        let broken = shop.asks(clumsy::<H>, &key).await;
        assert!(matches!(broken, Err(OnceError::InFlight { .. })), "{broken:?}");
        shop.pauses_are_over().await;
    }
    let record = shop.shows(&key).await.record;
    assert!(record.failures == 2 && record.cause.unwrap().contains("it slips"));
    assert_eq!(shop.answers(clumsy::<H>, &key).await.reply().status(), 422);
    assert_eq!((shop.world.ran("unpack"), shop.added("undo reserve", &key).await), (3, 1));
}

/// A flow that is wholly undone ends, whatever its failure wanted to say.
pub async fn a_failure_whose_reply_is_too_large_ends_the_flow_all_the_same<H: Harness>() {
    fn wordy<H: Harness>(world: &World) -> Definition<H::Store> {
        let world = world.clone();
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| explain::<H>(flow, world.clone()))
    }
    async fn explain<H: Harness>(flow: Flow<H::Store>, world: World) -> flow::Result<Reply> {
        adds::<H>(&flow, &world, "reserve").await?;
        removes::<H>(&flow, &world, "reserve")?;
        let told = Reply::new(404, vec![b'x'; 2000])?;
        Err(flow::Error::fail("out-of-stock", "there is none left").replying(told))
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let limited = Settings { reply_limit: 1000, ..Settings::default() };
    let semel = Semel::with_settings(shop.lab.store().clone(), limited).await.unwrap();
    let flows = build(semel, wordy::<H>(&shop.world), settings());
    let reply = flows.run(FLOW, &shop.lab.ask(&key), &ORDER).await.unwrap().reply().clone();
    assert!(reply.status() == 422 && reply.stored_bytes() < 1000);
    assert_eq!(shop.added("undo reserve", &key).await, 1);
    assert_eq!(shop.shows(&key).await.record.state, FlowState::Failed);
}

/// An answer that is never stored is not stored as a failure either: its clients would wait for ever.
pub async fn a_failure_does_not_answer_with_a_status_that_is_never_stored<H: Harness>() {
    fn busy<H: Harness>(_: &World) -> Definition<H::Store> {
        Definition::new(FLOW, move |_: Flow<H::Store>, _: Order| async move {
            Err::<Reply, _>(flow::Error::fail("busy", "not now").replying(Reply::new(429, "later")?))
        })
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    assert_eq!(shop.answers(busy::<H>, &key).await.reply().status(), 422);
}

/// I12: a flow that asks for more steps than are kept can still be undone.
pub async fn a_flow_with_too_many_steps_is_undone_when_its_life_is_over<H: Harness>() {
    const LIFE: Duration = Duration::from_secs(60 * 60);
    fn twice<H: Harness>(world: &World) -> Definition<H::Store> {
        let world = world.clone();
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| repeat::<H>(flow, world.clone())).lives_for(LIFE)
    }
    async fn repeat<H: Harness>(flow: Flow<H::Store>, world: World) -> flow::Result<Reply> {
        adds::<H>(&flow, &world, "reserve").await?;
        removes::<H>(&flow, &world, "reserve")?;
        adds::<H>(&flow, &world, "reserve").await?;
        Ok(Reply::new(201, "never")?)
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let told = shop.is_told(twice::<H>, &key).await;
    assert!(matches!(told, Err(OnceError::Effect(flow::Error::Changed(_)))), "{told:?}");
    shop.lab.harness.age(LIFE * 2).await;
    assert_eq!(shop.answers(twice::<H>, &key).await.reply().status(), 422);
    assert_eq!((shop.added("reserve", &key).await, shop.added("undo reserve", &key).await), (1, 1));
}

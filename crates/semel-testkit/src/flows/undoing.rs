//! What was done before a flow failed is undone, in reverse, once.

use semel::flow::{self, Change, Definition, FlowState, FlowStore, Resolution};
use semel::once::Error as OnceError;
use semel::provider::Keys;
use semel::{Flow, Key, Outcome, Reply};

use super::calling::resolves;
use super::harness::Harness;
use super::lab::{DAY, FLOW, audit};
use super::remote::{Charge, Trouble};
use super::shop::Shop;
use super::world::{Order, World, adds, calls, calls_undoably, finishes, label, removes};

/// Where the process dies, in the order in which an order that fails in its fourth step passes the places.
const PLACES: [&str; 6] =
    ["after confirm", "before recall", "after recall", "before refund", "after refund", "within undo reserve"];

/// An order in four steps, three of which can be undone.
pub(super) fn shipped<H: Harness>(world: &World) -> Definition<H::Store> {
    let (at, psp) = (world.clone(), world.psp.clone());
    Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| ship::<H>(flow, at.clone())).calling([psp])
}

async fn ship<H: Harness>(flow: Flow<H::Store>, world: World) -> flow::Result<Reply> {
    adds::<H>(&flow, &world, "reserve").await?;
    removes::<H>(&flow, &world, "reserve")?;
    calls_undoably::<H>(&flow, &world, "charge", "refund").await?;
    calls_undoably::<H>(&flow, &world, "ship", "recall").await?;
    let confirmed = calls::<H>(&flow, &world, "confirm").await?;
    finishes::<H>(&flow, &world, confirmed).await
}

/// Three, two, one.
pub async fn a_failure_in_step_four_undoes_three_two_one<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.world.remote.trouble("confirm", &[Trouble::Declines]);
    let Ok(Outcome::Fresh(reply)) = shop.asks(shipped::<H>, &key).await else { panic!("it has failed") };
    let problem: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
    assert_eq!((reply.status(), &problem["code"], &problem["step"]), (422, &"flow-failed".into(), &"confirm".into()));
    is_undone_once(&shop, &key).await;
    // Each undoing is given what it undoes.
    assert_eq!((shop.world.ran("refund of 1"), shop.world.ran("recall of 2")), (1, 1));
    assert_eq!(shop.asks(shipped::<H>, &key).await.unwrap(), Outcome::Replayed(reply));
    let steps: Vec<String> = shop.shows(&key).await.steps.iter().map(|step| step.entry.step.clone()).collect();
    let undone = ["~undo.ship", "~undo.charge", "~undo.reserve"];
    assert_eq!(steps, [&["reserve", "charge", "ship", "confirm"][..], &undone].concat());
}

/// I2, I8: whoever goes on undoes the rest, once each, also when every one of them dies.
pub async fn undoing_goes_on_wherever_the_process_dies<H: Harness>() {
    let mut shop = Shop::<H>::open().await;
    for by_client in [true, false] {
        for place in PLACES {
            let key = Key::random();
            shop.world = World::new();
            shop.world.remote.trouble("confirm", &[Trouble::Declines; 2]);
            shop.dies_at(place, shipped::<H>, &key).await;
            if by_client {
                assert_eq!(shop.answers(shipped::<H>, &key).await.reply().status(), 422, "{place}");
            } else {
                shop.completes(shipped::<H>, &key).await;
            }
            is_undone_once(&shop, &key).await;
        }
    }
    let key = Key::random();
    shop.world = World::new();
    shop.world.remote.trouble("confirm", &[Trouble::Declines; 9]);
    for place in PLACES {
        shop.dies_at(place, shipped::<H>, &key).await;
    }
    assert_eq!(shop.answers(shipped::<H>, &key).await.reply().status(), 422);
    is_undone_once(&shop, &key).await;
}

/// There is nothing to undo of what did not happen.
pub async fn what_was_not_done_is_not_undone<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.world.remote.trouble("charge", &[Trouble::Declines]);
    assert_eq!(shop.asks(shipped::<H>, &key).await.unwrap().reply().status(), 422);
    assert_eq!(shop.world.remote.deeds(), Vec::<String>::new());
    assert_eq!((shop.added("reserve", &key).await, shop.added("undo reserve", &key).await), (1, 1));
}

/// A function may fail by itself, and say what is answered.
pub async fn a_function_that_fails_answers_what_it_says_once_all_is_undone<H: Harness>() {
    fn sold_out<H: Harness>(world: &World) -> Definition<H::Store> {
        let world = world.clone();
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| sell_out::<H>(flow, world.clone()))
    }
    async fn sell_out<H: Harness>(flow: Flow<H::Store>, world: World) -> flow::Result<Reply> {
        adds::<H>(&flow, &world, "reserve").await?;
        removes::<H>(&flow, &world, "reserve")?;
        let told = Reply::new(404, b"none \xff left".to_vec())?.header("x-sku", "a")?;
        Err(flow::Error::fail("out-of-stock", "there is none left").replying(told))
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.dies_at("within undo reserve", sold_out::<H>, &key).await;
    let reply = shop.answers(sold_out::<H>, &key).await.reply().clone();
    let header: Vec<(&str, &[u8])> = reply.headers().collect();
    assert_eq!((reply.status(), &reply.body()[..], header), (404, &b"none \xff left"[..], vec![("x-sku", &b"a"[..])]));
    assert_eq!(shop.asks(sold_out::<H>, &key).await.unwrap(), Outcome::Replayed(reply));
    assert_eq!(shop.added("undo reserve", &key).await, 1);
    assert_eq!(shop.shows(&key).await.record.state, FlowState::Failed);
}

/// A failure that the function handles is an answer like any other, and every run goes the same way.
pub async fn a_failure_that_is_handled_undoes_nothing<H: Harness>() {
    fn invoiced<H: Harness>(world: &World) -> Definition<H::Store> {
        let (at, psp) = (world.clone(), world.psp.clone());
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| invoice::<H>(flow, at.clone())).calling([psp])
    }
    async fn invoice<H: Harness>(flow: Flow<H::Store>, world: World) -> flow::Result<Reply> {
        adds::<H>(&flow, &world, "reserve").await?;
        removes::<H>(&flow, &world, "reserve")?;
        let paid = match calls::<H>(&flow, &world, "charge").await {
            Err(error) if error.is_terminal() => {
                adds::<H>(&flow, &world, "invoice").await?;
                Charge { id: 0 }
            }
            paid => paid?,
        };
        finishes::<H>(&flow, &world, paid).await
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.world.remote.trouble("charge", &[Trouble::Declines]);
    shop.dies_at("invoice done", invoiced::<H>, &key).await;
    let expected = Reply::json(201, &Charge { id: 0 }).unwrap();
    assert_eq!(*shop.answers(invoiced::<H>, &key).await.reply(), expected);
    assert_eq!(shop.world.remote.requested("charge").len(), 1, "that it was declined is recorded");
    assert_eq!((shop.added("invoice", &key).await, shop.added("undo reserve", &key).await), (1, 0));
}

/// A call that cannot be undone is not given up: somebody has to see that it is still there.
pub async fn a_call_that_cannot_be_undone_is_held<H: Harness>() {
    let resolutions = [
        (Resolution::Happened(b"null".to_vec().into()), 0),
        (Resolution::Failed("they keep it".to_owned()), 0),
        (Resolution::DidNotHappen, 1),
    ];
    for (resolution, refunds) in resolutions {
        let (shop, key) = (Shop::<H>::open().await, Key::random());
        shop.world.remote.trouble("confirm", &[Trouble::Declines]);
        shop.world.remote.trouble("refund", &[Trouble::Refuses]);
        shop.is_unknown(shipped::<H>, &key).await;
        assert_eq!(shop.open_steps(&key).await, ["~undo.charge"]);
        assert_eq!(shop.added("undo reserve", &key).await, 0, "what comes behind it waits");
        resolves(&shop, &key, "~undo.charge", &resolution).await;
        assert_eq!(shop.answers(shipped::<H>, &key).await.reply().status(), 422, "{resolution:?}");
        assert_eq!((shop.world.remote.done("recall").len(), shop.world.remote.done("refund").len()), (1, refunds));
        assert_eq!(shop.world.remote.requested("refund"), vec![shop.derived(&key, "~undo.charge"); 1 + refunds]);
        assert_eq!(shop.added("undo reserve", &key).await, 1);
    }
}

/// A commit that cannot be undone holds the flow, and an operator has it tried again; what may pass is tried again by
/// itself.
pub async fn a_commit_that_cannot_be_undone_is_held_and_one_that_may_is_tried_again<H: Harness>() {
    fn jammed<H: Harness>(world: &World) -> Definition<H::Store> {
        let world = world.clone();
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| jam::<H>(flow, world.clone()))
    }
    async fn jam<H: Harness>(flow: Flow<H::Store>, world: World) -> flow::Result<Reply> {
        adds::<H>(&flow, &world, "reserve").await?;
        let row = label("undo reserve", flow.key());
        flow.compensate("reserve", move |tx| {
            let (row, world) = (row.clone(), world.clone());
            Box::pin(async move {
                world.note("undo reserve");
                H::insert(tx, &row).await?;
                match world.ran("undo reserve") {
                    1 => Err(flow::Error::retry("somebody stands before it")),
                    2 => Err(flow::Error::fail("jammed", "the shelf is jammed")),
                    _ => Ok(()),
                }
            })
        })?;
        Err(flow::Error::fail("out-of-stock", "there is none left"))
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let failed = shop.asks(jammed::<H>, &key).await;
    assert!(matches!(failed, Err(OnceError::InFlight { .. })), "{failed:?}");
    shop.pauses_are_over().await;
    shop.is_unknown(jammed::<H>, &key).await;
    let record = shop.shows(&key).await.record;
    assert!(record.unwinding && record.cause.as_deref().unwrap_or_default().contains("jammed"), "{record:?}");
    assert_eq!(shop.added("undo reserve", &key).await, 0);
    let change = shop.lab.store().retry_flow(record.execution, &audit("mended the shelf"), false).await.unwrap();
    assert!(matches!(change, Change::Made(_)), "{change:?}");
    assert_eq!(shop.answers(jammed::<H>, &key).await.reply().status(), 422);
    assert_eq!((shop.added("undo reserve", &key).await, shop.world.ran("undo reserve")), (1, 3));
}

/// I8: a flow that is undone finds out first what became of the call that it was interrupted in.
pub async fn a_call_in_doubt_is_settled_before_the_flow_is_undone<H: Harness>() {
    let (charged, nothing) = (["charge", "refund"].map(str::to_owned).to_vec(), Vec::new());
    let mut proving = World::looking_up(Keys::Kept(DAY));
    proving.psp = proving.psp.resend_when_absent();
    let cases = [
        (World::looking_up(Keys::Kept(DAY)), "after charge", &charged, 1),
        (proving, "before charge", &nothing, 0),
        (World::looking_up(Keys::None), "after charge", &charged, 1),
        // Without a look-up the same key is sent again to find out.
        (World::new(), "after charge", &charged, 2),
    ];
    for (world, place, deeds, requested) in cases {
        let (shop, key) = (Shop::<H>::open_in(world).await, Key::random());
        shop.dies_at(place, shipped::<H>, &key).await;
        let execution = shop.shows(&key).await.record.execution;
        let change = shop.lab.store().cancel_flow(execution, &audit("not wanted"), false).await.unwrap();
        assert!(matches!(change, Change::Made(_)), "{change:?}");
        let reply = shop.answers(shipped::<H>, &key).await.reply().clone();
        let problem: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
        assert_eq!((reply.status(), &problem["code"]), (422, &"flow-cancelled".into()), "{place}");
        assert_eq!(shop.world.remote.deeds(), *deeds, "{place}");
        assert_eq!(shop.world.remote.requested("charge").len(), requested, "{place}");
        assert_eq!(shop.added("undo reserve", &key).await, 1, "{place}");
    }
    // Where *nothing found* is no proof, a late worker may still send: a person decides.
    let (shop, key) = (Shop::<H>::open_in(World::looking_up(Keys::Kept(DAY))).await, Key::random());
    shop.dies_at("before charge", shipped::<H>, &key).await;
    let execution = shop.shows(&key).await.record.execution;
    shop.lab.store().cancel_flow(execution, &audit("not wanted"), false).await.unwrap();
    shop.is_unknown(shipped::<H>, &key).await;
    assert_eq!(shop.open_steps(&key).await, ["charge"]);
}

/// Each deed was done once and undone once, in reverse, and every request of a kind carried one key.
async fn is_undone_once<H: Harness>(shop: &Shop<H>, key: &Key) {
    let remote = &shop.world.remote;
    assert_eq!(remote.deeds(), ["charge", "ship", "recall", "refund"]);
    for (kind, step) in [("charge", "charge"), ("recall", "~undo.ship"), ("refund", "~undo.charge")] {
        let requested = remote.requested(kind);
        assert!(requested.iter().all(|sent| *sent == shop.derived(key, step)), "{kind}: {requested:?}");
    }
    assert_eq!((shop.added("reserve", key).await, shop.added("undo reserve", key).await), (1, 1));
    assert_eq!(shop.added("finish", key).await, 0);
    assert_eq!(shop.shows(key).await.record.state, FlowState::Failed);
}

//! Code that does not fit what is recorded is told so; nothing is guessed and nothing is lost.

use semel::flow::{self, Changed, Definition, FlowState, Kind};
use semel::once::Error as OnceError;
use semel::provider::{Keys, Provider};
use semel::{Flow, Key, Reply, Store};

use super::harness::Harness;
use super::lab::{DAY, FLOW};
use super::remote::Charge;
use super::resuming::order;
use super::shop::{ORDER, Shop, Version};
use super::world::{Order, World, adds, calls, finishes, removes, requests};
use crate::poll::until_some;

/// Another version of an order.
fn version<H, F, Fut>(world: &World, function: F) -> Definition<H::Store>
where
    H: Harness,
    F: Fn(Flow<H::Store>, World) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = flow::Result<Reply>> + Send + 'static,
{
    let (at, called) = (world.clone(), [world.psp.clone(), other_psp()]);
    Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| function(flow, at.clone())).calling(called)
}

fn other_psp() -> Provider {
    Provider::http("other-psp", Keys::Kept(DAY))
}

fn renamed<H: Harness>(world: &World) -> Definition<H::Store> {
    version::<H, _, _>(world, |flow: Flow<H::Store>, world| async move {
        adds::<H>(&flow, &world, "hold").await?;
        let charge = calls::<H>(&flow, &world, "charge").await?;
        finishes::<H>(&flow, &world, charge).await
    })
}

fn shortened<H: Harness>(world: &World) -> Definition<H::Store> {
    version::<H, _, _>(world, |flow: Flow<H::Store>, world| async move {
        adds::<H>(&flow, &world, "reserve").await?;
        finishes::<H>(&flow, &world, Charge { id: 0 }).await
    })
}

fn doubled<H: Harness>(world: &World) -> Definition<H::Store> {
    version::<H, _, _>(world, |flow: Flow<H::Store>, world| async move {
        adds::<H>(&flow, &world, "reserve").await?;
        adds::<H>(&flow, &world, "reserve").await?;
        let charge = calls::<H>(&flow, &world, "charge").await?;
        finishes::<H>(&flow, &world, charge).await
    })
}

fn turned<H: Harness>(world: &World) -> Definition<H::Store> {
    version::<H, _, _>(world, |flow: Flow<H::Store>, world| async move {
        adds::<H>(&flow, &world, "reserve").await?;
        adds::<H>(&flow, &world, "charge").await?;
        finishes::<H>(&flow, &world, Charge { id: 0 }).await
    })
}

fn moved<H: Harness>(world: &World) -> Definition<H::Store> {
    version::<H, _, _>(world, |flow: Flow<H::Store>, world| async move {
        adds::<H>(&flow, &world, "reserve").await?;
        let charge = flow.call("charge", &other_psp(), requests(&world, "charge")).await?;
        finishes::<H>(&flow, &world, charge).await
    })
}

fn misnamed<H: Harness>(world: &World) -> Definition<H::Store> {
    version::<H, _, _>(world, |flow: Flow<H::Store>, world| async move {
        adds::<H>(&flow, &world, "~undo.reserve").await?;
        finishes::<H>(&flow, &world, Charge { id: 0 }).await
    })
}

/// The typed error says what does not fit. The flow waits, and the version that fits goes on with it.
pub async fn a_version_that_does_not_fit_is_told_so_and_nothing_is_lost<H: Harness>() {
    let shop = Shop::<H>::open().await;
    let own = |text: &str| text.to_owned();
    let versions: [(Version<H>, Changed); 6] = [
        (renamed::<H>, Changed::Vanished { step: own("reserve"), flow: own(FLOW) }),
        (shortened::<H>, Changed::Vanished { step: own("charge"), flow: own(FLOW) }),
        (doubled::<H>, Changed::DuplicateStep { step: own("reserve") }),
        (turned::<H>, Changed::KindChanged { step: own("charge"), recorded: Kind::Call, asked: Kind::Commit }),
        (moved::<H>, Changed::ProviderChanged { step: own("charge"), recorded: own("psp"), asked: own("other-psp") }),
        (misnamed::<H>, Changed::StepName { step: own("~undo.reserve") }),
    ];
    for (version, expected) in versions {
        let key = Key::random();
        shop.dies_at("charge done", order::<H>, &key).await;
        let requested = shop.world.remote.requested("charge").len();
        assert_eq!(refuses(&shop, version, &key).await, expected);
        assert_eq!((shop.added("hold", &key).await, shop.added("finish", &key).await), (0, 0), "{expected}");
        goes_on(&shop, &key).await;
        assert_eq!(shop.world.remote.requested("charge").len(), requested, "{expected}");
    }
}

/// A call in doubt stays with the provider that may know it.
pub async fn a_call_in_doubt_is_not_sent_to_another_provider<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.dies_at("after charge", order::<H>, &key).await;
    assert!(matches!(refuses(&shop, moved::<H>, &key).await, Changed::ProviderChanged { .. }));
    assert_eq!(shop.world.remote.requested("charge").len(), 1);
    goes_on(&shop, &key).await;
    assert_eq!(shop.world.remote.done("charge").len(), 1);
}

/// A name that is used twice is told before the second step runs, in a flow that is new as well.
pub async fn a_name_that_is_used_twice_runs_once<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let told = shop.is_told(doubled::<H>, &key).await;
    let Err(OnceError::Effect(flow::Error::Changed(changed))) = told else { panic!("it is used twice: {told:?}") };
    assert_eq!(changed, Changed::DuplicateStep { step: "reserve".to_owned() });
    assert_eq!(shop.added("reserve", &key).await, 1);
    goes_on(&shop, &key).await;
}

/// A result or an input that cannot be read ends nothing: it waits for code that can.
pub async fn what_cannot_be_read_waits_for_code_that_can<H: Harness>() {
    #[derive(serde::Deserialize)]
    struct Priced {
        price: u32,
    }
    fn priced<H: Harness>(_: &World) -> Definition<H::Store> {
        Definition::new(FLOW, move |_: Flow<H::Store>, order: Priced| async move {
            Ok::<Reply, flow::Error>(Reply::json(200, &order.price)?)
        })
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.dies_at("charge done", order::<H>, &key).await;
    shop.lab.harness.rewrite("reserve", b"\"seven\"").await;
    let changed = refuses(&shop, order::<H>, &key).await;
    assert!(matches!(&changed, Changed::Unreadable { step, .. } if step == "reserve"), "{changed}");
    shop.lab.harness.rewrite("reserve", b"7").await;
    shop.pauses_are_over().await;
    let changed = refuses(&shop, priced::<H>, &key).await;
    assert!(matches!(&changed, Changed::UnreadableInput { flow, .. } if flow == FLOW), "{changed}");
    goes_on(&shop, &key).await;
}

/// The way out: a version that knows both, for flows that were begun before it and for those that were not.
pub async fn a_version_that_knows_the_old_steps_goes_on_with_both<H: Harness>() {
    fn both<H: Harness>(world: &World) -> Definition<H::Store> {
        version::<H, _, _>(world, |flow: Flow<H::Store>, world| async move {
            if flow.has("reserve") {
                flow.retired("reserve");
            } else {
                adds::<H>(&flow, &world, "hold").await?;
            }
            let charge = calls::<H>(&flow, &world, "charge").await?;
            finishes::<H>(&flow, &world, charge).await
        })
    }
    let shop = Shop::<H>::open().await;
    let beginnings: [(Version<H>, u64, u64); 2] = [(order::<H>, 1, 0), (both::<H>, 0, 1)];
    for (begun_by, reserved, held) in beginnings {
        for place in ["charge done", "after charge"] {
            let key = Key::random();
            shop.dies_at(place, begun_by, &key).await;
            assert_eq!(shop.answers(both::<H>, &key).await.reply().status(), 201);
            assert_eq!((shop.added("reserve", &key).await, shop.added("hold", &key).await), (reserved, held));
            let derived = shop.derived(&key, "charge");
            assert_eq!(shop.world.remote.done("charge").iter().filter(|done| **done == derived).count(), 1);
        }
    }
}

/// A step that has gone from the code can still be undone.
pub async fn a_retired_step_is_undone_where_the_new_version_says_how<H: Harness>() {
    fn failing<H: Harness>(world: &World) -> Definition<H::Store> {
        version::<H, _, _>(world, |flow: Flow<H::Store>, world| async move {
            flow.retired("reserve");
            removes::<H>(&flow, &world, "reserve")?;
            Err(flow::Error::fail("closed", "nobody sells any more"))
        })
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.dies_at("reserve done", order::<H>, &key).await;
    assert_eq!(shop.answers(failing::<H>, &key).await.reply().status(), 422);
    assert_eq!((shop.added("reserve", &key).await, shop.added("undo reserve", &key).await), (1, 1));
}

/// A name that nobody registered begins nothing, and a flow of another process stays that one's.
pub async fn a_flow_that_is_not_registered_is_left_to_those_who_know_it<H: Harness>() {
    fn other<H: Harness>(_: &World) -> Definition<H::Store> {
        Definition::new("other", |_: Flow<H::Store>, _: Order| async { Ok::<Reply, flow::Error>(Reply::new(200, "")?) })
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let told = shop.flows(order::<H>).run("nothing", &shop.lab.ask(&key), &ORDER).await;
    let Err(OnceError::Effect(flow::Error::Changed(changed))) = told else { panic!("nobody knows it: {told:?}") };
    assert_eq!(changed, Changed::Unregistered { flow: "nothing".to_owned() });
    assert_eq!(shop.lab.store().show_key(&shop.lab.scope, &key).await.unwrap(), None);
    shop.dies_at("reserve done", order::<H>, &key).await;
    let others = shop.flows(other::<H>);
    let ask = shop.lab.ask(&key);
    let told = until_some("the client is told something", async || match others.run("other", &ask, &ORDER).await {
        Err(OnceError::InFlight { .. }) => None,
        told => Some(told),
    });
    let told = told.await;
    assert!(matches!(told, Err(OnceError::Effect(flow::Error::Changed(Changed::Unregistered { .. })))), "{told:?}");
    assert_eq!(shop.answers(order::<H>, &key).await.reply().status(), 201);
    assert_eq!(shop.added("reserve", &key).await, 1);
}

/// The version is told what does not fit. Everything that was recorded still is, and the flow waits.
async fn refuses<H: Harness>(shop: &Shop<H>, version: Version<H>, key: &Key) -> Changed {
    let recorded = async || {
        let shown = shop.shows(key).await;
        shown.steps.into_iter().map(|it| (it.entry.step, it.entry.state, it.result_bytes)).collect::<Vec<_>>()
    };
    let before = recorded().await;
    let told = shop.is_told(version, key).await;
    let Err(OnceError::Effect(flow::Error::Changed(changed))) = told else { panic!("it does not fit: {told:?}") };
    assert_eq!(recorded().await, before);
    let record = shop.shows(key).await.record;
    assert_eq!((record.state, record.unwinding), (FlowState::Paused, false));
    assert!(record.failures > 0 && record.cause.is_some_and(|cause| cause.contains(&changed.to_string())));
    changed
}

/// The version that fits goes on, and each effect is there once.
async fn goes_on<H: Harness>(shop: &Shop<H>, key: &Key) {
    shop.pauses_are_over().await;
    assert_eq!(shop.answers(order::<H>, key).await.reply().status(), 201);
    assert_eq!((shop.added("reserve", key).await, shop.added("finish", key).await), (1, 1));
}

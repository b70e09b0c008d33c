//! A call happens once, or somebody is told that nobody knows.

use std::time::Duration;

use semel::flow::{self, Change, Definition, FlowState, FlowStore, Resolution};
use semel::once::Error as OnceError;
use semel::provider::{Call, Found, Keys, Provider, Retry};
use semel::{Ask, Flow, Flows, Key, Outcome, Reply, Scope, intent};

use super::harness::Harness;
use super::lab::{DAY, FLOW, audit};
use super::remote::{Charge, Trouble};
use super::resuming::order;
use super::shop::{ORDER, Shop};
use super::world::{Order, World, calls, finishes, psp};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// I8: over retries of every kind.
pub async fn every_attempt_of_a_call_carries_one_key<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.world.remote.trouble("charge", &[Trouble::Busy, Trouble::CutBefore, Trouble::CutAfter]);
    assert_eq!(shop.asks(order::<H>, &key).await.unwrap().reply().status(), 201);
    assert_eq!(shop.world.remote.requested("charge"), vec![shop.derived(&key, "charge"); 4]);
    assert_eq!(shop.world.remote.done("charge").len(), 1);
}

/// I8: two orders of one tenant, one key of two tenants, of two operations and of two flows never meet at the provider.
pub async fn calls_of_different_intents_never_share_a_key<H: Harness>() {
    let shop = Shop::<H>::open().await;
    let (one, other) = (Key::random(), Key::random());
    let refund = {
        let (world, psp) = (shop.world.clone(), shop.world.psp.clone());
        let refund = move |flow: Flow<H::Store>, _: Order| {
            let world = world.clone();
            async move {
                let charge = calls::<H>(&flow, &world, "charge").await?;
                finishes::<H>(&flow, &world, charge).await
            }
        };
        Definition::new("refund", refund).calling([psp])
    };
    let flows = Flows::builder(shop.lab.semel.clone()).register(order::<H>(&shop.world)).register(refund);
    let flows = flows.build().unwrap();
    let ask = |tenant: &str, operation: &str, key: &Key| {
        Ask::new(&Scope::new(tenant, operation).unwrap(), key, &shop.lab.fingerprint)
    };
    let asked = [
        (FLOW, ask("tenant", "POST /orders", &one)),
        (FLOW, ask("tenant", "POST /orders", &other)),
        (FLOW, ask("another", "POST /orders", &one)),
        (FLOW, ask("tenant", "PUT /orders", &one)),
        ("refund", ask("tenant", "POST /refunds", &one)),
    ];
    let mut expected = Vec::new();
    for (flow, ask) in &asked {
        assert!(matches!(flows.run(flow, ask, &ORDER).await, Ok(Outcome::Fresh(_))), "{ask:?}");
        expected.push(intent::key(&ask.scope, flow, &ask.key, "charge"));
    }
    assert_eq!(shop.world.remote.done("charge"), expected, "each was done, under its own key");
}

/// A timeout is unknown, not failed.
pub async fn a_call_that_takes_too_long_is_sent_again_under_its_key<H: Harness>() {
    let world = World::calling(psp(Keys::Kept(DAY)).timeout(Duration::from_millis(50)));
    let (shop, key) = (Shop::<H>::open_in(world).await, Key::random());
    shop.world.remote.trouble("charge", &[Trouble::Hangs]);
    assert_eq!(shop.asks(order::<H>, &key).await.unwrap().reply().status(), 201);
    assert_eq!(shop.world.remote.requested("charge"), vec![shop.derived(&key, "charge"); 2]);
    assert_eq!(shop.world.remote.done("charge").len(), 1);
}

/// What was turned away, will not happen, or was never let in, fails the flow; and it is known that nothing happened.
pub async fn a_call_that_did_not_happen_fails_the_flow<H: Harness>() {
    let shop = Shop::<H>::open().await;
    let cases = [
        (&[Trouble::Refuses][..], "refused", 1),
        (&[Trouble::Busy, Trouble::Declines][..], "terminal", 2),
        (&[Trouble::Busy; 5][..], "gave-up", 5),
    ];
    let mut requests = 0;
    for (troubles, code, requested) in cases {
        let key = Key::random();
        shop.world.remote.trouble("charge", troubles);
        let Ok(Outcome::Fresh(reply)) = shop.asks(order::<H>, &key).await else { panic!("{code}: it has failed") };
        let problem: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
        assert_eq!((reply.status(), &problem["code"]), (422, &"flow-failed".into()), "{problem}");
        assert_eq!((&problem["failure"], &problem["step"]), (&code.into(), &"charge".into()), "{problem}");
        assert_eq!(shop.asks(order::<H>, &key).await.unwrap(), Outcome::Replayed(reply));
        requests += requested;
        assert_eq!(shop.world.remote.requested("charge").len(), requests, "{code}");
        assert_eq!(shop.shows(&key).await.record.state, FlowState::Failed);
        assert_eq!((shop.added("reserve", &key).await, shop.added("finish", &key).await), (1, 0));
    }
    assert_eq!(shop.world.remote.deeds(), Vec::<String>::new());
}

/// I8: within the window the same key is sent again, and past it the provider is asked, not told.
pub async fn a_call_in_doubt_past_the_window_is_looked_up_and_not_sent_again<H: Harness>() {
    let (shop, key) = (Shop::<H>::open_in(World::looking_up(Keys::Kept(HOUR))).await, Key::random());
    shop.dies_at("after charge", order::<H>, &key).await;
    shop.world.remote.forget_keys();
    shop.lab.harness.age(2 * HOUR).await;
    let expected = Reply::json(201, &Charge { id: 1 }).unwrap();
    assert_eq!(*shop.answers(order::<H>, &key).await.reply(), expected);
    assert_eq!((shop.world.remote.requested("charge").len(), shop.world.remote.look_ups()), (1, 1));
    assert_eq!(shop.world.remote.done("charge"), [shop.derived(&key, "charge")]);
    // The control: whoever had sent it again would have charged twice.
    let call = Call::new(&shop.world.psp, "charge", &shop.derived(&key, "charge"), 2);
    shop.world.remote.request("charge", &call).await.unwrap();
    assert_eq!(shop.world.remote.done("charge").len(), 2);
}

/// What the provider knows nothing of is sent again only where the profile takes that for a proof.
pub async fn a_call_of_which_nothing_is_found_is_held_unless_that_is_a_proof<H: Harness>() {
    for is_proof in [false, true] {
        let mut world = World::looking_up(Keys::Kept(HOUR));
        if is_proof {
            world.psp = world.psp.resend_when_absent();
        }
        let (shop, key) = (Shop::<H>::open_in(world).await, Key::random());
        shop.dies_at("before charge", order::<H>, &key).await;
        shop.lab.harness.age(2 * HOUR).await;
        if is_proof {
            assert_eq!(shop.answers(order::<H>, &key).await.reply().status(), 201);
            assert_eq!(shop.world.remote.requested("charge"), [shop.derived(&key, "charge")]);
        } else {
            is_held(&shop, &key, "charge").await;
            assert_eq!(shop.world.remote.requested("charge"), Vec::<String>::new());
        }
    }
}

/// I8: where nothing can be asked, a person is; nobody sends it again, whoever comes and however late.
pub async fn a_call_in_doubt_past_the_window_is_held_where_nothing_can_be_asked<H: Harness>() {
    let (shop, key) = (Shop::<H>::open_in(World::calling(psp(Keys::Kept(HOUR)))).await, Key::random());
    shop.dies_at("after charge", order::<H>, &key).await;
    shop.world.remote.forget_keys();
    shop.lab.harness.age(2 * HOUR).await;
    is_held(&shop, &key, "charge").await;
    // A completer that goes on with another flow passes this one over.
    let other = Key::random();
    shop.dies_at("reserve done", order::<H>, &other).await;
    shop.completes(order::<H>, &other).await;
    shop.lab.harness.age(4 * HOUR).await;
    is_held(&shop, &key, "charge").await;
    let derived = shop.derived(&key, "charge");
    let requested = shop.world.remote.requested("charge");
    assert_eq!(requested.iter().filter(|sent| **sent == derived).count(), 1, "{requested:?}");
    let shown = shop.shows(&key).await;
    let intent = shown.steps[1].entry.intent.as_ref().unwrap();
    assert_eq!((intent.provider.as_str(), intent.key.as_str()), ("psp", derived.as_str()));
    assert!(shown.record.cause.unwrap_or_default().contains("forgotten the key"), "it says why");
}

/// I8: a provider without keys is never sent anything twice; the flow waits for a person, who can let it go on in
/// either direction.
pub async fn a_provider_without_keys_is_sent_nothing_twice<H: Harness>() {
    for (place, requested) in [("before charge", 0), ("after charge", 1)] {
        let resolutions = [
            (Resolution::Happened(br#"{"id":77}"#.to_vec().into()), 201, requested),
            (Resolution::DidNotHappen, 201, requested + 1),
            (Resolution::Failed("they say no".to_owned()), 422, requested),
        ];
        for (resolution, status, finally) in resolutions {
            let (shop, key) = (Shop::<H>::open_in(World::calling(psp(Keys::None))).await, Key::random());
            shop.world.remote.forget_keys();
            shop.dies_at(place, order::<H>, &key).await;
            is_held(&shop, &key, "charge").await;
            assert_eq!(shop.world.remote.requested("charge").len(), requested, "{place}");
            resolves(&shop, &key, "charge", &resolution).await;
            let reply = shop.answers(order::<H>, &key).await.reply().clone();
            assert_eq!(reply.status(), status, "{resolution:?}");
            match resolution {
                Resolution::Happened(_) => assert_eq!(reply, Reply::json(201, &Charge { id: 77 }).unwrap()),
                Resolution::DidNotHappen => {}
                Resolution::Failed(reason) => {
                    let problem: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
                    assert_eq!((&problem["detail"], &problem["failure"]), (&reason.into(), &"resolved".into()));
                }
            }
            assert_eq!(shop.world.remote.requested("charge"), vec![shop.derived(&key, "charge"); finally]);
        }
    }
}

/// Where nothing happened, sending again is not blind.
pub async fn a_provider_without_keys_is_asked_again_where_it_did_nothing<H: Harness>() {
    let (shop, key) = (Shop::<H>::open_in(World::calling(psp(Keys::None))).await, Key::random());
    shop.world.remote.trouble("charge", &[Trouble::Busy, Trouble::Busy]);
    assert_eq!(shop.asks(order::<H>, &key).await.unwrap().reply().status(), 201);
    assert_eq!((shop.world.remote.requested("charge").len(), shop.world.remote.done("charge").len()), (3, 1));
}

/// Attempts are bounded, and when none brought a certain answer nobody says that it failed.
pub async fn a_call_that_never_brings_a_certain_answer_is_held<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    shop.world.remote.trouble("charge", &[Trouble::CutAfter; 9]);
    is_held(&shop, &key, "charge").await;
    assert_eq!((shop.world.remote.requested("charge").len(), shop.world.remote.done("charge").len()), (5, 1));
    resolves(&shop, &key, "charge", &Resolution::Happened(br#"{"id":1}"#.to_vec().into())).await;
    assert_eq!(shop.answers(order::<H>, &key).await.reply().status(), 201);
}

/// What is found must be what the call would have returned.
pub async fn a_result_that_is_found_and_cannot_be_read_is_held<H: Harness>() {
    let other = |_: Call| async { Ok(Found::Done(serde_json::json!({ "number": "one" }))) };
    let world = World::calling(psp(Keys::None).look_up(other));
    let (shop, key) = (Shop::<H>::open_in(world).await, Key::random());
    shop.dies_at("after charge", order::<H>, &key).await;
    is_held(&shop, &key, "charge").await;
    assert_eq!(shop.world.remote.requested("charge").len(), 1);
}

/// In a long pause nobody works on the flow.
pub async fn a_long_pause_leaves_the_flow_to_whoever_comes_after_it<H: Harness>() {
    let minutes = Duration::from_secs(10 * 60);
    let retry = Retry { attempts: 5, least: minutes, most: minutes };
    let world = World::calling(Provider::http("psp", Keys::Kept(DAY)).retry(retry));
    let (shop, key) = (Shop::<H>::open_in(world).await, Key::random());
    shop.world.remote.trouble("charge", &[Trouble::CutAfter]);
    for _ in 0..2 {
        let asked = shop.asks(order::<H>, &key).await;
        let Err(OnceError::InFlight { retry_after }) = asked else { panic!("it pauses: {asked:?}") };
        assert!(retry_after <= minutes && retry_after > minutes / 2, "{retry_after:?}");
    }
    let record = shop.shows(&key).await.record;
    assert_eq!((record.state, record.failures, record.epoch), (FlowState::Paused, 0, 1));
    shop.lab.harness.age(minutes).await;
    shop.completes(order::<H>, &key).await;
    assert_eq!(shop.world.remote.requested("charge"), vec![shop.derived(&key, "charge"); 2]);
    assert_eq!(shop.world.remote.done("charge").len(), 1);
}

/// A copy of the database may not know of a call that was made: nothing is sent blindly to whom keys mean nothing, and
/// whoever keeps them is sent the same key.
pub async fn a_restored_database_does_not_send_blindly<H: Harness>() {
    for keys in [Keys::None, Keys::Kept(DAY)] {
        let (shop, key) = (Shop::<H>::open_in(World::calling(psp(keys))).await, Key::random());
        shop.dies_at("reserve done", order::<H>, &key).await;
        shop.lab.harness.reincarnate().await;
        if keys == Keys::None {
            is_held(&shop, &key, "charge").await;
            assert_eq!(shop.world.remote.requested("charge"), Vec::<String>::new());
        } else {
            assert_eq!(shop.answers(order::<H>, &key).await.reply().status(), 201);
            assert_eq!(shop.world.remote.requested("charge"), [shop.derived(&key, "charge")]);
        }
    }
}

/// What a person found out is about the calls that they knew of. Restored to a time before the next attempt was
/// counted, the rows say the same, and the call may have been made: they are asked once more.
pub async fn a_call_that_did_not_happen_is_not_sent_blindly_after_a_restore<H: Harness>() {
    let (shop, key) = (Shop::<H>::open_in(World::calling(psp(Keys::None))).await, Key::random());
    shop.dies_at("before charge", order::<H>, &key).await;
    is_held(&shop, &key, "charge").await;
    resolves(&shop, &key, "charge", &Resolution::DidNotHappen).await;
    shop.lab.harness.reincarnate().await;
    is_held(&shop, &key, "charge").await;
    assert_eq!(shop.world.remote.requested("charge"), Vec::<String>::new());
    // In this history it is known that nothing was sent; that holds for what comes after, too.
    resolves(&shop, &key, "charge", &Resolution::DidNotHappen).await;
    shop.world.remote.trouble("charge", &[Trouble::Busy]);
    assert_eq!(shop.answers(order::<H>, &key).await.reply().status(), 201);
    assert_eq!((shop.world.remote.requested("charge").len(), shop.world.remote.done("charge").len()), (2, 1));
}

/// Only whom the definition declares is called: nobody has checked the others.
pub async fn a_provider_that_is_not_declared_is_not_called<H: Harness>() {
    fn undeclared<H: Harness>(world: &World) -> Definition<H::Store> {
        let world = world.clone();
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| {
            let world = world.clone();
            async move {
                let charge = calls::<H>(&flow, &world, "charge").await?;
                finishes::<H>(&flow, &world, charge).await
            }
        })
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let asked = shop.asks(undeclared::<H>, &key).await;
    let Err(OnceError::Effect(flow::Error::Changed(changed))) = asked else { panic!("nobody checked it: {asked:?}") };
    assert!(matches!(&changed, flow::Changed::UnknownProvider { provider, .. } if provider == "psp"), "{changed}");
    assert_eq!(shop.world.remote.requested("charge"), Vec::<String>::new());
    shop.pauses_are_over().await;
    assert_eq!(shop.answers(order::<H>, &key).await.reply().status(), 201);
}

/// A client is told that nobody knows, and the step waits for a person.
async fn is_held<H: Harness>(shop: &Shop<H>, key: &Key, step: &str) {
    shop.is_unknown(order::<H>, key).await;
    assert_eq!(shop.open_steps(key).await, [step]);
}

/// A person says what became of a step.
pub(super) async fn resolves<H: Harness>(shop: &Shop<H>, key: &Key, step: &str, resolution: &Resolution) {
    let execution = shop.shows(key).await.record.execution;
    let change = shop.lab.store().resolve_flow(execution, step, resolution, &audit("called them"), false).await;
    assert!(matches!(change, Ok(Change::Made(_))), "{change:?}");
}

//! What the flows of these tests work with, and the steps that they are made of.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::flow::{self, Failed};
use semel::provider::{Call, Found, Keys, Provider, Retry};
use semel::{Error, Flow, Key, Reply, Store};

use super::harness::Harness;
use super::lab::DAY;
use super::remote::{Charge, Remote};
use super::trap::Trap;

/// What every process of a test shares: it stands for all that is outside of them. Clones are one world.
#[derive(Debug, Clone)]
pub(super) struct World {
    /// Whom flows call.
    pub(super) remote: Remote,
    /// Where they die.
    pub(super) trap: Trap,
    /// How whom they call is taken to treat keys.
    pub(super) psp: Provider,
    ran: Arc<Mutex<HashMap<String, u32>>>,
}

/// What an order begins with.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Order {
    /// How many.
    pub(super) quantity: u32,
}

impl World {
    /// A world in which keys are kept for a day.
    pub(super) fn new() -> World {
        World { remote: Remote::default(), trap: Trap::default(), psp: psp(Keys::Kept(DAY)), ran: Arc::default() }
    }

    /// The same, with another profile of whom flows call.
    pub(super) fn calling(psp: Provider) -> World {
        World { psp, ..World::new() }
    }

    /// A profile with this treatment of keys whose results can be looked up.
    pub(super) fn looking_up(keys: Keys) -> World {
        let world = World::new();
        let remote = world.remote.clone();
        let look_up = move |call: Call| {
            let found: Found = remote.look_up(call.key());
            async move { Ok(found) }
        };
        World { psp: psp(keys).look_up(look_up), ..world }
    }

    /// Notes that something ran.
    pub(super) fn note(&self, what: &str) {
        *self.ran.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    /// How often something ran.
    pub(super) fn ran(&self, what: &str) -> u32 {
        self.ran.lock().unwrap().get(what).copied().unwrap_or(0)
    }
}

/// A profile in haste: pauses of a millisecond, five attempts, and what was done can be looked up at once.
pub(super) fn psp(keys: Keys) -> Provider {
    let retry = Retry { attempts: 5, least: Duration::from_millis(1), most: Duration::from_millis(4) };
    Provider::http("psp", keys).retry(retry).settles_after(Duration::ZERO)
}

/// The label of the row that a step adds.
pub(super) fn label(step: &str, key: &Key) -> String {
    format!("{step} {key}")
}

/// A step of a flow. Behind a pointer, because the compiler cannot tell of a generic store that it is `Send`.
pub(super) type Step<'a, T> = Pin<Box<dyn Future<Output = flow::Result<T>> + Send + 'a>>;

/// Adds a row, inside the transaction.
pub(super) fn inserts<'t, H: Harness>(
    tx: &'t mut <H::Store as Store>::Tx,
    label: &'t str,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 't>> {
    Box::pin(H::insert(tx, label))
}

/// A commit that adds a row, and returns 7.
pub(super) fn adds<'a, H: Harness>(flow: &'a Flow<H::Store>, world: &'a World, step: &'static str) -> Step<'a, u32> {
    Box::pin(async move {
        // Owned, like everything in the closure: see `Step`.
        let (row, within, name) = (label(step, flow.key()), world.clone(), step.to_owned());
        let added = flow.commit(step, async move |tx| {
            within.note(&name);
            inserts::<H>(tx, &row).await?;
            let passing = within.trap.pass(&format!("within {name}"));
            passing.await;
            Ok::<u32, Error>(7)
        });
        let seven = added.await?;
        world.trap.pass(&format!("{step} done")).await;
        Ok(seven)
    })
}

/// Says that a commit is undone by adding a row for that.
pub(super) fn removes<H: Harness>(flow: &Flow<H::Store>, world: &World, step: &'static str) -> flow::Result<()> {
    let (row, world) = (format!("undo {}", label(step, flow.key())), world.clone());
    flow.compensate(step, move |tx| {
        let (row, world) = (row.clone(), world.clone());
        Box::pin(async move {
            world.note(&format!("undo {step}"));
            inserts::<H>(tx, &row).await?;
            world.trap.pass(&format!("within undo {step}")).await;
            Ok(())
        })
    })
}

/// A call of this kind.
pub(super) fn calls<'a, H: Harness>(
    flow: &'a Flow<H::Store>,
    world: &'a World,
    step: &'static str,
) -> Step<'a, Charge> {
    Box::pin(async move {
        let charge = flow.call(step, &world.psp, requests(world, step)).await?;
        world.trap.pass(&format!("{step} done")).await;
        Ok(charge)
    })
}

/// A call of one kind that is undone by one of another kind.
pub(super) fn calls_undoably<'a, H: Harness>(
    flow: &'a Flow<H::Store>,
    world: &'a World,
    step: &'static str,
    undo: &'static str,
) -> Step<'a, Charge> {
    Box::pin(async move {
        let at = world.clone();
        let undoes = move |call: Call, charge: Charge| {
            at.note(&format!("{undo} of {}", charge.id));
            requests(&at, undo)(call)
        };
        let charge = flow.call(step, &world.psp, requests(world, step)).compensate(undoes).await?;
        world.trap.pass(&format!("{step} done")).await;
        Ok(charge)
    })
}

/// A request that was sent.
type Requesting = Pin<Box<dyn Future<Output = Result<Charge, Failed>> + Send>>;

/// What a call of this kind does: one request, with a place before and one after it.
pub(super) fn requests(
    world: &World,
    kind: &'static str,
) -> impl Fn(Call) -> Requesting + Send + Sync + 'static + use<> {
    let world = world.clone();
    move |call| {
        let world = world.clone();
        Box::pin(async move {
            world.note(kind);
            world.trap.pass(&format!("before {kind}")).await;
            let answer = world.remote.request(kind, &call).await;
            world.trap.pass(&format!("after {kind}")).await;
            answer
        })
    }
}

/// Ends a flow with a row and a charge.
pub(super) fn finishes<'a, H: Harness>(flow: &'a Flow<H::Store>, world: &'a World, charge: Charge) -> Step<'a, Reply> {
    Box::pin(async move {
        let (row, world) = (label("finish", flow.key()), world.clone());
        let finished = flow.finish(async move |tx| {
            world.note("finish");
            inserts::<H>(tx, &row).await?;
            world.trap.pass("within finish").await;
            Ok::<Reply, flow::Error>(Reply::json(201, &charge)?)
        });
        finished.await
    })
}

//! The control: a flow the way it is written without an intent, a fence or a derived key, which charges twice.
//!
//! It does a step and then notes that it was done, in a transaction of its own, and it makes up a new key for each
//! request. Tests of crashes and of workers that wake up late which cannot make *this* charge twice prove nothing about
//! Semel.

use std::sync::Arc;

use semel::Key;
use semel::provider::{Call, Keys, Provider};
use tokio::task::JoinHandle;

use super::harness::Harness;
use super::remote::Remote;
use super::trap::Trap;

/// The places at which it is stopped: those of a flow, in the order in which it passes them.
const PLACES: [&str; 7] =
    ["begun", "within reserve", "reserve done", "before charge", "after charge", "charge done", "within finish"];

/// A process that dies between the call and its note charges twice, and reserves twice where it dies between the
/// reservation and its note.
pub async fn a_naive_flow_that_crashes_charges_twice<H: Harness>() {
    let (harness, remote, trap) = (Arc::new(H::create().await), Remote::default(), Trap::default());
    let (mut charged_twice, mut reserved_twice) = (Vec::new(), Vec::new());
    for place in PLACES {
        let order = format!("order-{}", Key::random());
        let charges = remote.done("charge").len();
        trap.arm(place);
        let dying = runs(&harness, &remote, &trap, &order);
        trap.springs_at(place).await;
        dying.abort();
        let _ = dying.await;
        runs(&harness, &remote, &trap, &order).await.unwrap();
        if remote.done("charge").len() - charges > 1 {
            charged_twice.push(place);
        }
        if harness.count(&format!("reserve {order}")).await > 1 {
            reserved_twice.push(place);
        }
    }
    assert_eq!(charged_twice, ["after charge"]);
    assert_eq!(reserved_twice, ["reserve done"]);
}

/// A worker that wakes up late charges a second time, and nothing stops it from noting that, too.
pub async fn a_naive_worker_that_wakes_up_late_charges_twice<H: Harness>() {
    let (harness, remote, trap) = (Arc::new(H::create().await), Remote::default(), Trap::default());
    trap.hold("before charge");
    let late = runs(&harness, &remote, &trap, "order");
    trap.springs_at("before charge").await;
    runs(&harness, &remote, &trap, "order").await.unwrap();
    assert_eq!(remote.done("charge").len(), 1);
    trap.thaw();
    late.await.unwrap();
    assert_eq!(remote.done("charge").len(), 2);
    assert_eq!(harness.count("noted charge order").await, 2);
}

fn runs<H: Harness>(harness: &Arc<H>, remote: &Remote, trap: &Trap, order: &str) -> JoinHandle<()> {
    let (harness, remote, trap, order) = (Arc::clone(harness), remote.clone(), trap.clone(), order.to_owned());
    tokio::spawn(async move { place(&*harness, &remote, &trap, &order).await })
}

async fn place<H: Harness>(harness: &H, remote: &Remote, trap: &Trap, order: &str) {
    trap.pass("begun").await;
    if harness.count(&format!("noted reserve {order}")).await == 0 {
        adds(harness, &format!("reserve {order}"), trap, "within reserve").await;
        trap.pass("reserve done").await;
        adds(harness, &format!("noted reserve {order}"), trap, "").await;
    }
    if harness.count(&format!("noted charge {order}")).await == 0 {
        trap.pass("before charge").await;
        let call = Call::new(&Provider::http("psp", Keys::Forever), "charge", Key::random().as_str(), 1);
        remote.request("charge", &call).await.unwrap();
        trap.pass("after charge").await;
        adds(harness, &format!("noted charge {order}"), trap, "").await;
        trap.pass("charge done").await;
    }
    adds(harness, &format!("finish {order}"), trap, "within finish").await;
}

/// Adds a row in a transaction of its own.
async fn adds<H: Harness>(harness: &H, label: &str, trap: &Trap, within: &str) {
    let mut tx = harness.begin().await;
    H::insert(&mut tx, label).await.unwrap();
    trap.pass(within).await;
    H::commit(tx).await.unwrap();
}

//! A flow goes with its key, never before it, and what is in doubt does not go at all.

use std::time::Duration;

use semel::flow::{FlowState, FlowStore, Kept, Kind, Resolution, Settled, Start};
use semel::operator::Eviction;
use semel::{Claim, Error, Key, Outcome, Reply, Store, Tx};

use super::harness::{Harness, Rows};
use super::lab::{FLOW, Lab, audit, done, entry, reply, start, terms};
use super::staging::{MAIL, stages};

const NOTHING: Rows = Rows { flows: 0, steps: 0 };
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const PAST_A_DAY: Duration = Duration::from_secs(25 * 60 * 60);

/// Nothing is left behind.
pub async fn reaping_a_key_takes_its_flow_and_steps_along<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for _ in 0..3 {
        finished(&lab, &Key::random()).await;
    }
    assert_eq!(lab.harness.rows().await, Rows { flows: 3, steps: 6 });
    assert_eq!(lab.store().reap(10).await.unwrap(), 0);
    lab.harness.age(PAST_A_DAY).await;
    let living = lab.begins().await;
    lab.commits(&living.lease, "reserve", "effect").await.unwrap();
    assert_eq!(lab.store().reap(2).await.unwrap(), 2);
    assert_eq!(lab.harness.rows().await, Rows { flows: 2, steps: 3 });
    assert_eq!(lab.store().reap(10).await.unwrap(), 1);
    assert_eq!(lab.harness.rows().await, Rows { flows: 1, steps: 1 });
    assert_eq!(lab.shows(&living.lease).await.record.state, FlowState::Running);
}

/// Unfinished work is not forgotten, however old, nor is a job that nobody came for.
pub async fn a_flow_that_is_not_done_is_never_reaped<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let abandoned = lab.begins().await;
    stages(&lab, "hello").await;
    lab.harness.age(YEAR).await;
    assert_eq!(lab.store().reap(10).await.unwrap(), 0);
    assert_eq!(lab.takes_one(FLOW).await.lease.execution, abandoned.lease.execution);
    assert_eq!(lab.takes(MAIL).await.len(), 1);
}

/// I9: what a person has to find out waits for that person. Until then its key is not new to anybody.
pub async fn a_held_flow_is_never_forgotten<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    lab.commits(&journal.lease, "reserve", "effect").await.unwrap();
    lab.holds(&journal.lease, "charge").await;
    lab.harness.age(YEAR).await;
    assert_eq!(lab.store().reap(10).await.unwrap(), 0);
    assert!(matches!(lab.asks(&key, &start(FLOW)).await, Claim::Unknown));
    assert!(matches!(lab.semel.claim(&lab.ask(&key)).await.unwrap(), Claim::Unknown));
    assert!(matches!(lab.semel.lease(&lab.ask(&key), &terms("two")).await.unwrap(), Claim::Unknown));
    assert_eq!(lab.harness.rows().await, Rows { flows: 1, steps: 2 });
    let happened = Resolution::Happened(b"{}".to_vec().into());
    lab.store().resolve_flow(journal.lease.execution, "charge", &happened, &audit("found"), false).await.unwrap();
    let taken = lab.takes_one(FLOW).await;
    lab.finishes(&taken.lease, 201, "effect").await.unwrap();
    assert_eq!(lab.store().reap(10).await.unwrap(), 0, "its reply is kept from now on");
    lab.harness.age(PAST_A_DAY).await;
    assert_eq!(lab.store().reap(10).await.unwrap(), 1);
    assert_eq!(lab.harness.rows().await, NOTHING);
}

/// Evicting a key makes it new again.
pub async fn evicting_a_key_takes_its_flow_and_steps_along<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    finished(&lab, &key).await;
    let would = lab.store().evict_key(&lab.scope, &key, None, &audit("just looking"), true).await.unwrap();
    assert!(matches!(would, Eviction::Evicted(_)));
    assert_eq!(lab.harness.rows().await, Rows { flows: 1, steps: 2 });
    let evicted = lab.store().evict_key(&lab.scope, &key, None, &audit("mended by hand"), false).await.unwrap();
    assert!(matches!(evicted, Eviction::Evicted(_)));
    assert_eq!(lab.harness.rows().await, NOTHING);
    let running = lab.begins_under(&key).await;
    assert_eq!(running.entries, Vec::new());
    let refused = lab.store().evict_key(&lab.scope, &key, None, &audit("too early"), false).await.unwrap();
    assert_eq!(refused, Eviction::InFlight);
    assert_eq!(lab.harness.rows().await, Rows { flows: 1, steps: 0 });
}

/// Its next run would do again what its steps have done: abandoned or held, it is not evicted.
pub async fn a_flow_that_has_done_something_is_not_evicted_before_it_has_ended<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let begun = lab.begins_under(&key).await;
    lab.commits(&begun.lease, "reserve", "effect").await.unwrap();
    lab.abandons().await;
    let refused = lab.store().evict_key(&lab.scope, &key, None, &audit("stuck"), false).await.unwrap();
    assert_eq!(refused, Eviction::InFlight, "abandoned");
    let taken = lab.resumes(&key).await;
    lab.counts(&taken.lease, "charge", 1).await.unwrap();
    lab.holds(&taken.lease, "charge").await;
    let refused = lab.store().evict_key(&lab.scope, &key, None, &audit("stuck"), false).await.unwrap();
    assert_eq!(refused, Eviction::InFlight, "held");
    assert_eq!(lab.harness.rows().await, Rows { flows: 1, steps: 2 });
}

/// A key that runs again after it expired, in whatever way, has nothing of its former flow.
pub async fn a_key_that_runs_again_after_it_expired_has_nothing_of_its_former_flow<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (as_flow, as_work, as_lease) = (Key::random(), Key::random(), Key::random());
    let former = finished(&lab, &as_flow).await;
    finished(&lab, &as_work).await;
    finished(&lab, &as_lease).await;
    lab.harness.age(PAST_A_DAY).await;
    let again = lab.begins_under(&as_flow).await;
    assert_ne!(again.lease.execution, former);
    assert_eq!((again.lease.epoch, &again.entries), (1, &Vec::new()));
    assert_eq!(lab.store().show_flow(former).await.unwrap(), None);
    lab.commits(&again.lease, "reserve", "again").await.unwrap();
    assert_eq!(lab.harness.rows().await, Rows { flows: 3, steps: 5 });
    let ran = lab.semel.once(&lab.scope, &as_work, &lab.fingerprint, async |tx| {
        H::insert(tx, "again").await?;
        Ok::<Reply, Error>(reply(200))
    });
    assert_eq!(ran.await.unwrap(), Outcome::Fresh(reply(200)));
    assert_eq!(lab.harness.rows().await, Rows { flows: 2, steps: 3 });
    assert!(matches!(lab.semel.lease(&lab.ask(&as_lease), &terms("one")).await.unwrap(), Claim::Fresh(_)));
    assert_eq!(lab.harness.rows().await, Rows { flows: 1, steps: 1 });
}

/// What is sealed is nobody's to look into, the store's included.
pub async fn what_is_sealed_comes_back_as_it_was_given<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let sealed = |text: u8| Kept { bytes: vec![text, 0, 255, 13, 10].into(), sealed_by: Some("one".to_owned()) };
    let known = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    lab.store().check_seals(&known(&["one"])).await.unwrap();
    let journal = lab.begins_as(&key, &Start { flow: FLOW.to_owned(), input: sealed(1) }).await;
    let tx = lab.store().begin_step(&journal.lease, "reserve").await.unwrap();
    tx.record(&Settled { result: sealed(2), ..done("reserve", Kind::Commit, b"") }).await.unwrap();
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    let charged = Settled { result: sealed(3), ..done("charge", Kind::Call, b"") };
    lab.store().settle_step(&journal.lease, &charged).await.unwrap();
    lab.store().unwind_flow(&journal.lease, &sealed(4)).await.unwrap();
    let recorded = lab.reads(&journal.lease).await;
    lab.abandons().await;
    for journal in [recorded, lab.takes_one(FLOW).await] {
        assert_eq!((&journal.input, &journal.unwinding), (&sealed(1), &Some(sealed(4))));
        assert_eq!(entry(&journal, "reserve").result, Some(sealed(2)));
        assert_eq!(entry(&journal, "charge").result, Some(sealed(3)));
    }
    assert_eq!(lab.harness.kept().await.len(), 4);
    // A key that a flow needs cannot retire.
    let refused = lab.store().check_seals(&known(&["two"])).await.unwrap_err().to_string();
    assert!(refused.contains("\"one\""), "{refused}");
    lab.store().check_seals(&known(&["two", "one"])).await.unwrap();
}

/// Runs a flow of a commit and a call to its end.
async fn finished<H: Harness>(lab: &Lab<H>, key: &Key) -> semel::Execution {
    let journal = lab.begins_under(key).await;
    lab.commits(&journal.lease, "reserve", "effect").await.unwrap();
    lab.counts(&journal.lease, "charge", 1).await.unwrap();
    lab.store().settle_step(&journal.lease, &done("charge", Kind::Call, b"{}")).await.unwrap();
    lab.finishes(&journal.lease, 201, "effect").await.unwrap();
    journal.lease.execution
}

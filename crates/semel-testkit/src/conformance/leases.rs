//! Work that outlives one transaction, and the fence around it.

use std::time::Duration;

use semel::lease::{Lease, LeaseTerms, OnExpiry, RecoveryPoint};
use semel::once::Error as OnceError;
use semel::operator::{Audit, Eviction, KeyState};
use semel::{Ask, Claim, Error, Fingerprint, Key, Outcome, Reply, Store, Tx};

use super::harness::{Harness, Lab, reply};

/// While a lease runs, others are told how long.
pub async fn a_leased_key_is_in_flight_for_others_until_its_lease_ends<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let _lease = fresh(&lab, &key).await;
    for _ in 0..2 {
        let Claim::InFlight { retry_after } = lab.semel.lease(&lab.ask(&key), &lab.terms("two")).await.unwrap() else {
            panic!("the lease runs");
        };
        assert!(retry_after > Duration::from_secs(5) && retry_after <= Duration::from_secs(30), "{retry_after:?}");
    }
    assert!(matches!(lab.charge(&key, 201).await, Err(OnceError::InFlight { .. })));
}

/// The next one goes on where the last one stopped.
pub async fn an_abandoned_lease_is_taken_over_at_its_recovery_point<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let mut first = fresh(&lab, &key).await;
    step(&lab, &mut first, "reserved").await.unwrap();
    lab.harness.age(Duration::from_secs(31)).await;
    assert_eq!(lab.semel.store().stuck_leases().await.unwrap(), 1);
    let second = resumed(&lab, &key, "two").await;
    assert_eq!(second.recovery_point, Some(RecoveryPoint::new("reserved").unwrap()));
    assert_eq!((first.epoch, second.epoch), (1, 2));
    assert_eq!(first.execution, second.execution);
    assert_eq!(lab.semel.store().stuck_leases().await.unwrap(), 0);
    assert_eq!(lab.effects(&key).await, 1);
}

/// I7: the late worker can neither act nor renew, and changes nothing.
pub async fn a_worker_that_lost_its_lease_is_refused<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let mut late = fresh(&lab, &key).await;
    lab.harness.age(Duration::from_secs(31)).await;
    let mut current = resumed(&lab, &key, "two").await;
    assert!(matches!(step(&lab, &mut late, "late").await, Err(OnceError::Store(Error::Fenced))));
    assert!(matches!(finish(&lab, &late, 201).await, Err(OnceError::Store(Error::Fenced))));
    assert!(matches!(lab.semel.store().renew(&late, late.lease_for).await, Err(Error::Fenced)));
    lab.semel.store().release(&late).await.unwrap();
    assert_eq!(lab.effects(&key).await, 0);
    assert!(matches!(finish(&lab, &current, 201).await.unwrap(), Outcome::Fresh(_)));
    assert_eq!(lab.effects(&key).await, 1);
    assert!(matches!(step(&lab, &mut current, "after the end").await, Err(OnceError::Store(Error::Fenced))));
}

/// I7: a worker whose lease has expired may still be in its transaction when another one comes. Either the newcomer is
/// told to wait or the worker fails, never both and never neither.
pub async fn a_takeover_during_a_fenced_transaction_lets_one_worker_through<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let first = fresh(&lab, &key).await;
    lab.harness.age(Duration::from_secs(31)).await;
    let tx = lab.semel.store().begin_fenced(&first).await.unwrap();
    let second = lab.semel.lease(&lab.ask(&key), &lab.terms("two")).await.unwrap();
    let completed = lab.semel.finish(&lab.ask(&key), tx, &reply(201, &key)).await;
    match second {
        Claim::Resume(lease) => {
            assert!(matches!(completed, Err(Error::Fenced)), "{completed:?}");
            assert!(matches!(finish(&lab, &lease, 200).await.unwrap(), Outcome::Fresh(_)));
        }
        Claim::InFlight { .. } => assert!(completed.is_ok(), "{completed:?}"),
        other => panic!("a takeover got {other:?}"),
    }
    let record = lab.semel.store().show_key(&lab.scope, &key).await.unwrap().unwrap();
    assert_eq!(record.state, KeyState::Completed);
}

/// I7: a key that was evicted and leased anew starts again at epoch 1, and a zombie of the old run must not pass for
/// the new one.
pub async fn a_zombie_of_an_evicted_run_is_refused<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let mut zombie = fresh(&lab, &key).await;
    lab.harness.age(Duration::from_secs(31)).await;
    let audit = Audit { actor: "tester".to_owned(), reason: "stuck".to_owned() };
    let evicted = lab.semel.store().evict_key(&lab.scope, &key, None, &audit, false).await.unwrap();
    assert!(matches!(evicted, Eviction::Evicted(_)));
    let current = fresh(&lab, &key).await;
    assert_eq!((zombie.epoch, current.epoch), (1, 1));
    assert!(matches!(step(&lab, &mut zombie, "late").await, Err(OnceError::Store(Error::Fenced))));
    assert!(matches!(finish(&lab, &zombie, 201).await, Err(OnceError::Store(Error::Fenced))));
    assert!(matches!(lab.semel.store().renew(&zombie, zombie.lease_for).await, Err(Error::Fenced)));
    lab.semel.store().release(&zombie).await.unwrap();
    lab.semel.store().abandon(&zombie).await.unwrap();
    assert!(matches!(lab.semel.lease(&lab.ask(&key), &lab.terms("two")).await.unwrap(), Claim::InFlight { .. }));
    assert!(matches!(finish(&lab, &current, 200).await.unwrap(), Outcome::Fresh(_)));
    assert_eq!(lab.effects(&key).await, 1);
}

/// A worker that did not hear that its step was committed, and tries it again, does not commit it twice.
pub async fn a_step_that_was_committed_is_not_committed_again<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let unheard = fresh(&lab, &key).await;
    step(&lab, &mut unheard.clone(), "reserved").await.unwrap();
    let again = step(&lab, &mut unheard.clone(), "reserved").await;
    assert!(
        matches!(&again, Err(OnceError::Store(Error::Advanced(Some(point)))) if point.as_str() == "reserved"),
        "{again:?}"
    );
    assert_eq!(lab.effects(&key).await, 1);
    let mut current = Lease { recovery_point: Some(RecoveryPoint::new("reserved").unwrap()), ..unheard };
    step(&lab, &mut current, "delivered").await.unwrap();
    assert_eq!(lab.effects(&key).await, 2);
}

/// A worker that ends its own work has not lost its lease.
pub async fn renewing_work_that_has_ended_is_not_a_loss<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let lease = fresh(&lab, &key).await;
    assert!(lab.semel.store().renew(&lease, lease.lease_for).await.unwrap());
    finish(&lab, &lease, 201).await.unwrap();
    assert!(!lab.semel.store().renew(&lease, lease.lease_for).await.unwrap());
}

/// A worker that leased and did nothing can give the key back as new; one that did something cannot.
pub async fn an_abandoned_lease_leaves_the_key_new_unless_work_was_done<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let untouched = fresh(&lab, &key).await;
    lab.semel.store().abandon(&untouched).await.unwrap();
    let mut worked = fresh(&lab, &key).await;
    assert_ne!(untouched.execution, worked.execution);
    step(&lab, &mut worked, "reserved").await.unwrap();
    lab.semel.store().abandon(&worked).await.unwrap();
    assert_eq!(resumed(&lab, &key, "two").await.recovery_point, worked.recovery_point);
}

/// I9: leased work cannot be forgotten before clients stop retrying.
pub async fn a_lease_with_a_shorter_retention_is_refused<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let short = LeaseTerms { retain: Duration::from_secs(60), ..lab.terms("one") };
    assert!(matches!(lab.semel.lease(&lab.ask(&key), &short).await, Err(Error::Settings(_))));
}

/// A step is atomic with its record.
pub async fn a_failed_step_moves_neither_effect_nor_recovery_point<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let mut lease = fresh(&lab, &key).await;
    let (label, point) = (key.clone(), RecoveryPoint::new("reserved").unwrap());
    let failed = lab.semel.advance(&mut lease, &point, async move |tx| {
        H::insert(tx, label.as_str()).await.unwrap();
        Err::<(), &str>("no")
    });
    assert!(matches!(failed.await, Err(OnceError::Effect("no"))));
    assert_eq!(lab.effects(&key).await, 0);
    lab.harness.age(Duration::from_secs(31)).await;
    assert_eq!(resumed(&lab, &key, "two").await.recovery_point, None);
}

/// Some work must not be resumed blindly.
pub async fn abandoned_work_that_must_not_resume_is_held_as_unknown<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let late = fresh(&lab, &key).await;
    lab.harness.age(Duration::from_secs(31)).await;
    let hold = LeaseTerms { on_expiry: OnExpiry::Hold, ..lab.terms("two") };
    assert!(matches!(lab.charge(&key, 201).await, Err(OnceError::Unknown)));
    for _ in 0..2 {
        assert!(matches!(lab.semel.lease(&lab.ask(&key), &hold).await.unwrap(), Claim::Unknown));
    }
    assert!(matches!(lab.semel.lease(&lab.ask(&key), &lab.terms("two")).await.unwrap(), Claim::Unknown));
    assert!(matches!(finish(&lab, &late, 201).await, Err(OnceError::Store(Error::Fenced))));
    let record = lab.semel.store().show_key(&lab.scope, &key).await.unwrap().unwrap();
    assert_eq!(record.state, KeyState::Unknown);
}

/// A worker that gives up does not make others wait.
pub async fn a_released_lease_is_taken_over_at_once<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let lease = fresh(&lab, &key).await;
    lab.semel.store().release(&lease).await.unwrap();
    assert_eq!(resumed(&lab, &key, "two").await.epoch, 2);
}

/// Renewal keeps the lease while the work runs.
pub async fn a_lease_is_renewed_while_work_runs<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let terms = LeaseTerms { lease_for: Duration::from_millis(900), ..lab.terms("one") };
    let Claim::Fresh(lease) = lab.semel.lease(&lab.ask(&key), &terms).await.unwrap() else { panic!("the key is new") };
    let ends = async || {
        let record = lab.semel.store().show_key(&lab.scope, &key).await.unwrap().unwrap();
        record.lease.unwrap().expires_at_ms
    };
    let first_end = ends().await;
    let renewing = lab.semel.keep_alive(&lease);
    let renewed_past = async {
        while ends().await <= first_end + 900 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), renewed_past).await.expect("the lease outlived its first term");
    assert!(matches!(lab.semel.lease(&lab.ask(&key), &terms).await.unwrap(), Claim::InFlight { .. }));
    drop(renewing);
}

/// I1 and I3 hold for leased work too.
pub async fn leased_work_completes_and_replays<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let mut lease = fresh(&lab, &key).await;
    step(&lab, &mut lease, "reserved").await.unwrap();
    assert!(matches!(finish(&lab, &lease, 201).await.unwrap(), Outcome::Fresh(_)));
    assert_eq!(lab.effects(&key).await, 2);
    let Claim::Replay(recorded) = lab.semel.lease(&lab.ask(&key), &lab.terms("two")).await.unwrap() else {
        panic!("the work has finished");
    };
    assert_eq!((recorded.reply, recorded.execution), (reply(201, &key), lease.execution));
    assert_eq!(lab.charge(&key, 200).await.unwrap(), Outcome::Replayed(reply(201, &key)));
}

/// The refusal of the last step is remembered, what that step did before it is not, and earlier steps stay.
pub async fn a_refused_last_step_is_stored_without_its_effect<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let mut lease = fresh(&lab, &key).await;
    step(&lab, &mut lease, "reserved").await.unwrap();
    assert!(matches!(finish(&lab, &lease, 402).await.unwrap(), Outcome::Fresh(_)));
    assert_eq!(lab.effects(&key).await, 1);
    assert_eq!(lab.charge(&key, 200).await.unwrap(), Outcome::Replayed(reply(402, &key)));
}

/// The fingerprint of leased work is known while it runs.
pub async fn a_leased_key_with_another_fingerprint_is_a_mismatch<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let _lease = fresh(&lab, &key).await;
    let other = Ask::new(&lab.scope, &key, &Fingerprint::of_bytes(b"another request"));
    assert!(matches!(lab.semel.lease(&other, &lab.terms("two")).await.unwrap(), Claim::Mismatch));
    lab.harness.age(Duration::from_secs(31)).await;
    assert!(matches!(lab.semel.lease(&other, &lab.terms("two")).await.unwrap(), Claim::Mismatch));
    assert!(matches!(lab.semel.claim(&other).await.unwrap(), Claim::Mismatch));
}

/// A finished lease expires like any other key.
pub async fn a_leased_key_can_run_again_after_it_expired<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let first = fresh(&lab, &key).await;
    finish(&lab, &first, 201).await.unwrap();
    lab.harness.age(Duration::from_secs(25 * 60 * 60)).await;
    let second = fresh(&lab, &key).await;
    assert_ne!(first.execution, second.execution);
    assert_eq!(second.epoch, 1);
    let tx = lab.semel.store().begin_fenced(&second).await.unwrap();
    tx.rollback().await;
    assert!(matches!(finish(&lab, &second, 200).await.unwrap(), Outcome::Fresh(_)));
}

async fn fresh<H: Harness>(lab: &Lab<H>, key: &Key) -> Lease {
    match lab.semel.lease(&lab.ask(key), &lab.terms("one")).await.unwrap() {
        Claim::Fresh(lease) => lease,
        other => panic!("a new key gave {other:?}"),
    }
}

async fn resumed<H: Harness>(lab: &Lab<H>, key: &Key, holder: &str) -> Lease {
    match lab.semel.lease(&lab.ask(key), &lab.terms(holder)).await.unwrap() {
        Claim::Resume(lease) => lease,
        other => panic!("an abandoned key gave {other:?}"),
    }
}

async fn step<H: Harness>(lab: &Lab<H>, lease: &mut Lease, point: &str) -> Result<(), OnceError<Error>> {
    let label = lease.key().clone();
    let point = RecoveryPoint::new(point.replace(' ', "-")).unwrap();
    lab.semel.advance(lease, &point, async move |tx| H::insert(tx, label.as_str()).await).await
}

async fn finish<H: Harness>(lab: &Lab<H>, lease: &Lease, status: u16) -> Result<Outcome, OnceError<Error>> {
    let label = lease.key().clone();
    lab.semel
        .finish_leased(lease, async move |tx| {
            H::insert(tx, label.as_str()).await?;
            Ok::<Reply, Error>(reply(status, &label))
        })
        .await
}

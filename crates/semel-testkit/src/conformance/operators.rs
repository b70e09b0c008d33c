//! Forgetting, looking and evicting.

use std::time::Duration;

use semel::operator::{Audit, Eviction, KeyFilter, KeyState};
use semel::reaper::Reaper;
use semel::{Claim, Key, Outcome, Store, Tx};

use super::harness::{Harness, Lab};

/// Expiry comes in small bites and touches nothing that lives.
pub async fn reaping_deletes_expired_keys_in_bounded_batches_only<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for _ in 0..25 {
        lab.charge(&Key::random(), 201).await.unwrap();
    }
    lab.harness.age(Duration::from_secs(25 * 60 * 60)).await;
    let living = Key::random();
    lab.charge(&living, 201).await.unwrap();
    assert_eq!(lab.semel.store().reap(10).await.unwrap(), 10);
    assert_eq!(Reaper { batch: 10, ..Reaper::default() }.sweep(lab.semel.store()).await.unwrap(), 15);
    assert_eq!(lab.semel.store().reap(10).await.unwrap(), 0);
    assert!(matches!(lab.charge(&living, 201).await.unwrap(), Outcome::Replayed(_)));
}

/// Unfinished work is not forgotten, however old.
pub async fn work_in_progress_is_never_reaped<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    assert!(matches!(lab.semel.lease(&lab.ask(&key), &lab.terms("one")).await.unwrap(), Claim::Fresh(_)));
    lab.harness.age(Duration::from_secs(365 * 24 * 60 * 60)).await;
    assert_eq!(lab.semel.store().reap(10).await.unwrap(), 0);
    assert!(matches!(lab.semel.lease(&lab.ask(&key), &lab.terms("two")).await.unwrap(), Claim::Resume(_)));
}

/// What an operator needs, and filters that filter.
pub async fn an_operator_sees_keys_without_their_replies<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (done, running) = (Key::random(), Key::random());
    lab.charge(&done, 201).await.unwrap();
    let Claim::Fresh(_) = lab.semel.lease(&lab.ask(&running), &lab.terms("worker-7")).await.unwrap() else {
        panic!("the key is new");
    };
    let all = KeyFilter { limit: 100, ..KeyFilter::default() };
    let list = async |filter: KeyFilter| lab.semel.store().list_keys(&filter).await.unwrap();
    assert_eq!(list(all.clone()).await.len(), 2);
    assert_eq!(list(KeyFilter { limit: 1, ..all.clone() }).await.len(), 1);
    assert_eq!(list(KeyFilter { tenant: Some("nobody".to_owned()), ..all.clone() }).await.len(), 0);
    assert_eq!(list(KeyFilter { operation: Some("charge".to_owned()), ..all.clone() }).await.len(), 2);
    let completed = list(KeyFilter { state: Some(KeyState::Completed), ..all.clone() }).await;
    assert_eq!(completed.len(), 1);
    let record = &completed[0];
    assert_eq!((&record.key, record.status, &record.scope), (&done, Some(201), &lab.scope));
    assert_eq!(record.fingerprint, lab.fingerprint.to_string());
    assert!(record.expires_at_ms > record.created_at_ms && !record.expired && record.reply_bytes > 0);
    let in_progress = list(KeyFilter { state: Some(KeyState::InProgress), ..all }).await;
    let lease = in_progress[0].lease.clone().unwrap();
    assert_eq!((lease.holder.as_str(), lease.epoch, lease.recovery_point), ("worker-7", 1, None));
    assert!(lease.remaining > Duration::from_secs(5));
    assert_eq!(lab.semel.store().show_key(&lab.scope, &done).await.unwrap().as_ref(), Some(record));
    assert_eq!(lab.semel.store().show_key(&lab.scope, &Key::random()).await.unwrap(), None);
}

/// Evicting makes the key new again, and somebody signs for it.
pub async fn an_evicted_key_runs_as_new_and_leaves_an_audit_row<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    lab.charge(&key, 201).await.unwrap();
    let evicted = lab.semel.store().evict_key(&lab.scope, &key, None, &audit("mended by hand"), false).await.unwrap();
    assert!(matches!(evicted, Eviction::Evicted(_)));
    assert_eq!(lab.harness.audits("mended by hand").await, 1);
    assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Fresh(_)));
    assert_eq!(lab.effects(&key).await, 2);
    let nothing =
        lab.semel.store().evict_key(&lab.scope, &Key::random(), None, &audit("nothing there"), false).await.unwrap();
    assert_eq!(nothing, Eviction::NotFound);
    assert_eq!(lab.harness.audits("nothing there").await, 0);
}

/// A key that runs is left alone, whether a transaction or a lease runs it.
pub async fn an_eviction_refuses_a_key_in_flight<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (claimed, leased) = (Key::random(), Key::random());
    let Claim::Fresh(tx) = lab.semel.claim(&lab.ask(&claimed)).await.unwrap() else { panic!("the key is new") };
    let Claim::Fresh(_) = lab.semel.lease(&lab.ask(&leased), &lab.terms("one")).await.unwrap() else {
        panic!("the key is new");
    };
    for key in [&claimed, &leased] {
        let refused = lab.semel.store().evict_key(&lab.scope, key, None, &audit("too early"), false).await.unwrap();
        assert_eq!(refused, Eviction::InFlight);
    }
    tx.rollback().await;
    assert_eq!(lab.harness.audits("too early").await, 0);
    lab.harness.age(Duration::from_secs(31)).await;
    let abandoned = lab.semel.store().evict_key(&lab.scope, &leased, None, &audit("given up"), false).await.unwrap();
    assert!(matches!(abandoned, Eviction::Evicted(_)));
}

/// An operator who looked at one run does not evict another.
pub async fn an_eviction_refuses_another_run_than_the_operator_saw<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    lab.charge(&key, 201).await.unwrap();
    let seen = lab.semel.store().show_key(&lab.scope, &key).await.unwrap().unwrap().execution;
    lab.harness.age(Duration::from_secs(25 * 60 * 60)).await;
    lab.charge(&key, 201).await.unwrap();
    let refused = lab.semel.store().evict_key(&lab.scope, &key, Some(seen), &audit("stale"), false).await.unwrap();
    assert_eq!(refused, Eviction::Changed);
    assert_eq!(lab.harness.audits("stale").await, 0);
    assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(_)));
}

/// A dry run says what would happen.
pub async fn a_dry_run_changes_nothing<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    lab.charge(&key, 201).await.unwrap();
    let would = lab.semel.store().evict_key(&lab.scope, &key, None, &audit("just looking"), true).await.unwrap();
    assert!(matches!(would, Eviction::Evicted(_)));
    assert_eq!(lab.harness.audits("just looking").await, 0);
    assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(_)));
}

fn audit(reason: &str) -> Audit {
    Audit { actor: "tester".to_owned(), reason: reason.to_owned() }
}

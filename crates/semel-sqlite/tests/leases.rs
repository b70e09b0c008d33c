//! What the fence finds on the writer, after a look beside it found nothing.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::{File, ask, completion, insert, scope};
use semel::operator::{Audit, Eviction};
use semel::{Claim, Error, Key, Lease, LeaseTerms, OnExpiry, RecoveryPoint, Store, Tx as _};
use semel_sqlite::Sqlite;

const LEASE: Duration = Duration::from_secs(30);

async fn leased(store: &Sqlite, key: &Key) -> Lease {
    let terms = LeaseTerms {
        lease_for: LEASE,
        holder: "worker".to_owned(),
        on_expiry: OnExpiry::Resume,
        retain: Duration::from_secs(24 * 60 * 60),
    };
    match store.lease(&ask(key), &terms).await.unwrap() {
        Claim::Fresh(lease) => lease,
        other => panic!("the key is new, not {other:?}"),
    }
}

#[tokio::test]
async fn a_step_committed_after_the_fence_was_passed_is_found_at_the_first_statement() {
    let file = File::create().await;
    let store = file.open().await;
    let lease = leased(&store, &Key::random()).await;
    let point = RecoveryPoint::new("reserved").unwrap();
    let (mut acting, idle) = (store.begin_fenced(&lease).await.unwrap(), store.begin_fenced(&lease).await.unwrap());
    let mut step = store.begin_fenced(&lease).await.unwrap();
    insert(&mut step, "step").await.unwrap();
    step.advance(&point).await.unwrap();

    let advanced = |result: Result<(), Error>| matches!(result, Err(Error::Advanced(Some(at))) if at == point);
    assert!(advanced(insert(&mut acting, "again").await));
    assert!(!acting.conflicted(), "running it again would not help");
    assert!(advanced(acting.advance(&point).await));
    let done = completion(lease.execution);
    assert!(advanced(idle.complete(&done).await));
    assert!(advanced(store.begin_fenced(&lease).await.map(drop)));
    assert_eq!((file.effects("step"), file.effects("again")), (1, 0));
}

#[tokio::test]
async fn a_step_renews_the_lease() {
    let file = File::create().await;
    let store = file.open().await;
    let key = Key::random();
    let lease = leased(&store, &key).await;
    file.clock.advance(LEASE / 3 * 2);
    store.begin_fenced(&lease).await.unwrap().advance(&RecoveryPoint::new("reserved").unwrap()).await.unwrap();
    file.clock.advance(LEASE / 3 * 2);
    assert!(matches!(store.claim(&ask(&key)).await.unwrap(), Claim::InFlight { .. }));
    assert_eq!(store.stuck_leases().await.unwrap(), 0);
}

#[tokio::test]
async fn a_zombie_of_an_evicted_run_is_refused_before_its_work_runs() {
    let file = File::create().await;
    let store = file.open().await;
    let key = Key::random();
    let zombie = leased(&store, &key).await;
    let mut early = store.begin_fenced(&zombie).await.unwrap();
    file.clock.advance(LEASE * 2);
    let audit = Audit { actor: "ada".to_owned(), reason: "stuck".to_owned() };
    let evicted = store.evict_key(&scope(), &key, Some(zombie.execution), &audit, false).await.unwrap();
    assert!(matches!(evicted, Eviction::Evicted(_)));
    assert_eq!(leased(&store, &key).await.epoch, zombie.epoch);
    assert!(matches!(insert(&mut early, "zombie").await, Err(Error::Fenced)));
    assert!(matches!(store.begin_fenced(&zombie).await, Err(Error::Fenced)));
    assert_eq!(file.effects("zombie"), 0);
}

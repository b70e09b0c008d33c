//! Several processes, and several handles, on one file.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{File, ask, completion, fresh, insert, reply, scope};
use semel::once::Error as OnceError;
use semel::operator::{Audit, Eviction, KeyFilter};
use semel::{Claim, Error, Fingerprint, Key, LeaseTerms, OnExpiry, Outcome, Semel, Store, Tx as _};
use semel_sqlite::{Options, Sqlite};

const KEYS: usize = 40;
const FILE: &str = "SEMEL_TEST_FILE";

async fn race(store: Sqlite, runners: usize) {
    let semel = Semel::new(store);
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..runners {
        let semel = semel.clone();
        running.spawn(async move {
            for number in 0..KEYS {
                let (scope, key) = (scope(), Key::new(format!("key-{number}")).unwrap());
                let (label, fingerprint) = (key.clone(), Fingerprint::of_bytes(b"a request"));
                let run = semel.once(&scope, &key, &fingerprint, async move |tx| {
                    insert(tx, label.as_str()).await?;
                    Ok::<_, Error>(reply())
                });
                match run.await {
                    Ok(Outcome::Fresh(answer) | Outcome::Replayed(answer)) => assert_eq!(answer, reply()),
                    Err(OnceError::InFlight { .. }) => {}
                    other => panic!("a racer got {other:?}"),
                }
            }
        });
    }
    running.join_all().await;
}

/// The body of a process that [`processes_that_race_for_the_same_keys_make_one_effect_each`] starts; alone it does
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racer() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let store = Sqlite::open(PathBuf::from(path), Options::default()).await.unwrap();
    race(store.clone(), 4).await;
    store.write(async |tx| insert(tx, "racer").await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_race_for_the_same_keys_make_one_effect_each() {
    let file = File::create().await;
    let racers: Vec<_> = (0..3)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "racer", "--nocapture"])
                .env(FILE, file.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    race(file.open().await, 4).await;
    for mut racer in racers {
        assert!(racer.wait().unwrap().success());
    }
    assert_eq!(file.effects("racer"), 3, "every process took part");
    for number in 0..KEYS {
        assert_eq!(file.effects(&format!("key-{number}")), 1);
    }
}

#[tokio::test]
async fn a_claim_that_another_handle_overtook_is_refused_at_its_first_statement() {
    let file = File::create().await;
    let (one, other) = (file.open().await, file.open().await);
    for expired in [false, true] {
        let key = Key::random();
        if expired {
            let mut tx = fresh(&one, &key).await;
            insert(&mut tx, "before").await.unwrap();
            let done = completion(tx.execution());
            tx.complete(&done).await.unwrap();
            file.clock.advance(Duration::from_secs(25 * 60 * 60));
        }
        let (mut slow, mut fast) = (fresh(&one, &key).await, fresh(&other, &key).await);
        insert(&mut fast, "fast").await.unwrap();
        let done = completion(fast.execution());
        fast.complete(&done).await.unwrap();
        // Even if the row of the faster run has expired too: it is not the one that this claim saw.
        if expired {
            file.clock.advance(Duration::from_secs(25 * 60 * 60));
        }
        assert!(matches!(insert(&mut slow, "slow").await, Err(Error::Raced)));
        assert!(slow.conflicted(), "asking again tells");
        let done = completion(slow.execution());
        assert!(matches!(slow.complete(&done).await, Err(Error::Raced)));
    }
    assert_eq!((file.effects("fast"), file.effects("slow")), (2, 0));
}

#[tokio::test]
async fn an_operator_works_on_the_file_while_the_service_does() {
    let file = File::create().await;
    let service = file.open().await;
    let (stored, leased) = (Key::random(), Key::random());
    let mut tx = fresh(&service, &stored).await;
    insert(&mut tx, "stored").await.unwrap();
    let done = completion(tx.execution());
    tx.complete(&done).await.unwrap();
    let terms = LeaseTerms {
        lease_for: Duration::from_secs(30),
        holder: "worker".to_owned(),
        on_expiry: OnExpiry::Resume,
        retain: Duration::from_secs(60),
    };
    assert!(matches!(service.lease(&ask(&leased), &terms).await.unwrap(), Claim::Fresh(_)));

    // The service is in the middle of a transaction when the operator's command opens the file.
    let mut tx = service.begin().await.unwrap();
    insert(&mut tx, "open").await.unwrap();
    let operator = file.open().await;
    assert_eq!(operator.list_keys(&KeyFilter { limit: 10, ..KeyFilter::default() }).await.unwrap().len(), 2);
    let audit = Audit { actor: "ada".to_owned(), reason: "a test".to_owned() };
    assert_eq!(operator.evict_key(&scope(), &leased, None, &audit, false).await.unwrap(), Eviction::InFlight);
    let scope = scope();
    let (evicted, committed) = tokio::join!(operator.evict_key(&scope, &stored, None, &audit, false), tx.commit());
    assert!(matches!(evicted.unwrap(), Eviction::Evicted(_)));
    committed.unwrap();
    assert!(matches!(service.claim(&ask(&stored)).await.unwrap(), Claim::Fresh(_)));
}

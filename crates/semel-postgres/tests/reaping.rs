//! Forgetting must not hurt.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use semel::{Ask, Claim, Fingerprint, Key, Reply, Scope, Semel, Store, Tx as _};
use semel_postgres::{Options, Postgres};
use semel_testkit::database::TempDatabase;
use tokio::sync::{Mutex, MutexGuard};

const FILL: &str = "
    INSERT INTO semel.keys (tenant, operation, key, execution, fingerprint, state, status, headers, body, created_at,
                            expires_at)
    SELECT 'tenant', 'charge', $2 || n, gen_random_uuid(), semel.fingerprint('old'), 'completed', 201, '',
           sha256(int4send(n)), now() - interval '2 days', now() - interval '1 day'
    FROM generate_series(1, $1) n";

/// These tests run one after the other: while one of them has a transaction open, whoever takes a snapshot keeps what
/// it might see, and dead rows stay in their place.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

async fn database() -> (TempDatabase, Semel<Postgres>) {
    let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
    let store = Postgres::open(&database.url(), Options::default()).unwrap();
    (database, Semel::new(store))
}

fn ask(key: &str) -> Ask {
    let scope = Scope::new("tenant", "charge").unwrap();
    Ask::new(&scope, &Key::new(key).unwrap(), &Fingerprint::of_bytes(b"new"))
}

#[tokio::test]
async fn a_batch_that_is_being_reaped_blocks_no_claim() {
    let _alone = alone().await;
    let (database, semel) = database().await;
    let client = database.connect().await;
    client.execute(FILL, &[&100, &"old-"]).await.unwrap();
    // The reaper is caught in the middle of a batch, and stays there.
    client.batch_execute("BEGIN").await.unwrap();
    let reaped: i64 = client.query_one("SELECT semel.reap(100)", &[]).await.unwrap().get(0);
    assert_eq!(reaped, 100);
    for key in ["new-1", "old-1", "old-100"] {
        let claim = tokio::time::timeout(Duration::from_secs(20), semel.claim(&ask(key))).await;
        let Claim::Fresh(tx) = claim.expect("the claim waited for the reaper").unwrap() else { panic!("{key} is new") };
        tx.rollback().await;
    }
    // Another reaper passes over what the first has locked.
    assert_eq!(semel.store().reap(100).await.unwrap(), 0);
    client.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn the_reaper_passes_over_an_expired_key_that_is_being_replaced() {
    let _alone = alone().await;
    let (database, semel) = database().await;
    let client = database.connect().await;
    client.execute(FILL, &[&2, &"old-"]).await.unwrap();
    let Claim::Fresh(tx) = semel.claim(&ask("old-1")).await.unwrap() else { panic!("it has expired") };
    assert_eq!(semel.store().reap(10).await.unwrap(), 2, "a claim alone does not touch the row");
    semel.finish(&ask("old-1"), tx, &Reply::new(201, "again").unwrap()).await.unwrap();
    assert!(matches!(semel.claim(&ask("old-1")).await.unwrap(), Claim::Replay(_)));
}

#[tokio::test]
async fn reaping_uses_its_index_however_many_keys_live() {
    let _alone = alone().await;
    let (database, _semel) = database().await;
    let client = database.connect().await;
    client.execute(FILL, &[&20_000, &"live-"]).await.unwrap();
    client
        .batch_execute("UPDATE semel.keys SET expires_at = now() + interval '1 day'; ANALYZE semel.keys")
        .await
        .unwrap();
    client.execute(FILL, &[&10, &"old-"]).await.unwrap();
    let whole_table_reads = async || {
        client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        let read = "SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = 'semel' AND relname = 'keys'";
        client.query_one(read, &[]).await.unwrap().get::<_, i64>(0)
    };
    let before = whole_table_reads().await;
    let reaped: i64 = client.query_one("SELECT semel.reap(1000)", &[]).await.unwrap().get(0);
    assert_eq!(reaped, 10);
    assert_eq!(whole_table_reads().await, before, "the reaper read the whole table");
    // The control: a statement that does read it is seen.
    client.batch_execute("SELECT count(body) FROM semel.keys").await.unwrap();
    assert_eq!(whole_table_reads().await, before + 1);
}

#[tokio::test]
async fn the_table_stays_bounded_under_steady_load() {
    let _alone = alone().await;
    let (database, semel) = database().await;
    let client = database.connect().await;
    let mut sizes = Vec::new();
    for cycle in 0..8 {
        client.execute(FILL, &[&5_000, &format!("cycle-{cycle}-")]).await.unwrap();
        assert_eq!(semel::reaper::Reaper::default().sweep(semel.store()).await.unwrap(), 5_000);
        // What autovacuum does by itself, at a moment that the test can wait for.
        client.batch_execute("VACUUM semel.keys").await.unwrap();
        let size: i64 = client.query_one("SELECT pg_total_relation_size('semel.keys')", &[]).await.unwrap().get(0);
        sizes.push(size);
    }
    // The first cycles fill pages that the later ones use again.
    assert!(sizes[7] <= sizes[3] * 5 / 4, "the table grows although its keys come and go: {sizes:?}");
}

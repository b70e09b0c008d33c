//! What the database itself keeps of flows, refuses and deletes.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::flow::{audit, begun, done, rows, terms, with_a_step};
use common::{File, ask, completion, fresh, insert, scope};
use semel::flow::{FlowStore, Kept, Kind, Settled};
use semel::operator::Eviction;
use semel::{Claim, Error, Join, Key, Store, Tx as _};
use semel_sqlite::Sqlite;
use semel_sqlite::rusqlite::TransactionBehavior;

#[tokio::test]
async fn whatever_deletes_a_key_deletes_its_flow_and_steps() {
    for way in ["reaped", "evicted", "replaced", "leased anew", "joined", "by hand"] {
        let file = File::create().await;
        let store = file.open().await;
        let (key, other) = (Key::random(), Key::random());
        let journal = with_a_step(&store, &key).await;
        let finishing = store.begin_step(&journal.lease, "finish").await.unwrap();
        finishing.complete(&completion(journal.lease.execution)).await.unwrap();
        assert_eq!(rows(&file), (1, 1));
        let mut connection = file.connection();
        connection.execute("UPDATE semel_keys SET created_at = 1, expires_at = 2", ()).unwrap();
        with_a_step(&store, &other).await;
        match way {
            "reaped" => assert_eq!(store.reap(10).await.unwrap(), 1),
            "evicted" => {
                let evicted = store.evict_key(&scope(), &key, None, &audit(), false).await.unwrap();
                assert!(matches!(evicted, Eviction::Evicted(_)));
            }
            "replaced" => {
                let mut tx = fresh(&store, &key).await;
                insert(&mut tx, "again").await.unwrap();
                let reply = completion(tx.execution());
                tx.complete(&reply).await.unwrap();
            }
            "leased anew" => {
                let leased = store.lease(&ask(&key), &terms("worker")).await.unwrap();
                assert!(matches!(leased, Claim::Fresh(_)));
            }
            "joined" => {
                connection.pragma_update(None, "foreign_keys", false).unwrap();
                let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
                let claim = Join::<Sqlite>::claim(&mut transaction, &ask(&key)).await.unwrap();
                let Claim::Fresh(execution) = claim else { panic!("the key has expired, not {claim:?}") };
                let reply = completion(execution);
                Join::<Sqlite>::complete(&mut transaction, &ask(&key), &reply).await.unwrap();
                transaction.commit().unwrap();
            }
            _ => {
                let sql = "DELETE FROM semel_keys WHERE key = ?1";
                assert_eq!(connection.execute(sql, (key.as_str(),)).unwrap(), 1, "flows and steps are not counted");
            }
        }
        assert_eq!(rows(&file), (1, 1), "{way}: the other flow stays");
        assert!(store.show_flow(journal.lease.execution).await.unwrap().is_none(), "{way}");
    }
}

#[tokio::test]
async fn a_flow_is_not_taken_back_and_not_leased_as_other_work() {
    let file = File::create().await;
    let store = file.open().await;
    let key = Key::random();
    let journal = with_a_step(&store, &key).await;
    store.abandon(&journal.lease).await.unwrap();
    assert_eq!(rows(&file), (1, 1));
    assert!(matches!(store.lease(&ask(&key), &terms("worker")).await, Err(Error::Settings(_))));
    let taken = store.take_flows("order", &terms("next"), 1).await.unwrap();
    assert_eq!(taken[0].entries.len(), 1);
}

#[tokio::test]
async fn a_batch_of_large_flows_is_cut_by_its_bytes() {
    let file = File::create().await;
    let store = file.open().await;
    const FLOWS: u64 = 4;
    for _ in 0..FLOWS {
        let journal = begun(&store, &Key::random()).await;
        for step in 0..3 {
            let result = Kept { bytes: vec![7; 1024 * 1024].into(), sealed_by: None };
            let pause = Settled { kind: Kind::Sleep, result, ..done(&format!("pause-{step}")) };
            store.settle_step(&journal.lease, &pause).await.unwrap();
        }
        let finishing = store.begin_step(&journal.lease, "finish").await.unwrap();
        finishing.complete(&completion(journal.lease.execution)).await.unwrap();
    }
    file.clock.advance(Duration::from_secs(25 * 60 * 60));
    let before = store.commits();
    assert_eq!(store.reap(1000).await.unwrap(), FLOWS);
    assert_eq!(store.commits() - before, 2, "three at a time");
    assert_eq!(rows(&file), (0, 0));
}

#[tokio::test]
async fn the_database_refuses_flows_that_are_out_of_bounds() {
    let file = File::create().await;
    let store = file.open().await;
    let lease = with_a_step(&store, &Key::random()).await.lease;
    let connection = file.connection();
    for (table, change, constraint) in [
        ("keys", "flow = ''", "flow"),
        ("keys", "flow = 'a b'", "flow"),
        ("flows", "execution = x'00'", "execution"),
        ("flows", "tenant = ''", "tenant"),
        ("flows", "operation = printf('%.*c', 256, 'x')", "operation"),
        ("flows", "key = 'a b'", "key"),
        ("flows", "flow = printf('%.*c', 101, 'x')", "flow"),
        ("flows", "incarnation = ''", "incarnation"),
        ("flows", "failures = -1", "failures"),
        ("flows", "cause = printf('%.*c', 1025, 'x')", "cause"),
        ("flows", "paused = 2", "flags"),
        ("flows", "input = zeroblob(1048576 + 41)", "input"),
        ("flows", "sealed_by = printf('%.*c', 65, 'x')", "sealed_by"),
        ("flows", "unwinding = zeroblob(1048576 + 41)", "unwinding"),
        ("flows", "unwinding_sealed_by = 'k'", "unwinding"),
        ("flow_steps", "step = ''", "step"),
        ("flow_steps", "step = printf('%.*c', 87, 'x')", "step"),
        ("flow_steps", "step = 'a' || char(10)", "step"),
        ("flow_steps", "ordinal = 1001", "ordinal"),
        ("flow_steps", "kind = 'wish'", "kind"),
        ("flow_steps", "state = 'lost'", "state"),
        ("flow_steps", "state = 'pending'", "result"),
        ("flow_steps", "result = NULL", "result"),
        ("flow_steps", "result = zeroblob(1048576 + 41)", "result"),
        ("flow_steps", "state = 'unknown', result = NULL, settled_at = NULL", "intent"),
        ("flow_steps", "provider = 'psp'", "intent"),
        ("flow_steps", "kind = 'call', attempts = '-'", "intent"),
        ("flow_steps", "kind = 'call', attempts = '', provider = 'psp'", "intent"),
        ("flow_steps", "kind = 'call', attempts = '-q'", "attempts"),
        ("flow_steps", "kind = 'call', attempts = printf('%.*c', 101, '-')", "attempts"),
    ] {
        let refused = connection.execute(&format!("UPDATE semel_{table} SET {change}"), ()).unwrap_err().to_string();
        assert!(refused.contains(&format!("semel_{table}_{constraint}")), "{table}: {change}: {refused}");
    }
    let many = "WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
                INSERT INTO semel_flow_steps (execution, step, ordinal, kind, state, recorded_at, settled_at, result)
                SELECT execution, 'step-' || n, n, kind, state, recorded_at, settled_at, result
                FROM semel_flow_steps, numbers";
    assert_eq!(connection.execute(many, ()).unwrap(), 999);
    let mut tx = store.begin_step(&lease, "one-too-many").await.unwrap();
    insert(&mut tx, "one too many").await.unwrap();
    assert!(matches!(tx.record(&done("one-too-many")).await, Err(Error::Statement(_))));
    assert_eq!((file.effects("one too many"), rows(&file)), (0, (1, 1000)));
}

//! A relay and a service in two processes, on one file.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{File, insert};
use semel::outbox::{Cursor, LANES, PageLimit};
use semel::sink::Lane;
use semel::{Error, Event, Join, Outbox, Tx as _};
use semel_sqlite::rusqlite::TransactionBehavior;
use semel_sqlite::{Options, Sqlite};

const FILE: &str = "SEMEL_TEST_FILE";
const EMITTERS: u32 = 4;
const EVENTS: u32 = 50;
const LEASE: Duration = Duration::from_secs(30);

/// One key's events, numbered by the row that each transaction counts up.
async fn emit_counted(store: &Sqlite, key: &str) {
    for _ in 0..EVENTS {
        let emitted = store.write(async |tx| {
            let sql = "INSERT INTO effects (label) VALUES (?1) RETURNING
                       (SELECT count(*) FROM effects WHERE label = ?1)";
            let count: i64 = tx.query_row(sql, (key,), |row| row.get(0)).await?;
            tx.emit(Event::new("topic", key, "counted", &count).unwrap());
            Ok::<(), Error>(())
        });
        emitted.await.unwrap();
    }
}

/// The body of a process that another test starts; alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let store = Sqlite::open(PathBuf::from(path), Options::default()).await.unwrap();
    let mut emitters = tokio::task::JoinSet::new();
    for _ in 0..EMITTERS {
        let store = store.clone();
        emitters.spawn(async move { emit_counted(&store, "shared").await });
    }
    emitters.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_in_another_process_reads_every_event_once_and_in_commit_order() {
    let file = File::create().await;
    let mut services: Vec<_> = (0..2)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "service", "--nocapture"])
                .env(FILE, file.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let store = file.open_with(Options::default()).await;
    let joined = store.join_relays("relay", LEASE).await.unwrap();
    let mut lanes = store.take_lanes(joined.id, LANES).await.unwrap();
    let (mut counts, mut seen) = (Vec::new(), BTreeMap::new());
    let (mut after, all) = (Cursor::START, Lane::all().collect::<Vec<_>>());
    let (expected, ends) = (2 * EMITTERS * EVENTS, Instant::now() + Duration::from_secs(60));
    while counts.len() < expected as usize {
        assert!(Instant::now() < ends, "{} of {expected} after a minute", counts.len());
        let Some(page) = store.page(after, &all, PageLimit { events: 64, bytes: 1 << 20 }).await.unwrap() else {
            tokio::task::yield_now().await;
            continue;
        };
        after = page.upto;
        for written in page.events {
            assert!(seen.insert(written.id, ()).is_none());
            counts.push(String::from_utf8(written.event.payload.to_vec()).unwrap().parse::<u32>().unwrap());
        }
        lanes.iter_mut().for_each(|state| state.cursor = after);
        // Its writes wait for the services' and do not stop them.
        store.checkpoint(joined.id, &lanes).await.unwrap();
    }
    assert_eq!(counts, (1..=expected).collect::<Vec<_>>());
    for service in &mut services {
        assert!(service.wait().unwrap().success());
    }
    assert_eq!(store.backlog().await.unwrap().events, 0);
}

#[tokio::test]
async fn a_relay_of_another_process_is_fenced_once_its_lanes_are_taken() {
    let file = File::create().await;
    let (one, other) = (file.open().await, file.open().await);
    let late = one.join_relays("late", LEASE).await.unwrap().id;
    let lanes = one.take_lanes(late, LANES).await.unwrap();
    let current = other.join_relays("current", LEASE * 10).await.unwrap().id;
    file.clock.advance(LEASE * 2);
    assert_eq!(other.take_lanes(current, 1).await.unwrap().len(), 1);
    assert!(matches!(one.checkpoint(late, &lanes[1..2]).await, Err(Error::Fenced)), "it is out with all its lanes");
    assert_eq!(other.outbox_status().await.unwrap().free_lanes, u64::from(LANES) - 1);
}

#[tokio::test]
async fn what_a_plain_connection_emits_is_read_in_its_place() {
    let file = File::create().await;
    let store = file.open().await;
    let mut connection = file.connection();
    for n in 0..3 {
        store
            .write(async |tx| {
                insert(tx, "effect").await?;
                tx.emit(common::event(&format!("service-{n}")));
                Ok::<(), Error>(())
            })
            .await
            .unwrap();
        let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        Join::<Sqlite>::emit(&mut transaction, &[common::event(&format!("plain-{n}"))]).await.unwrap();
        transaction.commit().unwrap();
    }
    let expected = ["service-0", "plain-0", "service-1", "plain-1", "service-2", "plain-2"];
    assert_eq!(common::labels(&store).await, expected);
}

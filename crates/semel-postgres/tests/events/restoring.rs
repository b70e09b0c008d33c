//! A dump in the middle of a backlog, restored into another cluster.

use std::process::{Command, Stdio};
use std::time::Duration;

use semel::outbox::{Cursor, EventState, LaneState};
use semel::{Error, EventId, Outbox};
use semel_postgres::{Options, Postgres};
use semel_testkit::cluster::Cluster;
use semel_testkit::database::TempDatabase;

use crate::{ALL, LEASE, Shop, audit, emit, keys};

/// Copies everything there is, as an operator would.
fn dump_and_restore(from: &TempDatabase, to: &TempDatabase) {
    let mut dump =
        Command::new("pg_dump").arg(from.url()).stdout(Stdio::piped()).spawn().expect("pg_dump is installed");
    let script = dump.stdout.take().unwrap();
    let restored = Command::new("psql")
        .arg(to.url())
        .args(["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1"])
        .stdin(script)
        .stdout(Stdio::null())
        .output()
        .expect("psql is installed");
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert!(dump.wait().unwrap().success());
}

/// Decision 3, 23 to 25.
#[tokio::test]
async fn a_restored_backlog_is_published_once_it_is_rebased_with_the_ids_it_had() {
    let shop = Shop::open().await;
    // Published, then half published, then not even read; one commits late, so that positions are more than a seq.
    let mut late = shop.database.connect().await;
    let mut late = late.transaction().await.unwrap();
    emit(&mut late, &["late"]).await;
    for n in 0..30 {
        shop.emit(&[&format!("published-{n}")]).await;
    }
    assert_eq!(shop.publish().await.len(), 30);
    late.commit().await.unwrap();
    for n in 0..20 {
        shop.emit(&["a", "b", &format!("waiting-{n}")]).await;
    }
    let mut after = Cursor::START;
    let everything = shop.read(&mut after, ALL).await;
    let waiting: Vec<(EventId, i64, String)> = everything[30..]
        .iter()
        .map(|written| (written.id, written.cursor.seq, written.event.ordering_key.clone()))
        .collect();
    assert_eq!(waiting.len(), 61);
    assert_eq!(shop.store.backlog().await.unwrap().events, 61);

    let cluster = Cluster::temporary().unwrap();
    let database = TempDatabase::create_on(&cluster.url()).await;
    dump_and_restore(&shop.database, &database);
    let store = Postgres::connect(&database.url(), Options::default()).await.unwrap();
    let restored = Shop { database, store };
    // The service comes up first, and goes on with the same keys.
    restored.emit(&["a", "b"]).await;
    let positions_of = shop.store.outbox_status().await.unwrap().incarnation;
    let lanes: Vec<_> = semel::sink::Lane::all().collect();
    for refused in [
        restored.store.join_relays("relay", LEASE).await.map(drop),
        restored.store.page(Cursor::START, &lanes, ALL).await.map(drop),
    ] {
        let Err(Error::Incarnation { positions_of: told, now }) = refused else { panic!("{refused:?}") };
        assert_eq!(told, positions_of);
        assert_ne!(now, positions_of);
    }
    assert_eq!(restored.store.backlog().await.unwrap().events, 63);
    let dry = restored.store.rebase(&audit(), true).await.unwrap();
    assert_eq!(dry.events, 63);
    assert!(restored.store.join_relays("relay", LEASE).await.is_err(), "a dry run changes nothing");

    let rebased = restored.store.rebase(&audit(), false).await.unwrap();
    assert_eq!((rebased.from, rebased.events), (Some(positions_of), 63));
    let relay = restored.store.join_relays("relay", LEASE).await.unwrap();
    assert_eq!(relay.incarnation, rebased.to);
    let taken = restored.store.take_lanes(relay.id, 64).await.unwrap();
    assert!(taken.iter().all(|lane| lane.cursor == Cursor::START && lane.counts.is_empty()), "the lanes start over");
    let mut cursor = Cursor::START;
    let found = restored.read(&mut cursor, ALL).await;
    let ids: Vec<(EventId, i64, String)> = found[..61]
        .iter()
        .map(|written| (written.id, written.cursor.seq, written.event.ordering_key.clone()))
        .collect();
    let mut expected = waiting;
    // What commits late in the old cluster came with the waiting ones; in the new one the seq alone orders them.
    expected.sort_by_key(|(_, seq, _)| *seq);
    assert_eq!(ids, expected);
    assert_eq!(keys(&found[61..]), ["a", "b"], "what was emitted since comes after");
    assert_eq!(restored.store.show_event(found[0].id).await.unwrap().unwrap().state, EventState::Created);
    assert_eq!(restored.store.show_event(everything[0].id).await.unwrap().unwrap().state, EventState::Published);

    let lanes: Vec<LaneState> = taken.into_iter().map(|lane| LaneState { cursor, ..lane }).collect();
    restored.store.leave_lanes(relay.id, &lanes).await.unwrap();
    restored.store.leave_relays(relay.id).await.unwrap();
    let again = restored.store.rebase(&audit(), false).await.unwrap();
    assert_eq!(again.events, 0, "a rebase of what is at home does nothing");
    restored.emit(&["a"]).await;
    assert_eq!(restored.publish().await, ["a"]);
    // What the old cluster left goes like everything else.
    for _ in 0..3 {
        restored.store.tidy_outbox(Duration::ZERO).await.unwrap();
    }
    assert_eq!(restored.number("SELECT count(*) FROM semel.events").await, 0);
    drop(restored);
}

/// Where no relay has ever read there is nothing to rebase, and nothing to lose.
#[tokio::test]
async fn a_restored_outbox_that_no_relay_has_read_starts_by_itself() {
    let shop = Shop::open().await;
    shop.emit(&["one", "two"]).await;
    let cluster = Cluster::temporary().unwrap();
    let database = TempDatabase::create_on(&cluster.url()).await;
    dump_and_restore(&shop.database, &database);
    let store = Postgres::connect(&database.url(), Options::default()).await.unwrap();
    let restored = Shop { database, store };
    restored.emit(&["three"]).await;
    assert_eq!(restored.publish().await, ["one", "two", "three"]);
    drop(restored);
}

/// A crash is not a restore: the incarnation stays, and so do ticks, positions and what waits.
#[tokio::test]
async fn a_crash_of_the_server_changes_neither_incarnation_nor_order() {
    let mut cluster = Cluster::temporary().unwrap();
    let shop = Shop::on(TempDatabase::create_on(&cluster.url()).await).await;
    shop.emit(&["one", "two"]).await;
    let mut after = Cursor::START;
    let before = shop.read(&mut after, ALL).await;
    let incarnation = shop.store.outbox_status().await.unwrap().incarnation;
    let mut unfinished = shop.database.connect().await;
    let mut unfinished = unfinished.transaction().await.unwrap();
    emit(&mut unfinished, &["unfinished"]).await;
    cluster.kill().unwrap();
    drop(unfinished);
    cluster.restart().unwrap();
    let store = Postgres::connect(&shop.database.url(), Options::default()).await.unwrap();
    let shop = Shop { store, ..shop };
    shop.emit(&["three"]).await;
    assert_eq!(shop.store.outbox_status().await.unwrap().incarnation, incarnation);
    assert_eq!(keys(&shop.read(&mut after, ALL).await), ["three"]);
    let again = shop.read(&mut Cursor::START.clone(), ALL).await;
    assert_eq!(again[..2], before[..]);
    assert_eq!(shop.publish().await, ["one", "two", "three"]);
    drop(shop);
}

/// The cluster's identifier and timeline are the same, and the histories part all the same.
#[tokio::test]
async fn a_dump_restored_into_the_same_cluster_is_another_incarnation() {
    let shop = Shop::open().await;
    shop.emit(&["published"]).await;
    assert_eq!(shop.publish().await.len(), 1);
    let database = TempDatabase::create().await;
    dump_and_restore(&shop.database, &database);
    let store = Postgres::connect(&database.url(), Options::default()).await.unwrap();
    assert!(matches!(store.join_relays("relay", LEASE).await, Err(Error::Incarnation { .. })));
    store.rebase(&audit(), false).await.unwrap();
    store.join_relays("relay", LEASE).await.unwrap();
}

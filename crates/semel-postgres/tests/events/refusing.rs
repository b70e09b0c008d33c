//! What is refused because it would lose events, or give lanes away twice.

use std::time::Duration;

use semel::outbox::{Cursor, LaneState};
use semel::{Error, Outbox};
use semel_postgres::{Options, Postgres};
use semel_testkit::cluster::Cluster;
use semel_testkit::database::TempDatabase;
use semel_testkit::poll::until;
use tokio_postgres::Client;

use crate::{ALL, LEASE, Shop, audit};

/// Decision 3, 24: what commits in a prepared transaction carries the name of the incarnation that it was emitted in.
/// Were another one begun before it ends, its events would be passed over for ever.
#[tokio::test]
async fn no_incarnation_begins_while_prepared_transactions_may_hold_events() {
    let mut cluster = Cluster::temporary().unwrap();
    let settings = connect(&cluster.url()).await;
    for setting in ["max_prepared_transactions = 5", "restore_command = 'false'"] {
        settings.batch_execute(&format!("ALTER SYSTEM SET {setting}")).await.unwrap();
    }
    cluster.stop().unwrap();
    cluster.restart().unwrap();

    let published = Shop::on(TempDatabase::create_on(&cluster.url()).await).await;
    published.emit(&["before"]).await;
    assert_eq!(published.publish().await, ["before"]);
    prepare(&published).await;
    let unread = Shop::on(TempDatabase::create_on(&cluster.url()).await).await;
    prepare(&unread).await;
    // Recovered, as from a backup, it goes on in a new timeline, and what was prepared is still there.
    let signal = "DO $$ BEGIN EXECUTE format('COPY (SELECT) TO %L', current_setting('data_directory')
                  || '/recovery.signal'); END $$";
    connect(&cluster.url()).await.batch_execute(signal).await.unwrap();
    cluster.stop().unwrap();
    cluster.restart().unwrap();
    let session = connect(&cluster.url()).await;
    let recovering = async || session.query_one("SELECT pg_is_in_recovery()", &[]).await.unwrap().get::<_, bool>(0);
    until("the server is recovered", async || !recovering().await).await;

    let published = reopened(published).await;
    let refused = published.store.join_relays("relay", LEASE).await;
    assert!(matches!(refused, Err(Error::Incarnation { .. })), "{refused:?}");
    for dry_run in [true, false] {
        told_of_prepared(&published.store.rebase(&audit(), dry_run).await);
    }
    commit_prepared(&published).await;
    assert_eq!(published.store.rebase(&audit(), false).await.unwrap().events, 1);
    assert_eq!(published.publish().await, ["prepared"]);

    // Where nobody has ever read, an incarnation begins by itself, and then, too.
    let unread = reopened(unread).await;
    told_of_prepared(&unread.store.join_relays("relay", LEASE).await);
    commit_prepared(&unread).await;
    assert_eq!(unread.publish().await, ["prepared"]);
    drop((published, unread));
}

async fn connect(url: &str) -> Client {
    semel_testkit::database::connect(url).await
}

/// Leaves an event in a transaction that is prepared.
async fn prepare(shop: &Shop) {
    let prepared = format!(
        "BEGIN; SELECT semel.emit('topic', 'prepared', 'happened', ''); PREPARE TRANSACTION '{}'",
        shop.database.name()
    );
    shop.database.connect().await.batch_execute(&prepared).await.unwrap();
}

async fn commit_prepared(shop: &Shop) {
    let commit = format!("COMMIT PREPARED '{}'", shop.database.name());
    shop.database.connect().await.batch_execute(&commit).await.unwrap();
}

async fn reopened(shop: Shop) -> Shop {
    let store = Postgres::connect(&shop.database.url(), Options::default()).await.unwrap();
    Shop { store, ..shop }
}

fn told_of_prepared<T: std::fmt::Debug>(refused: &Result<T, Error>) {
    let told = format!("{:?}", refused.as_ref().expect_err("a transaction is prepared"));
    assert!(told.contains("prepared"), "{told}");
}

/// I7: a relay's position reaches the database in time and waits there, while another relay gives it up for dead. What
/// counts is what holds when the lock is had.
#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_waited_while_its_relay_was_given_up_is_refused() {
    let shop = Shop::open().await;
    shop.emit(&["one"]).await;
    let late = shop.store.join_relays("late", LEASE).await.unwrap().id;
    let lanes = shop.store.take_lanes(late, 64).await.unwrap();
    let mut cursor = Cursor::START;
    assert_eq!(shop.read(&mut cursor, ALL).await.len(), 1);
    let states: Vec<LaneState> = lanes.into_iter().map(|lane| LaneState { cursor, ..lane }).collect();
    let next = shop.store.join_relays("next", LEASE).await.unwrap().id;
    shop.store.renew_relay(late, Duration::from_millis(1)).await.unwrap();
    let expired = "SELECT count(*) FROM semel.relays WHERE expires_at <= clock_timestamp()";
    until("the lease runs out", async || shop.number(expired).await == 1).await;

    let session = shop.database.connect().await;
    let take = format!("BEGIN; SELECT * FROM semel.take_lanes({}, 64)", next.0);
    session.batch_execute(&take).await.unwrap();
    let (store, given_up) = (shop.store.clone(), states.clone());
    let storing = tokio::spawn(async move { store.checkpoint(late, &states).await });
    let store = shop.store.clone();
    let leaving = tokio::spawn(async move { store.leave_lanes(late, &given_up).await });
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("both wait", async || shop.number(waiting).await == 2).await;
    session.batch_execute("COMMIT").await.unwrap();
    for refused in [storing.await.unwrap(), leaving.await.unwrap()] {
        assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    }
    assert_eq!(shop.number("SELECT count(*) FROM semel.positions").await, 0);
    assert_eq!(shop.number("SELECT count(DISTINCT relay) FROM semel.lanes WHERE relay IS NOT NULL").await, 1);
}

/// Above READ COMMITTED all statements see one snapshot, so whoever waited for a lock would look at what was before it.
#[tokio::test]
async fn relays_and_rotation_are_refused_above_read_committed() {
    let shop = Shop::open().await;
    let relay = shop.store.join_relays("relay", LEASE).await.unwrap().id.0;
    let client = shop.database.connect().await;
    let calls = [
        format!("semel.renew_relay({relay}, '1 minute')"),
        format!("semel.take_lanes({relay}, 64)"),
        format!("semel.checkpoint({relay}, '{{}}', '{{}}', '{{}}', '{{}}')"),
        format!("semel.leave_lanes({relay}, '{{}}', '{{}}', '{{}}', '{{}}')"),
        "semel.empty_slot('0')".to_owned(),
    ];
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for call in &calls {
            let begun = format!("BEGIN ISOLATION LEVEL {level}; SELECT * FROM {call}");
            let Err(refused) = client.batch_execute(&begun).await else { panic!("{call} is done at {level}") };
            assert_eq!(refused.code().map(|code| code.code()), Some("SM003"), "{call}: {refused:?}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    }
    for call in &calls {
        client.batch_execute(&format!("BEGIN; SELECT * FROM {call}; ROLLBACK")).await.unwrap();
    }
}

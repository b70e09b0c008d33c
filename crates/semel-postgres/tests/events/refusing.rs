//! What is refused because it would lose events, or give lanes away twice.

use semel::{Error, Outbox};
use semel_postgres::{Options, Postgres};
use semel_testkit::cluster::Cluster;
use semel_testkit::database::TempDatabase;
use tokio_postgres::Client;

use crate::{LEASE, Shop, audit};

/// Decision 3, 24: what commits in a prepared transaction carries the name of the incarnation that it was emitted in.
/// Were another one begun before it ends, its events would be passed over for ever.
#[tokio::test]
async fn no_incarnation_begins_while_prepared_transactions_may_hold_events() {
    let mut cluster = Cluster::temporary().unwrap();
    let settings = connect(&cluster.url()).await;
    for setting in ["max_prepared_transactions = 5", "restore_command = 'false'", "hot_standby = off"] {
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

    let published = reopened(published).await;
    let refused = published.store.join_relays("relay", LEASE).await;
    assert!(matches!(refused, Err(Error::Incarnation { .. })), "{refused:?}");
    for dry_run in [true, false] {
        told_of_prepared(published.store.rebase(&audit(), dry_run).await);
    }
    commit_prepared(&published).await;
    assert_eq!(published.store.rebase(&audit(), false).await.unwrap().events, 1);
    assert_eq!(published.publish().await, ["prepared"]);

    // Where nobody has ever read, an incarnation begins by itself, and then, too.
    let unread = reopened(unread).await;
    told_of_prepared(unread.store.join_relays("relay", LEASE).await);
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

fn told_of_prepared<T: std::fmt::Debug>(refused: Result<T, Error>) {
    let told = format!("{:?}", refused.as_ref().expect_err("a transaction is prepared"));
    assert!(told.contains("prepared"), "{told}");
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

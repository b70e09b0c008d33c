//! Accepting messages in a transaction that sqlx owns.
#![allow(clippy::unwrap_used, missing_docs)]
#![cfg(feature = "sqlx")]

use semel::consume::Consumed;
use semel::inbox::{Accepted, JoinInbox, MAX_RANGES, Offset, Rule, Sequence, Version};
use semel::once::Error as OnceError;
use semel::{Consumer, Delivery, Error, Inbox, Semel, Tx as _};
use semel_postgres::{Options, Postgres};
use semel_testkit::database::TempDatabase;
use sqlx::{Connection, PgConnection};

async fn shop() -> (TempDatabase, Semel<Postgres>, PgConnection, Consumer) {
    let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
    let store = Postgres::open(&database.url(), Options::default()).unwrap();
    database.connect().await.batch_execute("CREATE TABLE effects (label text NOT NULL)").await.unwrap();
    let connection = PgConnection::connect(&database.url()).await.unwrap();
    (database, Semel::new(store), connection, Consumer::new("receipts").unwrap())
}

fn by_sequence(sequence: u64) -> Delivery {
    let place = Sequence { incarnation: "1-1".to_owned(), topic: "charges".to_owned(), lane: 3, sequence };
    Delivery::by_sequence(place).unwrap()
}

fn by_offset(from: i64, offset: i64) -> Delivery {
    let (source, topic) = ("cluster".to_owned(), "charges".to_owned());
    Delivery::by_offset(Offset { source, topic, partition: 1, from, offset }).unwrap()
}

/// I6.
#[tokio::test]
async fn a_message_joined_by_sqlx_counts_as_seen_if_the_caller_commits() {
    let (database, semel, mut connection, consumer) = shop().await;
    let versioned = |id: &str, version| {
        let version = Version { entity: "account".to_owned(), version, rule: Rule::Each };
        Delivery::by_id(id).unwrap().with_version(version).unwrap()
    };
    let deliveries = [Delivery::by_id("a").unwrap(), by_sequence(1), by_offset(0, 0), versioned("b", 1)];
    for (commit, wanted) in [(false, Consumed::Applied(())), (true, Consumed::Applied(())), (true, Consumed::Duplicate)]
    {
        for delivery in &deliveries {
            let mut tx = connection.begin().await.unwrap();
            let consumed = semel.consume_tx(&mut *tx, &consumer, delivery, async |tx: &mut PgConnection| {
                sqlx::query("INSERT INTO effects VALUES ('x')").execute(&mut *tx).await.map(drop)
            });
            assert_eq!(consumed.await.unwrap(), wanted, "{delivery:?}");
            if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        }
    }
    let client = database.connect().await;
    let effects: i64 = client.query_one("SELECT count(*) FROM effects", &[]).await.unwrap().get(0);
    assert_eq!(effects, 4);
    let mut tx = connection.begin().await.unwrap();
    let many = [versioned("early", 9), versioned("next", 2), versioned("past", 1), by_sequence(2), by_offset(1, 1)];
    let accepted = JoinInbox::<Postgres>::accept(&mut *tx, &consumer, &many).await.unwrap();
    let (first, stale) = (Accepted::First, Accepted::Stale);
    assert_eq!(accepted, [Accepted::Early, first, stale, first, first]);
    tx.rollback().await.unwrap();
}

/// What the functions refuse is the same error on both drivers.
#[tokio::test]
async fn sqlx_is_told_why_a_message_is_refused() {
    let (database, semel, mut connection, consumer) = shop().await;
    let every_other: Vec<Delivery> = (1..=MAX_RANGES as u64).map(|n| by_sequence(2 * n)).collect();
    let (tx, _) =
        semel.store().accept(&consumer, &[every_other.as_slice(), &[by_offset(0, 4)]].concat()).await.unwrap();
    semel.store().commit_consumed(tx).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let (beyond, effect) = (by_sequence(5_000), async |_: &mut PgConnection| Ok::<(), ()>(()));
    match semel.consume_tx(&mut *tx, &consumer, &beyond, effect).await {
        Err(OnceError::Store(Error::Ahead { topic, lane, limit })) => {
            assert_eq!((topic.as_str(), lane, limit), ("charges", 3, MAX_RANGES));
        }
        other => panic!("{other:?}"),
    }
    tx.rollback().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let refused = JoinInbox::<Postgres>::accept(&mut *tx, &consumer, &[by_offset(3, 7)]).await;
    assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    tx.rollback().await.unwrap();

    // A row that was committed after the snapshot.
    let mut tx = connection.begin().await.unwrap();
    sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute(&mut *tx).await.unwrap();
    sqlx::query("SELECT pg_current_snapshot()").execute(&mut *tx).await.unwrap();
    let (other, _) = semel.store().accept(&consumer, &[Delivery::by_id("a").unwrap()]).await.unwrap();
    semel.store().commit_consumed(other).await.unwrap();
    let refused = JoinInbox::<Postgres>::accept(&mut *tx, &consumer, &[Delivery::by_id("a").unwrap()]).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    tx.rollback().await.unwrap();
    let (tx, accepted) = semel.store().accept(&consumer, &[Delivery::by_id("a").unwrap()]).await.unwrap();
    assert_eq!(accepted, [Accepted::Duplicate]);
    tx.rollback().await;
    drop(database);
}

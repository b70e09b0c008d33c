//! Joining a transaction that the caller owns, on both drivers.
#![allow(clippy::unwrap_used, missing_docs)]
#![cfg(feature = "sqlx")]

use semel::once::Error as OnceError;
use semel::outbox::{Cursor, PageLimit};
use semel::sink::Lane;
use semel::{Error, Event, EventId, Fingerprint, Join, Key, Outbox, Outcome, Reply, Scope, Semel};
use semel_postgres::{Options, Postgres};
use semel_testkit::database::TempDatabase;
use sqlx::{Connection, PgConnection};
use tokio_postgres::Transaction;

struct Shop {
    database: TempDatabase,
    semel: Semel<Postgres>,
    scope: Scope,
    fingerprint: Fingerprint,
}

async fn shop() -> Shop {
    let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
    let store = Postgres::open(&database.url(), Options::default()).unwrap();
    database.connect().await.batch_execute("CREATE TABLE effects (label text NOT NULL)").await.unwrap();
    let scope = Scope::new("tenant", "charge").unwrap();
    Shop { database, semel: Semel::new(store), scope, fingerprint: Fingerprint::of_bytes(b"x") }
}

impl Shop {
    async fn with_sqlx(
        &self,
        tx: &mut PgConnection,
        key: &Key,
        status: u16,
    ) -> Result<Outcome, OnceError<sqlx::Error>> {
        self.semel
            .once_tx(tx, &self.scope, key, &self.fingerprint, async |tx: &mut PgConnection| {
                sqlx::query("INSERT INTO effects VALUES ($1)").bind(key.as_str()).execute(&mut *tx).await?;
                Ok(Reply::new(status, key.as_str().to_owned()).unwrap())
            })
            .await
    }

    async fn with_tokio(
        &self,
        tx: &mut Transaction<'_>,
        key: &Key,
        status: u16,
    ) -> Result<Outcome, OnceError<tokio_postgres::Error>> {
        self.semel
            .once_tx(tx, &self.scope, key, &self.fingerprint, async |tx: &mut Transaction<'_>| {
                tx.execute("INSERT INTO effects VALUES ($1)", &[&key.as_str()]).await?;
                Ok(Reply::new(status, key.as_str().to_owned()).unwrap())
            })
            .await
    }

    async fn effects(&self, key: &Key) -> i64 {
        let client = self.database.connect().await;
        client.query_one("SELECT count(*) FROM effects WHERE label = $1", &[&key.as_str()]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn a_sqlx_transaction_joins() {
    let (shop, key) = (shop().await, Key::random());
    let mut connection = PgConnection::connect(&shop.database.url()).await.unwrap();

    let mut tx = connection.begin().await.unwrap();
    assert!(matches!(shop.with_sqlx(&mut tx, &key, 201).await.unwrap(), Outcome::Fresh(_)));
    tx.rollback().await.unwrap();
    assert_eq!(shop.effects(&key).await, 0);

    let mut tx = connection.begin().await.unwrap();
    assert!(matches!(shop.with_sqlx(&mut tx, &key, 201).await.unwrap(), Outcome::Fresh(_)));
    let mut other = PgConnection::connect(&shop.database.url()).await.unwrap();
    let mut meanwhile = other.begin().await.unwrap();
    assert!(matches!(shop.with_sqlx(&mut meanwhile, &key, 201).await, Err(OnceError::InFlight { .. })));
    meanwhile.rollback().await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = connection.begin().await.unwrap();
    let Outcome::Replayed(reply) = shop.with_sqlx(&mut tx, &key, 201).await.unwrap() else { panic!("it has run") };
    assert_eq!(reply.body(), key.as_str());
    tx.rollback().await.unwrap();
    assert_eq!(shop.effects(&key).await, 1);
}

#[tokio::test]
async fn a_tokio_postgres_transaction_joins_and_replays_what_sqlx_ran() {
    let (shop, key) = (shop().await, Key::random());
    let mut connection = PgConnection::connect(&shop.database.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    shop.with_sqlx(&mut tx, &key, 201).await.unwrap();
    tx.commit().await.unwrap();

    let mut client = shop.database.connect().await;
    let mut tx = client.transaction().await.unwrap();
    assert!(matches!(shop.with_tokio(&mut tx, &key, 201).await.unwrap(), Outcome::Replayed(_)));
    tx.rollback().await.unwrap();

    let other = Key::random();
    let mut tx = client.transaction().await.unwrap();
    assert!(matches!(shop.with_tokio(&mut tx, &other, 201).await.unwrap(), Outcome::Fresh(_)));
    tx.commit().await.unwrap();
    assert_eq!((shop.effects(&key).await, shop.effects(&other).await), (1, 1));
}

#[tokio::test]
async fn a_joined_refusal_is_stored_without_its_effect() {
    let (shop, stored, forgotten) = (shop().await, Key::random(), Key::random());
    let mut connection = PgConnection::connect(&shop.database.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    assert!(matches!(shop.with_sqlx(&mut tx, &stored, 402).await.unwrap(), Outcome::Fresh(_)));
    tx.commit().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    assert!(matches!(shop.with_sqlx(&mut tx, &forgotten, 503).await.unwrap(), Outcome::Forgotten(_)));
    tx.commit().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    assert!(matches!(shop.with_sqlx(&mut tx, &stored, 201).await.unwrap(), Outcome::Replayed(_)));
    assert!(matches!(shop.with_sqlx(&mut tx, &forgotten, 201).await.unwrap(), Outcome::Fresh(_)));
    tx.commit().await.unwrap();
    assert_eq!((shop.effects(&stored).await, shop.effects(&forgotten).await), (0, 1));
}

#[tokio::test]
async fn a_joined_expired_key_runs_as_new() {
    let (shop, key) = (shop().await, Key::random());
    let mut client = shop.database.connect().await;
    for _ in 0..2 {
        let mut tx = client.transaction().await.unwrap();
        assert!(matches!(shop.with_tokio(&mut tx, &key, 201).await.unwrap(), Outcome::Fresh(_)));
        tx.commit().await.unwrap();
        client
            .batch_execute(
                "UPDATE semel.keys SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day'",
            )
            .await
            .unwrap();
    }
    assert_eq!(shop.effects(&key).await, 2);
}

#[tokio::test]
async fn above_read_committed_the_claim_must_come_first() {
    let (shop, key) = (shop().await, Key::random());
    let mut client = shop.database.connect().await;
    for (level, first, allowed) in [
        (tokio_postgres::IsolationLevel::Serializable, true, true),
        (tokio_postgres::IsolationLevel::Serializable, false, false),
        (tokio_postgres::IsolationLevel::RepeatableRead, false, false),
        (tokio_postgres::IsolationLevel::ReadCommitted, false, true),
    ] {
        let mut tx = client.build_transaction().isolation_level(level).start().await.unwrap();
        if !first {
            tx.query("SELECT count(*) FROM effects", &[]).await.unwrap();
        }
        let outcome = shop.with_tokio(&mut tx, &key, 201).await;
        if allowed {
            assert!(matches!(outcome, Ok(Outcome::Fresh(_))), "{level:?}: {outcome:?}");
        } else {
            let Err(OnceError::Store(Error::NotFirst(message))) = outcome else { panic!("{level:?}: {outcome:?}") };
            assert!(message.contains("effects"), "{message}");
        }
        tx.rollback().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joined_transaction_with_an_old_snapshot_loses_to_the_one_that_committed() {
    let (shop, key) = (shop().await, Key::random());
    let (mut early, mut late) = (shop.database.connect().await, shop.database.connect().await);
    let old = early.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).start();
    let mut old = old.await.unwrap();
    // A function call takes the snapshot and leaves no table behind that the check could see.
    old.query("SELECT pg_current_snapshot()", &[]).await.unwrap();
    let mut winner = late.transaction().await.unwrap();
    shop.with_tokio(&mut winner, &key, 201).await.unwrap();
    winner.commit().await.unwrap();
    let lost = shop.with_tokio(&mut old, &key, 201).await;
    assert!(
        matches!(&lost, Err(OnceError::Store(error)) if matches!(error, Error::Raced | Error::Conflict(_))),
        "{lost:?}"
    );
    old.rollback().await.unwrap();
    assert_eq!(shop.effects(&key).await, 1);
}

/// Both drivers write events into the caller's transaction, under the claim that was made in it.
#[tokio::test]
async fn joined_events_commit_with_the_callers_transaction_on_both_drivers() {
    let shop = shop().await;
    let lanes: Vec<Lane> = Lane::all().collect();
    let limit = PageLimit { events: 10, bytes: 1 << 20 };
    let events = |label: &str| -> Vec<Event> {
        let event = Event::new("topic", label, "test.happened", &label).unwrap().header("a", "b").unwrap();
        vec![event.clone().traced("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None), event]
    };
    let store = shop.semel.store();
    let mut after = Cursor::START;
    let mut expect = async |label: &str, execution: Option<semel::Execution>| {
        let page = store.page(after, &lanes, limit).await.unwrap().expect("they are committed");
        after = page.upto;
        assert_eq!(page.events.iter().map(|written| written.event.clone()).collect::<Vec<_>>(), events(label));
        for (ordinal, written) in (0..).zip(&page.events) {
            let derived = execution.map(|execution| EventId::derive(execution, ordinal));
            assert!(derived.is_none_or(|derived| derived == written.id));
        }
        assert!(store.page(after, &lanes, limit).await.unwrap().is_none(), "and nothing else");
    };

    let mut connection = PgConnection::connect(&shop.database.url()).await.unwrap();
    let mut undone = connection.begin().await.unwrap();
    Join::<Postgres>::emit(&mut *undone, &events("undone")).await.unwrap();
    undone.rollback().await.unwrap();
    let (mut tx, key) = (connection.begin().await.unwrap(), Key::random());
    let ask = semel::Ask::new(&shop.scope, &key, &shop.fingerprint);
    let claim = Join::<Postgres>::claim(&mut *tx, &ask).await.unwrap();
    let semel::Claim::Fresh(execution) = claim else { panic!("the key is new") };
    for event in events("sqlx") {
        Join::<Postgres>::emit(&mut *tx, &[event]).await.unwrap();
    }
    Join::<Postgres>::emit(&mut *tx, &[]).await.unwrap();
    tx.commit().await.unwrap();
    expect("sqlx", Some(execution)).await;

    let mut client = shop.database.connect().await;
    let mut tx = client.transaction().await.unwrap();
    Join::<Postgres>::emit(&mut tx, &events("tokio")).await.unwrap();
    tx.commit().await.unwrap();
    expect("tokio", None).await;
    let mut tx = connection.begin().await.unwrap();
    let many = vec![Event::bytes("t", "k", "e", "c", "").unwrap(); semel::outbox::MAX_EVENTS];
    Join::<Postgres>::emit(&mut *tx, &many).await.unwrap();
    let refused = Join::<Postgres>::emit(&mut *tx, &many[..1]).await.unwrap_err();
    assert!(matches!(refused, Error::TooManyEvents { limit: semel::outbox::MAX_EVENTS, .. }), "{refused:?}");
}

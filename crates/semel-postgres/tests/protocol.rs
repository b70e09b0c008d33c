//! What the wire and the server can do to a commit, and what must come of it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use semel::once::Error as OnceError;
use semel::{Ask, Claim, Error, Fingerprint, Key, Outcome, Reply, Scope, Semel, Store, Tx as _};
use semel_postgres::{Deferred, Isolation, Options, Postgres, Statements, Tx};
use semel_testkit::counts::rounds;
use semel_testkit::database::TempDatabase;
use semel_testkit::pgbouncer::Bouncer;
use semel_testkit::proxy::{Fault, FaultProxy};

async fn database() -> TempDatabase {
    let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
    let tables = "CREATE TABLE effects (label text NOT NULL); CREATE TABLE balances (id int PRIMARY KEY, amount int);
                  INSERT INTO balances VALUES (1, 0)";
    database.connect().await.batch_execute(tables).await.unwrap();
    database
}

fn scope() -> Scope {
    Scope::new("tenant", "charge").unwrap()
}

fn ask(key: &Key) -> Ask {
    Ask::new(&scope(), key, &Fingerprint::of_bytes(b"x"))
}

async fn insert(tx: &mut Tx, label: &str) -> Result<u64, Error> {
    tx.execute("INSERT INTO effects (label) VALUES ($1)", &[&label]).await
}

async fn once<E>(
    semel: &Semel<Postgres>,
    key: &Key,
    effect: impl AsyncFn(&mut Tx) -> Result<Reply, E>,
) -> Result<Outcome, OnceError<E>> {
    semel.once(&scope(), key, &Fingerprint::of_bytes(b"x"), effect).await
}

async fn charge(semel: &Semel<Postgres>, key: &Key) -> Result<Outcome, OnceError<Error>> {
    let label = key.clone();
    once(semel, key, async move |tx| {
        insert(tx, label.as_str()).await?;
        Ok(Reply::new(201, label.as_str().to_owned()).unwrap())
    })
    .await
}

async fn effects(database: &TempDatabase, key: &Key) -> i64 {
    let client = database.connect().await;
    client.query_one("SELECT count(*) FROM effects WHERE label = $1", &[&key.as_str()]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_acknowledgement_is_lost_is_asked_about_and_makes_one_effect() {
    let database = database().await;
    let proxy = FaultProxy::start(database.server_address()).unwrap();
    let url = format!("{}?sslmode=disable", database.url_on_port(proxy.port()));
    let semel = Semel::new(Postgres::connect(&url, Options::default()).await.unwrap());
    let (mut committed_unheard, rounds) = (0, rounds(60, 500));
    for round in 0..rounds {
        let fault = if round % 2 == 0 { Fault::CutAfterCommitForwarded } else { Fault::DropCommitAcknowledgement };
        let (key, cuts) = (Key::random(), proxy.cuts());
        proxy.arm(fault);
        let outcome = charge(&semel, &key).await.unwrap();
        assert!(proxy.cuts() > cuts, "the connection was cut");
        assert_eq!(outcome.reply().body(), key.as_str());
        if matches!(outcome, Outcome::Fresh(_)) {
            committed_unheard += 1;
        }
        assert!(matches!(charge(&semel, &key).await.unwrap(), Outcome::Replayed(_)));
        assert_eq!(effects(&database, &key).await, 1, "round {round}, {fault:?}");
    }
    assert!(committed_unheard > 0, "some commits took effect unheard");
}

#[tokio::test]
async fn a_completion_that_fails_inside_the_pipeline_is_never_a_success() {
    let database = database().await;
    let semel = Semel::new(Postgres::connect(&database.url(), Options::default()).await.unwrap());
    // The server answers the COMMIT that follows with success, although it rolled back.
    let break_it = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
                    CREATE TRIGGER refuse BEFORE INSERT ON semel.keys FOR EACH ROW EXECUTE FUNCTION refuse()";
    database.connect().await.batch_execute(break_it).await.unwrap();
    let key = Key::random();
    let failed = charge(&semel, &key).await;
    assert!(matches!(failed, Err(OnceError::Store(Error::Statement(_)))), "{failed:?}");
    assert_eq!(effects(&database, &key).await, 0);
    database.connect().await.batch_execute("DROP TRIGGER refuse ON semel.keys").await.unwrap();
    assert!(matches!(charge(&semel, &key).await.unwrap(), Outcome::Fresh(_)));
}

#[tokio::test]
async fn a_failed_statement_that_the_work_ignores_is_never_a_success() {
    let database = database().await;
    let semel = Semel::new(Postgres::connect(&database.url(), Options::default()).await.unwrap());
    let key = Key::random();
    let label = key.clone();
    let failed = once(&semel, &key, async move |tx| {
        insert(tx, label.as_str()).await?;
        let _ = tx.execute("INSERT INTO balances VALUES (1, 0)", &[]).await;
        Ok::<Reply, Error>(Reply::new(201, "").unwrap())
    });
    assert!(matches!(failed.await, Err(OnceError::Store(Error::Statement(_)))));
    assert_eq!(effects(&database, &key).await, 0);
}

#[tokio::test]
async fn a_refusal_after_a_failed_statement_is_stored() {
    let database = database().await;
    let semel = Semel::new(Postgres::connect(&database.url(), Options::default()).await.unwrap());
    let key = Key::random();
    let run = async || {
        let label = key.clone();
        once(&semel, &key, async move |tx| {
            insert(tx, label.as_str()).await?;
            let taken = tx.execute("INSERT INTO balances VALUES (1, 0)", &[]).await.unwrap_err();
            assert_eq!(semel_postgres::sql_state(&taken).unwrap().code(), "23505");
            Ok::<Reply, Error>(Reply::new(422, "taken").unwrap())
        })
        .await
        .unwrap()
    };
    assert!(matches!(run().await, Outcome::Fresh(_)));
    assert!(matches!(run().await, Outcome::Replayed(_)));
    assert_eq!(effects(&database, &key).await, 0);
}

#[tokio::test]
async fn an_idle_transaction_frees_its_key_within_the_deadline_and_its_late_commit_fails() {
    let database = database().await;
    let options = Options { deadline: Duration::from_millis(300), ..Options::default() };
    let stopped = Semel::new(Postgres::connect(&database.url(), options).await.unwrap());
    let other = Semel::new(Postgres::connect(&database.url(), Options::default()).await.unwrap());
    let key = Key::random();
    let Claim::Fresh(mut tx) = stopped.claim(&ask(&key)).await.unwrap() else { panic!("the key is new") };
    insert(&mut tx, key.as_str()).await.unwrap();
    let Claim::Fresh(taken) = other.claim(&ask(&key).waiting(Duration::from_secs(20))).await.unwrap() else {
        panic!("the deadline frees the key");
    };
    taken.rollback().await;
    assert!(matches!(charge(&other, &key).await.unwrap(), Outcome::Fresh(_)));
    let late = stopped.finish(&ask(&key), tx, &Reply::new(201, "late").unwrap()).await;
    assert!(late.is_err(), "{late:?}");
    assert_eq!(effects(&database, &key).await, 1);
}

#[tokio::test]
async fn a_statement_past_the_deadline_is_cut_off() {
    let database = database().await;
    let options = Options { deadline: Duration::from_millis(200), ..Options::default() };
    let semel = Semel::new(Postgres::connect(&database.url(), options).await.unwrap());
    let key = Key::random();
    let slow = once(&semel, &key, async move |tx| {
        tx.query("SELECT pg_sleep(60)", &[]).await?;
        Ok::<Reply, Error>(Reply::new(201, "").unwrap())
    });
    assert!(matches!(slow.await, Err(OnceError::Effect(Error::Deadline))));
    assert!(matches!(charge(&semel, &key).await.unwrap(), Outcome::Fresh(_)));
}

/// A process that is gone by then, or frozen, cannot cancel what it asked: the server ends the look by itself.
#[tokio::test]
async fn a_claim_that_a_locked_table_holds_up_ends_at_the_deadline_and_leaves_a_timeout_of_the_role() {
    let database = database().await;
    let (mut owner, client) = (database.connect().await, database.connect().await);
    let claim = "SELECT semel.begin_claim(42, false, 'run', '200', 'tenant', 'charge', 'k', 'x') IS NULL";
    let settings = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')";

    let locking = owner.transaction().await.unwrap();
    locking.batch_execute("LOCK TABLE semel.keys IN ACCESS EXCLUSIVE MODE").await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(20), client.query_one(claim, &[])).await;
    let error = asked.expect("the server ends it").unwrap_err();
    assert_eq!(error.code().unwrap().code(), "55P03");
    client.batch_execute("ROLLBACK").await.unwrap();
    locking.rollback().await.unwrap();

    for (role, left) in [("0", "200ms"), ("7s", "7s")] {
        client.batch_execute(&format!("SET lock_timeout = '{role}'; BEGIN")).await.unwrap();
        assert!(client.query_one(claim, &[]).await.unwrap().get::<_, bool>(0));
        let row = client.query_one(settings, &[]).await.unwrap();
        assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), (left, "200ms"));
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// The server does not name the schema of a function that a role may not call.
#[tokio::test]
async fn a_role_that_may_not_call_the_functions_is_told_what_to_grant() {
    let database = database().await;
    let store = Postgres::connect(&database.url(), Options { pool_size: 1, ..Options::default() }).await.unwrap();
    let revoke = "REVOKE EXECUTE ON FUNCTION semel.begin_claim FROM PUBLIC;
                  GRANT USAGE ON SCHEMA semel TO pg_monitor;
                  GRANT SELECT ON semel.installation TO pg_monitor";
    database.connect().await.batch_execute(revoke).await.unwrap();
    store.client().await.unwrap().batch_execute("SET ROLE pg_monitor").await.unwrap();
    let refused = store.claim(&ask(&Key::random())).await.unwrap_err();
    assert!(matches!(&refused, Error::Schema(what) if what.contains("grant the role")), "{refused}");
}

#[tokio::test]
async fn a_commit_is_durable_even_where_the_role_prefers_speed() {
    let database = database().await;
    let prefer_speed = format!("ALTER DATABASE {} SET synchronous_commit = off", database.name());
    database.connect().await.batch_execute(&prefer_speed).await.unwrap();
    // A deferred trigger runs at COMMIT, when the setting has its last word.
    let watch = "CREATE TABLE seen (setting text);
                 CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN INSERT INTO seen VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END';
                 CREATE CONSTRAINT TRIGGER watch AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION watch()";
    let client = database.connect().await;
    client.batch_execute(watch).await.unwrap();
    let semel = Semel::new(Postgres::connect(&database.url(), Options::default()).await.unwrap());
    charge(&semel, &Key::random()).await.unwrap();
    client.batch_execute("INSERT INTO effects VALUES ('without semel')").await.unwrap();
    let seen: Vec<String> =
        client.query("SELECT setting FROM seen", &[]).await.unwrap().iter().map(|r| r.get(0)).collect();
    assert_eq!(seen, ["on", "off"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn serialization_failures_run_the_closure_again_until_all_count_once() {
    let database = database().await;
    let options = Options { isolation: Isolation::Serializable, ..Options::default() };
    let settings = semel::Settings { attempts: 50, ..semel::Settings::default() };
    let store = Postgres::connect(&database.url(), options).await.unwrap();
    let semel = Semel::with_settings(store, settings).await.unwrap();
    let mut adders = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let semel = semel.clone();
        adders.spawn(async move {
            let key = Key::random();
            for _ in 0..2 {
                let added = once(&semel, &key, async move |tx| {
                    let row = tx.query_one("SELECT amount FROM balances WHERE id = 1", &[]).await?;
                    let amount: i32 = row.get(0);
                    tx.execute("UPDATE balances SET amount = $1 WHERE id = 1", &[&(amount + 1)]).await?;
                    Ok::<Reply, Error>(Reply::new(201, "").unwrap())
                });
                added.await.unwrap();
            }
        });
    }
    adders.join_all().await;
    let amount: i32 = database.connect().await.query_one("SELECT amount FROM balances", &[]).await.unwrap().get(0);
    assert_eq!(amount, 8);
}

#[tokio::test]
async fn named_statements_behind_a_pooler_fail_with_the_name_of_the_setting() {
    let database = database().await;
    let bouncer = Bouncer::start(&database.url()).unwrap();
    let url = bouncer.url_for(database.name());
    let unnamed = Options { statements: Statements::Unnamed, ..Options::default() };
    let others = Postgres::connect(&url, unnamed.clone()).await.unwrap();
    let named = Postgres::open(&url, Options { pool_size: 1, ..Options::default() }).unwrap();
    let Claim::Fresh(tx) = named.claim(&ask(&Key::random())).await.unwrap() else { panic!("the key is new") };
    tx.rollback().await;
    // Others keep every server busy that has seen the named statement, so that the pooler must take one that has not.
    let mut busy = Vec::new();
    for _ in 0..4 {
        busy.push(others.claim(&ask(&Key::random())).await.unwrap());
    }
    let refused = named.claim(&ask(&Key::random())).await.expect_err("named statements cannot work here");
    drop(busy);
    assert!(refused.to_string().contains("postgres.statements"), "{refused}");
    let semel = Semel::new(Postgres::connect(&url, unnamed).await.unwrap());
    let key = Key::random();
    charge(&semel, &key).await.unwrap();
    assert!(matches!(charge(&semel, &key).await.unwrap(), Outcome::Replayed(_)));
}

#[tokio::test]
async fn a_deferred_statement_that_fails_rolls_all_back() {
    let database = database().await;
    let semel = Semel::new(Postgres::connect(&database.url(), Options::default()).await.unwrap());
    let key = Key::random();
    let label = key.clone();
    let failed = once(&semel, &key, async move |tx| {
        insert(tx, label.as_str()).await?;
        tx.defer(Deferred::expecting(1, "INSERT INTO balances VALUES ($1, 0)").bind(1_i32));
        Ok::<Reply, Error>(Reply::new(201, "").unwrap())
    });
    let failed = failed.await;
    assert!(matches!(failed, Err(OnceError::Store(Error::Statement(_)))), "{failed:?}");
    assert_eq!(effects(&database, &key).await, 0);
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_runs_nothing_and_says_so() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://postgres:hunter2@127.0.0.1:{port}/postgres");
    let refused = Postgres::connect(&url, Options::default()).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
    assert!(!format!("{refused:?}").contains("hunter2"));
}

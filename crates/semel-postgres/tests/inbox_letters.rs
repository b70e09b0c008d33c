//! Dead letters and declarations on PostgreSQL, and what plain SQL can do with them.
#![allow(clippy::unwrap_used, missing_docs)]

use semel::letter::{LetterFilter, LetterState};
use semel::{Delivery, Inbox};
use semel_postgres::{Options, Postgres};
use semel_testkit::database::TempDatabase;
use tokio_postgres::Client;

async fn database() -> (TempDatabase, Postgres, Client) {
    let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
    let store = Postgres::open(&database.url(), Options::default()).unwrap();
    let client = database.connect().await;
    client.batch_execute("CREATE TABLE effects (label text NOT NULL)").await.unwrap();
    (database, store, client)
}

async fn sees(client: &Client, sql: &str) -> bool {
    client.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}")).get(0)
}

async fn refused(client: &Client, sql: &str) -> String {
    let error = client.query(sql, &[]).await.expect_err(sql);
    error.code().unwrap_or_else(|| panic!("{sql}: {error}")).code().to_owned()
}

/// Any language that can talk to the database: accept and set aside, later take and apply, each in one transaction.
#[tokio::test]
async fn plain_sql_sets_a_message_aside_and_applies_it_later() {
    let (_database, store, client) = database().await;
    let set_aside = "
        DO $$
        BEGIN
            IF semel.accept('receipts', 'message-1') THEN
                PERFORM semel.dead_letter('receipts', 0, 'message-1', 'charges', '\\x00ff', 'no such account',
                                          p_headers => '[[\"a\", \"b\"]]');
            END IF;
        END
        $$";
    client.batch_execute(&format!("BEGIN; {set_aside}; ROLLBACK")).await.unwrap();
    for _ in 0..3 {
        client.batch_execute(&format!("BEGIN; {set_aside}; COMMIT")).await.unwrap();
    }
    assert!(!sees(&client, "SELECT semel.accept('receipts', 'message-1')").await);
    // Rust and SQL keep the same letters.
    let letters = store.letters(&LetterFilter::default(), 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    let (id, letter) = (letters[0].id, &letters[0].letter);
    assert_eq!((letter.message.id.as_str(), letter.message.payload.as_ref()), ("message-1", [0, 255].as_slice()));
    assert_eq!(letter.message.headers, [("a".to_owned(), "b".to_owned())]);
    assert_eq!((letter.cause.as_str(), letter.attempts), ("no such account", 1));

    assert!(sees(&client, &format!("SELECT semel.take_letter({}) = 'gone'", id.0)).await);
    assert!(sees(&client, "SELECT semel.redrive_letters('receipts', NULL, 'ada', 'the account is there') = 1").await);
    let audit = format!(
        "SELECT (actor, action, consumer, letter, reason)
                = ('ada', 'inbox redrive', 'receipts', {}, 'the account is there') FROM semel.audit",
        id.0
    );
    assert!(sees(&client, &audit).await);
    let apply = format!(
        "DO $$
         BEGIN
             IF semel.take_letter({}) = 'taken' THEN
                 INSERT INTO effects VALUES ('applied');
             END IF;
         END
         $$",
        id.0
    );
    client.batch_execute(&format!("BEGIN; {apply}; ROLLBACK")).await.unwrap();
    for _ in 0..3 {
        client.batch_execute(&format!("BEGIN; {apply}; COMMIT")).await.unwrap();
    }
    assert!(sees(&client, "SELECT count(*) = 1 FROM effects").await);
    assert_eq!(store.letters(&LetterFilter::default(), 10).await.unwrap()[0].state, LetterState::Applied);
    assert!(!sees(&client, &format!("SELECT semel.bury_letter({}, 'too late')", id.0)).await);
}

/// I12, and nothing is stored that could not be read again.
#[tokio::test]
async fn what_no_letter_or_consumer_is_like_is_refused() {
    let (_database, store, client) = database().await;
    client.batch_execute("SELECT semel.declare_consumer('by id', 'id', '7 days')").await.unwrap();
    let (check, null, invalid) = ("23514", "23502", "22023");
    for (call, code) in [
        ("declare_consumer('', 'id', '7 days')", check),
        ("declare_consumer(NULL, 'id', '7 days')", null),
        ("declare_consumer('c', 'name', '7 days')", invalid),
        ("declare_consumer('c', NULL, '7 days')", invalid),
        ("declare_consumer('c', 'id', NULL)", invalid),
        ("declare_consumer('c', 'id', '-1 day')", check),
        ("declare_consumer('c', 'id', '2000 years')", check),
        ("declare_consumer('by id', 'sequence', '7 days')", "SM013"),
        ("replay_consumer('by id', '', 'because')", check),
        ("replay_consumer('by id', 'ada', '')", check),
        ("dead_letter('', 0, 'm', 't', '', 'why')", check),
        ("dead_letter('c', -1, 'm', 't', '', 'why')", check),
        ("dead_letter('c', 0, NULL, 't', '', 'why')", null),
        ("dead_letter('c', 0, 'm', NULL, '', 'why')", null),
        ("dead_letter('c', 0, 'm', 't', NULL, 'why')", null),
        ("dead_letter('c', 0, 'm', 't', '', NULL)", null),
        ("dead_letter('c', 0, repeat('m', 65537), 't', '', 'why')", check),
        ("dead_letter('c', 0, 'm', 't', '', repeat('w', 1001))", check),
        ("dead_letter('c', 0, 'm', 't', '', 'why', -1)", check),
        ("dead_letter('c', 0, 'm', 't', decode(repeat('00', 67108865), 'hex'), 'why')", check),
        ("dead_letter('c', 0, 'm', 't', '', 'why', p_headers => 'x')", "22P02"),
        ("dead_letter('c', 0, 'm', 't', '', 'why', p_headers => '{}')", invalid),
        // Half a character.
        ("dead_letter('c', 0, 'm', 't', '', 'why', p_headers => '[[\"a\", \"\\ud800\"]]')", "22P02"),
        ("dead_letter('c', 0, 'm', 't', '', 'why', p_headers => '[[\"a\"]]')", invalid),
        ("dead_letter('c', 0, 'm', 't', '', 'why', p_headers => '[[\"a\", 1]]')", invalid),
        ("dead_letter('c', 0, 'm', 't', '', 'why', p_headers => '[[\"a\", \"b\"], \"c\"]')", invalid),
        (
            "dead_letter('c', 0, 'm', 't', '', 'why', p_headers => '[[\"a\", \"' || repeat('b', 1048576) || '\"]]')",
            check,
        ),
        ("dead_letter('c', 0, 'm', 't', '', 'why', p_sequence => 1)", check),
        ("dead_letter('c', 0, 'm', 't', '', 'why', p_partition => 1)", check),
        ("dead_letter('c', 0, 'm', 't', '', 'why', p_entity => 'e')", check),
        ("bury_letter(1, 'why')", ""),
    ] {
        let sql = format!("SELECT semel.{call}");
        if code.is_empty() {
            assert!(!sees(&client, &sql).await, "there is no such letter");
        } else {
            assert_eq!(refused(&client, &sql).await, code, "{call}");
        }
    }
    assert!(sees(&client, "SELECT count(*) = 0 FROM semel.dead_letters").await);
    assert!(
        sees(&client, "SELECT generation = 0 AND recognition = 'id' FROM semel.consumers WHERE name = 'by id'").await
    );
    assert!(sees(&client, "SELECT count(*) = 0 FROM semel.audit").await);
    let odd = "semel.dead_letter('c', 0, '', '', '', '', p_headers => '[[\"\", \"\\u0000\"], [\"\\\\u0000\", \"\"]]')";
    assert!(sees(&client, &format!("SELECT {odd} > 0")).await);
    let kept = store.letters(&LetterFilter::default(), 10).await.unwrap();
    let headers = [("", "\0"), ("\\u0000", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(kept[0].letter.message.headers, headers);
}

/// What an operator or a consumer was told has to survive a crash.
#[tokio::test]
async fn what_changes_a_consumer_or_its_letters_makes_its_commit_durable() {
    let (_database, _store, client) = database().await;
    for call in [
        "declare_consumer('c', 'id', '7 days')",
        "dead_letter('c', 0, 'm', 't', '', 'why')",
        "redrive_letters('c', NULL, 'ada', 'because')",
        "take_letter(1)",
        "replay_consumer('c', 'ada', 'because')",
    ] {
        client.batch_execute(&format!("BEGIN; SET LOCAL synchronous_commit = off; SELECT semel.{call}")).await.unwrap();
        assert!(sees(&client, "SELECT current_setting('synchronous_commit') = 'on'").await, "{call}");
        client.batch_execute("COMMIT").await.unwrap();
    }
}

/// Consumers look all the time, and tables grow.
#[tokio::test]
async fn looking_for_ids_and_for_redriven_letters_uses_an_index_however_many_there_are() {
    let (database, store, client) = database().await;
    let fill = "
        SELECT semel.declare_consumer('receipts', 'id', '7 days');
        INSERT INTO semel.inbox (consumer, generation, message_id, received_at)
        SELECT c.id, 0, 'message ' || n, clock_timestamp() FROM semel.consumers c, generate_series(1, 20000) n;
        SELECT count(semel.dead_letter('receipts', 0, 'message ' || n, 't', '', 'why')) FROM generate_series(1, 5000) n;
        UPDATE semel.dead_letters SET state = CASE WHEN id % 1000 = 0 THEN 'redriven' ELSE 'applied' END;
        ANALYZE";
    client.batch_execute(fill).await.unwrap();
    let whole_table_reads = async || {
        let read = "SELECT sum(seq_scan)::bigint FROM pg_stat_user_tables
                    WHERE schemaname = 'semel' AND relname IN ('inbox', 'dead_letters')";
        client.query_one(read, &[]).await.unwrap().get::<_, i64>(0)
    };
    // Sessions tell what they did when they end.
    let others_have_ended = async || {
        client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        let alone = "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()";
        semel_testkit::poll::until("the sessions of the store have ended", async || sees(&client, alone).await).await;
    };
    drop(store);
    others_have_ended().await;
    let before = whole_table_reads().await;
    let store = Postgres::open(&database.url(), Options::default()).unwrap();
    let consumer = semel::Consumer::new("receipts").unwrap();
    let asked: Vec<Delivery> = (0..1000).map(|n| Delivery::by_id(format!("message {}", n * 40)).unwrap()).collect();
    // More often than a plan is made anew for its parameters.
    for _ in 0..8 {
        let seen = store.seen(&consumer, &asked).await.unwrap();
        assert_eq!(seen.iter().filter(|seen| **seen).count(), 500);
        assert_eq!(store.redriven("receipts", 100).await.unwrap().len(), 5);
    }
    drop(store);
    others_have_ended().await;
    assert_eq!(whole_table_reads().await, before, "a look read a whole table");
    // The control: a statement that does read all of it is seen.
    client.batch_execute("SELECT count(received_at) FROM semel.inbox WHERE generation > 7").await.unwrap();
    others_have_ended().await;
    assert_eq!(whole_table_reads().await, before + 1);
}

//! What the inbox keeps on PostgreSQL, and what plain SQL can do with it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use semel::inbox::{Accepted, MAX_BATCH, MAX_RANGES, Offset, Sequence};
use semel::{Consumer, Delivery, Error, Inbox, Tx as _};
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

fn receipts() -> Consumer {
    Consumer::new("receipts").unwrap()
}

fn by_sequence(lane: u16, sequence: u64) -> Delivery {
    let place = Sequence { incarnation: "1-1".to_owned(), topic: "a topic".to_owned(), lane, sequence };
    Delivery::by_sequence(place).unwrap()
}

async fn commit(store: &Postgres, deliveries: &[Delivery]) -> Result<Vec<Accepted>, Error> {
    let (tx, accepted) = store.accept(&receipts(), deliveries).await?;
    store.commit_consumed(tx).await?;
    Ok(accepted)
}

async fn sees(client: &Client, sql: &str) -> bool {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn refused(client: &Client, sql: &str) -> String {
    let error = client.query(sql, &[]).await.expect_err(sql);
    error.code().unwrap_or_else(|| panic!("{sql}: {error}")).code().to_owned()
}

/// Any language that can talk to the database: BEGIN, accept, act, COMMIT.
#[tokio::test]
async fn plain_sql_applies_a_message_once() {
    let (_database, store, client) = database().await;
    let apply = "
        DO $$
        BEGIN
            IF semel.accept('receipts', 'message-1') THEN
                INSERT INTO effects VALUES ('applied');
            END IF;
        END
        $$";
    client.batch_execute(&format!("BEGIN; {apply}; ROLLBACK")).await.unwrap();
    for _ in 0..3 {
        client.batch_execute(&format!("BEGIN; {apply}; COMMIT")).await.unwrap();
    }
    assert!(sees(&client, "SELECT count(*) = 1 FROM effects").await);
    assert!(sees(&client, "SELECT semel.accept('receipts', 'message-1', 1)").await, "another generation");
    assert!(sees(&client, "SELECT semel.accept('others', 'message-1')").await, "another consumer");
    assert!(sees(&client, "SELECT semel.accept('receipts', 'message-2')").await, "another message");
    // Rust and SQL keep one inbox.
    let messages = ["message-1", "message-2", "message-3"].map(|id| Delivery::by_id(id).unwrap());
    let accepted = commit(&store, &messages).await.unwrap();
    assert_eq!(accepted, [Accepted::Duplicate, Accepted::Duplicate, Accepted::First]);
    assert!(!sees(&client, "SELECT semel.accept('receipts', 'message-3')").await);
    commit(&store, &[by_sequence(3, 7)]).await.unwrap();
    assert!(!sees(&client, "SELECT semel.accept_sequence('receipts', '1-1', 'a topic', 3::smallint, 7)").await);
    assert!(sees(&client, "SELECT semel.accept_sequence('receipts', '1-1', 'a topic', 3::smallint, 8)").await);
}

#[tokio::test]
async fn plain_sql_accepts_many_in_one_call() {
    let (_database, _store, client) = database().await;
    for (call, answer) in [
        ("semel.accept_ids('c', 0, '{b,a,b,c}')", "{t,t,f,t}"),
        ("semel.accept_ids('c', 0, '{d,a,d}')", "{t,f,f}"),
        ("semel.accept_ids('c', 0, '{}')", "{}"),
        ("semel.accept_sequences('c', 0, '{i,i,i,i}', '{t,t,t,u}', '{1,1,1,1}', '{5,1,5,5}')", "{t,t,f,t}"),
        ("semel.accept_sequences('c', 0, '{i,i,j}', '{t,t,t}', '{1,1,1}', '{1,2,1}')", "{f,t,t}"),
        ("semel.accept_sequences('c', 0, '{}', '{}', '{}', '{}')", "{}"),
        // Two partitions in turns; one begins at 0, the other at 10. The record 12 is missing.
        (
            "semel.accept_offsets('c', 0, '{s,s,s,s}', '{t,t,t,t}', '{1,2,1,2}', '{0,10,1,12}', '{0,11,1,13}')",
            "{t,t,t,t}",
        ),
        ("semel.accept_offsets('c', 0, '{s,s,s}', '{t,t,t}', '{2,2,2}', '{13,14,14}', '{13,14,14}')", "{f,t,f}"),
        ("semel.accept_offsets('c', 0, '{}', '{}', '{}', '{}', '{}')", "{}"),
        ("semel.accept_versions('c', 0, '{e,e,f,e}', '{1,3,4,2}', '{t,t,f,t}')", "{first,early,first,first}"),
        ("semel.accept_versions('c', 0, '{e,f,f,g}', '{2,4,9,2}', '{t,f,f,t}')", "{stale,stale,first,early}"),
        ("semel.accept_versions('c', 0, '{}', '{}', '{}')", "{}"),
    ] {
        let row = client.query_one(&format!("SELECT {call}::text"), &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), answer, "{call}");
    }
    let next = "SELECT semel.next_offset('c', 's', 't', 1) = 2 AND semel.next_offset('c', 's', 't', 2) = 15
                AND semel.next_offset('c', 's', 't', 3) IS NULL AND semel.next_offset('d', 's', 't', 1) IS NULL
                AND semel.next_offset('c', 's', 't', 1, 1) IS NULL";
    assert!(sees(&client, next).await);
    let ranges = "SELECT string_agg(applied::text, ' ' ORDER BY incarnation, topic) = '{[1,3),[5,6)} {[5,6)} {[1,2)}'
                  FROM semel.marks";
    assert!(sees(&client, ranges).await);
}

/// I12, and nothing that is null or out of bounds counts as seen or unseen by accident.
#[tokio::test]
async fn what_no_message_is_like_is_refused() {
    let (_database, _store, client) = database().await;
    client.batch_execute("SELECT semel.accept_sequence('c', 'i', 't', 1::smallint, 5)").await.unwrap();
    client.batch_execute("SELECT semel.accept_offsets('c', 0, '{s}', '{t}', '{1}', '{5}', '{5}')").await.unwrap();
    let (check, null, invalid, range) = ("23514", "23502", "22023", "22003");
    for (call, code) in [
        ("accept(NULL, 'm')", null),
        ("accept('', 'm')", check),
        ("accept(repeat('c', 256), 'm')", check),
        ("accept('c', NULL)", null),
        ("accept('c', '')", check),
        ("accept('c', repeat('m', 256))", check),
        ("accept('c', E'a\\tb')", check),
        ("accept('c', U&'a\\0085')", check),
        ("accept('c', 'm', NULL)", null),
        ("accept('c', 'm', -1)", check),
        ("accept_ids('c', 0, '{m,NULL}')", null),
        ("accept_ids('c', 0, ARRAY['m', ''])", check),
        ("accept_ids('c', 0, array_fill('m'::text, ARRAY[10001]))", "54000"),
        ("accept_sequence('c', 'i', 't', 1::smallint, 0)", invalid),
        ("accept_sequence('c', 'i', 't', 1::smallint, NULL)", invalid),
        ("accept_sequence('c', 'i', 't', 1::smallint, 9223372036854775807)", range),
        ("accept_sequence('c', 'i', 't', (-1)::smallint, 1)", check),
        ("accept_sequence('c', 'i', '', 1::smallint, 1)", check),
        ("accept_sequence('c', '', 't', 1::smallint, 1)", check),
        ("accept_sequences('c', 0, '{i,i}', '{t,t}', '{1,1}', '{1,0}')", invalid),
        ("accept_sequences('c', 0, '{i,i}', '{t,t}', '{1,1}', '{1,NULL}')", invalid),
        ("accept_sequences('c', 0, '{i,i}', '{t}', '{1,1}', '{1,2}')", null),
        ("accept_sequences('c', -1, '{i,i}', '{t,t}', '{1,1}', '{1,2}')", check),
        ("accept_offsets('c', 0, '{s}', '{t}', '{1}', '{-1}', '{6}')", invalid),
        ("accept_offsets('c', 0, '{s}', '{t}', '{1}', '{7}', '{6}')", invalid),
        ("accept_offsets('c', 0, '{s}', '{t}', '{1}', '{6}', '{NULL}')", invalid),
        ("accept_offsets('c', 0, '{s}', '{t}', '{1}', '{NULL}', '{6}')", invalid),
        ("accept_offsets('c', 0, '{s}', '{t}', '{1}', '{6}', '{9223372036854775807}')", range),
        ("accept_offsets('c', 0, '{s}', '{t}', '{-1}', '{6}', '{6}')", check),
        ("accept_offsets('c', 0, '{s}', '{t}', '{1}', '{7}', '{7}')", "SM012"),
        ("accept_versions('c', 0, '{e}', '{0}', '{f}')", invalid),
        ("accept_versions('c', 0, '{e}', '{NULL}', '{f}')", invalid),
        ("accept_versions('c', 0, '{e}', '{1}', '{NULL}')", invalid),
        ("accept_versions('c', 0, '{NULL}', '{1}', '{t}')", null),
        ("accept_versions('c', 0, ARRAY[''], '{1}', '{t}')", check),
    ] {
        assert_eq!(refused(&client, &format!("SELECT semel.{call}")).await, code, "{call}");
    }
    assert!(sees(&client, "SELECT count(*) = 0 FROM semel.inbox").await);
    assert!(sees(&client, "SELECT applied = '{[5,6)}' FROM semel.marks").await);
    assert!(sees(&client, "SELECT next = 6 FROM semel.offsets").await);
    assert!(sees(&client, "SELECT count(*) = 0 FROM semel.versions").await);
}

/// A message that was acknowledged never comes again, so its commit has to survive a crash.
#[tokio::test]
async fn an_acceptance_makes_its_commit_durable() {
    let (_database, _store, client) = database().await;
    for call in [
        "accept('c', 'm')",
        "accept_ids('c', 0, '{a,b}')",
        "accept_sequence('c', 'i', 't', 1::smallint, 1)",
        "accept_sequences('c', 0, '{i,i}', '{t,t}', '{1,1}', '{2,3}')",
        "accept_offsets('c', 0, '{s}', '{t}', '{1}', '{5}', '{5}')",
    ] {
        client.batch_execute(&format!("BEGIN; SET LOCAL synchronous_commit = off; SELECT semel.{call}")).await.unwrap();
        assert!(sees(&client, "SELECT current_setting('synchronous_commit') = 'on'").await, "{call}");
        client.batch_execute("COMMIT").await.unwrap();
    }
}

/// One row per lane, one version of it per batch, and those that are over make room within their page.
#[tokio::test]
async fn a_batch_writes_one_version_of_each_lane() {
    let (_database, store, client) = database().await;
    let lanes = 4;
    let batches = 12;
    for batch in 0..batches {
        let sequences = (0..25).map(|n| 25 * batch + n + 1);
        let messages: Vec<Delivery> =
            sequences.flat_map(|n| (0..lanes).map(move |lane| by_sequence(lane, n))).collect();
        let accepted = commit(&store, &messages).await.unwrap();
        assert!(accepted.iter().all(|accepted| *accepted == Accepted::First));
        // The same again writes nothing.
        let again = commit(&store, &messages).await.unwrap();
        assert!(again.iter().all(|accepted| *accepted == Accepted::Duplicate));
    }
    assert!(sees(&client, "SELECT count(*) = 4 AND every(applied = '{[1,301)}') FROM semel.marks").await);
    drop(store);
    let written = "SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
                   WHERE schemaname = 'semel' AND relname = 'marks'";
    semel_testkit::poll::until("the sessions of the store have told their statistics", async || {
        let row = client.query_one(written, &[]).await.unwrap();
        let [inserted, updated, within] = [0, 1, 2].map(|column| row.get::<_, i64>(column));
        (inserted, updated, within) == (4, 4 * 11, 4 * 11)
    })
    .await;
}

/// I12: the limit is exact, whichever way it is reached, and what closes a hole is let in.
#[tokio::test]
async fn a_lane_takes_a_thousand_ranges_and_no_more() {
    let (_database, store, client) = database().await;
    let last = 2 * MAX_RANGES as u64;
    let every_other: Vec<Delivery> = (1..=last / 2).map(|n| by_sequence(1, 2 * n)).collect();
    let size = "SELECT count(*) FROM semel.marks m, unnest(m.applied)";
    commit(&store, &every_other).await.unwrap();
    assert_eq!(client.query_one(size, &[]).await.unwrap().get::<_, i64>(0), 1000);
    let ahead = async |sequences: &[u64]| {
        let messages: Vec<Delivery> = sequences.iter().map(|n| by_sequence(1, *n)).collect();
        match commit(&store, &messages).await {
            Err(Error::Ahead { topic, lane, limit }) => {
                assert_eq!((topic.as_str(), lane, limit), ("a topic", 1, MAX_RANGES));
                true
            }
            Ok(accepted) => {
                assert!(accepted.iter().all(|accepted| *accepted == Accepted::First), "{accepted:?}");
                false
            }
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!(ahead(&[last + 2]).await);
    assert!(ahead(&[last + 2, last + 4]).await);
    assert!(ahead(&[1, last + 2]).await, "1 touches 2 and closes no hole");
    assert!(!ahead(&[1]).await);
    assert!(!ahead(&[3, last + 2]).await, "3 closes a hole");
    assert!(ahead(&[last + 4]).await);
    assert!(!ahead(&[5]).await);
    assert!(!ahead(&[last + 4]).await);
    assert_eq!(commit(&store, &every_other).await.unwrap(), vec![Accepted::Duplicate; MAX_RANGES]);
    let holes: Vec<u64> = (3..last / 2).map(|n| 2 * n + 1).chain([last + 1, last + 3]).collect();
    assert!(!ahead(&holes).await);
    assert!(sees(&client, "SELECT applied = '{[1,2005)}' FROM semel.marks").await);
}

/// The largest batch is one statement that answers within its deadline, whatever kind its messages are.
#[tokio::test]
async fn the_largest_batches_are_answered_in_time() {
    let (_database, store, _client) = database().await;
    let shuffled = |n: u64| (n * 7919) % MAX_BATCH as u64 + 1;
    let ids: Vec<Delivery> =
        (0..MAX_BATCH as u64).map(|n| Delivery::by_id(format!("message {}", shuffled(n))).unwrap()).collect();
    let sequences: Vec<Delivery> = (0..MAX_BATCH as u64).map(|n| by_sequence(1, shuffled(n))).collect();
    let lanes: Vec<Delivery> = (0..MAX_BATCH as u64).map(|n| by_sequence(2 + n as u16, 1)).collect();
    for messages in [ids, sequences, lanes] {
        for wanted in [Accepted::First, Accepted::Duplicate] {
            assert_eq!(commit(&store, &messages).await.unwrap(), vec![wanted; MAX_BATCH]);
        }
    }
}

const FILL: &str = "
    INSERT INTO semel.inbox (consumer, generation, message_id, received_at)
    SELECT c.id, n % 2, $2 || n, clock_timestamp() - $3::bigint * interval '1 day'
    FROM semel.consumers c, generate_series(1, $1) n WHERE c.name = 'receipts'";

#[tokio::test]
async fn a_batch_of_ids_that_is_being_forgotten_blocks_no_other() {
    let (database, store, client) = database().await;
    commit(&store, &[Delivery::by_id("registers the consumer").unwrap()]).await.unwrap();
    client.execute(FILL, &[&100, &"old-", &8_i64]).await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    let reaped = "SELECT semel.reap_inbox('receipts', '7 days', 60) = 60";
    assert!(sees(&client, reaped).await);
    let new = [Delivery::by_id("new").unwrap()];
    let accepted = tokio::time::timeout(Duration::from_secs(20), commit(&store, &new)).await;
    assert_eq!(accepted.expect("it waited for the reaper").unwrap(), [Accepted::First]);
    // Another reaper passes over what the first has locked.
    let week = Duration::from_secs(7 * 24 * 3600);
    let others = tokio::time::timeout(Duration::from_secs(20), store.reap_inbox("receipts", week, 1000)).await;
    assert_eq!(others.expect("it waited for the other reaper").unwrap(), 40);
    client.batch_execute("ROLLBACK").await.unwrap();

    // A transaction that accepts holds no reaper up either.
    let (tx, _) = store.accept(&receipts(), &[Delivery::by_id("uncommitted").unwrap()]).await.unwrap();
    assert_eq!(store.reap_inbox("receipts", week, 1000).await.unwrap(), 60);
    assert_eq!(store.reap_inbox("receipts", Duration::MAX, 1000).await.unwrap(), 0);
    assert_eq!(store.reap_inbox("nobody", Duration::ZERO, 1000).await.unwrap(), 0);
    tx.rollback().await;
    assert!(sees(&database.connect().await, "SELECT count(*) = 2 FROM semel.inbox").await);
}

/// Whoever accepts an id that is being forgotten waits for that moment, and then it is new: it was past its retention.
#[tokio::test]
async fn an_id_that_is_being_forgotten_is_new_if_it_goes_and_known_if_it_stays() {
    let (database, store, client) = database().await;
    commit(&store, &[Delivery::by_id("registers the consumer").unwrap()]).await.unwrap();
    for (end, wanted) in [("ROLLBACK", Accepted::Duplicate), ("COMMIT", Accepted::First)] {
        client.batch_execute("DELETE FROM semel.inbox WHERE message_id = 'old-2'").await.unwrap();
        client.execute(FILL, &[&2, &"old-", &8_i64]).await.unwrap();
        client.batch_execute("BEGIN; SELECT semel.reap_inbox('receipts', '7 days', 10)").await.unwrap();
        let (message, looking) = ([Delivery::by_id("old-2").unwrap()], database.connect().await);
        let release = async {
            let waits = "SELECT count(*) = 1 FROM pg_stat_activity
                         WHERE datname = current_database() AND wait_event_type = 'Lock'";
            semel_testkit::poll::until("the acceptance waits", async || sees(&looking, waits).await).await;
            client.batch_execute(end).await.unwrap();
        };
        let (accepted, ()) = tokio::join!(commit(&store, &message), release);
        assert_eq!(accepted.unwrap(), [wanted], "{end}");
        client.batch_execute("DELETE FROM semel.inbox").await.unwrap();
    }
}

#[tokio::test]
async fn forgetting_uses_its_index_however_many_ids_live() {
    let (_database, store, client) = database().await;
    commit(&store, &[Delivery::by_id("registers the consumer").unwrap()]).await.unwrap();
    client.execute(FILL, &[&20_000, &"live-", &0_i64]).await.unwrap();
    client.batch_execute("ANALYZE semel.inbox").await.unwrap();
    client.execute(FILL, &[&10, &"old-", &8_i64]).await.unwrap();
    let whole_table_reads = async || {
        client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        let read = "SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = 'semel' AND relname = 'inbox'";
        client.query_one(read, &[]).await.unwrap().get::<_, i64>(0)
    };
    let before = whole_table_reads().await;
    assert!(sees(&client, "SELECT semel.reap_inbox('receipts', '7 days', 1000) = 10").await);
    assert_eq!(whole_table_reads().await, before, "the reaper read the whole table");
    // The control: a statement that does read it is seen.
    client.batch_execute("SELECT count(received_at) FROM semel.inbox WHERE generation > 7").await.unwrap();
    assert_eq!(whole_table_reads().await, before + 1);
}

/// The same from Rust, where one message alone of a known consumer is asked about in short.
#[tokio::test]
async fn a_message_alone_makes_its_commit_durable() {
    let (database, _store, client) = database().await;
    let preference = "DO $$ BEGIN \
                      EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); \
                      END $$";
    client.batch_execute(preference).await.unwrap();
    let store = Postgres::open(&database.url(), Options::default()).unwrap();
    assert_eq!(setting(&mut store.begin().await.unwrap()).await, "off");
    for number in 0..3 {
        let place = Offset { source: "s".into(), topic: "t".into(), partition: 1, from: number, offset: number };
        for message in [
            Delivery::by_id(format!("message-{number}")).unwrap(),
            by_sequence(3, number.cast_unsigned() + 1),
            Delivery::by_offset(place).unwrap(),
        ] {
            let (mut tx, accepted) = store.accept(&receipts(), std::slice::from_ref(&message)).await.unwrap();
            assert_eq!((accepted.as_slice(), setting(&mut tx).await.as_str()), ([Accepted::First].as_slice(), "on"));
            store.commit_consumed(tx).await.unwrap();
            assert_eq!(commit(&store, &[message]).await.unwrap(), [Accepted::Duplicate]);
        }
    }
}

async fn setting(tx: &mut semel_postgres::Tx) -> String {
    tx.query_one("SELECT current_setting('synchronous_commit')", &[]).await.unwrap().get(0)
}

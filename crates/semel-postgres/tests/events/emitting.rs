//! What `semel.emit` and `semel.emit_all` write.

use semel::event::{EventId, MAX_PAYLOAD_BYTES};
use semel::outbox::{Cursor, MAX_EVENTS};
use semel::sink::Lane;
use semel::{Ask, Claim, Completion, Error, Event, Execution, Fingerprint, Join, Key, Scope, Store, Tx as _};
use semel_postgres::{Options, Postgres, Statements, Tx};
use semel_testkit::counts::rounds;
use semel_testkit::poll::until;
use uuid::Uuid;

use crate::{ALL, Shop, emit, event, text};

#[tokio::test]
async fn sql_and_rust_derive_the_same_ids_and_lanes() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    for ordinal in [0, 1, 255, 256, 9_999] {
        let execution = Execution::mint();
        let sql = "SELECT semel.event_id($1, $2)";
        let row = client.query_one(sql, &[&execution.as_uuid(), &i32::try_from(ordinal).unwrap()]).await.unwrap();
        assert_eq!(EventId::from(row.get::<_, Uuid>(0)), EventId::derive(execution, ordinal));
    }
    for n in 0..300 {
        let key = if n % 2 == 0 { format!("account-{n}") } else { format!("Kontó \u{1F600} {n}") };
        let lane: i16 = client.query_one("SELECT semel.lane($1)", &[&key]).await.unwrap().get(0);
        assert_eq!(Lane::of(&key), Lane(u16::try_from(lane).unwrap()), "{key}");
    }
}

#[tokio::test]
async fn plain_sql_emits_under_its_claim_and_counts_on() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    let claim = "SELECT execution::text FROM semel.claim('shop', 'charges.create', 'k-1', semel.fingerprint('x'))";
    let execution: Uuid = text(&client, claim).await.parse().unwrap();
    let emit = "SELECT semel.emit('charges', 'alice', 'charge.created', '{}')";
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(client.query_one(emit, &[]).await.unwrap().get::<_, Uuid>(0));
    }
    client.batch_execute("COMMIT").await.unwrap();
    let expected: Vec<EventId> = (0..3).map(|n| EventId::derive(Execution::from(execution), n)).collect();
    assert_eq!(ids.into_iter().map(EventId::from).collect::<Vec<_>>(), expected);

    // Without a claim the transaction has a run of its own, and the next transaction another one.
    client.batch_execute(&format!("BEGIN; {emit}; {emit}; COMMIT; {emit}; {emit}")).await.unwrap();
    let found = shop.read(&mut Cursor::START.clone(), ALL).await;
    let mut distinct: Vec<EventId> = found.iter().map(|written| written.id).collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!((found.len(), distinct.len()), (7, 7));
    assert_eq!(found[0].event.content_type, "application/json");
}

/// What was emitted in a savepoint goes with it, and so does the count.
#[tokio::test]
async fn a_rollback_to_a_savepoint_takes_its_events_and_their_numbers_along() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    let claim = "SELECT execution::text FROM semel.claim('t', 'o', 'k', semel.fingerprint('x'))";
    let execution = Execution::from(text(&client, claim).await.parse::<Uuid>().unwrap());
    let emit = |key: &str| format!("SELECT semel.emit('topic', '{key}', 'happened', '{{}}')");
    client.batch_execute(&format!("{}; SAVEPOINT s; {}", emit("first"), emit("undone"))).await.unwrap();
    client.batch_execute(&format!("ROLLBACK TO SAVEPOINT s; {}; COMMIT", emit("second"))).await.unwrap();
    let found = shop.read(&mut Cursor::START.clone(), ALL).await;
    assert_eq!(crate::keys(&found), ["first", "second"]);
    let ids: Vec<EventId> = found.iter().map(|written| written.id).collect();
    assert_eq!(ids, [EventId::derive(execution, 0), EventId::derive(execution, 1)]);
}

/// A statement of the work may call the function; what the work emits then counts on, however it is written: one event
/// without headers by the completion's own statement, others by the function.
#[tokio::test]
async fn what_sql_and_rust_emit_in_one_transaction_has_different_ids() {
    let shop = Shop::open().await;
    let unnamed = Options { statements: Statements::Unnamed, ..Options::default() };
    let unnamed = Postgres::open(&shop.database.url(), unnamed).unwrap();
    let (mut after, other) = (Cursor::START, Execution::mint());
    for store in [&shop.store, &unnamed] {
        for (by_sql, by_rust, has_headers) in
            [(0, 0, false), (0, 1, false), (0, 1, true), (1, 1, false), (2, 1, true), (1, 2, false)]
        {
            let (tx, ask) = fresh(store).await;
            let (execution, mut tx) = (tx.execution(), tx);
            for _ in 0..by_sql {
                tx.execute("SELECT semel.emit('topic', 'by-sql', 'happened', '{}')", &[]).await.unwrap();
            }
            for _ in 0..by_rust {
                let event = event("by-rust").traced("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None);
                tx.emit(if has_headers { event.header("name", "value").unwrap() } else { event });
            }
            complete(tx, 201).await.unwrap();
            let found = shop.read(&mut after, ALL).await;
            let ids: Vec<EventId> = found.iter().map(|written| written.id).collect();
            let expected: Vec<EventId> = (0..by_sql + by_rust).map(|n| EventId::derive(execution, n)).collect();
            assert_eq!(ids, expected, "{by_sql} {by_rust} {has_headers}");
            for written in found.iter().filter(|written| written.event.ordering_key == "by-rust") {
                assert_eq!(written.lane, Lane::of("by-rust"));
                assert_eq!(written.event.payload, event("by-rust").payload);
                assert!(written.event.traceparent.is_some());
                assert_eq!(written.event.headers.len(), usize::from(has_headers));
            }
            let Claim::Replay(stored) = store.claim(&ask).await.unwrap() else { panic!("it has run") };
            assert_eq!((stored.execution, stored.status, &stored.body[..]), (execution, 201, &b"body"[..]));
        }
        // What another run emitted in this transaction does not count.
        let (mut tx, _) = fresh(store).await;
        let execution = tx.execution();
        let by_other = "SELECT semel.emit('topic', 'other', 'happened', '{}', p_execution => $1)";
        tx.execute(by_other, &[&other.as_uuid()]).await.unwrap();
        tx.emit(event("by-rust"));
        complete(tx, 201).await.unwrap();
        let ids: Vec<EventId> = shop.read(&mut after, ALL).await.iter().map(|written| written.id).collect();
        assert_eq!(ids, [EventId::derive(other, 0), EventId::derive(execution, 0)]);
    }
}

/// Whatever refuses the reply or the event takes both along, and the effect (I1, I4): nobody looks before COMMIT.
#[tokio::test]
async fn a_completion_that_is_refused_leaves_neither_key_nor_event_nor_effect() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    client.batch_execute("CREATE TABLE effects (key text)").await.unwrap();
    let trigger = |table: &str, name: &str| {
        format!(
            "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$; \
             CREATE TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()"
        )
    };
    for (table, name) in [("semel.events", "no_event"), ("semel.keys", "no_key")] {
        client.batch_execute(&trigger(table, name)).await.unwrap();
        let (mut tx, ask) = fresh(&shop.store).await;
        tx.execute("INSERT INTO effects VALUES ('x')", &[]).await.unwrap();
        tx.emit(event("k"));
        let error = complete(tx, 201).await.unwrap_err();
        assert!(format!("{error:?}").contains("refused"), "{error:?}");
        client.batch_execute(&format!("DROP TRIGGER {name} ON {table}")).await.unwrap();
        for left in ["effects", "semel.keys", "semel.events"] {
            assert_eq!(shop.number(&format!("SELECT count(*) FROM {left}")).await, 0, "{left} after {name}");
        }
        assert!(matches!(shop.store.claim(&ask).await.unwrap(), Claim::Fresh(_)));
    }
    // A status that no reply has is refused by the table.
    let (tx, _) = fresh(&shop.store).await;
    let error = complete(tx, 199).await.unwrap_err();
    assert!(format!("{error:?}").contains("keys_fit"), "{error:?}");
}

/// A completion computes the lock of its event's ordering key in the process, and it is the one that `semel.emit`
/// takes: also where the schema was made anew, with another secret, under a process that goes on, and where another
/// cluster has taken the place of this one, whose table may have the same oid (I5).
#[tokio::test]
async fn a_completion_waits_for_its_ordering_key_also_when_the_secret_is_another_one() {
    for (secret, events) in [("the same", 3), ("of a schema made anew", 2), ("of another cluster", 3)] {
        let shop = Shop::open().await;
        let mut other = shop.database.connect().await;
        // The process learns what it keeps.
        let (mut tx, _) = fresh(&shop.store).await;
        tx.emit(event("k"));
        complete(tx, 201).await.unwrap();
        if secret == "of a schema made anew" {
            other.batch_execute("DROP SCHEMA semel CASCADE").await.unwrap();
            shop.store.migrate().await.unwrap();
        } else if secret == "of another cluster" {
            let replaced = format!(
                "UPDATE semel.installation SET secret = sha256('another');
                 ALTER DATABASE {} SET semel.incarnation = '42';
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
                shop.database.name()
            );
            other.batch_execute(&replaced).await.unwrap();
        }
        let mut owner = other.transaction().await.unwrap();
        emit(&mut owner, &["k"]).await;
        let (mut tx, _) = fresh(&shop.store).await;
        tx.emit(event("k"));
        let completion = tokio::spawn(complete(tx, 201));
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        until("the completion waits", async || shop.number(waits).await == 1).await;
        owner.commit().await.unwrap();
        completion.await.unwrap().unwrap();
        assert_eq!(shop.number("SELECT count(DISTINCT xid) FROM semel.events").await, events, "{secret}");
    }
}

async fn fresh(store: &Postgres) -> (Tx, Ask) {
    let scope = Scope::new("tenant", "charge").unwrap();
    let ask = Ask::new(&scope, &Key::random(), &Fingerprint::of_bytes(b"x"));
    let Claim::Fresh(tx) = store.claim(&ask).await.unwrap() else { panic!("the key is new") };
    (tx, ask)
}

async fn complete(tx: Tx, status: u16) -> Result<(), semel::Error> {
    let (execution, body) = (tx.execution(), "body".into());
    let stored = semel::store::Stored { execution, status, headers: Default::default(), body, sealed_by: None };
    let retain = std::time::Duration::from_secs(60);
    tx.complete(&Completion { stored, keep_effect: true, failed: false, retain }).await
}

#[tokio::test]
async fn a_transaction_without_a_key_commits_its_events_and_takes_them_along() {
    let shop = Shop::open().await;
    let mut kept = shop.store.begin().await.unwrap();
    kept.emit(event("kept"));
    kept.commit().await.unwrap();
    let mut gone = shop.store.begin().await.unwrap();
    gone.emit(event("gone"));
    gone.rollback().await;
    assert_eq!(crate::keys(&shop.read(&mut Cursor::START.clone(), ALL).await), ["kept"]);
}

/// Sorted by lock, two transactions with the same keys in opposite orders wait for each other one way only. The
/// control emits one by one, as the function's comment warns not to.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_with_opposite_key_orders_do_not_deadlock() {
    let shop = Shop::open().await;
    let (rounds, mut writers) = (rounds(60, 500), tokio::task::JoinSet::new());
    for reversed in [false, true] {
        let mut client = shop.database.connect().await;
        writers.spawn(async move {
            let mut names: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
            if reversed {
                names.reverse();
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for _ in 0..rounds {
                let mut transaction = client.transaction().await.unwrap();
                emit(&mut transaction, &names).await;
                transaction.commit().await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let found = shop.read(&mut Cursor::START.clone(), ALL).await;
    assert_eq!(found.len(), usize::try_from(rounds * 2 * 20).unwrap());

    let (mut one, mut two) = (shop.database.connect().await, shop.database.connect().await);
    let (mut first, mut second) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    emit(&mut first, &["a"]).await;
    emit(&mut second, &["b"]).await;
    let (b, a) = ([event("b")], [event("a")]);
    let (left, right) = tokio::join!(Join::<Postgres>::emit(&mut first, &b), Join::<Postgres>::emit(&mut second, &a));
    let failed: Vec<Error> = [left, right].into_iter().filter_map(Result::err).collect();
    assert!(matches!(failed.as_slice(), [Error::Conflict(_)]), "one of two deadlocked transactions fails: {failed:?}");
}

#[tokio::test]
async fn the_database_itself_refuses_events_that_are_out_of_bounds() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    let emit = |topic: &str, key: &str, payload: &str, headers: &str| {
        format!("SELECT semel.emit({topic}, {key}, 'happened', {payload}, p_headers => {headers})")
    };
    let large = format!("decode(repeat('00', {}), 'hex')", MAX_PAYLOAD_BYTES + 1);
    for (bad, code) in [
        (emit("''", "'k'", "''", "NULL"), "23514"),
        (emit("repeat('t', 256)", "'k'", "''", "NULL"), "23514"),
        (emit("E'line\\nbreak'", "'k'", "''", "NULL"), "23514"),
        (emit("'t'", "''", "''", "NULL"), "23514"),
        (emit("'t'", "'k'", &large, "NULL"), "23514"),
        (emit("'t'", "'k'", "''", "'[[\"a\",\"' || repeat('x', 20000) || '\"]]'"), "23514"),
        (emit("'t'", "'k'", "''", "'not json'"), "22P02"),
        (emit("'t'", "'k'", "''", "'{\"a\":\"b\"}'"), "22023"),
        (emit("'t'", "NULL", "''", "NULL"), "23502"),
        (emit("NULL", "'k'", "''", "NULL"), "23502"),
    ] {
        let refused = client.batch_execute(&bad).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), code, "{bad}: {refused:?}");
    }
    let loops = format!("FOR i IN 0..{MAX_EVENTS} LOOP PERFORM semel.emit('t', 'k', 'happened', ''); END LOOP");
    let many = format!("DO $$ BEGIN {loops}; END $$");
    let refused = client.batch_execute(&many).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "SM008");
    assert_eq!(shop.number("SELECT count(*) FROM semel.events").await, 0);
    client.batch_execute(&emit("'t'", "'k'", "''", "'[[\"a\",\"b\"]]'")).await.unwrap();
    let found = shop.read(&mut Cursor::START.clone(), ALL).await;
    let expected = Event::bytes("t", "k", "happened", "application/json", "").unwrap().header("a", "b").unwrap();
    assert_eq!(found[0].event, expected);
}

/// What could never be read again is refused where it is written.
#[tokio::test]
async fn headers_that_are_no_pairs_of_strings_are_refused() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    let one = "SELECT semel.emit('t', 'k', 'e', '', p_headers => $1)";
    let two = "SELECT semel.emit_all(NULL, '{t,t}', '{k,k}', '{e,e}', '{text/plain,text/plain}', '{\"\",\"\"}', \
               ARRAY[NULL, $1], '{NULL,NULL}', '{NULL,NULL}')";
    for headers in ["[1]", "{}", "not json", r#"[["a"]]"#, r#"[["a",1]]"#, r#"[["","b"]]"#, r#"[["a","\ud800"]]"#] {
        for sql in [one, two] {
            assert!(client.query_one(sql, &[&headers]).await.is_err(), "{headers} passes {sql}");
        }
    }
    for headers in ["[]", r#"[["a","b"],["a","\u00e9"]]"#] {
        for sql in [one, two] {
            client.query_one(sql, &[&headers]).await.unwrap();
        }
    }
    let found = shop.read(&mut Cursor::START.clone(), ALL).await;
    assert_eq!(found.len(), 6);
    assert_eq!(found[5].event.headers, [("a".to_owned(), "b".to_owned()), ("a".to_owned(), "é".to_owned())]);
}

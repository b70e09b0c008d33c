//! Reading by snapshot difference.

use std::collections::HashMap;
use std::sync::Arc;

use semel::Outbox;
use semel::outbox::{Cursor, PageLimit, Written};
use semel::sink::Lane;
use semel_postgres::Options;
use semel_testkit::counts::rounds;

use crate::{ALL, Shop, emit, keys};

/// I4, I5: a writer that stays open for long, with savepoints, delays its own events alone, and loses none.
#[tokio::test]
async fn a_long_writer_delays_only_its_own_events() {
    let shop = Shop::open().await;
    let (mut long, mut after) = (shop.database.connect().await, Cursor::START);
    let mut long = long.transaction().await.unwrap();
    let mut within = long.savepoint("within").await.unwrap();
    emit(&mut within, &["long-1"]).await;
    within.commit().await.unwrap();
    for round in 0..20 {
        let key = format!("short-{round}");
        shop.emit(&[&key]).await;
        assert_eq!(keys(&shop.read(&mut after, ALL).await), [key]);
    }
    let undone = {
        let mut undone = long.savepoint("undone").await.unwrap();
        emit(&mut undone, &["undone"]).await;
        undone
    };
    undone.rollback().await.unwrap();
    emit(&mut long, &["long-2"]).await;
    shop.emit(&["last"]).await;
    long.commit().await.unwrap();
    assert_eq!(keys(&shop.read(&mut after, ALL).await), ["long-1", "long-2", "last"], "by seq within the tick");
    let again = shop.read(&mut Cursor::START.clone(), ALL).await;
    assert_eq!(again.len(), 23);
}

/// Ticks follow each other: each begins where the one before ended, none sees less, and each took its own transaction
/// id after it looked, whoever stored it and however many did at once.
#[tokio::test(flavor = "multi_thread")]
async fn ticks_never_go_back_with_many_who_store_them() {
    const BURST: u32 = 10;
    let shop = Shop::open().await;
    let (per_writer, mut tasks) = (rounds(100, 1_000), tokio::task::JoinSet::new());
    let (found, _) = tokio::sync::watch::channel(0);
    let together = Arc::new(tokio::sync::Barrier::new(4));
    for writer in 0..4 {
        let mut client = shop.database.connect().await;
        let (together, mut found) = (Arc::clone(&together), found.subscribe());
        tasks.spawn(async move {
            for n in 0..per_writer {
                // No burst begins before somebody has read the one before, so there is a tick for each at least.
                if n % BURST == 0 {
                    together.wait().await;
                    found.wait_for(|found| *found >= 4 * n).await.unwrap();
                }
                let mut transaction = client.transaction().await.unwrap();
                emit(&mut transaction, &[&format!("{writer}-{}", n % 10)]).await;
                transaction.commit().await.unwrap();
            }
            Vec::new()
        });
    }
    let expected = usize::try_from(per_writer * 4).unwrap();
    for _ in 0..8 {
        let (store, counted) = (shop.store.clone(), found.clone());
        tasks.spawn(async move {
            let (mut after, mut found, lanes) = (Cursor::START, Vec::new(), Lane::all().collect::<Vec<_>>());
            while found.len() < expected {
                if let Some(page) = store.page(after, &lanes, ALL).await.unwrap() {
                    after = page.upto;
                    found.extend(page.events.iter().map(|written| written.id));
                    counted.send_modify(|counted| *counted = (*counted).max(found.len() as u32));
                }
            }
            found
        });
    }
    let seen: Vec<_> = tasks.join_all().await.into_iter().filter(|ids| !ids.is_empty()).collect();
    assert_eq!(seen.len(), 8);
    assert!(seen.iter().all(|ids| *ids == seen[0]), "every reader finds the same events in the same order");
    let ticks = shop.number("SELECT count(*) FROM semel.ticks").await;
    assert!(ticks >= (per_writer / BURST).into(), "there are only {ticks} ticks");
    let wrong = "SELECT count(*) FROM (
            SELECT t.*, t.xmin::text::bigint AS own, lag(t.snapshot) OVER (ORDER BY t.id) AS before
            FROM semel.ticks t) t
        WHERE t.own < pg_snapshot_xmax(t.snapshot)::text::bigint
           OR t.before::text <> t.previous::text
           OR pg_snapshot_xmin(t.before) > pg_snapshot_xmin(t.snapshot)
           OR pg_snapshot_xmax(t.before) > pg_snapshot_xmax(t.snapshot)";
    assert_eq!(shop.number(wrong).await, 0);
}

/// How often the store's sessions have read a whole table of events. Each tells when it is asked to, or a while later.
async fn whole_table_reads(shop: &Shop) -> i64 {
    let mut sessions = Vec::new();
    for _ in 0..Options::default().pool_size {
        let session = shop.store.client().await.unwrap();
        session.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        sessions.push(session);
    }
    let scans = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_user_tables WHERE relname LIKE 'events\\_%'";
    shop.number(scans).await
}

/// A tick that is too large to be sorted for every page is read by walking, in the same order, and neither way reads
/// whole tables.
#[tokio::test]
async fn a_giant_tick_is_read_in_the_order_of_a_small_one() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    // The first tick, so that the giant one has a predecessor with a writer in progress.
    let mut late = shop.database.connect().await;
    let mut late = late.transaction().await.unwrap();
    emit(&mut late, &["late"; 700]).await;
    shop.emit(&["before"]).await;
    let mut start = Cursor::START;
    assert_eq!(keys(&shop.read(&mut start, ALL).await), ["before"]);
    let many = "DO $$ BEGIN FOR t IN 1..6 LOOP FOR i IN 1..2000 LOOP
                  PERFORM semel.emit('topic', 'key-' || (i % 50), 'happened', convert_to(i::text, 'UTF8')); END LOOP;
                COMMIT; END LOOP; END $$";
    client.batch_execute(many).await.unwrap();
    emit(&mut late, &["late"; 300]).await;
    late.commit().await.unwrap();

    let walked = shop.read(&mut start.clone(), PageLimit { events: 777, bytes: 64 << 20 }).await;
    let small = shop.number("SELECT count(*) FROM semel.ticks WHERE events IS NOT NULL").await;
    assert_eq!((walked.len(), small), (13_000, 1), "the second tick is a giant one");
    let by_bytes = shop.read(&mut start.clone(), PageLimit { events: 5_000, bytes: 2_000 }).await;
    assert!(walked == by_bytes, "cut by bytes, other events come");
    let before = whole_table_reads(&shop).await;
    client.batch_execute("UPDATE semel.ticks SET events = 13000 WHERE events IS NULL").await.unwrap();
    let sorted = shop.read(&mut start.clone(), PageLimit { events: 3_000, bytes: 64 << 20 }).await;
    assert!(walked == sorted, "sorted, other events come");
    assert_eq!(whole_table_reads(&shop).await, before, "a page has read a whole table");
    // The control: a statement that does read one is seen.
    shop.store.client().await.unwrap().batch_execute("SELECT count(payload) FROM semel.events_0").await.unwrap();
    assert_eq!(whole_table_reads(&shop).await, before + 1);
    assert!(walked.windows(2).all(|pair| pair[0].cursor < pair[1].cursor));
    ordered_per_key(&walked);
}

/// A reader that stopped inside a tick goes on in it, or says that it cannot.
#[tokio::test]
async fn a_tick_that_is_lost_is_not_stepped_over() {
    let shop = Shop::open().await;
    let lanes: Vec<Lane> = Lane::all().collect();
    let mut after = Cursor::START;
    shop.emit(&["before"]).await;
    shop.read(&mut after, ALL).await;
    shop.emit(&["one", "two"]).await;
    let page = shop.store.page(after, &lanes, PageLimit { events: 1, ..ALL }).await.unwrap().unwrap();
    let client = shop.database.connect().await;
    client.batch_execute("DELETE FROM semel.ticks WHERE id = (SELECT max(id) FROM semel.ticks)").await.unwrap();
    let error = shop.store.page(page.upto, &lanes, ALL).await.unwrap_err();
    assert!(format!("{error:?}").contains("is gone"), "{error:?}");
    // Where the older ones are gone as well, it went when its slot was emptied, and there was nothing left in it.
    client.batch_execute("DELETE FROM semel.ticks").await.unwrap();
    assert!(shop.store.page(page.upto, &lanes, ALL).await.is_ok());
}

fn ordered_per_key(events: &[Written]) {
    let mut last: HashMap<&str, i64> = HashMap::new();
    for written in events {
        let key = written.event.ordering_key.as_str();
        assert!(last.insert(key, written.cursor.seq).is_none_or(|before| before < written.cursor.seq), "{key}");
    }
}

#[tokio::test]
async fn asking_in_vain_stores_nothing_and_other_isolation_levels_are_refused() {
    let shop = Shop::open().await;
    let mut after = Cursor::START;
    shop.emit(&["one"]).await;
    assert_eq!(shop.read(&mut after, ALL).await.len(), 1);
    for _ in 0..10 {
        assert!(shop.read(&mut after, ALL).await.is_empty());
    }
    assert_eq!(shop.number("SELECT count(*) FROM semel.ticks").await, 1);
    shop.emit(&["two"]).await;
    let client = shop.database.connect().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let page = "SELECT * FROM semel.page(1, 9223372036854775807, '{0}', 1, 1)";
        let refused = client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; {page}")).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "SM003");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

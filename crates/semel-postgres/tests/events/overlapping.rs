//! Transactions that were under way when a tick was stored.

use std::collections::HashSet;

use semel::outbox::Cursor;
use semel_testkit::cluster::Cluster;
use semel_testkit::database::TempDatabase;
use tokio_postgres::Client;

use crate::{ALL, Shop, keys};

/// Commits far more events than a tick may hold to be sorted anew for every page.
const MANY: &str = "DO $$ BEGIN FOR t IN 1..6 LOOP FOR i IN 1..2000 LOOP
    PERFORM semel.emit('topic', 'key-' || (i % 50), 'happened', convert_to(i::text, 'UTF8')); END LOOP;
    COMMIT; END LOOP; END $$";

/// I4: a snapshot ends at the first id that nobody has finished yet, and whoever has that id may have drawn its seqs
/// long ago. A large tick is read by walking seqs, and begins before those.
#[tokio::test]
async fn a_large_tick_brings_events_that_were_numbered_before_the_tick_it_follows() {
    // Ids that others finish on a shared server would come between.
    let cluster = Cluster::temporary().unwrap();
    let shop = Shop::on(TempDatabase::create_on(&cluster.url()).await).await;
    let (early, mut after) = (shop.database.connect().await, Cursor::START);
    let before = emit_early(&shop, &early, &mut after).await;
    shop.database.connect().await.batch_execute(MANY).await.unwrap();
    early.batch_execute("COMMIT").await.unwrap();

    let mut start = after;
    let found = shop.read(&mut after, ALL).await;
    let of_early = found.iter().filter(|written| written.event.ordering_key == "early");
    let numbers: Vec<i64> = of_early.map(|written| written.cursor.seq).collect();
    assert_eq!((numbers.len(), found.len()), (700, 12_700), "what was numbered early is lost");
    assert!(numbers.iter().all(|seq| *seq > before) && numbers.is_sorted());
    let ids: HashSet<_> = found.iter().map(|written| written.id).collect();
    assert_eq!(ids.len(), found.len(), "nothing comes twice");
    assert!(shop.read(&mut start, ALL).await == found, "read again, other events come");
    assert!(shop.read(&mut after, ALL).await.is_empty());
    drop(shop);
}

/// Leaves `early` in a transaction that emitted before a tick was stored whose snapshot ends at or before its id, and
/// returns the last seq that was drawn before. The server itself may finish an id in between, such as for an analyze;
/// then it is tried again.
async fn emit_early(shop: &Shop, early: &Client, after: &mut Cursor) -> i64 {
    let emit = "SELECT semel.emit('topic', 'early', 'happened', '') FROM generate_series(1, 700)";
    let own = "SELECT pg_current_xact_id()::text";
    let ends_before = "SELECT pg_snapshot_xmax(snapshot) <= $1::text::xid8 FROM semel.ticks ORDER BY id DESC LIMIT 1";
    for _ in 0..20 {
        shop.emit(&["before"]).await;
        let before = shop.number("SELECT max(seq) FROM semel.events").await;
        early.batch_execute("BEGIN").await.unwrap();
        early.batch_execute(emit).await.unwrap();
        let id: String = early.query_one(own, &[]).await.unwrap().get(0);
        assert_eq!(keys(&shop.read(after, ALL).await), ["before"]);
        let session = shop.database.connect().await;
        if session.query_one(ends_before, &[&id]).await.unwrap().get(0) {
            return before;
        }
        early.batch_execute("ROLLBACK").await.unwrap();
    }
    panic!("somebody always finishes an id in between");
}

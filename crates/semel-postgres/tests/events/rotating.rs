//! Switching slots and emptying them.

use std::time::Duration;

use semel::Outbox;
use semel::outbox::{Cursor, LaneState, Tidied};
use semel_testkit::counts::rounds;
use semel_testkit::poll::until;
use tokio_postgres::IsolationLevel;

use crate::{ALL, LEASE, Shop, emit, keys, text};

const ALL_SLOTS: &str = "SELECT string_agg(state, ' ' ORDER BY slot) FROM semel.slots";

/// The others are free, as long as no more than two are in use.
const FIRST_SLOTS: &str = "SELECT string_agg(state, ' ' ORDER BY slot) FROM semel.slots WHERE slot < 3";

impl Shop {
    async fn tidy(&self) -> Tidied {
        self.store.tidy_outbox(Duration::ZERO).await.unwrap()
    }

    /// Tidies until that many slots were emptied in all; a slot that somebody reads is tried again.
    async fn tidy_until_emptied(&self, slots: u64) {
        let mut emptied = 0;
        let waiting = async {
            while emptied < slots {
                emptied += self.tidy().await.emptied;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(waited.is_ok(), "only {emptied} slots of {slots} were emptied");
    }

    async fn state(&self) -> String {
        text(&self.database.connect().await, FIRST_SLOTS).await
    }

    async fn state_of_all(&self) -> String {
        text(&self.database.connect().await, ALL_SLOTS).await
    }

    /// Waits until somebody waits for a lock.
    async fn until_somebody_waits(&self) {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        until("somebody waits", async || self.number(waiting).await > 0).await;
    }
}

/// Rule 11 to 13: a transaction that is held open keeps its slot. Nobody waits for it, its session is named, nothing is
/// lost, and no dead row is left anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn rotation_waits_for_a_transaction_that_is_held_open_and_nobody_waits_for_rotation() {
    let shop = Shop::open().await;
    let mut holder = shop.database.connect().await;
    let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let mut held = holder.transaction().await.unwrap();
    emit(&mut held, &["held"]).await;

    let (per_writer, mut writers) = (rounds(150, 2_000), tokio::task::JoinSet::new());
    for writer in 0..3 {
        let mut client = shop.database.connect().await;
        writers.spawn(async move {
            // No lock of the outbox makes an emitter wait for long: the longest would fail here.
            client.batch_execute("SET lock_timeout = '1s'").await.unwrap();
            for n in 0..per_writer {
                let mut transaction = client.transaction().await.unwrap();
                emit(&mut transaction, &[&format!("{writer}-{n}")]).await;
                transaction.commit().await.unwrap();
            }
        });
    }
    let queued = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                  WHERE NOT l.granted AND c.relnamespace = 'semel'::regnamespace
                    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let (mut published, mut switched, mut full, mut more) = (Vec::new(), 0, 0, 0);
    while !writers.is_empty() || switched < 7 || full < 2 {
        if writers.is_empty() {
            shop.emit(&["more"]).await;
            more += 1;
        }
        published.extend(shop.publish().await);
        let tidied = shop.tidy().await;
        (switched, full) = (switched + u64::from(tidied.switched), full + u64::from(tidied.full));
        assert_eq!(tidied.emptied, 0, "the held transaction may still write to every slot that was closed since");
        assert_eq!(shop.number(queued).await, 0, "somebody waits for a table of the outbox");
        if tidied.switched {
            let blocker = tidied.blockers.iter().find(|blocker| blocker.pid == pid).expect("the holder is named");
            assert!(blocker.state.contains("idle in transaction") && blocker.query.contains("emit"), "{blocker:?}");
        }
        while let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
    }
    published.extend(shop.publish().await);
    emit(&mut held, &["held-again"]).await;
    held.commit().await.unwrap();
    assert_eq!(shop.publish().await, ["held", "held-again"]);
    assert_eq!(published.len(), usize::try_from(3 * per_writer).unwrap() + more);
    shop.tidy_until_emptied(switched).await;
    let client = shop.database.connect().await;
    client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    let dead = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables
                WHERE schemaname = 'semel' AND relname ~ '^(events|ticks|positions)_'";
    assert_eq!(shop.number(dead).await, 0, "insert-only tables have no dead rows");
}

/// The slot is read as it is now, not as the emitter's snapshot has it.
#[tokio::test]
async fn an_emitter_with_an_old_snapshot_loses_nothing_over_a_switch() {
    for level in [IsolationLevel::Serializable, IsolationLevel::RepeatableRead] {
        let shop = Shop::open().await;
        let mut client = shop.database.connect().await;
        let mut old = client.build_transaction().isolation_level(level).start().await.unwrap();
        old.query("SELECT count(*) FROM semel.slots", &[]).await.unwrap();
        shop.emit(&["first"]).await;
        assert_eq!(shop.publish().await, ["first"]);
        // It has no transaction id yet, so it holds nothing up: the slot that it would have read goes.
        shop.tidy_until_emptied(1).await;
        emit(&mut old, &["old"]).await;
        shop.emit(&["second"]).await;
        assert_eq!(shop.publish().await, ["second"]);
        assert!(shop.tidy().await.switched);
        assert_eq!(shop.tidy().await.emptied, 0);
        old.commit().await.unwrap();
        assert_eq!(shop.publish().await, ["old"]);
        shop.tidy_until_emptied(1).await;
    }
}

/// Every step is a transaction of its own. Whoever dies between two, or in the middle of one, leaves something that
/// loses no event and that the next one settles.
#[tokio::test]
async fn a_rotation_that_is_cut_off_anywhere_loses_nothing_and_is_settled() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    let (mut after, mut expected) = (Cursor::START, Vec::new());
    let mut emitted = async |key: &str| {
        shop.emit(&[key]).await;
        let found = shop.read(&mut after, ALL).await;
        expected.push(key.to_owned());
        assert_eq!(keys(&found), [key]);
        assert_eq!(keys(&shop.read(&mut Cursor::START.clone(), ALL).await), expected);
    };
    emitted("before").await;
    assert_eq!(text(&client, "SELECT semel.prepare_slot('0')").await, "ready");
    assert_eq!(shop.state().await, "open open free");
    emitted("prepared").await;
    // The sequence has changed, and the transaction that would have said so is gone.
    client.batch_execute("BEGIN; SELECT semel.switch_slot(); ROLLBACK").await.unwrap();
    assert_eq!(shop.state().await, "open open free");
    assert_eq!(shop.number("SELECT last_value FROM semel.current_slot").await, 1);
    emitted("switched").await;
    assert_eq!(text(&client, "SELECT semel.prepare_slot('1 hour')").await, "not_yet");
    assert_eq!(shop.state().await, "closed open free", "settled");
    emitted("settled").await;
    client.batch_execute("BEGIN; SELECT semel.record_switch(); ROLLBACK").await.unwrap();
    assert_eq!(text(&client, "SELECT semel.empty_slot('0')").await, "none", "the switch is not recorded");
    client.batch_execute("SELECT semel.record_switch()").await.unwrap();
    assert_eq!(text(&client, "SELECT semel.empty_slot('0')").await, "unpublished");
    assert_eq!(shop.publish().await, ["before", "prepared", "switched", "settled"]);
    assert_eq!(text(&client, "SELECT semel.empty_slot('1 hour')").await, "kept");
    client.batch_execute("BEGIN; SELECT semel.empty_slot('0'); ROLLBACK").await.unwrap();
    assert_eq!(shop.state().await, "closed open free");
    let reader = shop.database.connect().await;
    reader.batch_execute("BEGIN; SELECT count(*) FROM semel.events_0").await.unwrap();
    assert_eq!(text(&client, "SELECT semel.empty_slot('0')").await, "busy", "somebody reads it");
    reader.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(text(&client, "SELECT semel.empty_slot('0')").await, "emptied");
    assert_eq!(shop.state().await, "free open free");
    shop.emit(&["after"]).await;
    assert_eq!(shop.publish().await, ["after"], "positions were kept");
}

/// Rule 13: a slot that is attached while a session plans a query may stay unknown to that session for good. So there
/// are all that there will be, and when none is free the open one is written to.
#[tokio::test]
async fn nothing_is_attached_while_the_outbox_is_in_use_and_a_full_one_takes_events() {
    let shop = Shop::open().await;
    let changes = semel_postgres::functions().iter().filter(|(_, sql)| {
        let sql = sql.to_uppercase();
        ["CREATE TABLE", "ATTACH", "DETACH", "DROP TABLE"].iter().any(|change| sql.contains(change))
    });
    assert_eq!(changes.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0]);

    let mut expected = Vec::new();
    let keep = Duration::from_secs(3_600);
    while shop.state_of_all().await.contains("free") {
        expected.push(format!("key-{}", expected.len()));
        shop.emit(&[&expected[expected.len() - 1]]).await;
        let client = shop.database.connect().await;
        assert_eq!(text(&client, "SELECT semel.prepare_slot('0')").await, "ready");
        for step in ["SELECT semel.switch_slot()", "SELECT semel.record_switch()"] {
            client.query_one(step, &[]).await.unwrap();
        }
        assert!(!shop.store.tidy_outbox(keep).await.unwrap().full);
    }
    assert_eq!(shop.number("SELECT count(*) FROM semel.slots").await, 8);
    for _ in 0..3 {
        expected.push(format!("key-{}", expected.len()));
        shop.emit(&[&expected[expected.len() - 1]]).await;
        let client = shop.database.connect().await;
        assert_eq!(text(&client, "SELECT semel.prepare_slot('0')").await, "full");
    }
    assert_eq!(shop.publish().await, expected);
    // Published and passed: from now on there is room again.
    assert!(shop.tidy().await.full);
    shop.tidy_until_emptied(1).await;
    shop.emit(&["after"]).await;
    assert!(!shop.tidy().await.full);
    assert_eq!(shop.publish().await, ["after"]);
}

/// What was running when the lanes' ticks were stored is looked at by itself, however far the lanes have come since.
#[tokio::test]
async fn what_commits_late_is_in_the_backlog_and_keeps_its_slot() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    let backlog = async || shop.store.backlog().await.unwrap().events;
    let mut holder = shop.database.connect().await;
    let mut held = holder.transaction().await.unwrap();
    emit(&mut held, &["held"]).await;
    shop.emit(&["first"]).await;
    assert_eq!(shop.publish().await, ["first"]);
    assert_eq!(backlog().await, 0);
    assert_eq!(text(&client, "SELECT semel.prepare_slot('0')").await, "ready");
    for step in ["SELECT semel.switch_slot()", "SELECT semel.record_switch()"] {
        client.query_one(step, &[]).await.unwrap();
    }
    shop.emit(&["second"]).await;
    assert_eq!(backlog().await, 1);
    assert_eq!(shop.publish().await, ["second"]);
    assert_eq!(text(&client, "SELECT semel.empty_slot('0')").await, "blocked");
    held.commit().await.unwrap();
    assert_eq!(backlog().await, 1, "its id is far below what lanes have passed");
    assert_eq!(text(&client, "SELECT semel.empty_slot('0')").await, "unpublished");
    assert_eq!(shop.publish().await, ["held"]);
    assert_eq!(backlog().await, 0);
    assert_eq!(text(&client, "SELECT semel.empty_slot('0')").await, "emptied");
}

/// Rule 13: lanes are taken while a slot is emptied that held their positions. To a statement that began before, the
/// table is empty and what was carried over does not exist yet.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_are_taken_while_a_slot_is_emptied_keep_their_positions() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    shop.emit(&["one", "two"]).await;
    let relay = shop.store.join_relays("first", LEASE).await.unwrap();
    let lanes = shop.store.take_lanes(relay.id, 64).await.unwrap();
    let mut cursor = Cursor::START;
    shop.read(&mut cursor, ALL).await;
    let counted = |lane: LaneState| LaneState { cursor, counts: [("topic".to_owned(), 7)].into(), ..lane };
    let stood: Vec<LaneState> = lanes.into_iter().map(counted).collect();
    shop.store.leave_lanes(relay.id, &stood).await.unwrap();
    assert_eq!(text(&client, "SELECT semel.prepare_slot('0')").await, "ready");
    for step in ["SELECT semel.switch_slot()", "SELECT semel.record_switch()"] {
        client.query_one(step, &[]).await.unwrap();
    }

    let emptying = shop.database.connect().await;
    emptying.batch_execute("BEGIN").await.unwrap();
    assert_eq!(text(&emptying, "SELECT semel.empty_slot('0')").await, "emptied");
    let taking = {
        let store = shop.store.clone();
        tokio::spawn(async move {
            let relay = store.join_relays("second", LEASE).await.unwrap();
            store.take_lanes(relay.id, 64).await.unwrap()
        })
    };
    shop.until_somebody_waits().await;
    emptying.batch_execute("COMMIT").await.unwrap();
    assert_eq!(taking.await.unwrap(), stood);
}

/// Several relays tidy at once; each event is published once, whatever is switched and emptied meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn many_who_tidy_at_once_lose_nothing() {
    let shop = Shop::open().await;
    let (total, mut tasks) = (rounds(150, 1_500), tokio::task::JoinSet::new());
    for _ in 0..3 {
        let store = shop.store.clone();
        tasks.spawn(async move {
            loop {
                store.tidy_outbox(Duration::ZERO).await.unwrap();
            }
        });
    }
    let mut published = Vec::new();
    for n in 0..total {
        shop.emit(&[&format!("key-{}", n % 7), &format!("other-{}", n % 5)]).await;
        if n % 3 == 0 {
            published.extend(shop.publish().await);
        }
    }
    // Whoever tidies may hold the lock that a tick only tries while the last one is carried over.
    tasks.shutdown().await;
    let emitted = usize::try_from(total * 2).unwrap();
    until("everything is published", async || {
        published.extend(shop.publish().await);
        published.len() >= emitted
    })
    .await;
    assert_eq!(published.len(), emitted);
    let slots = shop.number("SELECT max(generation) FROM semel.slots").await;
    assert!(slots > 3, "only {slots} slots were opened, which proves little");
}

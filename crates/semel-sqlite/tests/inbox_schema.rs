//! What the tables of the inbox refuse, and what reaping leaves.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::File;
use semel::inbox::{Accepted, Offset, Rule, Sequence, Version};
use semel::letter::{Declaration, Letter, LetterFilter};
use semel::operator::Audit;
use semel::source::{Message, Recognition};
use semel::{Consumer, Delivery, Error, Inbox};
use semel_sqlite::rusqlite::Connection;
use semel_sqlite::{Options, Sqlite};

async fn see(store: &Sqlite, consumer: &Consumer, deliveries: &[Delivery]) -> Vec<Accepted> {
    let (tx, accepted) = store.accept(consumer, deliveries).await.unwrap();
    store.commit_consumed(tx).await.unwrap();
    accepted
}

fn sequence(sequence: u64) -> Delivery {
    let place = Sequence { incarnation: "history".to_owned(), topic: "charges".to_owned(), lane: 7, sequence };
    Delivery::by_sequence(place).unwrap()
}

#[tokio::test]
async fn the_database_refuses_proofs_that_are_out_of_bounds() {
    let file = File::create().await;
    let store = file.open().await;
    let offset = Offset { source: "cluster".to_owned(), topic: "t".to_owned(), partition: 0, from: 0, offset: 0 };
    let version = Version { entity: "account".to_owned(), version: 1, rule: Rule::Each };
    let id = Delivery::by_id("m").unwrap().with_version(version).unwrap();
    let deliveries = [id, sequence(1), Delivery::by_offset(offset).unwrap()];
    assert_eq!(see(&store, &Consumer::new("receipts").unwrap(), &deliveries).await, [Accepted::First; 3]);
    let connection = file.connection();
    let names = [
        ("consumers", "name"),
        ("inbox", "message_id"),
        ("marks", "incarnation"),
        ("marks", "topic"),
        ("offsets", "source"),
        ("offsets", "topic"),
        ("versions", "entity"),
    ];
    let no_names = [
        "''",
        "printf('%.*c', 256, 'x')",
        "replace(printf('%.*c', 128, 'x'), 'x', 'é')",
        "'a' || char(10)",
        "'a' || char(127)",
        "'a' || char(133)",
        "'a' || char(0) || 'b'",
    ];
    let named = names.iter().flat_map(|(table, column)| no_names.map(|name| (*table, *column, name)));
    let numbers = [
        ("inbox", "generation", "-1"),
        ("marks", "generation", "2147483648"),
        ("offsets", "generation", "-1"),
        ("versions", "generation", "-1"),
        ("marks", "lane", "-1"),
        ("marks", "lane", "32768"),
        ("marks", "applied", "''"),
        ("marks", "applied", "'1-2;4-5'"),
        ("marks", "applied", "printf('%.*c', 40000, '1')"),
        ("offsets", "partition", "-1"),
        ("offsets", "next", "0"),
        ("versions", "version", "0"),
    ];
    for (table, column, value) in named.chain(numbers) {
        let refused = connection.execute(&format!("UPDATE semel_{table} SET {column} = {value}"), ()).unwrap_err();
        let constraint = format!("semel_{table}_{column}");
        assert!(refused.to_string().contains(&constraint), "{table}.{column} = {value}: {refused}");
    }
    for (table, column) in names {
        let longest = format!("UPDATE semel_{table} SET {column} = replace(printf('%.*c', 85, 'x'), 'x', '€')");
        assert_eq!(connection.execute(&longest, ()).unwrap(), 1, "{table}.{column}");
    }
}

#[tokio::test]
async fn a_mark_of_as_many_and_as_long_ranges_as_there_may_be_is_kept() {
    let file = File::create().await;
    let (store, consumer) = (file.open().await, Consumer::new("receipts").unwrap());
    let last = i64::MAX.unsigned_abs() - 1;
    let holes: Vec<Delivery> = (0..1_000).map(|n| sequence(last - 2 * n)).collect();
    assert_eq!(see(&store, &consumer, &holes).await, [Accepted::First; 1_000]);
    let refused = store.accept(&consumer, &[sequence(1)]).await;
    assert!(matches!(refused, Err(Error::Ahead { .. })));
    assert_eq!(see(&store, &consumer, &[sequence(last - 1)]).await, [Accepted::First]);
    assert_eq!(see(&store, &consumer, &[sequence(1), holes[0].clone()]).await, [Accepted::First, Accepted::Duplicate]);
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_accepts_nothing() {
    let file = File::create().await;
    let (store, consumer) = (file.open().await, Consumer::new("receipts").unwrap());
    see(&store, &consumer, &[sequence(1)]).await;
    file.connection().execute("UPDATE semel_marks SET applied = '9-1'", ()).unwrap();
    let refused = store.accept(&consumer, &[sequence(2)]).await;
    assert!(matches!(&refused, Err(Error::Statement(why)) if why.to_string().contains("lane 7")), "{refused:?}");
    assert!(file.is_write_lock_free());
}

#[tokio::test]
async fn a_large_harvest_is_reaped_in_turns_that_others_share() {
    let file = File::create().await;
    let (store, consumer) = (file.open().await, Consumer::new("receipts").unwrap());
    let old: Vec<Delivery> = (0..2_500).map(|n| Delivery::by_id(format!("old {n}")).unwrap()).collect();
    see(&store, &consumer, &old[..1_250]).await;
    see(&store, &consumer.clone().in_generation(1), &old[1_250..]).await;
    file.clock.advance(Duration::from_secs(3_600));
    let young = Delivery::by_id("young").unwrap();
    see(&store, &consumer, std::slice::from_ref(&young)).await;
    let before = store.commits();
    let keep = Duration::from_secs(1_800);
    assert_eq!(store.reap_inbox("receipts", keep, 1_200).await.unwrap(), 1_200);
    assert_eq!(store.commits() - before, 2);
    assert_eq!(store.reap_inbox("others", keep, 10_000).await.unwrap(), 0);
    assert_eq!(store.reap_inbox("receipts", keep, 10_000).await.unwrap(), 1_300);
    let before = store.commits();
    assert_eq!(store.reap_inbox("receipts", keep, 10_000).await.unwrap(), 0);
    assert_eq!(store.commits(), before, "nothing to do costs no turn");
    assert_eq!(see(&store, &consumer, &[young, old[0].clone()]).await, [Accepted::Duplicate, Accepted::First]);
}

fn letter() -> Letter {
    let place = Sequence { incarnation: "history".to_owned(), topic: "charges".to_owned(), lane: 7, sequence: 1 };
    let offset = Offset { source: "cluster".to_owned(), topic: "t".to_owned(), partition: 0, from: 0, offset: 0 };
    let message = Message {
        id: "m".to_owned(),
        topic: "charges".to_owned(),
        ordering_key: "account".to_owned(),
        message_type: "charge.created".to_owned(),
        producer: "shop".to_owned(),
        content_type: "application/json".to_owned(),
        payload: "{}".into(),
        headers: Vec::new(),
        sequence: Some(place),
        offset: Some(offset),
    };
    Letter { message, cause: "it does not work".to_owned(), attempts: 3 }
}

#[tokio::test]
async fn the_database_refuses_letters_and_declarations_that_are_out_of_bounds() {
    let file = File::create().await;
    let store = file.open().await;
    let declaration = Declaration { recognition: Recognition::Id, retention: Duration::from_secs(60) };
    let consumer = store.declare("receipts", &declaration).await.unwrap();
    let version = Version { entity: "account".to_owned(), version: 1, rule: Rule::Each };
    let delivery = Delivery::by_id("m").unwrap().with_version(version).unwrap();
    assert!(store.dead_letter(&consumer, &delivery, &letter()).await.unwrap());
    let connection = file.connection();
    let long = "printf('%.*c', 65537, 'x')";
    for (table, change, constraint) in [
        ("consumers", "generation = -1", "generation"),
        ("consumers", "generation = 2147483648", "generation"),
        ("consumers", "recognition = 'colour'", "recognition"),
        ("consumers", "retention_ms = -1", "retention_ms"),
        ("consumers", "retention_ms = 31622400000001", "retention_ms"),
        ("consumers", "recognition = NULL", "declared_at"),
        ("consumers", "retention_ms = NULL", "declared_at"),
        ("consumers", "declared_at = NULL", "declared_at"),
        ("dead_letters", "generation = -1", "generation"),
        ("dead_letters", "state = 'lost'", "state"),
        ("dead_letters", "attempts = -1", "attempts"),
        ("dead_letters", "cause = printf('%.*c', 1001, 'x')", "cause"),
        ("dead_letters", "changed_at = dead_at - 1", "changed_at"),
        ("dead_letters", &format!("message_id = {long}"), "message_id"),
        ("dead_letters", &format!("topic = {long}"), "topic"),
        ("dead_letters", &format!("ordering_key = {long}"), "ordering_key"),
        ("dead_letters", &format!("message_type = {long}"), "message_type"),
        ("dead_letters", &format!("producer = {long}"), "producer"),
        ("dead_letters", &format!("content_type = {long}"), "content_type"),
        ("dead_letters", "headers = printf('%.*c', 1048577, 'x')", "headers"),
        ("dead_letters", "sequence = NULL", "sequence"),
        ("dead_letters", "sequence_topic = NULL", "sequence"),
        ("dead_letters", "sequence_lane = NULL", "sequence"),
        ("dead_letters", "sequence = -1", "sequence"),
        ("dead_letters", "\"offset\" = NULL", "offset"),
        ("dead_letters", "offset_from = NULL", "offset"),
        ("dead_letters", "offset_source = NULL", "offset"),
        ("dead_letters", "version = NULL", "version"),
        ("dead_letters", "version = 0", "version"),
        ("dead_letters", "entity = NULL", "version"),
        ("dead_letters", "version_rule = 'some'", "version"),
        ("dead_letters", "payload = zeroblob(67108865)", "payload"),
    ] {
        let refused = connection.execute(&format!("UPDATE semel_{table} SET {change}"), ()).unwrap_err().to_string();
        assert!(refused.contains(&format!("semel_{table}_{constraint}")), "{table}: {change}: {refused}");
    }
    let unknown = connection.execute("UPDATE semel_dead_letters SET consumer = 99", ()).unwrap_err();
    assert!(unknown.to_string().contains("FOREIGN KEY"), "{unknown}");
}

#[tokio::test]
async fn a_payload_that_is_too_large_leaves_neither_letter_nor_proof() {
    let file = File::create().await;
    let store = file.open().await;
    let (consumer, delivery) = (Consumer::new("receipts").unwrap(), Delivery::by_id("m").unwrap());
    let mut large = letter();
    large.message.payload = vec![0; 64 * 1024 * 1024 + 1].into();
    let refused = store.dead_letter(&consumer, &delivery, &large).await;
    assert!(matches!(&refused, Err(Error::Settings(why)) if why.contains("67108864")), "{refused:?}");
    assert_eq!(store.seen(&consumer, std::slice::from_ref(&delivery)).await.unwrap(), [false]);
    assert!(store.letters(&LetterFilter::default(), 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn letters_that_are_read_together_take_bounded_room() {
    let file = File::create().await;
    let (store, consumer) = (file.open().await, Consumer::new("receipts").unwrap());
    let mut large = letter();
    large.message.payload = vec![7; 40 * 1024 * 1024].into();
    for id in ["one", "two", "three"] {
        assert!(store.dead_letter(&consumer, &Delivery::by_id(id).unwrap(), &large).await.unwrap());
    }
    assert_eq!(store.letters(&LetterFilter::default(), 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_consumers_have_seen_outlives_a_migration() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("semel.db");
    let connection = Connection::open(&path).unwrap();
    // A file as the version before left it.
    let script = semel_sqlite::schema_sql();
    let (before, _) = script.split_once("-- 0004_letters").unwrap();
    connection.execute_batch(&format!("{before} COMMIT;")).unwrap();
    let rows = "INSERT INTO semel_consumers (id, name, created_at) VALUES (1, 'receipts', 1);
                INSERT INTO semel_inbox VALUES (1, 0, 'm', 1), (1, 4, 'n', 2);
                INSERT INTO semel_audit (at, actor, action, reason) VALUES (1, 'ada', 'outbox rebase', 'a test');";
    connection.execute_batch(rows).unwrap();
    assert_eq!(
        semel_sqlite::migrate(&path).await.unwrap(),
        ["0004_letters", "0005_letter_ids", "0006_flows", "0007_flow_lives"]
    );
    let store = Sqlite::open(&path, Options::default()).await.unwrap();
    let [found] = &store.consumers(None).await.unwrap()[..] else { panic!("there is one") };
    assert_eq!((found.generation, &found.declared, found.ids, found.last_ms), (0, &None, 2, Some(2)));
    let seen = [Delivery::by_id("m").unwrap()];
    assert_eq!(store.seen(&Consumer::new("receipts").unwrap(), &seen).await.unwrap(), [true]);
    let audit = Audit { actor: "ada".to_owned(), reason: "a test".to_owned() };
    // Generations that it was in by its own account are over, too.
    assert_eq!(store.replay_consumer("receipts", &audit, true).await.unwrap(), Some(5));
    assert_eq!(store.replay_consumer("receipts", &audit, false).await.unwrap(), Some(5));
    assert_eq!(store.consumers(Some("receipts")).await.unwrap()[0].generation, 5);
    let audited = "SELECT count(*) FROM semel_audit WHERE actor = 'ada' AND (consumer = 'receipts' OR letter IS NULL)";
    assert_eq!(connection.query_row(audited, (), |row| row.get::<_, i64>(0)).unwrap(), 2);
}

#[tokio::test]
async fn the_last_generation_has_none_after_it() {
    let file = File::create().await;
    let store = file.open().await;
    let declaration = Declaration { recognition: Recognition::Id, retention: Duration::MAX };
    store.declare("receipts", &declaration).await.unwrap();
    file.connection().execute("UPDATE semel_consumers SET generation = 2147483647", ()).unwrap();
    let audit = Audit { actor: "ada".to_owned(), reason: "a test".to_owned() };
    for dry_run in [true, false] {
        let refused = store.replay_consumer("receipts", &audit, dry_run).await;
        assert!(matches!(&refused, Err(Error::Settings(why)) if why.contains("last generation")), "{refused:?}");
    }
    assert_eq!(store.declare("receipts", &declaration).await.unwrap().generation(), 2_147_483_647);
}

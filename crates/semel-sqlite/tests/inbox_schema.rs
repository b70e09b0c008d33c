//! What the tables of the inbox refuse, and what reaping leaves.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::File;
use semel::inbox::{Accepted, Offset, Rule, Sequence, Version};
use semel::{Consumer, Delivery, Error, Inbox};
use semel_sqlite::Sqlite;

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

//! `semel inbox`, with a consumer beside it.

use std::time::Instant;

use semel_sqlite::rusqlite::Connection;
use serde_json::{Value, json};

use crate::consumer::{Consumer, PATIENCE, Post, charge, execute, inbox, numbers, shown};
use crate::harness::{Ended, Home, on_both_stores, semel};

on_both_stores!(
    what_a_consumer_has_seen_is_shown,
    a_message_that_fails_is_set_aside_with_its_cause_and_a_redrive_applies_it_once,
    a_message_that_can_never_be_applied_is_set_aside_at_once_and_dead_again_after_a_redrive,
    history_applies_again_in_a_new_generation_and_never_in_the_same,
    what_is_not_there_is_not_found,
    a_change_needs_a_reason_and_consent,
);

/// Makes a change as Ada.
fn change(home: &Home, arguments: &[&str]) -> Ended {
    inbox(home, &[arguments, &["--actor", "ada", "--reason", "it was mended"]].concat())
}

/// Asks until the answer is as wanted.
fn until(ask: impl Fn() -> Value, wanted: impl Fn(&Value) -> bool) -> Value {
    let gives_up = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < gives_up, "{answer:#}");
    }
}

async fn migrated(home: Home) -> Home {
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    home
}

async fn what_a_consumer_has_seen_is_shown(home: Home) {
    let home = migrated(home).await;
    assert_eq!(shown(&home, &["status"]), json!([]));
    let empty = inbox(&home, &["status"]);
    assert!(empty.stderr.contains("no consumer has run"), "{empty:?}");
    let mut consumer = Consumer::start(&home, "receipts").await;
    for id in ["one", "two", "one", "one"] {
        consumer.charge(id).await;
    }
    consumer.metric(r#"semel_messages_total{consumer="receipts",outcome="applied"} 2"#).await;
    consumer.metric(r#"semel_messages_total{consumer="receipts",outcome="duplicate"} 2"#).await;
    let status = shown(&home, &["status", "receipts"]);
    let expected = json!({
        "consumer": "receipts", "generation": 0, "by": "id", "retention_seconds": 7 * 24 * 3600, "ids": 2, "lanes": 0,
        "holes": 0, "partitions": 0, "dead": 0, "redriven": 0, "last_at": status[0]["last_at"],
    });
    assert_eq!(status, json!([expected]));
    assert!(status[0]["last_at"].as_str().unwrap().ends_with('Z'), "{status}");
    let table = inbox(&home, &["status"]).succeeded();
    assert!(table.starts_with("CONSUMER  GENERATION  BY  RETENTION  IDS"), "{table}");
    assert!(table.contains("\nreceipts  0           id  7days      2"), "{table}");
    assert!(consumer.service.terminate().await.success());
    assert_eq!(numbers(&home, "SELECT issued FROM payments_receipts ORDER BY charge").await, [1, 1]);
}

async fn a_message_that_fails_is_set_aside_with_its_cause_and_a_redrive_applies_it_once(home: Home) {
    let home = migrated(home).await;
    let mut consumer = Consumer::start(&home, "receipts").await;
    consumer.charge("before").await;
    execute(&home, "ALTER TABLE payments_receipts RENAME TO away").await;
    // It is answered once it is set aside, and so are those that come again.
    for _ in 0..2 {
        consumer.charge("one").await;
    }
    let dead = shown(&home, &["dead", "receipts"]);
    let letter = &dead[0];
    assert_eq!((dead.as_array().unwrap().len(), &letter["state"]), (1, &"dead".into()));
    assert_eq!((&letter["attempts"], &letter["generation"]), (&2.into(), &0.into()));
    assert!(letter["cause"].as_str().unwrap().contains("payments_receipts"), "{letter}");
    assert_eq!((&letter["message"]["id"], &letter["message"]["type"]), (&"one".into(), &"charge.created".into()));
    assert_eq!(letter["message"].get("payload"), None);
    let with_payload = shown(&home, &["dead", "--payload"]);
    let payload: Value = serde_json::from_str(with_payload[0]["message"]["payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload["id"], "one");
    let table = inbox(&home, &["dead"]).succeeded();
    assert!(table.starts_with("ID  CONSUMER  GENERATION  STATE") && table.contains("charge.created"), "{table}");
    let status = inbox(&home, &["status"]);
    assert!(status.stderr.contains("semel inbox dead receipts"), "{status:?}");

    execute(&home, "ALTER TABLE away RENAME TO payments_receipts").await;
    let id = letter["id"].to_string();
    let dry = change(&home, &["redrive", "receipts", "--id", &id, "--dry-run"]).succeeded();
    assert_eq!(dry, "would redrive 1 letter (nothing was changed)\n");
    assert!(change(&home, &["redrive", "receipts", "--id", "999", "--yes"]).failed_with(3).contains("letter 999"));
    assert!(change(&home, &["redrive", "balances", "--all", "--yes"]).failed_with(3).contains("no dead letter"));
    assert!(audited(&home).await.is_empty());
    assert_eq!(change(&home, &["redrive", "receipts", "--id", &id, "--yes"]).succeeded(), "redriving 1 letter\n");
    until(|| shown(&home, &["dead", "--state", "applied"]), |letters| letters[0]["id"] == letter["id"]);
    assert_eq!(shown(&home, &["dead"]), json!([]));
    assert_eq!(audited(&home).await, [["ada", "inbox redrive", "it was mended"]]);
    assert!(change(&home, &["redrive", "receipts", "--all", "--yes"]).failed_with(3).contains("no dead letter"));
    // The broker brings it once more, after all this.
    consumer.charge("one").await;
    assert!(consumer.service.terminate().await.success());
    assert_eq!(numbers(&home, "SELECT issued FROM payments_receipts ORDER BY charge").await, [1, 1]);
}

async fn a_message_that_can_never_be_applied_is_set_aside_at_once_and_dead_again_after_a_redrive(home: Home) {
    let home = migrated(home).await;
    let consumer = Consumer::start(&home, "receipts").await;
    let broken = Post { id: "broken", key: "a/alice", event_type: "charge.created", payload: json!({ "id": 5 }) };
    assert_eq!(consumer.post(&broken).await.unwrap(), 204);
    let dead = shown(&home, &["dead"]);
    assert_eq!(dead[0]["attempts"], 1, "{dead}");
    let done = change(&home, &["redrive", "receipts", "--all", "--yes", "--json"]).succeeded();
    let done: Value = serde_json::from_str(&done).unwrap();
    assert_eq!((&done["redriven"], &done["letters"], &done["actor"]), (&true.into(), &1.into(), &"ada".into()));
    until(|| shown(&home, &["dead"]), |letters| letters[0]["attempts"] == 2);
    // What does not concern a consumer counts as seen.
    let other = Post { id: "other", key: "a/alice", event_type: "account.credited", payload: json!({}) };
    assert_eq!(consumer.post(&other).await.unwrap(), 204);
    assert_eq!(shown(&home, &["dead"]).as_array().unwrap().len(), 1);
}

async fn history_applies_again_in_a_new_generation_and_never_in_the_same(home: Home) {
    let home = migrated(home).await;
    let consumer = Consumer::start(&home, "receipts").await;
    consumer.charge("one").await;
    let address = consumer.address();
    let dry = change(&home, &["replay", "receipts", "--dry-run"]).succeeded();
    assert!(dry.starts_with("receipts would begin generation 1") && dry.contains("nothing was changed"), "{dry}");
    assert_eq!(shown(&home, &["status"])[0]["generation"], 0);
    assert!(audited(&home).await.is_empty());
    let begun = change(&home, &["replay", "receipts", "--yes"]).succeeded();
    assert_eq!(begun, "receipts begins generation 1: history applies again\n");
    assert_eq!(audited(&home).await, [["ada", "inbox replay", "it was mended"]]);

    // Until the consumer is in its new generation the message is a duplicate, or nobody is there.
    let gives_up = Instant::now() + PATIENCE;
    let generations = "SELECT generation FROM payments_receipts ORDER BY generation";
    while numbers(&home, generations).await != [0, 1] {
        consumer.post(&charge("one")).await;
        assert!(Instant::now() < gives_up, "{}", consumer.service.output());
    }
    consumer.charge("one").await;
    assert_eq!(consumer.address(), address);
    assert_eq!(numbers(&home, "SELECT issued FROM payments_receipts").await, [1, 1]);
    let status = shown(&home, &["status"]);
    assert_eq!((&status[0]["generation"], &status[0]["ids"]), (&1.into(), &2.into()));
}

async fn what_is_not_there_is_not_found(home: Home) {
    let home = migrated(home).await;
    assert!(inbox(&home, &["status", "nobody"]).failed_with(3).contains("there is no consumer \"nobody\""));
    assert!(change(&home, &["replay", "nobody", "--yes"]).failed_with(3).contains("there is no consumer"));
    assert!(change(&home, &["replay", "nobody", "--dry-run"]).failed_with(3).contains("there is no consumer"));
    assert!(change(&home, &["redrive", "nobody", "--all", "--yes"]).failed_with(3).contains("no dead letter"));
    assert_eq!(shown(&home, &["dead", "nobody"]), json!([]));
    inbox(&home, &["dead", "--state", "lost"]).failed_with(2);
}

async fn a_change_needs_a_reason_and_consent(home: Home) {
    let home = migrated(home).await;
    for command in [["redrive", "receipts", "--all"].as_slice(), &["replay", "receipts"]] {
        let stderr = inbox(&home, &[command, &["--yes"]].concat()).failed_with(2);
        assert!(stderr.contains("--reason"), "{stderr}");
        let stderr = change(&home, command).failed_with(2);
        assert!(stderr.contains("--yes"), "{stderr}");
    }
    change(&home, &["redrive", "receipts", "--yes"]).failed_with(2);
    change(&home, &["redrive", "receipts", "--all", "--id", "1", "--yes"]).failed_with(2);
    assert!(audited(&home).await.is_empty());
}

/// Actor, action and reason of each audit row.
async fn audited(home: &Home) -> Vec<[String; 3]> {
    match home {
        Home::Sqlite(file) => {
            let connection = Connection::open(file.path()).unwrap();
            let mut rows = connection.prepare("SELECT actor, action, reason FROM semel_audit ORDER BY id").unwrap();
            let rows = rows.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]));
            rows.unwrap().map(Result::unwrap).collect()
        }
        Home::Postgres(database) => {
            let sql = "SELECT actor, action, reason FROM semel.audit ORDER BY id";
            let rows = database.connect().await.query(sql, &[]).await.unwrap();
            rows.iter().map(|row| [row.get(0), row.get(1), row.get(2)]).collect()
        }
    }
}

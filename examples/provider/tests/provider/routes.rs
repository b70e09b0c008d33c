//! What can be asked for, and what the ledger says of it.

use reqwest::Method;
use semel_provider::{Error, Options, Provider, serve};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::common::{Directory, Running, new_charge};

#[tokio::test]
async fn a_charge_is_answered_and_stands_in_the_ledger() {
    let provider = Running::start().await;
    let body = json!({ "amount": 1200, "currency": "EUR", "card": "tok_visa", "reference": "order 7" });
    let answer = provider.post("/charges", "k", &body).await;
    let id = answer.executed(201);
    assert!(id.starts_with("ch_"), "{id}");
    let charge = json!({ "id": id, "amount": 1200, "currency": "EUR", "status": "succeeded" });
    assert_eq!(answer.json(), charge);
    let execution = json!({
        "id": id, "kind": "charge", "key": "k", "amount": 1200, "currency": "EUR", "card": "tok_visa",
        "reference": "order 7", "outcome": "succeeded", "result": charge, "executed_at_ms": 1_000_000,
    });
    assert_eq!(provider.ledger().await, [execution]);
}

#[tokio::test]
async fn a_declined_card_is_an_answer_that_is_kept() {
    let provider = Running::start().await;
    let body = json!({ "amount": 1200, "currency": "EUR", "card": "tok_declined" });
    let first = provider.post("/charges", "k", &body).await;
    assert_eq!((first.status, first.json()), (402, json!({ "code": "card_declined" })));
    provider.post("/charges", "k", &body).await.replays(&first);
    let ledger = provider.ledger().await;
    assert_eq!((ledger.len(), &ledger[0]["outcome"]), (1, &json!("declined")));
    let summary = provider.get("/ledger/summary").await.json();
    assert_eq!((&summary["executions"]["charge"], &summary["declined"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn a_refund_needs_a_charge_and_each_execution_adds_one() {
    let provider = Running::start().await;
    let charge = provider.charge("charge").await.executed(201);
    let body = json!({ "charge": charge });
    let first = provider.post("/refunds", "refund-1", &body).await;
    let id = first.executed(201);
    assert!(id.starts_with("re_"), "{id}");
    assert_eq!(first.json(), json!({ "id": id, "charge": charge }));
    provider.post("/refunds", "refund-2", &body).await.executed(201);
    provider.post("/refunds", "refund-1", &body).await.replays(&first);

    // The id of a refund is no charge's.
    for unknown in ["ch_none", id.as_str()] {
        provider.post("/refunds", "refund-3", &json!({ "charge": unknown })).await.is_refusal(404, "charge_unknown");
    }
    provider.post("/refunds", "refund-3", &body).await.executed(201);
    let summary = provider.get("/ledger/summary").await.json();
    assert_eq!(summary["executions"], json!({ "charge": 1, "refund": 3, "mail": 0 }));
}

#[tokio::test]
async fn a_declined_charge_cannot_be_refunded() {
    let provider = Running::start().await;
    provider.post("/charges", "k", &json!({ "amount": 1, "currency": "EUR", "card": "tok_declined" })).await;
    let id = provider.ledger().await[0]["id"].clone();
    provider.post("/refunds", "r", &json!({ "charge": id })).await.is_refusal(404, "charge_unknown");
}

#[tokio::test]
async fn a_mail_is_accepted() {
    let provider = Running::start().await;
    let body = json!({ "to": "a@example.com", "subject": "Your order", "text": "It is on its way." });
    let answer = provider.post("/mails", "k", &body).await;
    let id = answer.executed(202);
    assert!(id.starts_with("ma_"), "{id}");
    assert_eq!(answer.json(), json!({ "id": id }));
    let ledger = provider.ledger().await;
    assert_eq!((&ledger[0]["kind"], &ledger[0]["to"]), (&json!("mail"), &json!("a@example.com")));
}

#[tokio::test]
async fn bad_input_is_refused_and_leaves_the_key_new() {
    let provider = Running::start().await;
    let with = |member: &str, value: Value| {
        let mut body = new_charge();
        body[member] = value;
        ("/charges", body)
    };
    let cases = [
        with("amount", json!(0)),
        with("amount", json!(-1)),
        with("amount", json!(1.5)),
        with("amount", json!("1")),
        with("amount", json!(9_007_199_254_740_993_i64)),
        with("currency", json!("eur")),
        with("card", json!("4242")),
        with("reference", json!("")),
        with("surprise", json!(1)),
        ("/charges", json!([])),
        ("/refunds", json!({})),
        ("/mails", json!({ "to": "nobody", "subject": "s", "text": "t" })),
        ("/mails", json!({ "to": "a@example.com", "subject": "s" })),
    ];
    for (path, body) in cases {
        provider.post(path, "k", &body).await.is_refusal(400, "invalid_request");
    }
    assert_eq!(provider.executions().await, 0);
    provider.charge("k").await.executed(201);
}

#[tokio::test]
async fn requests_are_counted_by_path_and_key_whatever_becomes_of_them() {
    let provider = Running::start().await;
    provider.charge("a").await.executed(201);
    provider.charge("a").await;
    provider.fault(json!({ "type": "cut_before" })).await;
    assert!(provider.try_charge("a").await.is_err());
    provider.post("/charges", "b", &json!({})).await.is_refusal(400, "invalid_request");
    let mail = json!({ "to": "a@example.com", "subject": "s", "text": "t" });
    provider.send(Method::POST, "/mails", None, Some(&mail)).await.unwrap().executed(202);
    provider.look_up("a").await;
    provider.look_up("c").await;
    let expected = json!({
        "total": 5,
        "by_path": { "/charges": 4, "/mails": 1 },
        "by_key": { "a": 3, "b": 1 },
        "look_ups": { "total": 2, "by_key": { "a": 1, "c": 1 } },
    });
    assert_eq!(provider.get("/requests").await.json(), expected);
}

#[tokio::test]
async fn the_summary_counts_keys_that_were_executed_more_than_once() {
    let provider = Running::start().await;
    provider.set(json!({ "keys": "off" })).await;
    let mail = json!({ "to": "a@example.com", "subject": "s", "text": "t" });
    for key in ["once", "twice", "twice", "thrice", "thrice", "thrice"] {
        provider.charge(key).await.executed(201);
    }
    // The mailer's keys are its own, and what came without a key repeats none.
    provider.post("/mails", "once", &mail).await.executed(202);
    for _ in 0..2 {
        provider.send(Method::POST, "/mails", None, Some(&mail)).await.unwrap().executed(202);
    }
    let expected = json!({ "executions": { "charge": 6, "refund": 0, "mail": 3 }, "declined": 0, "repeated_keys": 2 });
    assert_eq!(provider.get("/ledger/summary").await.json(), expected);
}

#[tokio::test]
async fn an_execution_is_never_changed_or_removed() {
    let provider = Running::start().await;
    provider.charge("k").await.executed(201);
    let file = rusqlite::Connection::open(provider.ledger_file()).unwrap();
    for statement in ["UPDATE executions SET key = 'other'", "DELETE FROM executions"] {
        let refused = file.execute(statement, ()).unwrap_err().to_string();
        assert!(refused.contains("an execution is never"), "{refused}");
    }
    assert_eq!(provider.executions().await, 1);
}

#[tokio::test]
async fn only_loopback_is_listened_on() {
    let directory = Directory::make();
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let refused = Provider::bind(everywhere, Options::new(directory.ledger())).await.unwrap_err();
    assert!(matches!(refused, Error::NotLoopback(address) if address == everywhere), "{refused}");
    let listener = TcpListener::bind(everywhere).await.unwrap();
    let refused = serve(listener, Options::new(directory.ledger())).await.unwrap_err();
    assert!(matches!(refused, Error::NotLoopback(_)), "{refused}");
    assert!(!directory.ledger().exists());
}

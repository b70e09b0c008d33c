//! What the consumers make of the service's events, whoever brings these and however often.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{App, message, on_both_stores};
use semel::{Consumed, Message};
use semel_payments::PaymentsConsumer;
use serde_json::{Value, json};

on_both_stores!(
    every_event_applies_once_though_all_come_three_times,
    each_consumer_and_each_generation_has_rows_of_its_own,
    a_change_that_comes_early_waits_and_one_that_comes_again_is_stale,
    what_is_no_event_of_the_service_fails_or_does_not_matter,
    the_consumers_there_are_can_be_asked_about_and_no_others,
);

/// Two charges and a transfer of one tenant, and a charge of another.
async fn traded(app: &App) -> Vec<Message> {
    app.account("one", 100).await;
    app.account("two", 1).await;
    assert_eq!(app.post("/transfers", "k", json!({ "from": "one", "to": "two", "amount": 60 })).await.status, 201);
    app.put_as("demo-b1", "/accounts/one", json!({ "currency": "EUR" })).await;
    app.put_as("demo-b1", "/charges/c", json!({ "account": "one", "amount": 7, "currency": "EUR" })).await;
    let events = app.events().await;
    assert_eq!(events.len(), 9);
    events.iter().map(message).collect()
}

async fn consumed(app: &App, consumer: &str) -> Value {
    app.get(&format!("/ledger/consumed?consumer={consumer}")).await.json()
}

fn agreed() -> Value {
    json!({ "charges": 2, "receipts": 2, "repeated": 0, "movements": 4, "applied": 4, "apart": 0 })
}

async fn every_event_applies_once_though_all_come_three_times(app: App) {
    let messages = traded(&app).await;
    let before = json!({ "charges": 2, "receipts": 0, "repeated": 0, "movements": 4, "applied": 0, "apart": 2 });
    assert_eq!(consumed(&app, "payments").await, before);
    for message in &messages {
        assert_eq!(app.give("payments", 0, message).await.unwrap(), Consumed::Applied(()));
    }
    for message in messages.iter().chain(&messages) {
        assert_eq!(app.give("payments", 0, message).await.unwrap(), Consumed::Duplicate);
    }
    assert_eq!(consumed(&app, "payments").await, agreed());
    assert_eq!(app.number("SELECT count(*) FROM payments_receipts WHERE issued = 1").await, 3);
    assert_eq!(app.number("SELECT amount FROM payments_balances WHERE tenant = 'a' AND account = 'one'").await, 40);
}

async fn each_consumer_and_each_generation_has_rows_of_its_own(app: App) {
    let messages = traded(&app).await;
    for (consumer, generation) in [("receipts", 0), ("balances", 0), ("payments", 0), ("payments", 1)] {
        for message in &messages {
            assert_eq!(app.give(consumer, generation, message).await.unwrap(), Consumed::Applied(()));
        }
    }
    assert_eq!(consumed(&app, "payments").await, agreed());
    let (receipts, balances) = (consumed(&app, "receipts").await, consumed(&app, "balances").await);
    assert_eq!((&receipts["receipts"], &receipts["applied"]), (&2.into(), &0.into()));
    assert_eq!((&balances["receipts"], &balances["apart"]), (&0.into(), &0.into()));
    assert_eq!(app.number("SELECT count(*) FROM payments_receipts").await, 3 * 3);
    assert_eq!(app.number("SELECT max(issued) FROM payments_receipts").await, 1);
    assert_eq!(app.number("SELECT count(*) FROM payments_balances WHERE applied = version").await, 3 * 3);
}

async fn a_change_that_comes_early_waits_and_one_that_comes_again_is_stale(app: App) {
    let messages = traded(&app).await;
    let changes: Vec<&Message> =
        messages.iter().filter(|it| it.topic == "accounts" && it.ordering_key == "a/one").collect();
    let [first, second] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(app.give("balances", 0, second).await.unwrap(), Consumed::Early);
    assert_eq!(app.number("SELECT count(*) FROM payments_balances").await, 0);
    assert_eq!(app.give("balances", 0, first).await.unwrap(), Consumed::Applied(()));
    assert_eq!(app.give("balances", 0, second).await.unwrap(), Consumed::Applied(()));
    let renamed = Message { id: "another".to_owned(), ..Message::clone(first) };
    assert_eq!(app.give("balances", 0, &renamed).await.unwrap(), Consumed::Stale);
    assert_eq!(app.number("SELECT amount FROM payments_balances").await, 40);
}

async fn what_is_no_event_of_the_service_fails_or_does_not_matter(app: App) {
    let messages = traded(&app).await;
    let mut number = 0;
    let mut made_up = |event_type: &str, payload: Value| {
        number += 1;
        let (id, payload) = (format!("made-up-{number}"), payload.to_string().into());
        Message { id, message_type: event_type.to_owned(), payload, ..messages[0].clone() }
    };
    let change = |version: i64, amount: i64| {
        let mut change = json!({ "tenant": "a", "account": "x", "currency": "EUR" });
        (change["version"], change["amount"]) = (version.into(), amount.into());
        change
    };
    for wrong in [
        made_up("charge.created", json!({ "id": 5 })),
        made_up("account.credited", json!([])),
        made_up("account.credited", change(0, 5)),
        made_up("account.debited", change(1, -5)),
    ] {
        assert!(app.give("payments", 0, &wrong).await.is_err(), "{wrong:?}");
    }
    let other = made_up("order.shipped", json!(null));
    assert_eq!(app.give("payments", 0, &other).await.unwrap(), Consumed::Applied(()));
    assert_eq!(app.number("SELECT count(*) FROM payments_receipts").await, 0);
    assert_eq!(app.number("SELECT count(*) FROM payments_balances").await, 0);
}

async fn the_consumers_there_are_can_be_asked_about_and_no_others(app: App) {
    assert_eq!(app.get("/ledger/consumed").await.json(), consumed(&app, "payments").await);
    for wrong in ["?consumer=mails", "?consumer=", "?who=payments"] {
        app.get(&format!("/ledger/consumed{wrong}")).await.is_problem(404, "not-found");
    }
    assert!(PaymentsConsumer::named("mails", 0).is_none());
}

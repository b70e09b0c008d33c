//! What an order tells, and that its referrer is credited once, whoever is told and however often.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::outside::{Somebody, ordering_on_both_stores};
use common::{App, message};
use semel::consume::Fate;
use semel::{Consumed, Message};
use serde_json::{Value, json};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

ordering_on_both_stores!(
    on_postgres, on_sqlite, crate::Somebody::trusted;
    an_order_tells_of_itself_its_charge_and_the_credit,
    a_referrer_is_credited_once_whoever_applies_the_order,
    a_referral_that_fails_leaves_the_order_and_applies_once_it_can,
    referrals_of_one_account_in_one_batch_are_changes_one_after_the_other,
);

fn order(referrer: Option<&str>) -> Value {
    json!({
        "account": "shop", "sku": "tea", "quantity": 1, "amount": 1200, "currency": "EUR", "card": "tok_visa",
        "email": "ann@example.com", "referrer": referrer,
    })
}

async fn open(app: &App) {
    app.account("shop", 0).await;
    app.put("/stock/tea", json!({ "quantity": 5 })).await;
}

/// Places an order, and returns its id and the message that tells of it.
async fn placed(app: &App, referrer: Option<&str>) -> (String, Message) {
    let answer = app.post("/orders", "k", order(referrer)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let told: Vec<Message> = app.events().await.iter().map(message).collect();
    let completed: Vec<&Message> = told.iter().filter(|message| message.message_type == "order.completed").collect();
    assert_eq!(completed.len(), 1, "{told:?}");
    (answer.json()["id"].as_str().unwrap().to_owned(), completed[0].clone())
}

async fn an_order_tells_of_itself_its_charge_and_the_credit(app: App, outside: Somebody) {
    open(&app).await;
    let traced = app.request(reqwest::Method::POST, "/orders").bearer_auth("demo-a1").header("Idempotency-Key", "k");
    let answer = App::send(traced.header("traceparent", TRACEPARENT).json(&order(Some("ann")))).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let charge = outside.executed("charge").await[0]["id"].clone();

    let events = app.events().await;
    let mut types: Vec<&str> = events.iter().map(|written| written.event.event_type.as_str()).collect();
    types.sort_unstable();
    assert_eq!(types, ["account.credited", "charge.created", "order.completed"]);
    assert!(events.iter().all(|written| written.event.traceparent.as_deref() == Some(TRACEPARENT)));
    let told = events.iter().find(|written| written.event.event_type == "order.completed").unwrap();
    assert_eq!((told.event.topic.as_str(), told.event.ordering_key.as_str()), ("orders", id.as_str()));
    let payload: Value = serde_json::from_slice(&told.event.payload).unwrap();
    let expected = json!({
        "tenant": "a", "id": id, "account": "shop", "sku": "tea", "quantity": 1, "amount": 1200, "currency": "EUR",
        "referrer": "ann", "status": "completed", "charge": charge,
    });
    assert_eq!(payload, expected);

    app.post("/orders", "k", order(Some("ann"))).await;
    assert_eq!(app.events().await.len(), events.len(), "a replay tells nothing again");
}

async fn a_referrer_is_credited_once_whoever_applies_the_order(app: App, _: Somebody) {
    open(&app).await;
    app.account("ann", 0).await;
    let (id, completed) = placed(&app, Some("ann")).await;
    for (consumer, generation) in [("receipts", 0), ("payments", 0), ("referrals", 0), ("payments", 1)] {
        assert_eq!(app.give(consumer, generation, &completed).await.unwrap(), Consumed::Applied(()));
        assert_eq!(app.give(consumer, generation, &completed).await.unwrap(), Consumed::Duplicate);
    }
    assert_eq!((app.balance("ann").await, app.balance("shop").await), (60, 1140));
    let transfers = format!("SELECT count(*) FROM payments_transfers WHERE id = 'rf_{id}'");
    assert_eq!(app.number(&transfers).await, 1);
    let told = app.events().await;
    let moved = told.iter().filter(|written| written.event.event_type == "transfer.created").count();
    assert_eq!(moved, 1, "whoever came second told nothing");
    app.books_are_right().await;
}

async fn a_referral_that_fails_leaves_the_order_and_applies_once_it_can(app: App, _: Somebody) {
    open(&app).await;
    let (id, completed) = placed(&app, Some("nobody")).await;
    for _ in 0..3 {
        assert!(app.give("payments", 0, &completed).await.is_err(), "there is no such account");
    }
    assert_eq!(app.get(&format!("/orders/{id}")).await.json()["status"], "completed");
    assert_eq!(app.number("SELECT count(*) FROM payments_transfers").await, 0);
    app.account("nobody", 0).await;
    assert_eq!(app.give("payments", 0, &completed).await.unwrap(), Consumed::Applied(()));
    assert_eq!((app.balance("nobody").await, app.balance("shop").await), (60, 1140));
    app.books_are_right().await;
}

async fn referrals_of_one_account_in_one_batch_are_changes_one_after_the_other(app: App, _: Somebody) {
    open(&app).await;
    app.account("ann", 0).await;
    for key in ["one", "two"] {
        assert_eq!(app.post("/orders", key, order(Some("ann"))).await.status, 201);
    }
    let told = async |about: &str| -> Vec<Message> {
        let all = app.events().await;
        all.iter().map(message).filter(|it| it.topic == about).collect()
    };
    let orders = told("orders").await;
    let fates = app.give_all("referrals", &orders).await;
    assert!(matches!(fates.as_slice(), [Fate::Applied, Fate::Applied]), "{fates:?}");
    assert_eq!((app.balance("ann").await, app.balance("shop").await), (120, 2280));
    app.books_are_right().await;

    let changes = told("accounts").await;
    let mut versions: Vec<(String, i64)> = changes.iter().map(version).collect();
    versions.sort();
    let expected = [("ann", 1), ("ann", 2), ("shop", 1), ("shop", 2), ("shop", 3), ("shop", 4)];
    assert_eq!(versions, expected.map(|(account, version)| (account.to_owned(), version)));
    for change in &changes {
        assert_eq!(app.give("balances", 0, change).await.unwrap(), Consumed::Applied(()), "{change:?}");
    }
    let consumed = app.get("/ledger/consumed?consumer=balances").await.json();
    assert_eq!((&consumed["movements"], &consumed["applied"], &consumed["apart"]), (&6.into(), &6.into(), &0.into()));
}

fn version(change: &Message) -> (String, i64) {
    let payload: Value = serde_json::from_slice(&change.payload).unwrap();
    (payload["account"].as_str().unwrap().to_owned(), payload["version"].as_i64().unwrap())
}

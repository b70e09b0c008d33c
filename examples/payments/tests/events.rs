//! What the service tells the world, and that it tells it once.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{App, on_both_stores};
use reqwest::Method;
use semel::outbox::Written;
use serde_json::{Value, json};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

on_both_stores!(
    a_charge_tells_of_itself_and_of_the_credit,
    a_transfer_tells_of_itself_and_of_both_accounts,
    a_webhook_tells_of_the_credit,
    a_retried_request_emits_nothing_again,
    a_refused_request_emits_nothing,
    the_balances_of_an_account_are_told_in_order,
    two_tenants_share_no_ordering_key,
    events_carry_the_trace_of_their_request,
);

/// Topic, ordering key, type and payload of each.
fn told(events: &[Written]) -> Vec<(String, String, String, Value)> {
    let mut told: Vec<_> = events
        .iter()
        .map(|Written { event, .. }| {
            assert_eq!(event.content_type, "application/json");
            let payload = serde_json::from_slice(&event.payload).unwrap();
            (event.topic.clone(), event.ordering_key.clone(), event.event_type.clone(), payload)
        })
        .collect();
    // Between ordering keys there is no order to rely on.
    told.sort_by_key(|(topic, key, event_type, _)| (topic.clone(), key.clone(), event_type.clone()));
    told
}

fn tells(topic: &str, key: &str, event_type: &str, payload: Value) -> (String, String, String, Value) {
    (topic.to_owned(), key.to_owned(), event_type.to_owned(), payload)
}

fn changed(account: &str, version: i64, amount: i64, balance: i64, kind: &str, reference: &str) -> Value {
    json!({
        "tenant": "a", "account": account, "amount": amount, "currency": "EUR", "balance": balance,
        "version": version, "kind": kind, "reference": reference,
    })
}

async fn a_charge_tells_of_itself_and_of_the_credit(app: App) {
    app.account("cash", 0).await;
    let keyed = app.post("/charges", "k", json!({ "account": "cash", "amount": 5, "currency": "EUR" })).await;
    let id = keyed.json()["id"].as_str().unwrap().to_owned();
    let charge = |id: &str, amount: i64| {
        json!({
            "tenant": "a", "id": id, "account": "cash", "amount": amount, "currency": "EUR", "status": "captured",
        })
    };
    let first = app.events().await;
    assert_eq!(
        told(&first),
        [
            tells("accounts", "a/cash", "account.credited", changed("cash", 1, 5, 5, "charge", &id)),
            tells("charges", "a/cash", "charge.created", charge(&id, 5)),
        ]
    );
    app.put("/charges/chosen", json!({ "account": "cash", "amount": 2, "currency": "EUR" })).await;
    assert_eq!(
        told(&app.events().await[first.len()..]),
        [
            tells("accounts", "a/cash", "account.credited", changed("cash", 2, 2, 7, "charge", "chosen")),
            tells("charges", "a/cash", "charge.created", charge("chosen", 2)),
        ]
    );
}

async fn a_transfer_tells_of_itself_and_of_both_accounts(app: App) {
    app.account("one", 100).await;
    app.account("two", 1).await;
    let before = app.events().await.len();
    let answer = app.post("/transfers", "k", json!({ "from": "one", "to": "two", "amount": 60 })).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let transfer = json!({ "tenant": "a", "id": id, "from": "one", "to": "two", "amount": 60, "currency": "EUR" });
    assert_eq!(
        told(&app.events().await[before..]),
        [
            tells("accounts", "a/one", "account.debited", changed("one", 2, 60, 40, "transfer", &id)),
            tells("accounts", "a/two", "account.credited", changed("two", 2, 60, 61, "transfer", &id)),
            tells("transfers", "a/one", "transfer.created", transfer),
        ]
    );
}

async fn a_webhook_tells_of_the_credit(app: App) {
    app.account("cash", 0).await;
    let body = json!({ "transaction_id": "bank-1", "account": "cash", "amount": 30 });
    for _ in 0..3 {
        assert_eq!(app.webhook(body.clone()).await.status, 200);
    }
    let credit = changed("cash", 1, 30, 30, "bank", "bank-1");
    assert_eq!(told(&app.events().await), [tells("accounts", "a/cash", "account.credited", credit)]);
}

async fn a_retried_request_emits_nothing_again(app: App) {
    app.account("one", 0).await;
    app.account("two", 0).await;
    let charge = json!({ "account": "one", "amount": 5, "currency": "EUR" });
    let transfer = json!({ "from": "one", "to": "two", "amount": 1 });
    for _ in 0..3 {
        assert_eq!(app.post("/charges", "charge", charge.clone()).await.status, 201);
        assert!([200, 201].contains(&app.put("/charges/chosen", charge.clone()).await.status));
        assert_eq!(app.post("/transfers", "transfer", transfer.clone()).await.status, 201);
    }
    let events = app.events().await;
    assert_eq!(events.len(), 7, "two of each charge and three of the transfer: {:?}", told(&events));
    let ids: std::collections::BTreeSet<_> = events.iter().map(|written| written.id).collect();
    assert_eq!(ids.len(), events.len());
}

async fn a_refused_request_emits_nothing(app: App) {
    app.account("one", 0).await;
    app.account("two", 0).await;
    app.put("/accounts/usd", json!({ "currency": "USD" })).await;
    let nowhere = json!({ "account": "none", "amount": 1, "currency": "EUR" });
    let dollars = json!({ "account": "one", "amount": 1, "currency": "USD" });
    for (key, body) in [("nowhere", nowhere), ("dollars", dollars)] {
        assert!(app.post("/charges", key, body.clone()).await.status >= 400);
        assert!(app.put(&format!("/charges/{key}"), body).await.status >= 400);
    }
    let poor = json!({ "from": "one", "to": "two", "amount": 1 });
    app.post("/transfers", "poor", poor).await.is_problem(402, "insufficient-funds");
    app.webhook(json!({ "transaction_id": "t", "account": "none", "amount": 1 })).await;
    assert_eq!(told(&app.events().await), []);
    // The control: the same accounts, with enough in them.
    app.webhook(json!({ "transaction_id": "t", "account": "one", "amount": 1 })).await;
    app.post("/transfers", "rich", json!({ "from": "one", "to": "two", "amount": 1 })).await;
    assert_eq!(app.events().await.len(), 4);
}

async fn the_balances_of_an_account_are_told_in_order(app: App) {
    app.account("cash", 0).await;
    let app = std::sync::Arc::new(app);
    let mut racers = tokio::task::JoinSet::new();
    for racer in 0..8 {
        let app = app.clone();
        racers.spawn(async move {
            for round in 0..5 {
                let body = json!({ "account": "cash", "amount": 1, "currency": "EUR" });
                let answer = app.post("/charges", &format!("k-{racer}-{round}"), body).await;
                assert_eq!(answer.status, 201, "{answer:?}");
            }
        });
    }
    racers.join_all().await;
    let events = app.events().await;
    let credits = events.iter().filter(|written| written.event.topic == "accounts");
    let told: Vec<Value> = credits.map(|written| serde_json::from_slice(&written.event.payload).unwrap()).collect();
    for (told, expected) in told.iter().zip(1..) {
        assert_eq!((told["balance"].as_i64(), told["version"].as_i64()), (Some(expected), Some(expected)));
    }
    assert_eq!(told.len(), 40);
}

async fn two_tenants_share_no_ordering_key(app: App) {
    for (token, key) in [("demo-a1", "a/cash"), ("demo-b1", "b/cash")] {
        app.put_as(token, "/accounts/cash", json!({ "currency": "EUR" })).await;
        app.put_as(token, "/charges/c", json!({ "account": "cash", "amount": 1, "currency": "EUR" })).await;
        let events = app.events().await;
        assert!(events[events.len() - 2..].iter().all(|written| written.event.ordering_key == key));
    }
    assert_eq!(app.events().await.len(), 4);
}

async fn events_carry_the_trace_of_their_request(app: App) {
    app.account("cash", 0).await;
    let body = json!({ "account": "cash", "amount": 1, "currency": "EUR" });
    let traced = app.request(Method::POST, "/charges").bearer_auth("demo-a1").header("Idempotency-Key", "k");
    let traced = traced.header("traceparent", TRACEPARENT).header("tracestate", "vendor=1");
    assert_eq!(App::send(traced.json(&body)).await.status, 201);
    let natural = app.request(Method::PUT, "/charges/c").bearer_auth("demo-a1").header("traceparent", "nonsense");
    assert_eq!(App::send(natural.json(&body)).await.status, 201);
    let traces: Vec<_> =
        app.events().await.into_iter().map(|written| (written.event.traceparent, written.event.tracestate)).collect();
    let of_the_first = (Some(TRACEPARENT.to_owned()), Some("vendor=1".to_owned()));
    assert_eq!(traces, [of_the_first.clone(), of_the_first, (None, None), (None, None)]);
}

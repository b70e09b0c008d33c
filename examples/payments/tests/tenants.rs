//! Who may see what (I11).
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{App, on_both_stores};
use reqwest::Method;
use serde_json::{Value, json};

on_both_stores!(
    no_or_an_unknown_token_gets_401_and_never_a_replay,
    another_tenants_account_does_not_exist,
    two_tenants_with_the_same_key_never_meet,
    a_rotated_token_of_the_same_tenant_gets_the_replay,
    natural_keys_belong_to_their_tenant,
);

fn charge() -> Value {
    json!({ "account": "cash", "amount": 100, "currency": "EUR" })
}

async fn both_open_cash(app: &App) {
    for token in ["demo-a1", "demo-b1"] {
        assert_eq!(app.put_as(token, "/accounts/cash", json!({ "currency": "EUR" })).await.status, 201);
    }
}

async fn no_or_an_unknown_token_gets_401_and_never_a_replay(app: App) {
    both_open_cash(&app).await;
    assert_eq!(app.post("/charges", "k", charge()).await.status, 201);
    for authorization in [None, Some("Bearer revoked"), Some("Bearer"), Some("Basic ZGVtby1hMTo="), Some("demo-a1")] {
        for (method, path) in [
            (Method::POST, "/charges"),
            (Method::POST, "/transfers"),
            (Method::PUT, "/charges/c"),
            (Method::PUT, "/accounts/cash"),
            (Method::GET, "/accounts/cash"),
            (Method::POST, "/webhooks/bank"),
            (Method::GET, "/ledger/summary"),
            (Method::POST, "/orders"),
            (Method::GET, "/orders/or_1"),
            (Method::PUT, "/stock/tea"),
            (Method::GET, "/stock/tea"),
        ] {
            let mut request = app.request(method, path).header("Idempotency-Key", "k").json(&charge());
            if let Some(authorization) = authorization {
                request = request.header("Authorization", authorization);
            }
            let answer = App::send(request).await;
            answer.is_problem(401, "unauthorized");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            assert!(!answer.replayed);
        }
    }
    assert_eq!(app.balance("cash").await, 100);
}

async fn another_tenants_account_does_not_exist(app: App) {
    app.account("secret", 500).await;
    app.get_as("demo-b1", "/accounts/secret").await.is_problem(404, "account-not-found");
    let body = json!({ "account": "secret", "amount": 100, "currency": "EUR" });
    app.post_as("demo-b1", "/charges", "k", body.clone()).await.is_problem(404, "account-not-found");
    app.put_as("demo-b1", "/charges/c", body).await.is_problem(404, "account-not-found");
    app.put_as("demo-b1", "/accounts/mine", json!({ "currency": "EUR" })).await;
    let steal = json!({ "from": "secret", "to": "mine", "amount": 1 });
    app.post_as("demo-b1", "/transfers", "k", steal).await.is_problem(404, "account-not-found");
    let summary = app.get_as("demo-b1", "/ledger/summary").await.json();
    assert_eq!(summary, json!({ "charges": 0, "transfers": 0, "entries": 0, "sum": 0 }));
    // The id is not taken either: whether another tenant uses it cannot be found out.
    assert_eq!(app.put_as("demo-b1", "/accounts/secret", json!({ "currency": "USD" })).await.status, 201);
    assert_eq!(app.balance("secret").await, 500);
}

async fn two_tenants_with_the_same_key_never_meet(app: App) {
    both_open_cash(&app).await;
    let ours = app.post_as("demo-a1", "/charges", "same", charge()).await;
    let theirs = app.post_as("demo-b1", "/charges", "same", charge()).await;
    assert_eq!((ours.status, theirs.status), (201, 201));
    assert!(!ours.replayed && !theirs.replayed);
    assert_ne!(ours.json()["id"], theirs.json()["id"]);
    for token in ["demo-a1", "demo-b1"] {
        assert_eq!(app.get_as(token, "/accounts/cash").await.json()["balance"], 100);
    }
    app.books_are_right().await;
}

async fn a_rotated_token_of_the_same_tenant_gets_the_replay(app: App) {
    both_open_cash(&app).await;
    let first = app.post_as("demo-a1", "/charges", "k", charge()).await;
    let again = app.post_as("demo-a2", "/charges", "k", charge()).await;
    assert!(again.replayed);
    assert_eq!(again.body, first.body);
    assert_eq!(app.balance("cash").await, 100);
}

async fn natural_keys_belong_to_their_tenant(app: App) {
    both_open_cash(&app).await;
    for token in ["demo-a1", "demo-b1"] {
        assert_eq!(app.put_as(token, "/charges/order-1", charge()).await.status, 201);
        let notice = json!({ "transaction_id": "bank-1", "account": "cash", "amount": 5 });
        let webhook = app.request(Method::POST, "/webhooks/bank").bearer_auth(token).json(&notice);
        assert_eq!(App::send(webhook).await.status, 200);
        assert_eq!(app.get_as(token, "/accounts/cash").await.json()["balance"], 105);
    }
    app.books_are_right().await;
}

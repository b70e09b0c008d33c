//! Bad input gets a specific answer, changes nothing, and leaves the key new.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Answer, App, on_both_stores};
use reqwest::Method;
use serde_json::json;

on_both_stores!(
    broken_json_is_refused_and_leaves_the_key_new,
    only_the_members_asked_for_are_taken,
    an_amount_is_a_positive_whole_number_up_to_2_to_the_53,
    ids_and_currencies_keep_to_their_alphabet,
    a_balance_cannot_pass_its_limit,
    another_content_type_is_refused,
    a_huge_body_is_refused,
    bad_keys_are_refused,
    bad_paths_are_refused,
);

/// Sends raw bytes as a keyed charge.
async fn charge_raw(app: &App, key: &str, body: impl Into<Vec<u8>>) -> Answer {
    let request = app.request(Method::POST, "/charges").bearer_auth("demo-a1").header("Idempotency-Key", key);
    App::send(request.header("Content-Type", "application/json").body(body.into())).await
}

/// The key still runs, so nothing was stored under it.
async fn key_is_new(app: &App, key: &str) {
    let answer = charge_raw(app, key, r#"{"account":"cash","amount":1,"currency":"EUR"}"#).await;
    assert_eq!((answer.status, answer.replayed), (201, false), "{key}");
}

async fn broken_json_is_refused_and_leaves_the_key_new(app: App) {
    app.account("cash", 0).await;
    let bodies: [&[u8]; 7] = [
        b"",
        b"{",
        b"nonsense",
        b"{\"account\":\"cash\",\"amount\":1,\"currency\":\"EUR\"} x",
        b"{\"account\":\"\xff\",\"amount\":1,\"currency\":\"EUR\"}",
        b"{\"account\":\"\\ud800\",\"amount\":1,\"currency\":\"EUR\"}",
        b"\xef\xbb\xbf{\"account\":\"cash\",\"amount\":1,\"currency\":\"EUR\"}",
    ];
    for body in bodies {
        charge_raw(&app, "k", body).await.is_problem(400, "json-invalid");
    }
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    assert!((400..500).contains(&charge_raw(&app, "k", deep).await.status));
    key_is_new(&app, "k").await;
    assert_eq!(app.summary().await["charges"], 1);
}

async fn only_the_members_asked_for_are_taken(app: App) {
    app.account("cash", 0).await;
    for body in [
        r#"{"account":"cash","amount":1,"currency":"EUR","tip":1}"#,
        r#"{"account":"cash","amount":1}"#,
        r#"{"account":"cash","currency":"EUR"}"#,
        r#"{"account":"cash","amount":1,"amount":2,"currency":"EUR"}"#,
        r#"{"account":7,"amount":1,"currency":"EUR"}"#,
        r#"{"account":null,"amount":1,"currency":"EUR"}"#,
        "{}",
        "null",
        "3",
    ] {
        let answer = charge_raw(&app, "k", body).await;
        answer.is_problem(422, "body-invalid");
    }
    let long = format!(r#"{{"{}":1}}"#, "x".repeat(100_000));
    let answer = charge_raw(&app, "k", long).await;
    answer.is_problem(422, "body-invalid");
    assert!(answer.body.len() < 1000, "the answer repeats the request");
    key_is_new(&app, "k").await;
    app.put("/accounts/x", json!({ "currency": "EUR", "balance": 5 })).await.is_problem(422, "body-invalid");
    let transfer = json!({ "from": "cash", "to": "x", "amount": 1, "currency": "EUR" });
    app.post("/transfers", "t", transfer).await.is_problem(422, "body-invalid");
    app.webhook(json!({ "id": "t", "account": "cash", "amount": 1 })).await.is_problem(422, "body-invalid");
}

async fn an_amount_is_a_positive_whole_number_up_to_2_to_the_53(app: App) {
    app.account("cash", 0).await;
    for amount in [
        "0",
        "-1",
        "-0",
        "1.5",
        "100.0",
        "1e2",
        "9007199254740993",
        "1e400",
        "-1e400",
        "\"100\"",
        "null",
        "true",
        "99999999999999999999999999999999999999",
        "18446744073709551616",
    ] {
        let body = format!(r#"{{"account":"cash","amount":{amount},"currency":"EUR"}}"#);
        charge_raw(&app, "k", body).await.is_problem(422, "amount-invalid");
    }
    for amount in [json!(-1), json!(0.5), json!(9_007_199_254_740_993_u64), json!("1")] {
        let charge = json!({ "account": "cash", "amount": amount, "currency": "EUR" });
        app.put("/charges/c", charge).await.is_problem(422, "amount-invalid");
        let transfer = json!({ "from": "cash", "to": "other", "amount": amount });
        app.post("/transfers", "t", transfer).await.is_problem(422, "amount-invalid");
        let notice = json!({ "transaction_id": "b", "account": "cash", "amount": amount });
        app.webhook(notice).await.is_problem(422, "amount-invalid");
    }
    key_is_new(&app, "k").await;
    assert_eq!(app.summary().await, json!({ "charges": 1, "transfers": 0, "entries": 2, "sum": 0 }));
}

async fn ids_and_currencies_keep_to_their_alphabet(app: App) {
    app.account("cash", 0).await;
    let eur = json!({ "currency": "EUR" });
    for id in ["external:card", "a%20b", "a%00b", "%C3%A9", "a%2Fb", &"x".repeat(65)] {
        app.put(&format!("/accounts/{id}"), eur.clone()).await.is_problem(422, "account-invalid");
        app.get(&format!("/accounts/{id}")).await.is_problem(422, "account-invalid");
        let charge = json!({ "account": "cash", "amount": 1, "currency": "EUR" });
        app.put(&format!("/charges/{id}"), charge).await.is_problem(422, "charge-invalid");
    }
    let longest = "x".repeat(64);
    assert_eq!(app.put(&format!("/accounts/{longest}"), eur).await.status, 201);
    for currency in ["eur", "EU", "EURO", "", "€€€", "E R", "E\0R"] {
        app.put("/accounts/new", json!({ "currency": currency })).await.is_problem(422, "currency-invalid");
        let charge = json!({ "account": "cash", "amount": 1, "currency": currency });
        app.post("/charges", "k", charge).await.is_problem(422, "currency-invalid");
    }
    for account in ["", "external:card", "a\0b", &"x".repeat(65)] {
        let charge = json!({ "account": account, "amount": 1, "currency": "EUR" });
        app.post("/charges", "k", charge).await.is_problem(422, "account-invalid");
        app.post("/transfers", "t", json!({ "from": "cash", "to": account, "amount": 1 }))
            .await
            .is_problem(422, "account-invalid");
        let notice = json!({ "transaction_id": "b", "account": account, "amount": 1 });
        app.webhook(notice).await.is_problem(422, "account-invalid");
    }
    for id in ["", "a b", "a\0", "é", &"x".repeat(256)] {
        let notice = json!({ "transaction_id": id, "account": "cash", "amount": 1 });
        app.webhook(notice).await.is_problem(422, "transaction-id-invalid");
    }
    key_is_new(&app, "k").await;
}

async fn a_balance_cannot_pass_its_limit(app: App) {
    const MOST: i64 = 1 << 53;
    app.account("full", MOST).await;
    app.account("other", 1).await;
    let charge = json!({ "account": "full", "amount": 1, "currency": "EUR" });
    app.post("/charges", "k", charge.clone()).await.is_problem(422, "balance-limit");
    app.put("/charges/more", charge).await.is_problem(422, "balance-limit");
    let transfer = json!({ "from": "other", "to": "full", "amount": 1 });
    app.post("/transfers", "t", transfer).await.is_problem(422, "balance-limit");
    let notice = json!({ "transaction_id": "b", "account": "full", "amount": MOST });
    app.webhook(notice).await.is_problem(422, "balance-limit");
    assert_eq!((app.balance("full").await, app.balance("other").await), (MOST, 1));
    // Many full accounts: the sum passes what 64 bits hold on the way, and is still zero.
    for i in 0..1100 {
        app.account(&format!("full-{i}"), MOST).await;
    }
    assert_eq!(app.summary().await, json!({ "charges": 1102, "transfers": 0, "entries": 2204, "sum": 0 }));
}

async fn another_content_type_is_refused(app: App) {
    app.account("cash", 0).await;
    let body = r#"{"account":"cash","amount":1,"currency":"EUR"}"#;
    for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
        let keyed = app.request(Method::POST, "/charges").bearer_auth("demo-a1").header("Idempotency-Key", "k");
        let answer = App::send(keyed.header("Content-Type", content_type).body(body)).await;
        answer.is_problem(415, "content-type-unsupported");
        let natural = app.request(Method::PUT, "/charges/c").bearer_auth("demo-a1");
        let answer = App::send(natural.header("Content-Type", content_type).body(body)).await;
        answer.is_problem(415, "content-type-unsupported");
    }
    let without = app.request(Method::PUT, "/charges/c").bearer_auth("demo-a1").body(body);
    App::send(without).await.is_problem(415, "content-type-unsupported");
    key_is_new(&app, "k").await;
}

async fn a_huge_body_is_refused(app: App) {
    app.account("cash", 0).await;
    let huge = "x".repeat(1024 * 1024 + 1);
    charge_raw(&app, "k", huge.clone()).await.is_problem(413, "body-too-large");
    for path in ["/charges/c", "/accounts/c"] {
        let natural = app.request(Method::PUT, path).bearer_auth("demo-a1").header("Content-Type", "application/json");
        App::send(natural.body(huge.clone())).await.is_problem(413, "body-too-large");
    }
    key_is_new(&app, "k").await;
}

async fn bad_keys_are_refused(app: App) {
    app.account("cash", 0).await;
    let body = r#"{"account":"cash","amount":1,"currency":"EUR"}"#;
    for key in ["", "\"", "\"a", "a b", &"x".repeat(256)] {
        charge_raw(&app, key, body).await.is_problem(400, "key-invalid");
    }
    let keys = app.request(Method::POST, "/charges").bearer_auth("demo-a1").header("Idempotency-Key", "a");
    let twice = keys.header("Idempotency-Key", "b").header("Content-Type", "application/json").body(body);
    App::send(twice).await.is_problem(400, "key-invalid");
    assert_eq!(app.summary().await["charges"], 0);
}

async fn bad_paths_are_refused(app: App) {
    app.put("/accounts/%FF", json!({ "currency": "EUR" })).await.is_problem(404, "not-found");
    app.put("/accounts/", json!({ "currency": "EUR" })).await.is_problem(404, "not-found");
    app.put("/accounts/a/b", json!({ "currency": "EUR" })).await.is_problem(404, "not-found");
}

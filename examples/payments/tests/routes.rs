//! Every route, and every status it is promised to give.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{App, on_both_stores};
use reqwest::Method;
use serde_json::json;

on_both_stores!(
    an_account_is_opened_once,
    an_account_keeps_its_currency,
    a_charge_credits_once_and_is_replayed_byte_for_byte,
    the_same_body_with_two_keys_is_two_charges,
    a_refused_charge_is_stored_and_changes_nothing,
    a_transfer_moves_money_once,
    a_refusal_for_want_of_funds_is_replayed_after_funds_arrived,
    a_transfer_needs_two_accounts_of_one_currency,
    a_charge_with_a_chosen_id_needs_no_key,
    a_chosen_id_cannot_be_used_for_another_charge,
    a_webhook_credits_once,
    a_webhook_with_other_contents_is_refused,
    the_summary_counts_both_sides,
    what_needs_no_token_answers_without_one,
    an_unknown_path_or_method_is_a_problem,
);

async fn an_account_is_opened_once(app: App) {
    let eur = json!({ "currency": "EUR" });
    let empty = json!({ "id": "cash", "currency": "EUR", "balance": 0 });
    app.put("/accounts/cash", eur.clone()).await.is(201, &empty);
    app.put("/accounts/cash", eur.clone()).await.is(200, &empty);
    app.get("/accounts/cash").await.is(200, &empty);
    app.put("/charges/c", json!({ "account": "cash", "amount": 5, "currency": "EUR" })).await;
    app.put("/accounts/cash", eur).await.is(200, &json!({ "id": "cash", "currency": "EUR", "balance": 5 }));
    app.get("/accounts/other").await.is_problem(404, "account-not-found");
}

async fn an_account_keeps_its_currency(app: App) {
    app.account("cash", 0).await;
    app.put("/accounts/cash", json!({ "currency": "USD" })).await.is_problem(409, "account-differs");
    assert_eq!(app.get("/accounts/cash").await.json()["currency"], "EUR");
}

async fn a_charge_credits_once_and_is_replayed_byte_for_byte(app: App) {
    app.account("cash", 0).await;
    let body = json!({ "account": "cash", "amount": 100, "currency": "EUR" });
    let first = app.post("/charges", "k", body.clone()).await;
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("ch_"), "{id}");
    let charge = json!({ "id": id, "account": "cash", "amount": 100, "currency": "EUR", "status": "captured" });
    first.is(201, &charge);
    assert!(!first.replayed);

    let again = app.post("/charges", "k", body.clone()).await;
    assert!(again.replayed);
    assert_eq!((again.status, &again.body, &again.content_type), (201, &first.body, &first.content_type));
    assert_eq!(app.balance("cash").await, 100);

    let other = json!({ "account": "cash", "amount": 101, "currency": "EUR" });
    app.post("/charges", "k", other).await.is_problem(422, "key-reused");
    let without_key = app.request(Method::POST, "/charges").bearer_auth("demo-a1").json(&body);
    App::send(without_key).await.is_problem(400, "key-missing");
    assert_eq!(app.balance("cash").await, 100);
    app.books_are_right().await;
}

async fn the_same_body_with_two_keys_is_two_charges(app: App) {
    app.account("cash", 0).await;
    let body = json!({ "account": "cash", "amount": 100, "currency": "EUR" });
    let one = app.post("/charges", "k-1", body.clone()).await;
    let two = app.post("/charges", "k-2", body).await;
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.json()["id"], two.json()["id"]);
    assert_eq!(app.balance("cash").await, 200);
}

async fn a_refused_charge_is_stored_and_changes_nothing(app: App) {
    let nowhere = json!({ "account": "cash", "amount": 1, "currency": "EUR" });
    app.post("/charges", "early", nowhere.clone()).await.is_problem(404, "account-not-found");
    app.account("cash", 0).await;
    let again = app.post("/charges", "early", nowhere).await;
    again.is_problem(404, "account-not-found");
    assert!(again.replayed);

    let dollars = json!({ "account": "cash", "amount": 1, "currency": "USD" });
    app.post("/charges", "usd", dollars.clone()).await.is_problem(422, "currency-mismatch");
    let again = app.post("/charges", "usd", dollars.clone()).await;
    again.is_problem(422, "currency-mismatch");
    assert!(again.replayed);
    app.put("/charges/usd", dollars).await.is_problem(422, "currency-mismatch");
    assert_eq!(app.summary().await, json!({ "charges": 0, "transfers": 0, "entries": 0, "sum": 0 }));
}

async fn a_transfer_moves_money_once(app: App) {
    app.account("one", 100).await;
    app.account("two", 0).await;
    let body = json!({ "from": "one", "to": "two", "amount": 60 });
    let first = app.post("/transfers", "k", body.clone()).await;
    let id = first.json()["id"].as_str().unwrap().to_owned();
    first.is(201, &json!({ "id": id, "from": "one", "to": "two", "amount": 60, "currency": "EUR" }));
    let again = app.post("/transfers", "k", body).await;
    assert!(again.replayed);
    assert_eq!((again.status, again.body), (201, first.body));
    assert_eq!((app.balance("one").await, app.balance("two").await), (40, 60));
    assert_eq!(app.summary().await, json!({ "charges": 1, "transfers": 1, "entries": 4, "sum": 0 }));
    app.books_are_right().await;
}

async fn a_refusal_for_want_of_funds_is_replayed_after_funds_arrived(app: App) {
    app.account("one", 10).await;
    app.account("two", 0).await;
    let body = json!({ "from": "one", "to": "two", "amount": 11 });
    let refused = app.post("/transfers", "k", body.clone()).await;
    refused.is_problem(402, "insufficient-funds");
    app.webhook(json!({ "transaction_id": "t", "account": "one", "amount": 100 })).await;
    let again = app.post("/transfers", "k", body.clone()).await;
    again.is_problem(402, "insufficient-funds");
    assert!(again.replayed);
    assert_eq!(again.body, refused.body);
    assert_eq!(app.post("/transfers", "new", body).await.status, 201);
    assert_eq!((app.balance("one").await, app.balance("two").await), (99, 11));
}

async fn a_transfer_needs_two_accounts_of_one_currency(app: App) {
    app.account("one", 10).await;
    app.put("/accounts/usd", json!({ "currency": "USD" })).await;
    let to = |to: &str| json!({ "from": "one", "to": to, "amount": 1 });
    app.post("/transfers", "k-1", to("usd")).await.is_problem(422, "currency-mismatch");
    app.post("/transfers", "k-2", to("one")).await.is_problem(422, "same-account");
    app.post("/transfers", "k-3", to("none")).await.is_problem(404, "account-not-found");
    let from = json!({ "from": "none", "to": "one", "amount": 1 });
    app.post("/transfers", "k-4", from).await.is_problem(404, "account-not-found");
    assert_eq!(app.balance("one").await, 10);
}

async fn a_charge_with_a_chosen_id_needs_no_key(app: App) {
    app.account("cash", 0).await;
    let body = json!({ "account": "cash", "amount": 7, "currency": "EUR" });
    let charge = json!({ "id": "order-1", "account": "cash", "amount": 7, "currency": "EUR", "status": "captured" });
    app.put("/charges/order-1", body.clone()).await.is(201, &charge);
    app.put("/charges/order-1", body.clone()).await.is(200, &charge);
    // A key on a route that has a natural one is passed through: the id still decides.
    let keyed = app.request(Method::PUT, "/charges/order-1").bearer_auth("demo-a1").header("Idempotency-Key", "x");
    App::send(keyed.json(&body)).await.is(200, &charge);
    assert_eq!(app.balance("cash").await, 7);
    app.books_are_right().await;
}

async fn a_chosen_id_cannot_be_used_for_another_charge(app: App) {
    app.account("cash", 0).await;
    app.account("other", 0).await;
    app.put("/charges/order-1", json!({ "account": "cash", "amount": 7, "currency": "EUR" })).await;
    for body in [
        json!({ "account": "cash", "amount": 8, "currency": "EUR" }),
        json!({ "account": "other", "amount": 7, "currency": "EUR" }),
        json!({ "account": "unknown", "amount": 7, "currency": "EUR" }),
        json!({ "account": "cash", "amount": 7, "currency": "USD" }),
    ] {
        app.put("/charges/order-1", body).await.is_problem(409, "charge-differs");
    }
    assert_eq!((app.balance("cash").await, app.balance("other").await), (7, 0));
    let nowhere = json!({ "account": "unknown", "amount": 7, "currency": "EUR" });
    app.put("/charges/order-2", nowhere).await.is_problem(404, "account-not-found");
    // What was refused left no charge behind, so the id is still free.
    let body = json!({ "account": "cash", "amount": 1, "currency": "EUR" });
    assert_eq!(app.put("/charges/order-2", body).await.status, 201);
}

async fn a_webhook_credits_once(app: App) {
    app.account("cash", 0).await;
    let body = json!({ "transaction_id": "bank-1", "account": "cash", "amount": 30 });
    app.webhook(body.clone()).await.is(200, &body);
    app.webhook(body.clone()).await.is(200, &body);
    assert_eq!(app.balance("cash").await, 30);
    assert_eq!(app.summary().await, json!({ "charges": 0, "transfers": 0, "entries": 2, "sum": 0 }));
    let nowhere = json!({ "transaction_id": "bank-2", "account": "none", "amount": 30 });
    app.webhook(nowhere).await.is_problem(404, "account-not-found");
    app.books_are_right().await;
}

async fn a_webhook_with_other_contents_is_refused(app: App) {
    app.account("cash", 0).await;
    app.account("other", 0).await;
    app.webhook(json!({ "transaction_id": "bank-1", "account": "cash", "amount": 30 })).await;
    let amount = json!({ "transaction_id": "bank-1", "account": "cash", "amount": 31 });
    app.webhook(amount).await.is_problem(409, "webhook-differs");
    let account = json!({ "transaction_id": "bank-1", "account": "other", "amount": 30 });
    app.webhook(account).await.is_problem(409, "webhook-differs");
    assert_eq!((app.balance("cash").await, app.balance("other").await), (30, 0));
}

async fn the_summary_counts_both_sides(app: App) {
    app.account("one", 100).await;
    app.account("two", 0).await;
    // Accounts with the names of the outside are accounts like any other.
    app.account("card", 5).await;
    app.account("bank", 0).await;
    app.webhook(json!({ "transaction_id": "t", "account": "bank", "amount": 9 })).await;
    app.post("/charges", "c", json!({ "account": "two", "amount": 1, "currency": "EUR" })).await;
    app.post("/transfers", "t", json!({ "from": "one", "to": "card", "amount": 50 })).await;
    assert_eq!(app.summary().await, json!({ "charges": 3, "transfers": 1, "entries": 10, "sum": 0 }));
    assert_eq!((app.balance("card").await, app.balance("bank").await), (55, 9));
    app.books_are_right().await;
}

async fn what_needs_no_token_answers_without_one(app: App) {
    let health = App::send(app.request(Method::GET, "/healthz")).await;
    health.is(200, &json!({ "status": "ok" }));
    let policy = App::send(app.request(Method::GET, "/idempotency-policy")).await;
    assert_eq!(policy.status, 200);
    let text = String::from_utf8(policy.body).unwrap();
    assert!(semel_payments::KEYED.iter().all(|route| text.contains(route)), "{text}");
}

async fn an_unknown_path_or_method_is_a_problem(app: App) {
    app.get("/nowhere").await.is_problem(404, "not-found");
    let delete = App::send(app.request(Method::DELETE, "/accounts/cash").bearer_auth("demo-a1")).await;
    delete.is_problem(405, "method-not-allowed");
    let allowed = delete.headers["allow"].to_str().unwrap();
    assert!(allowed.contains("PUT") && allowed.contains("GET"), "{allowed}");
    app.get("/charges").await.is_problem(405, "method-not-allowed");
}

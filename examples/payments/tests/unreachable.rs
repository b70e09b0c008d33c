//! If the store cannot be asked, nothing runs (I10).
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::App;
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn a_database_that_does_not_answer_is_503_everywhere() {
    let app = App::on_unreachable_postgres().await;
    let charge = json!({ "account": "cash", "amount": 1, "currency": "EUR" });
    for answer in [
        app.post("/charges", "k", charge.clone()).await,
        app.post("/transfers", "k", json!({ "from": "a", "to": "b", "amount": 1 })).await,
        app.put("/charges/c", charge).await,
        app.put("/accounts/cash", json!({ "currency": "EUR" })).await,
        app.webhook(json!({ "transaction_id": "t", "account": "cash", "amount": 1 })).await,
        app.get("/accounts/cash").await,
        app.get("/ledger/summary").await,
        app.put("/stock/tea", json!({ "quantity": 1 })).await,
        app.get("/stock/tea").await,
        app.get("/orders/or_1").await,
    ] {
        answer.is_problem(503, "store-unavailable");
        assert_eq!(answer.headers["retry-after"], "1");
    }
    App::send(app.request(Method::GET, "/healthz")).await.is_problem(503, "store-unavailable");
    // What needs no store still answers, and who may ask is settled first.
    assert_eq!(App::send(app.request(Method::GET, "/idempotency-policy")).await.status, 200);
    app.get_as("revoked", "/accounts/cash").await.is_problem(401, "unauthorized");
}

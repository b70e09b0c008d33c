//! What became of a request, asked by its key.

use serde_json::json;

use crate::common::Running;

#[tokio::test]
async fn a_result_is_found_by_the_key_of_its_request() {
    let provider = Running::start().await;
    let charge = provider.charge("k").await.json();
    assert_eq!(provider.look_up("k").await.json(), json!({ "state": "done", "result": charge }));
    let found = provider.get("/operations?key=k&kind=charge").await;
    assert_eq!(found.json()["result"], charge);
    provider.get("/operations?key=k&kind=mail").await.is_refusal(404, "not_found");
    provider.look_up("other").await.is_refusal(404, "not_found");
    provider.get("/operations").await.is_refusal(400, "invalid_request");
    provider.get("/operations?key=k&kind=gift").await.is_refusal(400, "invalid_request");
}

#[tokio::test]
async fn a_declined_card_is_found_as_failed() {
    let provider = Running::start().await;
    let body = json!({ "amount": 1200, "currency": "EUR", "card": "tok_declined" });
    assert_eq!(provider.post("/charges", "k", &body).await.status, 402);
    assert_eq!(provider.look_up("k").await.json(), json!({ "state": "failed", "reason": "card_declined" }));
}

#[tokio::test]
async fn what_goes_on_after_the_caller_hung_up_is_under_way_and_then_done() {
    let provider = Running::start().await;
    provider.fault(json!({ "type": "slow", "ms": 3000 })).await;
    let api = (*provider).clone();
    let waiting = tokio::spawn(async move { api.try_charge("k").await });
    provider.until("k", "under_way").await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    provider.until("k", "done").await;
    assert!(provider.charge("k").await.replayed);
    assert_eq!(provider.executions().await, 1);
}

#[tokio::test]
async fn neither_a_window_that_is_over_nor_ignored_keys_hide_a_result() {
    let provider = Running::start().await;
    provider.set(json!({ "keys": { "window_ms": 1000 } })).await;
    let expired = provider.charge("expired").await.json();
    provider.clock.advance_ms(2000);
    assert_eq!(provider.look_up("expired").await.json()["result"], expired);
    provider.set(json!({ "keys": "off" })).await;
    let ignored = provider.charge("ignored").await.json();
    assert_eq!(provider.look_up("ignored").await.json()["result"], ignored);
    // Of several, the first is told.
    provider.charge("ignored").await.executed(201);
    assert_eq!(provider.look_up("ignored").await.json()["result"], ignored);
}

#[tokio::test]
async fn a_provider_may_look_nothing_up() {
    let provider = Running::start().await;
    provider.charge("k").await.executed(201);
    provider.set(json!({ "look_up": false })).await;
    provider.look_up("k").await.is_refusal(501, "no_look_up");
    provider.look_up("other").await.is_refusal(501, "no_look_up");
    provider.set(json!({ "look_up": true })).await;
    assert_eq!(provider.look_up("k").await.status, 200);
}

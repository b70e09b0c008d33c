//! What a key does, by how keys are treated.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::json;

use crate::common::{Running, new_charge};

#[tokio::test]
async fn a_repeat_gets_the_stored_answer_byte_for_byte() {
    let provider = Running::start().await;
    let first = provider.charge("k").await;
    first.executed(201);
    for spelling in ["k", "\"k\""] {
        provider.charge(spelling).await.replays(&first);
    }
    // The same members in another order are the same body.
    let turned = r#"{ "currency": "EUR", "card": "tok_visa", "amount": 1200 }"#.to_owned();
    provider.send_text(Method::POST, "/charges", Some("k"), Some(turned)).await.unwrap().replays(&first);
    assert_eq!(provider.executions().await, 1);
}

#[tokio::test]
async fn a_request_without_a_key_always_executes() {
    let provider = Running::start().await;
    for _ in 0..2 {
        let answer = provider.send(Method::POST, "/charges", None, Some(&new_charge())).await.unwrap();
        answer.executed(201);
    }
    let ledger = provider.ledger().await;
    assert!(ledger.len() == 2 && ledger.iter().all(|execution| execution["key"].is_null()), "{ledger:?}");
}

#[tokio::test]
async fn a_key_with_another_body_is_refused() {
    let provider = Running::start().await;
    let first = provider.charge("k").await;
    let mut other = new_charge();
    other["amount"] = json!(1300);
    provider.post("/charges", "k", &other).await.is_refusal(422, "key_reused");
    provider.charge("k").await.replays(&first);
    assert_eq!(provider.executions().await, 1);
}

#[tokio::test]
async fn charges_and_refunds_share_their_keys_and_mails_have_others() {
    let provider = Running::start().await;
    let charge = provider.charge("k").await.executed(201);
    provider.post("/refunds", "k", &json!({ "charge": charge })).await.is_refusal(422, "key_reused");
    let mail = json!({ "to": "a@example.com", "subject": "s", "text": "t" });
    provider.post("/mails", "k", &mail).await.executed(202);
    assert_eq!(provider.executions().await, 2);
}

#[tokio::test]
async fn a_key_that_is_none_is_refused() {
    let provider = Running::start().await;
    for key in ["\"\"", "\"k", "a b", &"x".repeat(256)] {
        provider.charge(key).await.is_refusal(400, "invalid_request");
    }
    assert_eq!(provider.executions().await, 0);
}

#[tokio::test]
async fn a_key_is_in_use_while_the_first_request_is_under_way() {
    let provider = Running::start().await;
    provider.fault(json!({ "type": "slow", "ms": 600_000 })).await;
    let api = (*provider).clone();
    let waiting = tokio::spawn(async move { api.try_charge("k").await });
    provider.until("k", "under_way").await;
    provider.charge("k").await.is_refusal(409, "key_in_use");
    provider.charge("other").await.executed(201);
    assert_eq!(provider.executions().await, 1);

    // What is stopped while it is under way was never executed, and whoever waited learns nothing.
    let provider = provider.restart().await;
    assert!(waiting.await.unwrap().is_err());
    assert_eq!(provider.look_up("k").await.status, 404);
    provider.charge("k").await.executed(201);
}

#[tokio::test]
async fn keys_that_are_off_are_not_in_use_either() {
    let provider = Running::start().await;
    provider.set(json!({ "keys": "off" })).await;
    provider.fault(json!({ "type": "slow", "ms": 600_000 })).await;
    let api = (*provider).clone();
    let waiting = tokio::spawn(async move { api.try_charge("k").await });
    provider.until("k", "under_way").await;
    provider.charge("k").await.executed(201);
    provider.until("k", "done").await;
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_at_once_execute_once() {
    let provider = Running::start().await;
    for round in 0..10 {
        let key = format!("k-{round}");
        let mut racing = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (api, key) = ((*provider).clone(), key.clone());
            racing.spawn(async move { api.charge(&key).await });
        }
        let answers = racing.join_all().await;
        let (executed, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
        refused.iter().for_each(|answer| answer.is_refusal(409, "key_in_use"));
        assert_eq!(executed.iter().filter(|answer| !answer.replayed).count(), 1, "{answers:?}");
        assert_eq!(executed.iter().map(|answer| &answer.body).collect::<HashSet<_>>().len(), 1, "{answers:?}");
        assert_eq!(provider.executions().await, round + 1);
    }
}

#[tokio::test]
async fn keys_that_are_off_make_two() {
    let provider = Running::start().await;
    provider.set(json!({ "keys": "off" })).await;
    let first = provider.charge("k").await.executed(201);
    let second = provider.charge("k").await.executed(201);
    assert_ne!(first, second);
    let keys: Vec<_> = provider.ledger().await.iter().map(|execution| execution["key"].clone()).collect();
    assert_eq!(keys, ["k", "k"]);
}

#[tokio::test]
async fn a_window_that_is_over_makes_two() {
    let provider = Running::start().await;
    provider.set(json!({ "keys": { "window_ms": 1000 } })).await;
    let first = provider.charge("k").await;
    provider.clock.advance_ms(999);
    provider.charge("k").await.replays(&first);
    // A repeat does not begin the window anew.
    provider.clock.advance_ms(1);
    let second = provider.charge("k").await;
    assert_ne!(second.executed(201), first.executed(201));
    provider.clock.advance_ms(999);
    provider.charge("k").await.replays(&second);
    assert_eq!(provider.executions().await, 2);
}

#[tokio::test]
async fn a_key_whose_window_is_over_may_come_with_another_body() {
    let provider = Running::start().await;
    provider.set(json!({ "keys": { "window_ms": 1000 } })).await;
    provider.charge("k").await.executed(201);
    provider.clock.advance_ms(1000);
    let mut other = new_charge();
    other["amount"] = json!(1300);
    let second = provider.post("/charges", "k", &other).await;
    second.executed(201);
    provider.post("/charges", "k", &other).await.replays(&second);
    provider.charge("k").await.is_refusal(422, "key_reused");
}

//! Settings are read, changed in part, and refused if they mean nothing.

use reqwest::Method;
use serde_json::json;

use crate::common::Running;

#[tokio::test]
async fn what_is_named_changes_and_the_rest_stays() {
    let provider = Running::start().await;
    assert_eq!(provider.get("/settings").await.json(), json!({ "keys": "on", "look_up": true }));
    assert_eq!(provider.set(json!({ "look_up": false })).await, json!({ "keys": "on", "look_up": false }));
    let window = json!({ "keys": { "window_ms": 5 }, "look_up": false });
    assert_eq!(provider.set(json!({ "keys": { "window_ms": 5 } })).await, window);
    assert_eq!(provider.get("/settings").await.json(), window);
}

#[tokio::test]
async fn a_setting_that_means_nothing_is_refused_and_changes_nothing() {
    let provider = Running::start().await;
    for refused in [json!({ "keys": "maybe" }), json!({ "keys": { "window_ms": -1 } }), json!({ "key": "off" })] {
        let answer = provider.send(Method::PUT, "/settings", None, Some(&refused)).await.unwrap();
        answer.is_refusal(400, "invalid_request");
    }
    assert_eq!(provider.get("/settings").await.json(), json!({ "keys": "on", "look_up": true }));
}

//! What goes wrong on request, and what was executed nevertheless.

use std::net::SocketAddr;
use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::common::{Answer, Api, PATIENCE, Running, new_charge};

/// What a caller sees of an attempt.
fn seen(attempt: reqwest::Result<Answer>) -> String {
    attempt.map_or_else(|_| "cut".to_owned(), |answer| answer.status.to_string())
}

#[tokio::test]
async fn what_fails_before_executes_nothing_and_leaves_the_key_new() {
    let provider = Running::start().await;
    for (fault, expected) in [("error_before", "500"), ("refuse", "429"), ("cut_before", "cut")] {
        provider.fault(json!({ "type": fault })).await;
        assert_eq!(seen(provider.try_charge("k").await), expected);
        assert_eq!((provider.executions().await, provider.look_up("k").await.status), (0, 404), "{fault}");
    }
    provider.charge("k").await.executed(201);
}

#[tokio::test]
async fn what_fails_after_has_executed_once_and_the_key_keeps_the_success() {
    let provider = Running::start().await;
    for (fault, expected) in [("error_after", "500"), ("cut_after", "cut")] {
        provider.fault(json!({ "type": fault })).await;
        assert_eq!(seen(provider.try_charge(fault).await), expected);
        let again = provider.charge(fault).await;
        assert!(again.status == 201 && again.replayed, "{again:?}");
        let ledger = provider.ledger().await;
        let own: Vec<&Value> = ledger.iter().filter(|execution| execution["key"] == fault).collect();
        assert_eq!((own.len(), &own[0]["result"]), (1, &again.json()), "{ledger:?}");
    }
}

#[tokio::test]
async fn a_sticky_error_is_what_the_key_keeps() {
    let provider = Running::start().await;
    provider.fault(json!({ "type": "error_after", "sticky": true })).await;
    let first = provider.charge("k").await;
    first.is_refusal(500, "internal_error");
    provider.charge("k").await.replays(&first);
    // The ledger knows better, and so does a look-up.
    assert_eq!(provider.executions().await, 1);
    assert_eq!(provider.look_up("k").await.json()["state"], "done");
}

#[tokio::test]
async fn a_repeat_takes_a_fault_too() {
    let provider = Running::start().await;
    provider.charge("k").await.executed(201);
    provider.fault(json!({ "type": "cut_after" })).await;
    provider.fault(json!({ "type": "error_after", "sticky": true })).await;
    assert_eq!(seen(provider.try_charge("k").await), "cut");
    assert_eq!(seen(provider.try_charge("k").await), "500");
    let again = provider.charge("k").await;
    assert!(again.status == 201 && again.replayed, "what is kept is not changed by a repeat: {again:?}");
    assert_eq!(provider.executions().await, 1);
}

async fn raw_charge(address: SocketAddr, key: &str) -> Vec<u8> {
    let body = new_charge().to_string();
    let request = format!(
        "POST /charges HTTP/1.1\r\nHost: {address}\r\nIdempotency-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    // A connection that is reset is cut as well as one that is closed; one that stays open is neither.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("the connection ends");
    received
}

#[tokio::test]
async fn a_cut_sends_not_one_byte() {
    let provider = Running::start().await;
    assert!(raw_charge(provider.address, "whole").await.starts_with(b"HTTP/1.1 201"));
    for fault in ["cut_before", "cut_after"] {
        provider.fault(json!({ "type": fault })).await;
        assert_eq!(raw_charge(provider.address, fault).await, b"", "{fault}");
    }
    assert_eq!(provider.executions().await, 2);
}

#[tokio::test]
async fn a_slow_request_is_executed_late() {
    let provider = Running::start().await;
    provider.fault(json!({ "type": "slow", "ms": 300 })).await;
    let begun = Instant::now();
    provider.charge("k").await.executed(201);
    assert!(begun.elapsed().as_millis() >= 300);
}

#[tokio::test]
async fn faults_strike_in_order_as_often_as_told_and_only_their_kind() {
    let provider = Running::start().await;
    provider.queue(json!({ "kind": "mail", "fault": { "type": "refuse" } })).await;
    provider.queue(json!({ "kind": "charge", "fault": { "type": "error_before" }, "times": 2, "every": 2 })).await;
    provider.queue(json!({ "kind": "charge", "fault": { "type": "cut_before" }, "times": 2 })).await;
    let mut attempts = Vec::new();
    for attempt in 0..8 {
        attempts.push(seen(provider.try_charge(&format!("k-{attempt}")).await));
    }
    assert_eq!(attempts, ["201", "500", "201", "500", "cut", "cut", "201", "201"]);
    let mail = json!({ "to": "a@example.com", "subject": "s", "text": "t" });
    assert_eq!(provider.post("/mails", "k", &mail).await.status, 429);
    assert_eq!(provider.post("/mails", "k", &mail).await.status, 202);
}

#[tokio::test]
async fn what_is_malformed_takes_no_fault() {
    let provider = Running::start().await;
    provider.fault(json!({ "type": "refuse" })).await;
    provider.post("/charges", "k", &json!({})).await.is_refusal(400, "invalid_request");
    assert_eq!(provider.charge("k").await.status, 429);
}

#[tokio::test]
async fn a_fault_that_cannot_be_is_refused() {
    let provider = Running::start().await;
    let refused = [
        json!({ "kind": "charge", "fault": { "type": "explode" } }),
        json!({ "kind": "charge", "fault": { "type": "slow" } }),
        json!({ "kind": "charge", "fault": { "type": "slow", "ms": 600_001 } }),
        json!({ "kind": "charge", "fault": { "type": "refuse" }, "times": 0 }),
        json!({ "kind": "charge", "fault": { "type": "refuse" }, "every": 0 }),
        json!({ "kind": "mail", "fault": { "type": "webhook_twice" } }),
        json!({ "kind": "charge", "fault": { "type": "webhook_twice", "url": "http://example.com/" } }),
        json!({ "kind": "gift", "fault": { "type": "refuse" } }),
    ];
    for new in refused {
        let answer = provider.send(Method::POST, "/faults", None, Some(&new)).await.unwrap();
        answer.is_refusal(400, "invalid_request");
    }
    for percent in [json!({ "refuse": 60, "cut_after": 41 }), json!({ "explode": 1 })] {
        let dice = json!({ "kind": "charge", "seed": 1, "percent": percent });
        let answer = provider.send(Method::POST, "/faults/random", None, Some(&dice)).await.unwrap();
        answer.is_refusal(400, "invalid_request");
    }
    provider.charge("k").await.executed(201);
}

/// Chooses faults at random for three of four charges.
pub(crate) async fn choose(api: &Api, seed: u64) {
    let percent = json!({ "error_after": 25, "cut_after": 25, "refuse": 25 });
    let dice = json!({ "kind": "charge", "seed": seed, "percent": percent });
    assert_eq!(api.send(Method::POST, "/faults/random", None, Some(&dice)).await.unwrap().status, 201);
}

/// What comes of charges with these numbers, one after the other.
pub(crate) async fn charges(api: &Api, numbers: std::ops::Range<u32>) -> Vec<String> {
    let mut attempts = Vec::new();
    for number in numbers {
        attempts.push(seen(api.try_charge(&format!("k-{number}")).await));
    }
    attempts
}

#[tokio::test]
async fn random_faults_follow_from_the_seed() {
    let (one, same, other) = (Running::start().await, Running::start().await, Running::start().await);
    for (provider, seed) in [(&one, 7), (&same, 7), (&other, 8)] {
        choose(provider, seed).await;
    }
    let attempts = charges(&one, 0..24).await;
    assert_eq!(attempts, charges(&same, 0..24).await);
    assert_ne!(attempts, charges(&other, 0..24).await);
    for expected in ["201", "429", "500", "cut"] {
        assert!(attempts.iter().any(|attempt| attempt == expected), "{expected} is not in {attempts:?}");
    }
    let refused = attempts.iter().filter(|attempt| *attempt == "429").count();
    assert_eq!(one.executions().await, attempts.len() - refused);
}

#[tokio::test]
async fn what_is_queued_comes_before_what_is_thrown() {
    let provider = Running::start().await;
    let dice = json!({ "kind": "charge", "seed": 1, "percent": { "cut_before": 100 } });
    assert_eq!(provider.send(Method::POST, "/faults/random", None, Some(&dice)).await.unwrap().status, 201);
    provider.fault(json!({ "type": "refuse" })).await;
    assert_eq!(charges(&provider, 0..3).await, ["429", "cut", "cut"]);
}

#[tokio::test]
async fn faults_that_are_cleared_do_not_strike() {
    let provider = Running::start().await;
    provider.fault(json!({ "type": "refuse" })).await;
    let dice = json!({ "kind": "charge", "seed": 1, "percent": { "refuse": 100 } });
    assert_eq!(provider.send(Method::POST, "/faults/random", None, Some(&dice)).await.unwrap().status, 201);
    assert_eq!(provider.charge("k").await.status, 429);
    assert_eq!(provider.send(Method::DELETE, "/faults", None, None).await.unwrap().status, 204);
    provider.charge("k").await.executed(201);
}

//! Whose key it is.

use semel_testkit::counts::rounds;
use serde_json::json;

use crate::world::{AMOUNT, Database, Sandbox, charge, client};

#[tokio::test(flavor = "multi_thread")]
async fn tenants_never_meet_and_tokens_rotate_on_postgres() {
    tenants_never_meet_and_tokens_rotate(&Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_never_meet_and_tokens_rotate_on_sqlite() {
    tenants_never_meet_and_tokens_rotate(&Database::sqlite()).await;
}

async fn tenants_never_meet_and_tokens_rotate(database: &Database) {
    let tokens = [("SEMEL_SANDBOX_TOKENS", "old:a,new:a,other:b")];
    let mut sandbox = Sandbox::start(&database.url(), &tokens).await;
    let client = client();
    for token in ["old", "other"] {
        let account = client.put(sandbox.service.url("/accounts/alice")).bearer_auth(token);
        assert_eq!(account.json(&json!({"currency": "EUR"})).send().await.unwrap().status(), 201);
    }
    let url = sandbox.service.url("/charges");
    let first = charge(&client, &url, "old", "k", "alice").await.unwrap();
    let others = charge(&client, &url, "other", "k", "alice").await.unwrap();
    assert_eq!((first.status, others.status), (201, 201));
    assert!(!others.replayed && others.body != first.body, "the same key of another tenant is another key");
    let rotated = charge(&client, &url, "new", "k", "alice").await.unwrap();
    assert!(rotated.replayed && rotated.body == first.body, "another token of the same tenant replays");
    sandbox.service.terminate().await;

    let revoked = [("SEMEL_SANDBOX_TOKENS", "new:a,other:b")];
    let sandbox = Sandbox::start(&database.url(), &revoked).await;
    let url = sandbox.service.url("/charges");
    let refused = charge(&client, &url, "old", "k", "alice").await.unwrap();
    assert_eq!((refused.status, refused.replayed), (401, false), "a revoked token never sees the replay");
    assert!(charge(&client, &url, "new", "k", "alice").await.unwrap().replayed);
    let second = charge(&client, &url, "new", "another", "alice").await.unwrap();
    assert!(!second.replayed && second.body != first.body, "the same body under another key is another charge");
    let account = client.get(sandbox.service.url("/accounts/alice")).bearer_auth("new");
    let account: serde_json::Value = account.send().await.unwrap().json().await.unwrap();
    assert_eq!(account["balance"], 2 * AMOUNT);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_webhooks_with_one_id_credit_once_on_postgres() {
    webhooks_credit_once(&Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_webhooks_with_one_id_credit_once_on_sqlite() {
    webhooks_credit_once(&Database::sqlite()).await;
}

async fn webhooks_credit_once(database: &Database) {
    let sandbox = Sandbox::start(&database.url(), &[]).await;
    sandbox.open_account("alice").await;
    for round in 1..=rounds(10, 100) {
        let mut deliveries = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let body = json!({"transaction_id": format!("bank-{round}"), "account": "alice", "amount": AMOUNT});
            let request = sandbox.client.post(sandbox.service.url("/webhooks/bank")).bearer_auth("demo-a1").json(&body);
            deliveries.spawn(async move { request.send().await.unwrap().status().as_u16() });
        }
        assert_eq!(deliveries.join_all().await, vec![200; 16]);
        assert_eq!(sandbox.balance("alice").await, u64::from(round) * AMOUNT);
    }
}

//! A running sandbox that takes orders.

use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder};
use semel_testkit::poll::PATIENCE;
use semel_testkit::process::Service;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::world::Answer;

/// What one order takes out of the stock.
pub(crate) const PIECES: u64 = 2;

/// What one order costs.
pub(crate) const PRICE: u64 = 1000;

/// What the referrer gets of it.
pub(crate) const REFERRAL: u64 = PRICE / 20;

/// How soon a client that is told to come back comes back: sooner than it should.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// A sandbox that takes orders. Clones of its client may outlive it.
pub(crate) struct Shop {
    pub(crate) service: Service,
    pub(crate) client: Client,
}

/// An order that can be sent again and again.
#[derive(Debug, Clone)]
pub(crate) struct Placing {
    client: Client,
    url: String,
    key: String,
    body: Value,
}

impl Placing {
    /// The same order with another card.
    pub(crate) fn with_card(mut self, card: &str) -> Placing {
        self.body["card"] = card.into();
        self
    }

    /// The same order of somebody whom nobody referred.
    pub(crate) fn unreferred(mut self) -> Placing {
        self.body["referrer"] = Value::Null;
        self
    }

    /// Sends the order once.
    pub(crate) async fn once(&self) -> reqwest::Result<Answer> {
        let request = self.client.post(&self.url).bearer_auth("demo-a1");
        let request = request.header("Idempotency-Key", format!("\"{}\"", self.key));
        let response = request.json(&self.body).send().await?;
        let status = response.status().as_u16();
        let replayed = response.headers().contains_key("idempotent-replayed");
        Ok(Answer { status, replayed, body: response.bytes().await? })
    }

    /// Sends the order until it is answered for good, whatever becomes of connections and of others who send it.
    pub(crate) async fn until_answered(&self) -> Answer {
        let (mut retries, gives_up) = (tokio::time::interval(RETRY_AFTER), Instant::now() + PATIENCE);
        retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            retries.tick().await;
            let answer = self.once().await;
            match answer {
                Ok(answer) if !matches!(answer.status, 409 | 503) => return answer,
                answer => assert!(Instant::now() < gives_up, "the order stayed unanswered: {answer:?}"),
            }
        }
    }
}

impl Shop {
    /// An order of the account `account`, with this key.
    pub(crate) fn placing_for(&self, account: &str, key: &str) -> Placing {
        let body = json!({
            "account": account, "sku": "tea", "quantity": PIECES, "amount": PRICE, "currency": "EUR",
            "card": "tok_visa", "email": "ann@example.com", "referrer": "bob",
        });
        Placing { client: self.client.clone(), url: self.service.url("/orders"), key: key.to_owned(), body }
    }

    /// An order of the account `shop`, with this key.
    pub(crate) fn placing(&self, key: &str) -> Placing {
        self.placing_for("shop", key)
    }

    async fn sent(&self, request: RequestBuilder) -> Value {
        let response = request.bearer_auth("demo-a1").send().await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
        response.json().await.unwrap()
    }

    /// What the sandbox says of a path.
    pub(crate) async fn get(&self, path: &str) -> Value {
        self.sent(self.client.get(self.service.url(path))).await
    }

    /// Sets what a path names.
    pub(crate) async fn put(&self, path: &str, body: Value) -> Value {
        self.sent(self.client.put(self.service.url(path)).json(&body)).await
    }

    /// The bank credits an account.
    pub(crate) async fn credit(&self, account: &str, transaction: &str, amount: u64) {
        let notice = json!({ "transaction_id": transaction, "account": account, "amount": amount });
        self.sent(self.client.post(self.service.url("/webhooks/bank")).json(&notice)).await;
    }

    /// How many pieces are left.
    pub(crate) async fn stock(&self) -> u64 {
        self.get("/stock/tea").await["quantity"].as_u64().unwrap()
    }

    /// What an account has.
    pub(crate) async fn balance(&self, account: &str) -> u64 {
        self.get(&format!("/accounts/{account}")).await["balance"].as_u64().unwrap()
    }
}

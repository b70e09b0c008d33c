//! A client, and what it is told.

use std::net::SocketAddr;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{PATIENCE, new_charge};

/// An answer, read to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub replayed: bool,
    pub body: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Asserts that this is a refusal with this status and code.
    #[track_caller]
    pub fn is_refusal(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.json()["code"].as_str()), (status, Some(code)), "{self:?}");
    }

    /// Asserts that this is a first answer with this status, and returns the id in it.
    #[track_caller]
    pub fn executed(&self, status: u16) -> String {
        assert!(self.status == status && !self.replayed, "{self:?}");
        self.json()["id"].as_str().unwrap().to_owned()
    }

    /// Asserts that this repeats `first` byte for byte.
    #[track_caller]
    pub fn replays(&self, first: &Answer) {
        assert!(self.replayed && !first.replayed, "{self:?} should replay {first:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
    }
}

/// A client of one provider.
#[derive(Debug, Clone)]
pub struct Api {
    pub address: SocketAddr,
    client: Client,
}

impl Api {
    pub fn new(address: SocketAddr) -> Api {
        Api { address, client: Client::builder().no_proxy().timeout(PATIENCE).build().unwrap() }
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> reqwest::Result<Answer> {
        self.send_text(method, path, key, body.map(|body| body.to_string())).await
    }

    /// Sends a body as it is written.
    pub async fn send_text(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<String>,
    ) -> reqwest::Result<Answer> {
        let mut request = self.client.request(method, format!("http://{}{path}", self.address));
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        let response = request.send().await?;
        let replayed = response.headers().get("idempotent-replayed").is_some_and(|value| value == "true");
        Ok(Answer { status: response.status().as_u16(), replayed, body: response.text().await? })
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None, None).await.unwrap()
    }

    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, Some(key), Some(body)).await.unwrap()
    }

    pub async fn try_charge(&self, key: &str) -> reqwest::Result<Answer> {
        self.send(Method::POST, "/charges", Some(key), Some(&new_charge())).await
    }

    pub async fn charge(&self, key: &str) -> Answer {
        self.try_charge(key).await.unwrap()
    }

    /// Queues one fault for one charge.
    pub async fn fault(&self, fault: Value) {
        self.queue(json!({ "kind": "charge", "fault": fault })).await;
    }

    pub async fn queue(&self, new: Value) {
        let answer = self.send(Method::POST, "/faults", None, Some(&new)).await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    pub async fn set(&self, settings: Value) -> Value {
        let answer = self.send(Method::PUT, "/settings", None, Some(&settings)).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub async fn ledger(&self) -> Vec<Value> {
        self.get("/ledger").await.json().as_array().unwrap().clone()
    }

    pub async fn executions(&self) -> usize {
        self.ledger().await.len()
    }

    pub async fn look_up(&self, key: &str) -> Answer {
        self.get(&format!("/operations?key={key}")).await
    }

    /// Looks up until the key is in this state.
    pub async fn until(&self, key: &str, state: &str) {
        let asking = async { while self.look_up(key).await.json()["state"] != state {} };
        timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{key} did not become {state}"));
    }
}

//! Somebody else's API in a process of its own, and what it witnesses.

use std::collections::BTreeMap;

use reqwest::Client;
use semel_testkit::process::Service;
use semel_testkit::provider;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::client;

/// The card processor and mailer.
pub(crate) struct Outside {
    service: Service,
    client: Client,
    // Dropped last: the ledger is in it.
    _folder: TempDir,
}

impl Outside {
    /// Starts one with a new ledger.
    pub(crate) async fn start(flags: &[&str]) -> Outside {
        let folder = tempfile::tempdir().unwrap();
        let service = provider::start(&folder.path().join("ledger.db"), flags).await;
        Outside { service, client: client(), _folder: folder }
    }

    pub(crate) fn url(&self) -> String {
        self.service.url("")
    }

    async fn get(&self, path: &str) -> Value {
        self.client.get(self.service.url(path)).send().await.unwrap().json().await.unwrap()
    }

    /// What was executed of one kind, the refused left out.
    pub(crate) async fn executed(&self, kind: &str) -> Vec<Value> {
        let ledger = self.get("/ledger").await;
        let done = |entry: &&Value| entry["kind"] == kind && entry["outcome"] == "succeeded";
        ledger.as_array().unwrap().iter().filter(done).cloned().collect()
    }

    /// How many executions of one kind there were.
    pub(crate) async fn count(&self, kind: &str) -> usize {
        usize::try_from(self.get("/ledger/summary").await["executions"][kind].as_u64().unwrap()).unwrap()
    }

    /// How often which order was charged for or written to.
    pub(crate) async fn by_reference(&self, kind: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for execution in self.executed(kind).await {
            *counts.entry(execution["reference"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        counts
    }

    /// Keys under which more than one thing was executed.
    pub(crate) async fn repeated_keys(&self) -> u64 {
        self.get("/ledger/summary").await["repeated_keys"].as_u64().unwrap()
    }

    /// How many charges were declined.
    pub(crate) async fn declined(&self) -> u64 {
        self.get("/ledger/summary").await["declined"].as_u64().unwrap()
    }

    /// How many requests arrived at this path, executed or not.
    pub(crate) async fn received(&self, path: &str) -> u64 {
        self.get("/requests").await["by_path"][path].as_u64().unwrap_or(0)
    }

    /// How many requests arrived with this key, executed or not.
    pub(crate) async fn received_under(&self, key: &str) -> u64 {
        self.get("/requests").await["by_key"][key].as_u64().unwrap_or(0)
    }

    /// How many different keys arrived.
    pub(crate) async fn keys(&self) -> usize {
        self.get("/requests").await["by_key"].as_object().unwrap().len()
    }

    /// How often what became of a key was asked.
    pub(crate) async fn look_ups(&self) -> u64 {
        self.get("/requests").await["look_ups"]["total"].as_u64().unwrap()
    }

    /// From now on requests of this kind go wrong at random, as the seed says.
    pub(crate) async fn fail_at_random(&self, kind: &str, seed: u64, percent: &Value) {
        let dice = json!({ "kind": kind, "seed": seed, "percent": percent, "slow_ms": 20 });
        let request = self.client.post(self.service.url("/faults/random")).json(&dice);
        assert_eq!(request.send().await.unwrap().status(), 201);
    }
}
